//go:build !linux && !windows

package proc

var systemPrograms map[string]func() error
