package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pollux/internal/agent/gemini/settings"
	"pollux/internal/sys"
)

// checkTerminal finds what keeps the CLI from asking anything.
func (e *exam) checkTerminal() {
	for _, key := range []string{"CI", "GITHUB_ACTIONS"} {
		if env(key) == "true" {
			e.fail("terminal", "unset "+key, "%s=true makes Gemini CLI run without asking anything: no changes can be reviewed", key)
			return
		}
	}
	if env("TERM") == "dumb" {
		e.warn("terminal", "use a terminal that can be drawn on, such as Emacs's M-x term or vterm", "TERM=dumb: Gemini CLI cannot draw its questions here")
		return
	}
	e.ok("terminal", "Gemini CLI can ask here (TERM=%s)", oneLine(env("TERM")))
}

// checkProxy finds a proxy that does not answer, behind which the CLI reaches
// no model. The companion is dialled directly.
func (e *exam) checkProxy(ctx context.Context) {
	var seen []string
	for _, key := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		value := env(key)
		if value == "" || slices.Contains(seen, value) {
			continue
		}
		seen = append(seen, value)
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			e.fail("proxy", "unset "+key+", or make it http://HOST:PORT", "%s is no URL of a proxy", key)
			continue
		}
		host := u.Host
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), map[bool]string{true: "443", false: "80"}[u.Scheme == "https"])
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		cancel()
		if err != nil {
			e.warn("proxy", "start the proxy, or unset "+key, "the proxy of %s (%s) does not answer: Gemini CLI will not reach its model; the companion does not need it", key, oneLine(host))
			continue
		}
		conn.Close()
		e.ok("proxy", "the proxy of %s answers; the companion is dialled directly", key)
	}
	if path := env("NODE_EXTRA_CA_CERTS"); path != "" {
		if _, err := sys.ReadFile(path, 16<<20); err != nil {
			e.warn("proxy", "unset NODE_EXTRA_CA_CERTS, or correct it", "NODE_EXTRA_CA_CERTS cannot be read: %v", reason(err))
		}
	}
}

// Space on the disk in bytes: with less than little a journal of a large
// change may fail, with less than none everything does.
const little, none = 64 << 20, 1 << 20

// checkDisk looks for room where Pollux and the CLI write.
func (e *exam) checkDisk() {
	state, err := sys.StateDir()
	if err != nil {
		e.fail("disk", "set HOME or POLLUX_STATE_DIR", "there is no place for the journal: %v", err)
		return
	}
	runtime, err := sys.RuntimeDir()
	if err != nil {
		e.fail("disk", "set TMPDIR to a directory of your own", "there is no place for the companions' sockets: %v", err)
		return
	}
	home, err := settings.Home()
	if err != nil {
		home = state
	}
	bad := false
	for _, d := range []struct{ what, dir string }{
		{"the journal", state}, {"sockets", runtime}, {"temporary files", os.TempDir()}, {"Gemini CLI's own files", home},
	} {
		dir := existing(d.dir)
		free, err := sys.FreeSpace(dir)
		writeErr := writable(dir)
		switch {
		case err == nil && free < none:
			e.fail("disk", "make room there", "%s is full, the place of %s", dir, d.what)
		case writeErr != nil:
			e.fail("disk", "make it writable for you", "%s cannot be written, the place of %s: %v", dir, d.what, reason(writeErr))
		case err == nil && free < little:
			e.warn("disk", "make room there", "%s, the place of %s, has only %d MiB left", dir, d.what, free>>20)
		default:
			continue
		}
		bad = true
	}
	if !bad {
		e.ok("disk", "there is room for the journal, sockets and temporary files")
	}
}

// existing is the directory, or the nearest one above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func writable(dir string) error {
	f, err := os.CreateTemp(dir, sys.TempPattern)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// reason is an error without the path.
func reason(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return fmt.Sprint(pathErr.Err)
	}
	return oneLine(strings.TrimSpace(err.Error()))
}
