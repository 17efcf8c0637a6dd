//go:build !linux && !darwin

package sys

import "errors"

// exchange swaps two files in one step, which is not possible here.
func exchange(string, string) error { return errors.ErrUnsupported }
