package checks

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"pollux/internal/doctor"
	"pollux/internal/editor"
	"pollux/internal/ide/codexide"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// listen serves a pipe, or a socket in a directory that is private. It answers each request
// with a text, or not at all if that is empty.
func listen(t *testing.T, path, answer string) {
	t.Helper()
	if !sock.IsPipe(path) {
		systest.MakeDir(t, filepath.Dir(path))
	}
	l, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	systest.Serve(t, l, func(conn net.Conn) {
		defer conn.Close()
		size := make([]byte, 4)
		if _, err := io.ReadFull(conn, size); err == nil && answer != "" {
			io.CopyN(io.Discard, conn, int64(binary.LittleEndian.Uint32(size)))
			conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(answer))), answer...))
		}
	})
}

const (
	hasFolder = `{"type":"response","requestId":"pollux-doctor","resultType":"success","result":{"ideContext":{"openTabs":[]}}}`
	noFolder  = `{"type":"response","requestId":"pollux-doctor","resultType":"error","error":"no-client-found"}`
)

// useTMPDIR starts a process, such as the editor's, with that TMPDIR.
func useTMPDIR(t *testing.T, tmp string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"TMPDIR=" + tmp}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

// Windows has a pipe in place of the socket.
func TestPipe(t *testing.T) {
	if !sock.IsPipe(codexide.Socket()) {
		t.Skip("it uses a socket here")
	}
	for name, tt := range map[string]struct {
		answer string
		nobody bool // serves the pipe
		away   bool // no companion of Pollux runs
		want   []string
	}{
		"healthy":          {answer: hasFolder},
		"no pipe":          {nobody: true, want: []string{"failed companion"}},
		"another program":  {answer: hasFolder, away: true, want: []string{"warning rival"}},
		"another folder":   {answer: noFolder, want: []string{"failed companion"}},
		"another protocol": {answer: "HTTP", want: []string{"failed socket"}},
		"no answer":        {want: []string{"failed socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			pipe := codexide.Socket() + "-test-" + rand.Text()
			if !tt.nobody {
				listen(t, pipe, tt.answer)
			}
			check := func(_ context.Context, c *doctor.Checker) { checkPipe(c, pipe) }
			examine(t, t.TempDir(), tt.away, check, tt.want)
		})
	}
}

// examine runs a check, which must find problems.
func examine(t *testing.T, dir string, away bool, check doctor.Check, want []string) doctor.Report {
	t.Helper()
	cfg := doctor.Config{Dir: dir}
	if !away {
		cfg.Running = []editor.Running{{Status: editor.Status{Roots: []string{dir}}}}
	}
	report := doctor.Examine(t.Context(), cfg, []doctor.Part{{Checks: []doctor.Check{check}}})
	var got []string
	for _, f := range report.Findings {
		if f.Status != doctor.OK {
			got = append(got, string(f.Status)+" "+f.Check)
		}
		if f.Status != doctor.OK && f.Next == "" {
			t.Errorf("%s names no next step: %s", f.Check, f.Text)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q: %+v", got, want, report.Findings)
	}
	return report
}

func TestCodex(t *testing.T) {
	if sock.IsPipe(codexide.Socket()) {
		t.Skip("it uses a pipe here")
	}
	own := func(t *testing.T) string { return codexide.SocketIn(os.Getenv("TMPDIR")) }
	for name, tt := range map[string]struct {
		make func(t *testing.T)
		away bool // no companion of Pollux runs
		want []string
	}{
		"healthy":          {make: func(t *testing.T) { listen(t, own(t), hasFolder) }},
		"no socket":        {make: func(*testing.T) {}, want: []string{"failed companion"}},
		"another program":  {make: func(t *testing.T) { listen(t, own(t), hasFolder) }, away: true, want: []string{"warning rival"}},
		"another folder":   {make: func(t *testing.T) { listen(t, own(t), noFolder) }, want: []string{"failed companion"}},
		"another protocol": {make: func(t *testing.T) { listen(t, own(t), "HTTP") }, want: []string{"failed socket"}},
		"no answer":        {make: func(t *testing.T) { listen(t, own(t), "") }, want: []string{"failed socket"}},
		"another TMPDIR": {want: []string{"failed tmpdir"}, make: func(t *testing.T) {
			listen(t, own(t), hasFolder)
			useTMPDIR(t, os.Getenv("TMPDIR"))
			t.Setenv("TMPDIR", t.TempDir())
		}},
		"another TMPDIR, for another folder": {want: []string{"failed companion"}, make: func(t *testing.T) {
			listen(t, own(t), noFolder)
			useTMPDIR(t, os.Getenv("TMPDIR"))
			t.Setenv("TMPDIR", t.TempDir())
		}},
		"the vendor's own program": {want: []string{"warning rival"}, make: func(t *testing.T) {
			listen(t, own(t), hasFolder)
			listen(t, filepath.Join(os.Getenv("CODEX_HOME"), "ipc", "ipc.sock"), hasFolder)
		}},
		"a socket without a server": {want: []string{"failed socket"}, make: func(t *testing.T) {
			systest.MakeDir(t, filepath.Dir(own(t)))
			l, err := net.Listen("unix", own(t))
			if err != nil {
				t.Fatal(err)
			}
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
		}},
		"no socket but a file": {want: []string{"failed socket"}, make: func(t *testing.T) { systest.WriteFile(t, own(t), "") }},
		"others can write": {want: []string{"failed directory"}, make: func(t *testing.T) {
			listen(t, own(t), hasFolder)
			if err := os.Chmod(filepath.Dir(own(t)), 0o777); err != nil {
				t.Fatal(err)
			}
		}},
		"another user's directory": {want: []string{"failed directory"}, make: func(t *testing.T) {
			listen(t, own(t), hasFolder)
			if err := os.Chown(filepath.Dir(own(t)), 65534, 65534); err != nil {
				t.Skip("needs root")
			}
		}},
		"another user's socket": {want: []string{"failed user"}, make: func(t *testing.T) {
			listen(t, own(t), hasFolder)
			if err := os.Chown(own(t), 65534, 65534); err != nil {
				t.Skip("needs root")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tmp := systest.ShortDir(t)
			home := filepath.Join(tmp, "codex")
			t.Setenv("CODEX_HOME", home)
			t.Setenv("TMPDIR", tmp)
			systest.WriteFile(t, filepath.Join(home, "config.toml"), `sandbox_mode = "read-only"`)
			tt.make(t)
			report := examine(t, dir, tt.away, Codex, tt.want)
			if name == "a socket without a server" { // the next companion replaces it
				cfg := doctor.Config{Dir: dir, Overview: true}
				if r := doctor.Examine(t.Context(), cfg, []doctor.Part{{Checks: []doctor.Check{Codex}}}); r.Causes() > 0 {
					t.Errorf("in an overview, found %+v", r.Findings)
				}
			}
			if name != "others can write" {
				return
			}
			if err := report.Fix(); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(filepath.Dir(own(t))); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("after the fix: %v, %v", info.Mode(), err)
			}
		})
	}
}
