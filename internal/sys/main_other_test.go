//go:build !linux && !windows

package sys

var systemPrograms map[string]func() error
