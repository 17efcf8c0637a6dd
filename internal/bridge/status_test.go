package bridge

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

// The socket of a killed bridge is removed, and no other file.
func TestKilledBridge(t *testing.T) {
	dir := systest.ShortDir(t)
	t.Setenv("POLLUX_RUNTIME_DIR", dir)
	killed, other := filepath.Join(dir, "bridge-1.status"), filepath.Join(dir, "bridge-x.json")
	l, err := sock.Listen(killed)
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	systest.WriteFile(t, other, "")
	for _, path := range []string{killed, other} {
		systest.SetTime(t, path, time.Now().Add(-time.Minute))
	}
	all, err := Bridges(t.Context())
	if err != nil || len(all) != 0 || disk.Exists(killed) || !disk.Exists(other) {
		t.Errorf("got %+v, %v; the socket is still there: %v", all, err, disk.Exists(killed))
	}
}

func TestStatusForPeople(t *testing.T) {
	systest.SetHome(t, filepath.FromSlash("/home/me"))
	own := []agent.Worker{{PID: 21, Dir: "/srv"}}
	for want, s := range map[string]Status{
		"  agent process 21 in /srv, ":                            {Workers: own},
		"  its agents belong to the pool with process 7\n":        {Shared: true, Pool: 7},
		"  not connected to the pool: its next call connects\n":   {Shared: true},
		"conversations: 0\n  agent process 21 in /srv, idle for ": {Shared: true, Workers: own},
	} {
		s.Dir = filepath.FromSlash("/home/me/app")
		if got := s.String(); !strings.HasPrefix(got, "bridge in "+filepath.FromSlash("~/app")+"\n  process 0, up ") || !strings.Contains(got, want) {
			t.Errorf("%+v is\n%swant %q", s, got, want)
		}
	}
}
