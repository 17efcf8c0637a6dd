package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A real editor passes the conformance checks. Its remote control plays the
// user.
func TestConformanceOfNeovim(t *testing.T) {
	w := newWorld(t, nil)
	w.env = append([]string{"PATH=" + filepath.Dir(polluxBinary) + ":/usr/local/bin:/usr/bin:/bin", "SOCK=" + filepath.Join(w.home, "nv")}, w.env[:3]...)
	w.env = append(w.env, "TERM=xterm-256color", "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=10")
	w.pollux("install", "nvim", "--yes")
	remote := func(commands string) string {
		return `nvim --server $SOCK --remote-expr "execute([` + commands + `])"`
	}
	ready := `until nvim --server $SOCK --remote-expr "pollux#diff#Ready()" 2>&1 | grep -q .; do sleep 0.1; done`
	decide := func(what string) string {
		return remote(`'Pollux next'`) + "; " + ready + "; " + remote(`'Pollux `+what+`'`)
	}
	cmd := exec.Command(polluxBinary, "conformance", "--verbose",
		"--open", remote(`'edit $FILE'`),
		"--edit", remote(`'Pollux next','%d','0r $TEXT','\$d'`),
		"--accept", decide("accept"),
		"--reject", decide("reject"),
		"--", "script", "-qfc", "stty rows 40 cols 120; nvim --listen $SOCK one.txt", "/dev/null")
	cmd.Env, cmd.Dir = w.env, w.project
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Neovim: 42 passed, 0 failed, 0 warnings, 1 not checked") {
		t.Errorf("%v\n%s", err, out)
	}
}
