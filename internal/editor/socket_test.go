package editor

import (
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"pollux/internal/sys/systest"
)

// A new socket refuses connections between bind and listen. A companion was never found again
// if another process looked for companions at that moment.
func TestSocketsKeepsANewOne(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("sockets are regular files there")
	}
	dir := systest.ShortDir(t)
	t.Setenv("POLLUX_RUNTIME_DIR", dir)
	path := filepath.Join(dir, "1-2.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if all, err := Sockets(); err != nil || len(all) != 1 || all[0] != path {
		t.Errorf("%v, %v", all, err)
	}
	old := time.Now().Add(-time.Minute)
	systest.SetTime(t, path, old)
	if all, err := Sockets(); err != nil || len(all) != 0 {
		t.Errorf("the socket of a killed companion: %v, %v", all, err)
	}
}
