package ide

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

// newConfig returns the configuration of a companion with its own project.
func newConfig(t *testing.T) Config {
	t.Helper()
	root := systest.Dir(t)
	t.Setenv("POLLUX_RUNTIME_DIR", systest.ShortDir(t))
	for name, set := range map[string]func(testing.TB, string){"TMPD": systest.SetTemp, "HOME": systest.SetHome} {
		dir := filepath.Join(root, name)
		systest.MakeDir(t, dir)
		set(t, dir)
	}
	return Config{
		Version: "test", Editor: editor.Info{Name: "test", DisplayName: "Test"}, Roots: []string{root},
		Journal: journal.New(filepath.Join(root, "journal")), Connect: []string{"pollux", "connect"},
	}
}

func newHost(t *testing.T, cfg Config, protocols []Protocol) *Host {
	t.Helper()
	h, err := start(cfg, protocols)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// An asked agent behind the wall reaches the companion's socket. It could accept its own change
// there, and the companion, which is outside of the wall, would write the file.
func TestSocketServesNoAskedAgent(t *testing.T) {
	if path := os.Getenv("POLLUX_TEST_SOCKET"); path != "" { // behind the wall
		conn, err := sock.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		c := editor.NewClient(conn, editor.Handler{})
		defer c.Close()
		_, err = c.Initialize(t.Context(), editor.InitializeParams{})
		fmt.Println("initialized:", err)
		return
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	h := newHost(t, newConfig(t), protocols)
	for want, argv := range map[string][]string{"initialized: <nil>": nil, "no_new_privs": {setpriv, "--no-new-privs"}} {
		argv = append(argv, os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "POLLUX_TEST_SOCKET="+h.socket.path)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s; want %q", argv, err, out, want)
		}
	}
}

// The known variables are exactly those that a companion sets.
func TestEnvNames(t *testing.T) {
	h := newHost(t, newConfig(t), protocols)
	env, known := h.Env(), EnvNames()
	for name := range env {
		if !slices.Contains(known, name) {
			t.Errorf("a companion sets %s, which is not among %v", name, known)
		}
	}
	for _, name := range known {
		if env[name] == "" && name != "REMOTE_CONTAINERS" { // set in a container only
			t.Errorf("a companion does not set %s", name)
		}
	}
}
