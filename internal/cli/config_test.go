package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Pollux must end while the user's editor runs, since the terminal was closed. The editor can
// save first.
func TestConfigEditLetsTheEditorSave(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the editor is a script of sh; Windows has no SIGHUP")
	}
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	ready, saved, script := filepath.Join(dir, "ready"), filepath.Join(dir, "saved"), filepath.Join(dir, "editor")
	text := "#!/bin/sh\ntrap 'touch " + saved + "; exit 1' HUP\ntouch " + ready + "\nwhile :; do sleep 0.01; done\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", script)
	ctx, end := context.WithCancel(t.Context())
	edit := newConfigEdit(IO{In: nil, Out: io.Discard, Err: io.Discard})
	edit.SetArgs(nil)
	edit.SetOut(io.Discard)
	edit.SetErr(io.Discard)
	go func() {
		for _, err := os.Stat(ready); err != nil && ctx.Err() == nil; _, err = os.Stat(ready) {
			time.Sleep(time.Millisecond)
		}
		end()
	}()
	edit.ExecuteContext(ctx)
	if _, err := os.Stat(saved); err != nil {
		t.Error("the editor was killed: ", err)
	}
}
