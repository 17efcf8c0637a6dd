//go:build !linux

package systest

import "testing"

// AsUser skips the test: it needs Linux.
func AsUser(t testing.TB, _ int, _ func() error) error {
	t.Skip("needs Linux")
	return nil
}
