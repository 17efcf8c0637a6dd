package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

var discoveryChecks = []check{
	{"discovery.name", Must, "I.2", "the discovery file is named gemini-ide-server-PID-PORT.json", func(r *run) {
		m := fileName().FindStringSubmatch(filepath.Base(r.path))
		if m == nil {
			fail("it is named %s", filepath.Base(r.path))
		}
		if m[2] != strconv.Itoa(r.file.Port) {
			fail("the name has port %s, the file %d", m[2], r.file.Port)
		}
	}},
	{"discovery.pid", Must, "I.2", "the PID in its name is a live process", func(r *run) {
		m := fileName().FindStringSubmatch(filepath.Base(r.path))
		if m == nil {
			must(skip("the name has none"))
		}
		if pid, _ := strconv.Atoi(m[1]); !proc.Alive(pid) {
			fail("there is no process %d: Gemini CLI prefers any other companion", pid)
		}
	}},
	{"discovery.workspace", Must, "I.2", "workspacePath lists the absolute paths of the folders that are open", func(r *run) {
		if r.file.WorkspacePath == "" {
			fail("it is empty: Gemini CLI reports that no folder is open")
		}
		for _, part := range strings.Split(r.file.WorkspacePath, string(os.PathListSeparator)) {
			if !filepath.IsAbs(part) {
				fail("%q is not absolute; an empty part stands for every folder", part)
			}
		}
		if !geminiide.Holds(r.file.WorkspacePath, r.workspace) {
			fail("it is %s, and the companion was started in %s", r.file.WorkspacePath, r.workspace)
		}
	}},
	{"discovery.token", Must, "I.2", "authToken is a secret that cannot be guessed", func(r *run) {
		if len(r.file.AuthToken) < 16 {
			fail("it has %d characters", len(r.file.AuthToken))
		}
	}},
	{"discovery.ideinfo", Must, "I.2",
		"ideInfo has a displayName and a lower-case name that Google does not use itself", func(r *run) {
			i := r.file.IDEInfo
			switch {
			case i.Name == "" || i.DisplayName == "":
				fail("without them Gemini CLI has IDE mode only in the terminals of VS Code")
			case geminiide.CheckEditor(i) != nil:
				fail("%q makes Gemini CLI offer to install its own extension", i.Name)
			case i.Name != strings.ToLower(i.Name):
				fail("the name is %q", i.Name)
			}
		}},
	{"discovery.private", Safe, "", "no other user can read or replace the file", func(r *run) {
		dir := filepath.Dir(r.path)
		for path, open := range map[string]func(string, os.FileInfo) bool{
			r.path: func(path string, info os.FileInfo) bool { return !disk.Private(path, info) },
			dir:    disk.OthersWrite, filepath.Dir(dir): disk.OthersWrite,
		} {
			if info := value(os.Stat(path)); open(path, info) {
				fail("%s is open to other users, with mode %v", filepath.Base(path), info.Mode().Perm())
			}
		}
	}},
}

var transportChecks = []check{
	{"transport.initialize", Must, "I.1", "POST /mcp answers initialize and opens a session, as an MCP server does", func(r *run) {
		a := r.send(request{body: initialize})
		a.want(http.StatusOK)
		if a.header.Get(sessionHeader) == "" {
			fail("the answer has no Mcp-Session-Id")
		}
		if !strings.Contains(a.body, "serverInfo") {
			fail("the answer has no serverInfo: %.200q", a.body)
		}
		must(r.forget(a.session()))
	}},
	{"transport.initialized", CLI, "",
		"the answer to notifications/initialized is HTTP 202; only then the CLI opens its stream", func(r *run) {
			session := r.greet()
			defer r.forget(session)
			r.send(request{body: initialized, headers: session}).want(http.StatusAccepted)
		}},
	{"transport.stream", Must, "I.1", "GET opens a stream of notifications", func(r *run) { value(r.connect()).Close() }},
	{"transport.loopback", Safe, "", "it listens on the loopback address only", func(r *run) {
		all := addresses()
		if len(all) == 0 {
			must(skip("this machine has no other address"))
		}
		for _, host := range all {
			if reachable(host, r.file.Port) {
				fail("it also listens on %s", host)
			}
		}
	}},
	{"auth.missing", Must, "I.2", "a request without the token is refused", func(r *run) {
		r.send(request{body: initialize, headers: headers{"Authorization": ""}}).want(http.StatusUnauthorized)
	}},
	{"auth.wrong", Must, "I.2", "a request with a wrong token is refused", func(r *run) {
		right := r.token()
		for _, token := range []string{"wrong", right + "x", right[:len(right)-1]} {
			r.send(request{body: initialize, headers: headers{"Authorization": "Bearer " + token}}).want(http.StatusUnauthorized)
		}
	}},
	{"auth.every", Must, "I.2", "every request needs the token, also in an open session", func(r *run) {
		r.token()
		session := r.greet()
		defer r.forget(session)
		without := headers{"Authorization": ""}
		maps.Copy(without, session)
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			a := r.send(request{method: method, body: listTools, headers: without})
			if a.status != http.StatusUnauthorized {
				fail("%s: HTTP %d", method, a.status)
			}
		}
	}},
	{"transport.host", Safe, "", "a request with another Host is refused (DNS rebinding)", func(r *run) {
		r.send(request{body: initialize, host: fmt.Sprintf("evil.example:%d", r.file.Port)}).want(http.StatusBadRequest,
			http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMisdirectedRequest)
	}},
	{"transport.origin", Safe, "", "a request from a web page is refused", func(r *run) {
		r.send(request{body: initialize, headers: headers{"Origin": "https://evil.example"}}).want(http.StatusBadRequest,
			http.StatusUnauthorized, http.StatusForbidden)
	}},
	{"transport.session", Must, "I.1", "an unknown session is HTTP 404, so that a client starts again", func(r *run) {
		r.send(request{body: listTools, headers: headers{sessionHeader: "no-such-session"}}).want(http.StatusNotFound,
			http.StatusBadRequest)
	}},
	{"transport.unknown-method", CLI, "", "an unknown method is a JSON-RPC error; an HTTP error disconnects the CLI", func(r *run) {
		session := r.greet()
		defer r.forget(session)
		a := r.send(request{body: `{"jsonrpc":"2.0","id":2,"method":"no/such"}`, headers: session})
		a.want(http.StatusOK)
		if !strings.Contains(a.body, "-32601") {
			fail("the answer is %.200q", a.body)
		}
	}},
	{"tools.listed", Must, "III", "the tools openDiff and closeDiff exist", func(r *run) {
		tools := r.session().Tools
		for _, t := range []string{geminiide.ToolOpenDiff, geminiide.ToolCloseDiff} {
			if !slices.Contains(tools, t) {
				fail("%s is missing; the tools are %s", t, strings.Join(tools, ", "))
			}
		}
	}},
}

var contextChecks = []check{
	{"context.first", CLI, "", "the stream starts with a context, even if nothing changes", func(r *run) {
		r.context(r.timeouts.answer, func([]geminiide.File) bool { return true })
	}},
	{"context.open", Should, "II", "a file that the user opens becomes active, with a cursor that counts from 1", func(r *run) {
		r.opens("one.txt", func(files []geminiide.File) bool {
			return slices.ContainsFunc(files, func(f geminiide.File) bool {
				return f.Path == r.name("one.txt") && f.IsActive && f.Cursor != nil && f.Cursor.Line >= 1 && f.Cursor.Character >= 1
			})
		})
	}},
	{"context.order", Must, "II", "the file that was opened last is the newest and the only active one", func(r *run) {
		r.opens("two.txt", func(files []geminiide.File) bool {
			i := slices.IndexFunc(files, func(f geminiide.File) bool { return f.Path == r.name("two.txt") })
			return i >= 0 && !slices.ContainsFunc(files, func(f geminiide.File) bool {
				return f.Path != files[i].Path && (f.IsActive || f.Timestamp > files[i].Timestamp)
			})
		})
	}},
	{"context.shape", Must, "II",
		"every context fits the CLI's schema: no null, absolute paths of files on disk, numbers", func(r *run) {
			if len(r.contexts) == 0 {
				must(skip("no context came"))
			}
			for _, c := range r.contexts {
				if at := nulls(c.raw); at != "" {
					fail("%s is null, which disconnects Gemini CLI", at)
				}
				must(c.err)
				for _, f := range c.files {
					if info, err := os.Stat(f.Path); !filepath.IsAbs(f.Path) || err != nil || info.IsDir() {
						fail("%q is not a file on disk", f.Path)
					}
					if f.Timestamp <= 0 {
						fail("the timestamp of %s is %d", f.Path, f.Timestamp)
					}
				}
			}
		}},
	{"context.limits", Should, "II", "no context exceeds what the CLI keeps: 10 files, 16 KiB of selection", func(r *run) {
		for _, c := range r.contexts {
			if len(c.files) > geminiide.MaxOpenFiles {
				fail("one has %d files", len(c.files))
			}
			for _, f := range c.files {
				if n := len(utf16.Encode([]rune(f.SelectedText))); n > geminiide.MaxSelectedText {
					fail("one has %d units of UTF-16 of selection", n)
				}
			}
		}
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
	{"diff.open", Must, "III", "openDiff shows a diff and answers immediately with empty content", func(r *run) {
		r.opened(r.name("one.txt"), proposed, func() {})
	}},
	{"diff.close", Must, "III", "closeDiff answers with one block of text", func(r *run) { r.closed(r.name("one.txt"), proposed) }},
	{"diff.close-json", CLI, "", `that text is JSON, {"content": "..."}, with the text of the diff`, func(r *run) {
		wantContent(r.closed(r.name("one.txt"), odd), odd)
	}},
	{"diff.close-silent", CLI, "",
		"no notification follows closeDiff with suppressNotification: it would turn a yes into a no", func(r *run) {
			r.closed(r.name("one.txt"), proposed)
			must(r.quiet(r.cli))
		}},
	{"diff.lenient", CLI, "", "openDiff accepts unknown properties in its arguments", func(r *run) {
		c := r.session()
		args := map[string]any{"filePath": r.name("one.txt"), "newContent": proposed, "someday": true}
		if value(r.call(c, geminiide.ToolOpenDiff, args)).IsError {
			fail("openDiff failed")
		}
		value(r.closeDiff(c, r.name("one.txt")))
	}},
	{"diff.accept", Must, "III",
		"accepting sends ide/diffAccepted with the given path and the text, byte for byte", func(r *run) {
			r.decided(Accept, r.name("one.txt"), odd, nil, odd)
		}},
	{"diff.not-written", CLI, "", "the companion does not write the file: the CLI does", func(r *run) {
		r.decided(Accept, r.name("two.txt"), proposed, nil, proposed)
		if text := value(os.ReadFile(r.name("two.txt"))); string(text) != original {
			fail("it is changed on disk")
		}
	}},
	{"diff.edit", Must, "III", "ide/diffAccepted contains the user's edits", func(r *run) {
		r.decided(Accept, r.name("one.txt"), proposed, func() { must(r.do(Edit, r.name("one.txt"), edited)) }, edited)
	}},
	{"diff.edit-close", CLI, "", "and so does the answer to closeDiff, when the user says yes in the terminal", func(r *run) {
		r.opened(r.name("one.txt"), proposed, func() {
			must(r.do(Edit, r.name("one.txt"), edited))
			wantContent(value(r.closeDiff(r.cli, r.name("one.txt"))), edited)
		})
	}},
	{"diff.reject", Must, "III", "rejecting sends ide/diffRejected", func(r *run) {
		r.decided(Reject, r.name("one.txt"), proposed, nil, "")
	}},
	{"diff.new-file", Must, "III", "a diff of a file that does not exist yet can be shown and accepted", func(r *run) {
		r.decided(Accept, r.name("new.txt"), proposed, nil, proposed)
	}},
	{"diff.sessions", CLI, "", "two CLIs with a diff of the same file each get their own answer", func(r *run) {
		second := value(r.connect())
		defer second.Close()
		file := r.name("one.txt")
		r.opened(file, proposed, func() {
			if err := r.open(second, file, edited); err != nil {
				fail("the second: %w", err)
			}
			one, err := r.closeDiff(r.cli, file)
			if err != nil {
				fail("the first: %w", err)
			}
			two, err := r.closeDiff(second, file)
			if err != nil {
				fail("the second: %w", err)
			}
			if one == two {
				fail("both get the same text")
			}
			must(r.quiet(second))
		})
	}},
	{"diff.reconnect", CLI, "", "an outcome between two streams of a session arrives on the second", func(r *run) {
		must(r.can(Accept))
		r.opened(r.name("one.txt"), proposed, func() {
			r.pause(r.cli)
			err := r.do(Accept, r.name("one.txt"), "")
			must(r.resume(r.cli))
			must(err)
			method, _, err := r.outcome(r.cli, r.effectTimeout(Accept))
			must(err)
			if method != geminiide.MethodDiffAccepted {
				fail("%s came", method)
			}
		})
	}},
	{"diff.close-unknown", CLI, "", "closeDiff of a file without a diff is answered, too", func(r *run) {
		c := r.session()
		r.drain(c)
		_, err := r.call(c, geminiide.ToolCloseDiff, map[string]any{"filePath": r.name("nothing.txt")})
		var rpc *client.RPCError
		if !errors.As(err, &rpc) {
			must(err)
		}
		must(r.quiet(c))
	}},
	{"transport.keep-alive", CLI, "",
		"an idle stream carries something at least every 5 minutes, or the CLI's HTTP client ends it", func(r *run) {
			if !r.cfg.Slow {
				must(skip("takes 5 minutes: --slow"))
			}
			r.idle(idleTimeout)
		}},
}

// opens lets the user open a file, and waits for a context that fits.
func (r *run) opens(file string, fits func([]geminiide.File) bool) {
	r.session()
	must(r.do(Open, r.name(file), ""))
	r.context(r.effectTimeout(Open), fits)
}

// opened opens a diff, runs f and closes the diff.
func (r *run) opened(file, text string, f func()) {
	c := r.session()
	r.drain(c)
	must(r.open(c, file, text))
	defer r.closeDiff(c, file) // if it is still open
	f()
}

// closed opens a diff and closes it, and returns the answer.
func (r *run) closed(file, text string) (answer string) {
	c := r.session()
	r.drain(c)
	must(r.open(c, file, text))
	return value(r.closeDiff(c, file))
}

// decided opens a diff, runs before, which may be nil, lets the user decide, and expects one
// outcome.
func (r *run) decided(a Action, file, text string, before func(), want string) {
	must(r.can(a))
	r.settle(r.session()) // late notifications may belong to earlier checks
	r.opened(file, text, func() {
		if before != nil {
			before()
		}
		must(r.do(a, file, ""))
		method, d, err := r.outcome(r.cli, r.effectTimeout(a))
		must(err)
		wants := map[Action]string{Accept: geminiide.MethodDiffAccepted, Reject: geminiide.MethodDiffRejected}[a]
		switch {
		case method != wants:
			fail("%s came, want %s", method, wants)
		case d.FilePath != file:
			fail("the path came back as %q, want %q", d.FilePath, file)
		case a == Accept && d.Content != want:
			fail("the text is %q, want %q", d.Content, want)
		}
		must(r.quiet(r.cli))
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
	{"lifecycle.lost", CLI, "", "a CLI that ends in the middle of a diff does not affect others", func(r *run) {
		c := value(r.connect())
		err := r.open(c, r.name("two.txt"), proposed)
		c.Close()
		must(err)
		r.closed(r.name("one.txt"), proposed)
	}},
	{"lifecycle.file", Must, "IV", "when the companion ends, it removes the discovery file", func(r *run) {
		if r.cli == nil {
			r.cli, _ = r.connect() // so that there is a stream to end
		}
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
		switch {
		case gone():
		case !asked && proc.Alive(r.child.PID()):
			r.lives = skip("it does not end with its standard input, and without a console the kit cannot send it Ctrl-Break: " +
				"run the kit in a terminal")
			must(r.lives)
		default:
			fail("%s is still there", filepath.Base(r.path))
		}
	}},
	{"lifecycle.server", Must, "IV", "its server stops", func(r *run) {
		must(r.lives)
		if !soon(r.timeouts.end, func() bool { return !reachable("127.0.0.1", r.file.Port) }) {
			fail("port %d still answers", r.file.Port)
		}
	}},
	{"lifecycle.process", CLI, "", "its process ends", func(r *run) {
		must(r.lives)
		if !soon(r.timeouts.end, func() bool { return !proc.Alive(r.child.PID()) }) {
			fail("it is still there, %v later", r.timeouts.end)
		}
	}},
	{"lifecycle.graceful", CLI, "",
		"it ends its streams properly: a broken one disconnects the CLI until /ide enable", func(r *run) {
			must(r.lives)
			if r.cli == nil {
				must(skip("there was no session"))
			}
			timeout := time.After(r.timeouts.end)
			for {
				select {
				case _, more := <-r.cli.Notifications:
					if !more {
						must(r.cli.Ended)
						return
					}
				case <-timeout:
					fail("the stream is still open")
				case <-r.ctx.Done():
					must(context.Cause(r.ctx))
				}
			}
		}},
}
