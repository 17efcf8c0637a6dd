//go:build !darwin

package disk

import "errors"

func diskPath(string) (string, error) { return "", errors.ErrUnsupported }
