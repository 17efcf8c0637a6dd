package shared

import (
	"path/filepath"
	"testing"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
)

// A pool that ended removed the socket of its successor, whose file had the same number:
// its listener was closed twice.
func TestClosedTwice(t *testing.T) {
	path := socket(t)
	first, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if !disk.Exists(path) {
		t.Error("the socket of the second pool is gone")
	}
}

// Bridges use one pool if they have the same build and the same rights. A bridge without
// raised rights used the pool of an elevated one on Windows.
func TestSocketName(t *testing.T) {
	type pool struct {
		build    string
		elevated bool
	}
	names := make(map[string]pool)
	for _, p := range []pool{{"1", false}, {"1", true}, {"2", false}, {"2", true}} {
		name := socketName(p.build, p.elevated)
		if other, ok := names[name]; ok {
			t.Errorf("%v and %v share %s", other, p, name)
		}
		names[name] = p
		if again := socketName(p.build, p.elevated); again != name {
			t.Errorf("%v has %s and %s", p, name, again)
		}
		if ok, _ := filepath.Match(socketPattern, name); !ok {
			t.Errorf("nobody finds %s", name)
		}
	}
}

// A pool that was killed leaves its socket. No process serves it, which does not count as a connection that ended.
func TestEndedAfterAKill(t *testing.T) {
	path := socket(t)
	l, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sock.Dial(t.Context(), path); err == nil || !Ended(err) {
		t.Errorf("the error is %v", err)
	}
}
