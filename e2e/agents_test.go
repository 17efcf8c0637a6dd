package e2e

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/editors/editortest"
	"pollux/internal/fakemodel"
)

// An agentKind is a real agent, as the stories in this file need it.
type agentKind struct {
	name  string // of the command
	title string // in the editors' views
	// closed is set if the agent runs in a network namespace only.
	closed bool
	// ready is on the screen when the agent reads its keyboard.
	ready string
	// connected is on the screen when the agent knows the selected text of one line, in
	// one of two files. It is empty if the agent does not show that.
	connected string
	// received fails the test unless a request to the model holds the selected text of
	// the path.
	received func(t *testing.T, r fakemodel.Request, path, selected string)
	// read, if not empty, names the tool that must read a file before the agent writes
	// it. write returns the call that writes a file.
	read  string
	write func(path, text string) fakemodel.Part
	// readOnly is set if the agent ignores edits in a view.
	readOnly bool
	// anyOrder is set if the agent makes the calls of one reply in any order. Its model
	// then makes one call in each reply.
	anyOrder bool
	// asks is on the screen while a change waits. yes are the keys that accept it there.
	asks string
	yes  []string
	// refused is on the screen after a rejection in the editor. If it is empty, the model
	// receives the rejection and answers.
	refused string
}

var agentKinds = []agentKind{
	{
		name: "gemini", title: "Gemini CLI",
		ready: ready, connected: "2 open files",
		received: func(t *testing.T, r fakemodel.Request, path, selected string) {
			got := toJSON(t, editorContext(t, r.Text))
			if !strings.Contains(got, `"path":"`+path+`"`) || !strings.Contains(got, `"selectedText":"`+selected+`"`) {
				t.Errorf("the model received %s", got)
			}
		},
		write: writeFile("write_file"), asks: asks, yes: []string{"1"}, refused: "Rejected",
	},
	{
		name: "claude", title: "Claude Code", closed: true,
		// "manual mode on": a narrow window has no room for more, and Vim may lose the "n".
		ready: "manual mode o", connected: "1 line selected",
		received: func(t *testing.T, r fakemodel.Request, path, selected string) {
			all := r.System + r.Text
			if !strings.Contains(all, "lines 1 to 1 from "+path+":\n"+selected+"\n") {
				t.Errorf("the model received %s", tail(all, 4000))
			}
		},
		read: "Read", write: writeFile("Write"), asks: "Do you want to", yes: []string{"Enter"}, refused: "Rejected",
	},
	{
		name: "copilot", title: "Copilot CLI", closed: true, readOnly: true, anyOrder: true,
		ready: copilotReady, connected: "@a.t", // cut in a narrow window
		received: func(t *testing.T, r fakemodel.Request, path, selected string) {
			if !strings.Contains(r.Text, "File: "+filepath.Base(path)+" (line 1)\n```\n"+selected+"\n```") {
				t.Errorf("the model received %s", tail(r.Text, 4000))
			}
		},
		write: func(path, text string) fakemodel.Part {
			old, _ := os.ReadFile(path)
			return fakemodel.Part{Call: "edit", Args: map[string]any{"path": path, "old_str": string(old), "new_str": text}}
		},
		asks: "Do you want to edit", yes: []string{"Enter"}, refused: "cancelled by user",
	},
	{
		name: "qwen", title: "Qwen Code", closed: true,
		ready: ready,
		received: func(t *testing.T, r fakemodel.Request, path, selected string) {
			if !strings.Contains(r.Text, "Path: "+path+"\n") || !strings.Contains(r.Text, "Selected text:\n```\n"+selected+"\n```") {
				t.Errorf("the model received %s", tail(r.Text, 4000))
			}
		},
		read: "read_file", write: writeFile("write_file"), asks: asks, yes: []string{"1"},
	},
}

// install prepares the user's home and environment. A world is prepared for Gemini CLI.
func (a agentKind) install(w *world) {
	w.t.Helper()
	if a.name == "gemini" {
		return
	}
	bin, env := w.configure(a.name)
	w.env = append(w.env, env...)
	w.addPath(filepath.Dir(bin))
	if a.name == "claude" {
		w.writeHome(".claude/settings.json", `{"permissions": {"defaultMode": "default"}}`)
	}
}

// writeFile returns the calls of a tool that takes a file's path and its text.
func writeFile(tool string) func(path, text string) fakemodel.Part {
	return func(path, text string) fakemodel.Part {
		return fakemodel.Part{Call: tool, Args: map[string]any{"file_path": path, "content": text}}
	}
}

// eachAgent runs a test with each agent.
func eachAgent(t *testing.T, test func(t *testing.T, a agentKind)) {
	for _, a := range agentKinds {
		t.Run(a.name, func(t *testing.T) {
			if a.closed && !isolated(t) {
				return
			}
			test(t, a)
		})
	}
}

// eachAgentInEditor runs a test with each agent in each editor. The agent is the one that the
// plugin's command starts. With -short it runs each agent in one editor, which is another one
// for another test.
func eachAgentInEditor(t *testing.T, script func(a agentKind, w *world) fakemodel.Script,
	test func(t *testing.T, a agentKind, w *world, kind editortest.Kind, h hands),
) {
	eachAgent(t, func(t *testing.T, a agentKind) {
		first := slices.IndexFunc(agentKinds, func(b agentKind) bool { return b.name == a.name })
		eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
			name, _, _ := strings.Cut(t.Name(), "/")
			second := slices.IndexFunc(editortest.Kinds, func(k editortest.Kind) bool { return k.Name == kind.Name })
			turn := first + second + int(crc32.ChecksumIEEE([]byte(name)))
			if testing.Short() && turn%len(editortest.Kinds) != 0 {
				t.Skip("another agent runs in this editor")
			}
			var w *world
			w = newWorld(t, func(r fakemodel.Request) fakemodel.Reply { return script(a, w)(r) })
			w.env = append(w.env, "POLLUX_LOG=debug") // shown if the test fails
			w.useClaude()
			a.install(w)
			w.writeHome(filepath.Join(".local", "state", "pollux", "agent"), a.name+"\n")
			test(t, a, w, kind, h)
		})
	})
}

// addPath adds a directory to the PATH.
func (w *world) addPath(dir string) { w.path = append(w.path, dir) }

// typist is a model that writes what the prompt says: "write a.txt=x/y" asks for the
// lines x and y, and several files for several calls in one turn.
func typist(a agentKind, w *world) fakemodel.Script {
	return func(r fakemodel.Request) fakemodel.Reply {
		i := strings.LastIndex(r.Prompt, "write ")
		if i < 0 {
			return fakemodel.Say("ok")
		}
		line, _, _ := strings.Cut(r.Prompt[i+len("write "):], "\n")
		var reads, writes []fakemodel.Part
		for word := range strings.FieldsSeq(line) {
			name, text, ok := strings.Cut(word, "=")
			if !ok {
				break
			}
			path := filepath.Join(w.project, name)
			reads = append(reads, fakemodel.Part{Call: a.read, Args: map[string]any{"file_path": path}})
			writes = append(writes, a.write(path, strings.ReplaceAll(text, "/", "\n")+"\n"))
		}
		switch {
		case a.anyOrder && r.Step < len(writes):
			return fakemodel.Reply{Parts: writes[r.Step : r.Step+1]}
		case a.anyOrder:
		case r.Step == 0 && a.read != "":
			return fakemodel.Reply{Parts: reads}
		case r.Step == 0, r.Step == 1 && a.read != "":
			return fakemodel.Reply{Parts: writes}
		}
		return fakemodel.Say(after)
	}
}

// An agent runs in the editor's own terminal, for one session: what it needs most time for is
// its start.
func TestEditorAgents(t *testing.T) {
	t.Parallel()
	// done returns the model's words after the calls for a line such as "a.txt=one". They have no
	// spaces: where Copilot CLI writes one, Emacs's terminal may keep the old character.
	done := func(line string) string { return "Done:" + strings.ReplaceAll(line, " ", "+") + "." }
	script := func(a agentKind, w *world) fakemodel.Script {
		return func(r fakemodel.Request) fakemodel.Reply {
			reply := typist(a, w)(r)
			if i := strings.LastIndex(r.Prompt, "write "); i >= 0 && len(reply.Parts) == 1 && reply.Parts[0].Text == after {
				line, _, _ := strings.Cut(r.Prompt[i+len("write "):], "\n")
				return fakemodel.Say(done(strings.TrimSpace(line)))
			}
			return reply
		}
	}
	eachAgentInEditor(t, script, func(t *testing.T, a agentKind, w *world, kind editortest.Kind, h hands) {
		one := w.file("a.txt", "one \U0001F600 two\nthree\n")
		two := w.file("b.txt", "a\nb\nc\nd\ne\n")
		d := w.sit(kind, two, one)
		write := func(line string) { d.t.Helper(); d.say("write " + line) }
		leave := func() {
			d.t.Helper()
			if d.ask(d.State.Terminal) == "1" {
				d.leaveTerminal(h)
			}
		}

		// It is connected, and the model receives the open file and the selection.
		step(t, "context", func(t *testing.T) {
			d.press(h.visit(one)...)
			d.press(h.selectWord...)
			d.terminal(a)
			waitFor(t, "the agent", func() bool { return strings.Contains(w.pollux("status"), a.title) })
			d.reads(a.connected)
			d.say("hello there")
			r := w.prompted("hello there")
			a.received(t, r, one, "one")
			w.dialIDE().wantSelected(one, "one", "0:0-0:3")
			d.reads(a.ready)
		})

		// It proposes a change while the user types in its terminal. The diff opens and
		// the keys stay in the terminal. The yes in the terminal counts, and then the buffer
		// shows the file.
		step(t, "answer in the terminal", func(t *testing.T) {
			width := d.ask(d.State.Width)
			write("a.txt=one/two")
			d.shows(one)
			if !a.readOnly { // its title has more to say, and is cut
				d.see(" accepts")
			}
			d.reads(a.asks)
			d.until(d.State.Terminal, "1")
			d.until(d.State.Width, width) // otherwise the agent wraps its lines again
			d.press(a.yes...)
			d.reads(done("a.txt=one/two"))
			w.wantFile(one, "one\ntwo\n")
			d.until(d.State.Shown, "")
			d.until(d.State.Terminal, "1")
			d.holds(d.State.Buffer("a.txt"), "one\ntwo\n")
		})

		// The user edits and accepts in the editor. The file and the buffer contain the
		// edited bytes, unless the agent ignores edits: then the editor allows none.
		text := "mine\none\n3\n"
		step(t, "edit and accept", func(t *testing.T) {
			write("a.txt=one/3")
			d.shows(one)
			d.see("a.txt (") // the title, which has no room for the agent in every editor
			if status := w.pollux("status"); !strings.Contains(status, "of "+a.title+", pending") {
				t.Errorf("the status is %s", status)
			}
			d.leaveTerminal(h)
			d.enter()
			if a.readOnly {
				text = "one\n3\n"
			} else {
				d.press(h.edit...)
			}
			d.press(h.accepts[0]...)
			d.reads(done("a.txt=one/3"))
			w.wantFile(one, text)
			d.until(d.State.Shown, "")
			d.holds(d.State.Buffer("a.txt"), text)
		})

		// Two changes of one turn come one after the other. The user takes a part of the
		// first and rejects the second. The unsaved text of another buffer stays.
		step(t, "two changes", func(t *testing.T) {
			leave()
			d.press(h.change...)
			d.holds(d.State.Buffer("a.txt"), "dirty\n"+text)
			d.terminal(a)
			write("b.txt=A/b/c/d/E a.txt=new")
			d.shows(two)
			d.leaveTerminal(h)
			d.enter()
			want := "A\nb\nc\nd\nE\n"
			if !a.readOnly {
				d.press(h.nextHunk...)
				d.until(d.State.Line, "5")
				d.press(h.undoHunk...)
				want = "A\nb\nc\nd\ne\n"
			}
			d.holds(d.State.Proposal, want)
			d.press(h.accepts[0]...)
			d.shows(one)
			leave() // Emacs returns to the window that was used before
			d.enter()
			d.press(h.rejects[0]...)
			if a.refused == "" {
				d.reads(done("b.txt=A/b/c/d/E a.txt=new"))
			} else {
				d.reads(a.refused)
			}
			w.wantFile(two, want)
			w.wantFile(one, text)
			d.holds(d.State.Buffer("a.txt"), "dirty\n"+text)
		})

		// A question about lines is pasted into its terminal, and sent.
		step(t, "question", func(t *testing.T) {
			leave()
			d.press(h.send("why is this so?")...)
			w.prompted("why is this so?")
		})
	})
}

// The user takes time to type the command that opens the terminal. The agent still
// receives the selection.
func TestEditorKeepsTheSelectionWhileTyping(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		w := newWorld(t, silent)
		w.useClaude()
		path := w.file("a.txt", "one two\nthree\n")
		w.setAgent(kind, "cat")
		d := w.sit(kind, path)
		d.press(h.selectWord...)
		keys := d.Command("open")
		d.press(keys[:len(keys)-1]...)
		if kind.Name != "emacs" { // longer than a selection that has ended is kept
			d.until("mode()", "c")
			d.later(200)
		}
		d.press(keys[len(keys)-1])
		d.until(d.State.Terminal, "1")
		w.dialIDE().wantSelected(path, "one", "0:0-0:3")
	})
}
