package shared

import "testing"

// A pool that ended removed the socket of its successor, whose file had the same number:
// its listener was closed twice.
func TestClosedTwice(t *testing.T) {
	path := socket(t)
	first, err := Listen(t.Context(), path, testHello)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, err := Listen(t.Context(), path, testHello)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if !exists(path) {
		t.Error("the socket of the second pool is gone")
	}
}
