//go:build !linux && !darwin

package sys

import "errors"

// exchange fails: the system cannot swap two files in one step.
func exchange(string, string) error { return errors.ErrUnsupported }
