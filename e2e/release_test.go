package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"pollux/internal/sys/systest"
)

// nodePlatform returns the name of this system in Node.
func nodePlatform() string {
	arch := nodeArch()
	return runtime.GOOS + "-" + arch
}

// The npm package, packed with only this system's binary, installs from its
// tarball without a network, whether scripts may run or not, and runs that
// binary.
func TestNpmPackage(t *testing.T) {
	w := newWorld(t, nil)
	out := filepath.Join(w.home, "out")
	run := func(argv ...string) string {
		t.Helper()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Dir = append(w.env, "npm_config_update_notifier=false"), w.home
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, text)
		}
		return string(text)
	}
	other := filepath.Join(w.home, "other")
	w.writeHome("other", "the binary of another system")
	run(filepath.Join(repo, "release", "npm", "pack.sh"), "1.2.3", out, nodePlatform()+"="+polluxBinary, "other-x64="+other)
	tarball := filepath.Join(out, "pollux-gemini-1.2.3.tgz")
	for name, args := range map[string][]string{"scripts": nil, "no scripts": {"--ignore-scripts"}} {
		t.Run(name, func(t *testing.T) {
			prefix := filepath.Join(w.home, strings.ReplaceAll(name, " ", "-"))
			run(append([]string{"npm", "install", "--global", "--offline", "--no-audit", "--no-fund", "--prefix", prefix, tarball}, args...)...)
			pollux := filepath.Join(prefix, "bin", "pollux")
			if got, want := run(pollux, "--version"), run(polluxBinary, "--version"); got != want {
				t.Errorf("--version prints %s, want %s", got, want)
			}
			linked, err := filepath.EvalSymlinks(pollux)
			if err != nil {
				t.Fatal(err)
			}
			data := systest.ReadFile(t, linked)
			if isBinary := strings.HasPrefix(data, "\x7fELF"); isBinary != (args == nil) {
				t.Errorf("npm links the binary itself: %v", isBinary)
			}
			// The exit code, standard streams and signals are those of the
			// binary.
			cmd := exec.Command(pollux, "nosuch")
			cmd.Env = w.env
			if err := cmd.Run(); cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("unknown command: %v", err)
			}
			ide := exec.Command(pollux, "ide", "--standalone")
			ide.Env, ide.Dir = w.env, w.project
			ide.Stderr = testWriter{t, "pollux ide: "}
			if err := ide.Start(); err != nil {
				t.Fatal(err)
			}
			files := filepath.Join(w.tmp(), "gemini", "ide", "*.json")
			count := func() int { all, _ := filepath.Glob(files); return len(all) }
			waitFor(t, "a companion", func() bool { return count() > 0 })
			ide.Process.Signal(syscall.SIGTERM)
			ide.Wait()
			if n := count(); n > 0 {
				t.Errorf("%d discovery files are left", n)
			}
		})
	}
}

// On Windows, Ctrl-Break and the end of the console killed the binary before it cleaned up:
// they ended the launcher, or it forwarded a signal, which kills there.
func TestNpmLauncherSignals(t *testing.T) {
	for platform, want := range map[string]string{
		"linux": "survives SIGINT,SIGTERM,SIGHUP, sends SIGTERM,SIGHUP",
		"win32": "survives SIGINT,SIGBREAK,SIGHUP, sends ",
	} {
		launcher := filepath.Join(repo, "release", "npm", "pollux.js")
		out, err := exec.Command("node", filepath.Join(repo, "e2e", "testdata", "launcher.cjs"), launcher, platform).CombinedOutput()
		if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != want {
			t.Errorf("%s: it %s (%v), want %s", platform, got, err, want)
		}
	}
}

// The entry for the MCP registry and the npm package have the same name and
// version.
func TestRegistryEntry(t *testing.T) {
	var pkg struct{ Name, Version, MCPName, Description string }
	var entry struct {
		Name, Description, Version string
		Packages                   []struct {
			RegistryType, Identifier, Version string
			Transport                         struct{ Type string }
		}
	}
	for path, v := range map[string]any{"release/npm/package.json": &pkg, "release/server.json": &entry} {
		data, err := os.ReadFile(filepath.Join(repo, path))
		if err == nil {
			err = json.Unmarshal(data, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := entry.Packages[0]
	if entry.Name != pkg.MCPName || p.Identifier != pkg.Name || p.RegistryType != "npm" || p.Transport.Type != "stdio" {
		t.Errorf("the registry entry is %+v, the npm package %+v", entry, pkg)
	}
	if entry.Version != "0.0.0" || p.Version != "0.0.0" || pkg.Version != "0.0.0" {
		t.Error("the file has a version; scripts/release.sh must set it")
	}
	if len(entry.Description) > 100 || strings.Count(entry.Name, "/") != 1 {
		t.Errorf("the registry allows 100 characters and one slash: %q, %q", entry.Description, entry.Name)
	}
}
