//go:build !darwin

package sys

import "errors"

func diskPath(string) (string, error) { return "", errors.ErrUnsupported }
