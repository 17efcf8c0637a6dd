package shell

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// The texts reach notify-send without markup, and only where the user sees them.
func TestNotify(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("notify-send is a command of Linux")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nprintf '%s|' \"$@\" >" + filepath.Join(dir, "shown") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "notify-send"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for _, tt := range []struct {
		name, display, ssh, want string
	}{
		{"a desktop", ":1", "", "--app-name=Pollux|--|Pollux|-x $(y) &lt;b&gt;|"},
		{"none", "", "", ""},
		{"at the other end of ssh", ":1", "1.2.3.4 5 6.7.8.9 22", ""},
	} {
		os.Remove(filepath.Join(dir, "shown"))
		t.Setenv("DISPLAY", tt.display)
		t.Setenv("WAYLAND_DISPLAY", "")
		t.Setenv("SSH_CONNECTION", tt.ssh)
		Notify(t.Context(), "Pollux", "-x $(y) <b>")
		if got, _ := os.ReadFile(filepath.Join(dir, "shown")); string(got) != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
