package download

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

// The lock file pins the tested release, with a checksum for each package.
func TestPinned(t *testing.T) {
	var l struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := json.Unmarshal(lock, &l); err != nil {
		t.Fatal(err)
	}
	if v := l.Packages["node_modules/"+Package].Version; v != Version {
		t.Errorf("the lock file has %s", v)
	}
	for name, p := range l.Packages {
		if name != "" && !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%s has the checksum %q", name, p.Integrity)
		}
	}
	setup, err := os.ReadFile("../../../../scripts/setup.sh")
	if err != nil || !strings.Contains(string(setup), "\ngemini=${GEMINI_VERSION:-"+Version+"}\n") {
		t.Errorf("the tests install another release: %v", err)
	}
}

func TestDir(t *testing.T) {
	home, data := systest.Abs("/h"), systest.Abs("/d")
	type test struct {
		env  agent.Env
		want string
	}
	name := "gemini-cli-" + Version
	inHome := filepath.Join(home, ".local", "share", "pollux", name)
	tests := []test{
		{agent.Env{"HOME=" + home, "USERPROFILE=" + home}, inHome},
		{agent.Env{"HOME=" + home, "USERPROFILE=" + home, "XDG_DATA_HOME=" + data}, filepath.Join(data, "pollux", name)},
		{agent.Env{"HOME=" + home, "USERPROFILE=" + home, "XDG_DATA_HOME=d"}, inHome},
		{agent.Env{}, ""},
	}
	if runtime.GOOS == "windows" {
		local := filepath.Join(data, "pollux", "data", name)
		tests = append(tests,
			test{agent.Env{"USERPROFILE=" + home, "LocalAppData=" + data}, local},
			test{agent.Env{"LOCALAPPDATA=" + data, "XDG_DATA_HOME=d"}, local},
			test{agent.Env{"USERPROFILE=" + home, "LOCALAPPDATA=d"}, inHome},
		)
	}
	for _, tt := range tests {
		if got, err := Dir(tt.env); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%v: %q, %v; want %q", tt.env, got, err, tt.want)
		}
	}
}

// envNPM makes the test binary play npm: it holds what npm does, in JSON.
const envNPM = "DOWNLOAD_TEST_NPM"

func TestMain(m *testing.M) {
	if does := os.Getenv(envNPM); does != "" {
		os.Exit(playNPM(does))
	}
	systest.VerifyTestMain(m)
}

// A fakeNPM describes what npm does, in this order.
type fakeNPM struct {
	// Says is npm's log.
	Says string
	// Installs is whether npm installs a command.
	Installs bool
	// Hangs is whether npm does not end.
	Hangs bool
	Code  int
}

func playNPM(does string) int {
	args := os.Args[1:]
	if len(args) > 0 && strings.HasSuffix(args[0], "npm-prefix.js") { // npm.cmd asks for its global directory
		fmt.Println(filepath.Dir(os.Args[0]))
		return 0
	}
	if len(args) > 0 && strings.HasSuffix(args[0], "npm-cli.js") {
		args = args[1:]
	}
	var npm fakeNPM
	err := json.Unmarshal([]byte(does), &npm)
	if len(args) < 3 || args[0] != "ci" || args[1] != "--prefix" {
		err = errors.Join(err, fmt.Errorf("npm %q", args))
	}
	if err == nil && npm.Installs {
		bin := filepath.Join(args[2], "node_modules", ".bin")
		err = os.MkdirAll(bin, 0o700)
		for _, name := range []string{"gemini", "gemini.cmd"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(bin, name), nil, 0o700))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "npm error", err)
		return 1
	}
	fmt.Fprint(os.Stderr, npm.Says)
	if npm.Hangs {
		time.Sleep(time.Hour)
	}
	return npm.Code
}

// npmBatch is the npm.cmd of Node.js for Windows.
const npmBatch = `:: Created by npm, please don't edit manually.
@ECHO OFF

SETLOCAL

SET "NODE_EXE=%~dp0\node.exe"
IF NOT EXIST "%NODE_EXE%" (
  SET "NODE_EXE=node"
)

SET "NPM_PREFIX_JS=%~dp0\node_modules\npm\bin\npm-prefix.js"
SET "NPM_CLI_JS=%~dp0\node_modules\npm\bin\npm-cli.js"
FOR /F "delims=" %%F IN ('CALL "%NODE_EXE%" "%NPM_PREFIX_JS%"') DO (
  SET "NPM_PREFIX_NPM_CLI_JS=%%F\node_modules\npm\bin\npm-cli.js"
)
IF EXIST "%NPM_PREFIX_NPM_CLI_JS%" (
  SET "NPM_CLI_JS=%NPM_PREFIX_NPM_CLI_JS%"
)

"%NODE_EXE%" "%NPM_CLI_JS%" %*
`

// withNPM puts a fake of npm on the PATH and returns the directory for data. On Windows it
// is Node.js's npm.cmd, with a fake node.exe.
func withNPM(t *testing.T, npm fakeNPM) string {
	t.Helper()
	bin, data := filepath.Join(t.TempDir(), "a & b"), filepath.Join(t.TempDir(), "c & d")
	does, err := json.Marshal(npm)
	if err != nil {
		t.Fatal(err)
	}
	self := systest.Self(t)
	systest.MakeDir(t, bin)
	if runtime.GOOS == "windows" {
		program := systest.ReadFile(t, self)
		batch := []byte(strings.ReplaceAll(npmBatch, "\n", "\r\n"))
		err = errors.Join(os.WriteFile(filepath.Join(bin, "node.exe"), []byte(program), 0o700), os.WriteFile(filepath.Join(bin, "npm.cmd"), batch, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	} else if err := os.Symlink(self, filepath.Join(bin, "npm")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv(envNPM, string(does))
	t.Setenv("XDG_DATA_HOME", data)
	return filepath.Join(data, "pollux")
}

const fetchedOne = "npm http fetch GET 200 https://registry.npmjs.org/a/-/a-1.0.0.tgz 1ms\n"

func TestInstall(t *testing.T) {
	data := withNPM(t, fakeNPM{Says: fetchedOne, Installs: true})
	// A damaged installation is replaced.
	systest.MakeDir(t, filepath.Join(data, "gemini-cli-"+Version, "node_modules"))
	if path, ok := Find(nil); ok {
		t.Errorf("found %s", path)
	}
	fetched := 0
	path, err := Install(t.Context(), func() { fetched++ })
	found, ok := Find(nil)
	if err != nil || !ok || path != found || fetched != 1 {
		t.Errorf("installed %q, %v, after %d packages; found %q", path, err, fetched, found)
	}
	if names := left(t, data); len(names) != 1 {
		t.Errorf("%s holds %v", data, names)
	}
}

func TestInstallFails(t *testing.T) {
	for _, tt := range []struct {
		npm  fakeNPM
		says string
	}{
		{fakeNPM{Says: "npm warn x\nnpm error code E404\n", Code: 1}, "exit code 1\n  code E404"},
		{fakeNPM{Says: "npm ERR! code E404\n", Code: 1}, "\n  code E404"},
		{fakeNPM{Installs: true, Code: 3}, "exit code 3"},
		{fakeNPM{}, "no command named gemini"},
	} {
		data := withNPM(t, tt.npm)
		_, err := Install(t.Context(), func() {})
		systest.WantError(t, err, tt.says)
		if names := left(t, data); len(names) > 0 {
			t.Errorf("%+v: left %v", tt.npm, names)
		}
	}
}

// Ctrl-C ends npm and leaves nothing behind.
func TestInstallInterrupted(t *testing.T) {
	data := withNPM(t, fakeNPM{Says: fetchedOne, Installs: true, Hangs: true})
	cause := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := Install(ctx, func() { cancel(cause) }); !errors.Is(err, cause) {
		t.Error(err)
	}
	if names := left(t, data); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

// On Windows, a virus scanner that reads the new files keeps their directory from being
// renamed. The download failed at its end.
func TestPlaceWaitsForVirusScanner(t *testing.T) {
	if runtime.GOOS != "windows" {
		t.Skip("only Windows refuses to rename a directory with an open file")
	}
	const accessDenied = syscall.Errno(5)
	interrupted := errors.New("interrupted")
	for _, test := range []struct {
		name string
		// rename makes one attempt to rename. attempt counts from 1.
		rename   func(attempt int, from, to string, interrupt func()) error
		attempts int // 0 if it is not known
		err      error
	}{
		{"it reads for a moment", func(attempt int, from, to string, _ func()) error {
			if attempt <= 3 {
				return &os.LinkError{Op: "rename", Old: from, New: to, Err: accessDenied}
			}
			return os.Rename(from, to)
		}, 4, nil},
		{"another process is faster", func(attempt int, from, to string, _ func()) error {
			if attempt == 3 {
				return errors.Join(os.Rename(from, to), accessDenied)
			}
			return accessDenied
		}, 3, nil},
		{"Ctrl-C", func(attempt int, _, _ string, interrupt func()) error {
			if attempt == 3 {
				interrupt()
			}
			return accessDenied
		}, 3, interrupted},
		{"it does not end", func(int, string, string, func()) error { return accessDenied }, 0, accessDenied},
		{"another error", func(int, string, string, func()) error { return errors.ErrUnsupported }, 1, errors.ErrUnsupported},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := t.TempDir()
				tree, dir := filepath.Join(base, "download"), filepath.Join(base, "release")
				installed := filepath.Join("node_modules", ".bin", "gemini.cmd")
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(tree, installed)), 0o700),
					os.WriteFile(filepath.Join(tree, installed), nil, 0o700)); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				start, attempts := time.Now(), 0
				path, err := place(ctx, tree, dir, func(from, to string) error {
					attempts++
					return test.rename(attempts, from, to, func() { cancel(interrupted) })
				})
				if !errors.Is(err, test.err) || test.err == nil && path != filepath.Join(dir, installed) {
					t.Errorf("placed %q, %v", path, err)
				}
				if test.attempts > 0 && attempts != test.attempts {
					t.Errorf("%d attempts", attempts)
				}
				if took := time.Since(start); (took >= renameTimeout) != (test.attempts == 0) {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
