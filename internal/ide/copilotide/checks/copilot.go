// Package checks contains doctor's checks of GitHub Copilot CLI. They replay what a
// Copilot CLI 1.0.102 started here will do: which lock file it takes, and whether that
// companion answers.
package checks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/asking"
	"pollux/internal/ide/copilotide"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
)

const (
	startOne      = "pollux run -- copilot, or start an editor here that has Pollux (pollux install)"
	answerTimeout = 3 * time.Second
	// maxFile bounds a lock file and a file of settings, in bytes.
	maxFile = 1 << 20
)

// A lock is a lock file. Copilot CLI skips one without any of required.
type lock struct {
	copilotide.Found
	Err error // why Copilot CLI skips it
}

var required = []string{"socketPath", "scheme", "headers", "pid", "ideName", "timestamp"}

// find returns the lock files in a directory.
func find(dir string) (locks []lock) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.lock"))
	for _, path := range files {
		l := lock{Found: copilotide.Found{Path: path}}
		data, err := disk.ReadFile(path, maxFile)
		var fields map[string]json.RawMessage
		if err == nil {
			err = errors.Join(json.Unmarshal(data, &fields), json.Unmarshal(data, &l.Lock))
		}
		for _, key := range required {
			if fields[key] == nil && err == nil {
				err = fmt.Errorf("it has no %s", key)
			}
		}
		l.Err = err
		locks = append(locks, l)
	}
	return locks
}

// has reports whether a folder of the lock is dir. Copilot CLI compares the text, so it
// takes neither a folder above or below, nor a symbolic link.
func (l lock) has(dir string) bool {
	return slices.ContainsFunc(l.WorkspaceFolders, func(f string) bool { return filepath.Clean(f) == dir })
}

func (l lock) name() string { return cmp.Or(doctor.Short(l.IDEName), "a program without a name") }

// Copilot checks why Copilot CLI does not connect to a companion, or shows no diffs.
func Copilot(ctx context.Context, c *doctor.Checker) {
	home, err := copilotide.Home()
	if err != nil {
		c.Fail("settings", "set "+disk.HomeVar, "there is no home directory, so Copilot CLI has no settings: %v", err)
		return
	}
	checkSettings(c, filepath.Join(home, "settings.json"))
	locks := find(filepath.Join(home, "ide"))
	i := slices.IndexFunc(locks, func(l lock) bool { return l.Err == nil && l.has(c.Dir) && proc.Alive(l.PID) })
	if i < 0 {
		explainNone(c, locks)
		return
	}
	checkServer(ctx, c, locks[i])
}

// checkSettings checks the settings that keep Copilot CLI from connecting or from
// opening diffs.
func checkSettings(c *doctor.Checker, path string) {
	var file struct {
		IDE struct{ AutoConnect, OpenDiffOnEdit *bool }
	}
	data, err := disk.ReadFile(path, maxFile)
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.Warn("settings", "correct the file", "%s cannot be read: %s", path, doctor.Reason(err))
	}
	off := func(b *bool) bool { return b != nil && !*b }
	if off(file.IDE.AutoConnect) {
		c.Fail("auto-connect", "copilot config ide.autoConnect true, or type /ide in Copilot CLI",
			"the setting ide.autoConnect is false in %s: Copilot CLI does not connect by itself", path)
	}
	if off(file.IDE.OpenDiffOnEdit) {
		c.Fail("diff-tool", "copilot config ide.openDiffOnEdit true",
			"the setting ide.openDiffOnEdit is false in %s: Copilot CLI shows changes in its terminal only", path)
	}
	if m := copilotide.Asking(asking.Start{Dir: c.Dir, Getenv: os.Getenv}); m.Silent != "" {
		text, next := m.Finding("Copilot CLI", copilotide.Command)
		c.Warn("mode", next, "%s", text)
	}
}

// explainNone says why no lock matches.
func explainNone(c *doctor.Checker, locks []lock) {
	for _, l := range locks {
		for _, folder := range l.WorkspaceFolders {
			target := paths.Real(folder)
			switch {
			case l.Err != nil && target == c.Dir:
				c.Fail("lock", "restart that editor", "Copilot CLI skips %s: %v", l.Path, l.Err)
			case l.has(c.Dir): // its process does not run
				c.Fail("lock", startOne, "%s has this folder, but its process %d does not run here", l.name(), l.PID)
			case !proc.Alive(l.PID) || l.Err != nil:
				continue
			case target == c.Dir:
				c.Fail("symlink", "open "+doctor.Word(target)+" in that editor, or type /ide",
					"%s names its folder %s, which is a symbolic link: Copilot CLI compares it with %s",
					l.name(), doctor.Short(folder), c.Dir)
			case paths.Contains(folder, c.Dir), paths.Contains(c.Dir, folder):
				c.Fail("workspace", shell.EnterCommand(folder)+", or type /ide",
					"%s is for %s, but this is %s: Copilot CLI connects by itself only in the same folder",
					l.name(), doctor.Short(folder), c.Dir)
			default:
				continue
			}
			return
		}
	}
	c.Fail("companion", startOne, "no companion is running for %s", c.Dir)
}

// checkServer asks the lock's server for what every server must refuse or answer, with
// the headers in the lock.
func checkServer(ctx context.Context, c *doctor.Checker, l lock) {
	info, err := os.Stat(l.Path)
	if err != nil || !disk.Own(l.Path, info) {
		c.Fail("user", "start Copilot CLI and the editor as the same user", "%s is not your file", l.Path)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	status, err := post(ctx, l)
	switch {
	case err == nil && (status == http.StatusUnauthorized || status == http.StatusForbidden):
		c.Fail("token", "restart that editor", "%s refuses the headers in %s", l.name(), l.Path)
	case err == nil && status == http.StatusServiceUnavailable:
		c.Fail("view", "pollux review, or attach an editor that has Pollux",
			"%s refuses agents: nothing shows its changes", l.name())
	case err == nil:
		c.OK("port", "%s answers", l.name())
	case errors.Is(err, errors.ErrUnsupported):
		c.OK("port", "%s has an address of another system, which doctor cannot check", l.name())
	case ctx.Err() != nil:
		c.Fail("port", "continue it if it is stopped, or restart that editor", "%s does not answer: it is stopped or hangs", l.name())
	default:
		c.Fail("port", "restart that editor", "%s does not answer on %s", l.name(), doctor.Short(l.SocketPath))
	}
}

// post sends the agent's first message, which opens no session, and returns the status.
func post(ctx context.Context, l lock) (int, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return sock.DialPrivate(ctx, l.Scheme, l.SocketPath)
		},
	}}
	const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", bytes.NewBufferString(discover))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range l.Headers {
		r.Header.Set(k, v)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	io.Copy(io.Discard, io.LimitReader(response.Body, maxFile))
	return response.StatusCode, nil
}
