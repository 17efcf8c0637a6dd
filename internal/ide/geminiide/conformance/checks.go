package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf16"

	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/lazy"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// checks run in this order: first what others depend on, last what ends the
// companion.
var checks = slices.Concat(discoveryChecks, transportChecks, contextChecks, diffChecks, lifecycleChecks)

var fileName = lazy.Regexp(`^gemini-ide-server-(\d+)-(\d+)\.json$`)

// reservedNames make the CLI offer to install another extension.
var reservedNames = []string{"vscode", "antigravity", "positron", "firebasestudio"}

var discoveryChecks = []check{
	{"discovery.name", Must, "I.2", "the discovery file is named gemini-ide-server-PID-PORT.json", func(r *run) error {
		m := fileName().FindStringSubmatch(filepath.Base(r.path))
		if m == nil {
			return fmt.Errorf("it is named %s", filepath.Base(r.path))
		}
		if m[2] != strconv.Itoa(r.file.Port) {
			return fmt.Errorf("the name has port %s, the file %d", m[2], r.file.Port)
		}
		return nil
	}},
	{"discovery.pid", Must, "I.2", "the PID in its name is a live process", func(r *run) error {
		m := fileName().FindStringSubmatch(filepath.Base(r.path))
		if m == nil {
			return skip("the name has none")
		}
		if pid, _ := strconv.Atoi(m[1]); !proc.Alive(pid) {
			return fmt.Errorf("there is no process %d: Gemini CLI prefers any other companion", pid)
		}
		return nil
	}},
	{"discovery.workspace", Must, "I.2",
		"workspacePath lists the absolute paths of the folders that are open", func(r *run) error {
			if r.file.WorkspacePath == "" {
				return errors.New("it is empty: Gemini CLI reports that no folder is open")
			}
			for _, part := range strings.Split(r.file.WorkspacePath, string(os.PathListSeparator)) {
				if !filepath.IsAbs(part) {
					return fmt.Errorf("%q is not absolute; an empty part stands for every folder", part)
				}
			}
			if !geminiide.Holds(r.file.WorkspacePath, r.workspace) {
				return fmt.Errorf("it is %s, and the companion was started in %s", r.file.WorkspacePath, r.workspace)
			}
			return nil
		}},
	{"discovery.token", Must, "I.2", "authToken is a secret that cannot be guessed", func(r *run) error {
		if len(r.file.AuthToken) < 16 {
			return fmt.Errorf("it has %d characters", len(r.file.AuthToken))
		}
		return nil
	}},
	{"discovery.ideinfo", Must, "I.2",
		"ideInfo has a displayName and a lower-case name that Google does not use itself", func(r *run) error {
			i := r.file.IDEInfo
			switch {
			case i.Name == "" || i.DisplayName == "":
				return errors.New("without them Gemini CLI has IDE mode only in the terminals of VS Code")
			case slices.Contains(reservedNames, i.Name):
				return fmt.Errorf("%q makes Gemini CLI offer to install its own extension", i.Name)
			case i.Name != strings.ToLower(i.Name):
				return fmt.Errorf("the name is %q", i.Name)
			}
			return nil
		}},
	{"discovery.private", Safe, "", "no other user can read or replace the file", func(r *run) error {
		dir := filepath.Dir(r.path)
		for path, open := range map[string]func(string, os.FileInfo) bool{
			r.path: func(path string, info os.FileInfo) bool { return !disk.Private(path, info) },
			dir:    disk.OthersWrite, filepath.Dir(dir): disk.OthersWrite,
		} {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if open(path, info) {
				return fmt.Errorf("%s is open to other users, with mode %v", filepath.Base(path), info.Mode().Perm())
			}
		}
		return nil
	}},
}

var transportChecks = []check{
	{"transport.initialize", Must, "I.1",
		"POST /mcp answers initialize and opens a session, as an MCP server does", func(r *run) error {
			a, err := r.send(request{body: initialize})
			if err := a.refused(err, http.StatusOK); err != nil {
				return err
			}
			if a.header.Get("Mcp-Session-Id") == "" {
				return errors.New("the answer has no Mcp-Session-Id")
			}
			if !strings.Contains(a.body, "serverInfo") {
				return fmt.Errorf("the answer has no serverInfo: %.200q", a.body)
			}
			return r.forget(a)
		}},
	{"transport.initialized", CLI, "",
		"the answer to notifications/initialized is HTTP 202; only then the CLI opens its stream", func(r *run) error {
			a, err := r.send(request{body: initialize})
			if err != nil {
				return err
			}
			defer r.forget(a)
			b, err := r.send(request{body: initialized, headers: sessionOf(a)})
			return b.refused(err, http.StatusAccepted)
		}},
	{"transport.stream", Must, "I.1", "GET opens a stream of notifications", func(r *run) error {
		c, err := r.connect()
		if err != nil {
			return err
		}
		c.Close()
		return nil
	}},
	{"transport.loopback", Safe, "", "it listens on the loopback address only", func(r *run) error {
		all := addresses()
		if len(all) == 0 {
			return skip("this machine has no other address")
		}
		for _, host := range all {
			if reachable(host, r.file.Port) {
				return fmt.Errorf("it also listens on %s", host)
			}
		}
		return nil
	}},
	{"auth.missing", Must, "I.2", "a request without the token is refused", func(r *run) error {
		return r.unauthorized(request{body: initialize, headers: map[string]string{"Authorization": ""}})
	}},
	{"auth.wrong", Must, "I.2", "a request with a wrong token is refused", func(r *run) error {
		if r.file.AuthToken == "" {
			return skip("there is no token")
		}
		for _, token := range []string{"wrong", r.file.AuthToken + "x", r.file.AuthToken[:len(r.file.AuthToken)-1]} {
			headers := map[string]string{"Authorization": "Bearer " + token}
			if err := r.unauthorized(request{body: initialize, headers: headers}); err != nil {
				return err
			}
		}
		return nil
	}},
	{"auth.every", Must, "I.2", "every request needs the token, also in an open session", func(r *run) error {
		if r.file.AuthToken == "" {
			return skip("there is no token")
		}
		a, err := r.send(request{body: initialize})
		if err != nil {
			return err
		}
		defer r.forget(a)
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			h := sessionOf(a)
			h["Authorization"] = ""
			if err := r.unauthorized(request{method: method, body: listTools, headers: h}); err != nil {
				return fmt.Errorf("%s: %w", method, err)
			}
		}
		return nil
	}},
	{"transport.host", Safe, "", "a request with another Host is refused (DNS rebinding)", func(r *run) error {
		a, err := r.send(request{body: initialize, host: fmt.Sprintf("evil.example:%d", r.file.Port)})
		return a.refused(err, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
			http.StatusMisdirectedRequest)
	}},
	{"transport.origin", Safe, "", "a request from a web page is refused", func(r *run) error {
		a, err := r.send(request{body: initialize, headers: map[string]string{"Origin": "https://evil.example"}})
		return a.refused(err, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden)
	}},
	{"transport.session", Must, "I.1",
		"an unknown session is HTTP 404, so that a client starts again", func(r *run) error {
			a, err := r.send(request{body: listTools, headers: map[string]string{"Mcp-Session-Id": "no-such-session"}})
			return a.refused(err, http.StatusNotFound, http.StatusBadRequest)
		}},
	{"transport.unknown-method", CLI, "",
		"an unknown method is a JSON-RPC error; an HTTP error disconnects the CLI", func(r *run) error {
			a, err := r.send(request{body: initialize})
			if err != nil {
				return err
			}
			defer r.forget(a)
			b, err := r.send(request{body: `{"jsonrpc":"2.0","id":2,"method":"no/such"}`, headers: sessionOf(a)})
			if err := b.refused(err, http.StatusOK); err != nil {
				return err
			}
			if !strings.Contains(b.body, "-32601") {
				return fmt.Errorf("the answer is %.200q", b.body)
			}
			return nil
		}},
	{"tools.listed", Must, "III", "the tools openDiff and closeDiff exist", func(r *run) error {
		c, err := r.session()
		if err != nil {
			return err
		}
		for _, t := range []string{geminiide.ToolOpenDiff, geminiide.ToolCloseDiff} {
			if !slices.Contains(c.Tools, t) {
				return fmt.Errorf("%s is missing; the tools are %s", t, strings.Join(c.Tools, ", "))
			}
		}
		return nil
	}},
}

// unauthorized returns an error for an answer other than HTTP 401.
func (r *run) unauthorized(q request) error {
	a, err := r.send(q)
	return a.refused(err, http.StatusUnauthorized)
}

func sessionOf(a answer) map[string]string {
	return map[string]string{"Mcp-Session-Id": a.header.Get("Mcp-Session-Id")}
}

// forget ends the session that an answer to initialize opened.
func (r *run) forget(a answer) error {
	_, err := r.send(request{method: http.MethodDelete, headers: sessionOf(a)})
	return err
}

var contextChecks = []check{
	{"context.first", CLI, "", "the stream starts with a context, even if nothing changes", func(r *run) error {
		c, err := r.session()
		if err != nil {
			return err
		}
		return r.context(c, r.timeouts.answer, func(geminiide.Context) bool { return true })
	}},
	{"context.open", Should, "II",
		"a file that the user opens becomes active, with a cursor that counts from 1", func(r *run) error {
			c, err := r.session()
			if err != nil {
				return err
			}
			if err := r.do(Open, r.name("one.txt"), ""); err != nil {
				return err
			}
			return r.context(c, r.effectTimeout(Open), func(v geminiide.Context) bool {
				if v.WorkspaceState == nil {
					return false
				}
				return slices.ContainsFunc(v.WorkspaceState.OpenFiles, func(f geminiide.File) bool {
					return f.Path == r.name("one.txt") && f.IsActive &&
						f.Cursor != nil && f.Cursor.Line >= 1 && f.Cursor.Character >= 1
				})
			})
		}},
	{"context.order", Must, "II",
		"the file that was opened last is the newest and the only active one", func(r *run) error {
			c, err := r.session()
			if err != nil {
				return err
			}
			if err := r.do(Open, r.name("two.txt"), ""); err != nil {
				return err
			}
			return r.context(c, r.effectTimeout(Open), func(v geminiide.Context) bool {
				if v.WorkspaceState == nil {
					return false
				}
				files := v.WorkspaceState.OpenFiles
				i := slices.IndexFunc(files, func(f geminiide.File) bool { return f.Path == r.name("two.txt") })
				return i >= 0 && !slices.ContainsFunc(files, func(f geminiide.File) bool {
					return f.Path != files[i].Path && (f.IsActive || f.Timestamp > files[i].Timestamp)
				})
			})
		}},
	{"context.shape", Must, "II",
		"every context fits the CLI's schema: no null, absolute paths of files on disk, numbers", func(r *run) error {
			if len(r.contexts) == 0 {
				return skip("no context came")
			}
			for _, n := range r.contexts {
				if at := nulls(n.Params); at != "" {
					return fmt.Errorf("%s is null, which disconnects Gemini CLI", at)
				}
				var v geminiide.Context
				if err := json.Unmarshal(n.Params, &v); err != nil {
					return err
				}
				if v.WorkspaceState == nil {
					continue
				}
				for _, f := range v.WorkspaceState.OpenFiles {
					if info, err := os.Stat(f.Path); !filepath.IsAbs(f.Path) || err != nil || info.IsDir() {
						return fmt.Errorf("%q is not a file on disk", f.Path)
					}
					if f.Timestamp <= 0 {
						return fmt.Errorf("the timestamp of %s is %d", f.Path, f.Timestamp)
					}
				}
			}
			return nil
		}},
	{"context.limits", Should, "II",
		"no context exceeds what the CLI keeps: 10 files, 16 KiB of selection", func(r *run) error {
			for _, n := range r.contexts {
				var v geminiide.Context
				if json.Unmarshal(n.Params, &v) != nil || v.WorkspaceState == nil {
					continue
				}
				if len(v.WorkspaceState.OpenFiles) > geminiide.MaxOpenFiles {
					return fmt.Errorf("one has %d files", len(v.WorkspaceState.OpenFiles))
				}
				for _, f := range v.WorkspaceState.OpenFiles {
					if n := len(utf16.Encode([]rune(f.SelectedText))); n > geminiide.MaxSelectedText {
						return fmt.Errorf("one has %d units of UTF-16 of selection", n)
					}
				}
			}
			return nil
		}},
}

const (
	proposed = "one\nTWO\nthree\n"
	edited   = "one\nTWO and a half\nthree\n"
	// odd contains what companions lose most easily: wide characters, a missing
	// line feed at the end, JSON that looks like an answer to closeDiff.
	odd = "{\"content\":\"not this\"}\n\tä😀 \"\\u0041\" \nno line feed at the end"
)

var diffChecks = []check{
	{"diff.open", Must, "III", "openDiff shows a diff and answers at once with empty content", func(r *run) error {
		return r.opened(r.name("one.txt"), proposed, func() error { return nil })
	}},
	{"diff.close", Must, "III", "closeDiff answers with one block of text", func(r *run) error {
		_, err := r.closed(r.name("one.txt"), proposed)
		return err
	}},
	{"diff.close-json", CLI, "",
		`that text is JSON, {"content": "..."}, with the text of the diff`, func(r *run) error {
			text, err := r.closed(r.name("one.txt"), odd)
			if err != nil {
				return err
			}
			got, err := content(text)
			if err == nil && got != odd {
				err = fmt.Errorf("the text is %q, want %q", got, odd)
			}
			return err
		}},
	{"diff.close-silent", CLI, "",
		"no notification follows closeDiff with suppressNotification: it would turn a yes into a no",
		func(r *run) error {
			if _, err := r.closed(r.name("one.txt"), proposed); err != nil {
				return err
			}
			return r.quiet(r.cli)
		}},
	{"diff.lenient", CLI, "", "openDiff accepts unknown properties in its arguments", func(r *run) error {
		c, err := r.session()
		if err != nil {
			return err
		}
		args := map[string]any{"filePath": r.name("one.txt"), "newContent": proposed, "someday": true}
		res, err := r.call(c, geminiide.ToolOpenDiff, args)
		if err == nil && res.IsError {
			err = errors.New("openDiff failed")
		}
		if err != nil {
			return err
		}
		_, err = r.closeDiff(c, r.name("one.txt"))
		return err
	}},
	{"diff.accept", Must, "III",
		"accepting sends ide/diffAccepted with the given path and the text, byte for byte", func(r *run) error {
			return r.decided(Accept, r.name("one.txt"), odd, nil, odd)
		}},
	{"diff.not-written", CLI, "", "the companion does not write the file: the CLI does", func(r *run) error {
		if err := r.decided(Accept, r.name("two.txt"), proposed, nil, proposed); err != nil {
			return err
		}
		text, err := os.ReadFile(r.name("two.txt"))
		if err == nil && string(text) != original {
			err = errors.New("it is changed on disk")
		}
		return err
	}},
	{"diff.edit", Must, "III", "ide/diffAccepted contains the user's edits", func(r *run) error {
		edit := func() error { return r.do(Edit, r.name("one.txt"), edited) }
		return r.decided(Accept, r.name("one.txt"), proposed, edit, edited)
	}},
	{"diff.edit-close", CLI, "",
		"and so does the answer to closeDiff, when the user says yes in the terminal", func(r *run) error {
			return r.opened(r.name("one.txt"), proposed, func() error {
				if err := r.do(Edit, r.name("one.txt"), edited); err != nil {
					return err
				}
				text, err := r.closeDiff(r.cli, r.name("one.txt"))
				if err != nil {
					return err
				}
				if text, err = content(text); err == nil && text != edited {
					err = fmt.Errorf("the text is %q, want %q", text, edited)
				}
				return err
			})
		}},
	{"diff.reject", Must, "III", "rejecting sends ide/diffRejected", func(r *run) error {
		return r.decided(Reject, r.name("one.txt"), proposed, nil, "")
	}},
	{"diff.new-file", Must, "III",
		"a diff of a file that does not exist yet can be shown and accepted", func(r *run) error {
			return r.decided(Accept, r.name("new.txt"), proposed, nil, proposed)
		}},
	{"diff.sessions", CLI, "", "two CLIs with a diff of the same file each get their own answer", func(r *run) error {
		second, err := r.connect()
		if err != nil {
			return err
		}
		defer second.Close()
		file := r.name("one.txt")
		return r.opened(file, proposed, func() error {
			if err := r.open(second, file, edited); err != nil {
				return fmt.Errorf("the second: %w", err)
			}
			one, err := r.closeDiff(r.cli, file)
			if err != nil {
				return fmt.Errorf("the first: %w", err)
			}
			two, err := r.closeDiff(second, file)
			if err != nil {
				return fmt.Errorf("the second: %w", err)
			}
			if one == two {
				return errors.New("both get the same text")
			}
			return r.quiet(second)
		})
	}},
	{"diff.reconnect", CLI, "",
		"an outcome between two streams of a session arrives on the second", func(r *run) error {
			if err := r.can(Accept); err != nil {
				return err
			}
			return r.opened(r.name("one.txt"), proposed, func() error {
				r.pause(r.cli)
				doErr := r.do(Accept, r.name("one.txt"), "")
				if err := r.resume(r.cli); err != nil {
					return err
				}
				if doErr != nil {
					return doErr
				}
				method, _, err := r.outcome(r.cli, r.effectTimeout(Accept))
				if err == nil && method != geminiide.MethodDiffAccepted {
					err = fmt.Errorf("%s came", method)
				}
				return err
			})
		}},
	{"diff.close-unknown", CLI, "", "closeDiff of a file without a diff is answered, too", func(r *run) error {
		c, err := r.session()
		if err != nil {
			return err
		}
		r.drain(c)
		_, err = r.call(c, geminiide.ToolCloseDiff, map[string]any{"filePath": r.name("nothing.txt")})
		var rpc *client.RPCError
		if err != nil && !errors.As(err, &rpc) {
			return err
		}
		return r.quiet(c)
	}},
	{"transport.keep-alive", CLI, "",
		"an idle stream carries something at least every 5 minutes, or the CLI's HTTP client ends it",
		func(r *run) error {
			if !r.cfg.Slow {
				return skip("takes 5 minutes: --slow")
			}
			return r.idle(idleTimeout)
		}},
}

// opened opens a diff, runs f and closes the diff.
func (r *run) opened(file, text string, f func() error) error {
	c, err := r.session()
	if err != nil {
		return err
	}
	r.drain(c)
	if err := r.open(c, file, text); err != nil {
		return err
	}
	err = f()
	r.closeDiff(c, file) // if it is still open
	return err
}

// closed opens a diff and closes it, and returns the answer.
func (r *run) closed(file, text string) (answer string, err error) {
	c, err := r.session()
	if err != nil {
		return "", err
	}
	r.drain(c)
	if err := r.open(c, file, text); err != nil {
		return "", err
	}
	return r.closeDiff(c, file)
}

// decided opens a diff, lets the user decide on it, and expects one outcome.
func (r *run) decided(a Action, file, text string, before func() error, want string) error {
	if err := r.can(a); err != nil {
		return err
	}
	// Late notifications may belong to earlier checks.
	if c, err := r.session(); err == nil {
		r.settle(c)
	}
	return r.opened(file, text, func() error {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		if err := r.do(a, file, ""); err != nil {
			return err
		}
		method, d, err := r.outcome(r.cli, r.effectTimeout(a))
		wants := map[Action]string{Accept: geminiide.MethodDiffAccepted, Reject: geminiide.MethodDiffRejected}[a]
		switch {
		case err != nil:
			return err
		case method != wants:
			return fmt.Errorf("%s came, want %s", method, wants)
		case d.FilePath != file:
			return fmt.Errorf("the path came back as %q, want %q", d.FilePath, file)
		case a == Accept && d.Content != want:
			return fmt.Errorf("the text is %q, want %q", d.Content, want)
		}
		return r.quiet(r.cli)
	})
}

// soon reports whether the condition holds in time.
func soon(within time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(within); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

var lifecycleChecks = []check{
	{"lifecycle.lost", CLI, "", "a CLI that ends in the middle of a diff does not affect others", func(r *run) error {
		c, err := r.connect()
		if err != nil {
			return err
		}
		if err := r.open(c, r.name("two.txt"), proposed); err != nil {
			c.Close()
			return err
		}
		c.Close()
		_, err = r.closed(r.name("one.txt"), proposed)
		return err
	}},
	{"lifecycle.file", Must, "IV", "when the companion ends, it removes the discovery file", func(r *run) error {
		r.session() // so that there is a stream to end
		r.in.Close()
		asked := !r.cfg.mute && proc.CanAskToEnd()
		switch {
		case !asked:
		case runtime.GOOS == "windows": // its signal, Ctrl-Break, is for groups only
			go r.child.Stop(r.timeouts.remove + r.timeouts.end)
		default:
			proc.SignalTree(r.child.PID(), syscall.SIGTERM)
		}
		gone := func() bool { _, err := os.Stat(r.path); return errors.Is(err, os.ErrNotExist) }
		ended := func() bool {
			select {
			case <-r.child.Done():
				return true
			default:
				return false
			}
		}
		// A process that COMMAND started may need a moment, but not on Windows, where it ends
		// with COMMAND.
		soon(r.timeouts.remove, func() bool { return gone() || !asked && ended() })
		if !gone() {
			if !asked && proc.Alive(r.child.PID()) {
				r.lives = skip("it does not end with its standard input, and without a console the kit cannot send it Ctrl-Break: " +
					"run the kit in a terminal")
				return r.lives
			}
			return fmt.Errorf("%s is still there", filepath.Base(r.path))
		}
		return nil
	}},
	{"lifecycle.server", Must, "IV", "its server stops", func(r *run) error {
		if r.lives != nil {
			return r.lives
		}
		if !soon(r.timeouts.end, func() bool { return !reachable("127.0.0.1", r.file.Port) }) {
			return fmt.Errorf("port %d still answers", r.file.Port)
		}
		return nil
	}},
	{"lifecycle.process", CLI, "", "its process ends", func(r *run) error {
		if r.lives != nil {
			return r.lives
		}
		if !soon(r.timeouts.end, func() bool { return !proc.Alive(r.child.PID()) }) {
			return errors.New("it is still there, " + r.timeouts.end.String() + " later")
		}
		return nil
	}},
	{"lifecycle.graceful", CLI, "",
		"it ends its streams properly: a broken one disconnects the CLI until /ide enable", func(r *run) error {
			switch {
			case r.lives != nil:
				return r.lives
			case r.cli == nil:
				return skip("there was no session")
			}
			timeout := time.After(r.timeouts.end)
			for {
				select {
				case _, more := <-r.cli.Notifications:
					if !more {
						return r.cli.Ended
					}
				case <-timeout:
					return errors.New("the stream is still open")
				case <-r.ctx.Done():
					return context.Cause(r.ctx)
				}
			}
		}},
}
