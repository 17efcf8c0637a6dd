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
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"pollux/internal/doctor"
	"pollux/internal/ide/copilotide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

// maxFile bounds a file of settings and an answer, in bytes.
const maxFile = 1 << 20

// A lock is a lock file as Copilot CLI reads it. It compares the text of the folders with its
// own, so it takes neither a folder above or below, nor a symbolic link.
type lock struct {
	doctor.Lock
	file copilotide.Lock
}

// find returns the lock files in a directory, for a Copilot CLI in dir.
func find(from, dir string) (locks []*lock) {
	for _, f := range copilotide.Find(from) {
		locks = append(locks, &lock{file: f.Lock, Lock: doctor.Lock{
			Agent: "Copilot CLI", Command: copilotide.Command, Dir: dir, Path: f.Path, Skipped: f.Skipped, Exact: true,
			Program: cmp.Or(doctor.Short(f.IDEName), "a program without a name"), Process: f.PID,
			Live: proc.Alive(f.PID), Folders: f.WorkspaceFolders, Address: f.SocketPath,
		}})
	}
	return locks
}

// Copilot checks why Copilot CLI does not connect to a companion, or shows no diffs.
func Copilot(ctx context.Context, c *doctor.Checker) {
	home, err := copilotide.Home()
	if err != nil {
		c.Fail("settings", "set "+disk.HomeVar, "there is no home directory, so Copilot CLI has no settings: %v", err)
		return
	}
	checkSettings(c, filepath.Join(home, "settings.json"))
	locks := find(filepath.Join(home, "ide"), c.Dir)
	i := slices.IndexFunc(locks, func(l *lock) bool { return l.Skipped == nil && l.Live && l.Covers() })
	if i >= 0 {
		c.Ask(ctx, &locks[i].Lock, func(ctx context.Context) error { return post(ctx, locks[i].file) })
		return
	}
	var all []*doctor.Lock
	for _, l := range locks {
		if !l.file.Pollux.Stale(l.Process) { // the next companion removes that
			all = append(all, &l.Lock)
		}
	}
	if !doctor.First(c, doctor.Locks, all...) {
		c.None(copilotide.Command)
	}
}

// checkSettings checks the settings that keep Copilot CLI from connecting or from opening
// diffs.
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
			"the setting ide.autoConnect is false in %s: Copilot CLI does not connect automatically", path)
	}
	if off(file.IDE.OpenDiffOnEdit) {
		c.Fail("diff-tool", "copilot config ide.openDiffOnEdit true",
			"the setting ide.openDiffOnEdit is false in %s: Copilot CLI shows changes in its terminal only", path)
	}
}

// post asks the server of a lock for what every server must refuse or answer, with the headers in
// the lock: it sends the agent's first message, which opens no session.
func post(ctx context.Context, l copilotide.Lock) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return sock.DialPrivate(ctx, l.Scheme, l.SocketPath)
		},
	}}
	const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", bytes.NewBufferString(discover))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range l.Headers {
		r.Header.Set(k, v)
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	io.Copy(io.Discard, io.LimitReader(response.Body, maxFile))
	return doctor.Refusal(response.StatusCode)
}
