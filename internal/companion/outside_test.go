package companion

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A folder is a companion of a folder in which files change outside Pollux.
type folder struct {
	*bare
	t       *testing.T
	view    *View
	session *fakeSession
}

// inFolder runs a test in a folder.
func inFolder(t *testing.T, git bool, test func(t *testing.T, p *folder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFolder(t, git)) })
}

// newFolder returns a folder with the files of a git repository. If git is false, there is
// no repository.
func newFolder(t *testing.T, git bool) *folder {
	t.Helper()
	c := newBare(t)
	c.cfg.Outside = true
	p := &folder{bare: c, t: t, view: c.view(t)}
	if !git {
		return p
	}
	for name, text := range map[string]string{
		"a.txt": "one\ntwo\nthree\n", "b.txt": "one\n", ".gitignore": "*.log\n", "gone.txt": "gone\n", "dirty.txt": "one\n",
		"old.txt~": "one\n",
	} {
		p.write(name, text)
	}
	p.git("init", "-q")
	p.git("add", ".")
	p.git("commit", "-qm", "first")
	p.write("dirty.txt", "two\n")
	p.write("new before.txt", "one\n")
	return p
}

func (p *folder) git(args ...string) {
	p.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", p.dir, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
}

func (p *folder) path(name string) string { return filepath.Join(p.dir, name) }

func (p *folder) write(name, text string) {
	p.t.Helper()
	systest.WriteFile(p.t, p.path(name), text)
}

func (p *folder) holds(name, want string) {
	p.t.Helper()
	systest.WantFile(p.t, p.path(name), want)
}

// open is an editor's snapshot of the open files.
func (p *folder) open(names ...string) {
	p.t.Helper()
	var s editor.Snapshot
	for _, name := range names {
		s.Files = append(s.Files, editor.File{Path: p.path(name)})
	}
	if err := p.view.Update(s); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.view.Status(p.t.Context()); err != nil { // now it is known
		p.t.Fatal(err)
	}
}

// start connects an agent, and waits until the companion knows the files.
func (p *folder) start() {
	p.t.Helper()
	p.session = p.connect(p.t, newFakeSession())
	p.t.Cleanup(func() { p.Disconnect(p.session) })
	p.wait()
}

// wait lets enough time pass that a change is noticed.
func (p *folder) wait() {
	time.Sleep(gitInterval + 4*lookInterval + lookSoonInterval/2)
	synctest.Wait()
}

// lists checks what is listed: names with the kind of change.
func (p *folder) lists(want ...string) {
	p.t.Helper()
	got := []string{}
	for _, f := range p.outside.list().Files {
		name, err := filepath.Rel(p.dir, f.Path)
		if err != nil {
			p.t.Fatal(err)
		}
		got = append(got, f.Change+" "+filepath.ToSlash(name))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		p.t.Errorf("the list has %q, want %q", got, want)
	}
}

// shows opens the view of a listed change.
func (p *folder) shows(name, original, proposed string) editor.Diff {
	p.t.Helper()
	if err := p.view.Call(p.t.Context(), editor.MethodOutsideOpen, editor.FilePath{Path: p.path(name)}, nil); err != nil {
		p.t.Fatal(err)
	}
	d := systest.Receive(p.t, p.view.Opened)
	if d.Original != original || d.Text() != proposed || d.State != editor.StateOutside || d.Path != p.path(name) {
		p.t.Errorf("the view shows %+v", d)
	}
	return d
}

// temporaries are files that editors write while the user edits a.txt in a folder.
var temporaries = []string{
	".a.txt.swp", ".a.txt.swo", ".a.txt.swa", ".swp", "a.txt~", "4913", // Vim
	"#a.txt#", "a.txt.~1~", // Emacs
	".a.txt.kak.x7Bq2Z", // Kakoune
}

// What changes while an agent is connected is listed, if neither the user nor git wants it
// otherwise.
func TestOutsideLists(t *testing.T) {
	for _, tt := range []struct {
		name   string
		open   []string
		change func(p *folder)
		want   []string
	}{
		{"nothing", []string{"a.txt"}, func(*folder) {}, nil},
		{"an open file", []string{"new before.txt"}, func(p *folder) { p.write("new before.txt", "two\n") },
			[]string{"changed new before.txt"}},
		{"a file of git", nil, func(p *folder) { p.write("a.txt", "two\n") }, []string{"changed a.txt"}},
		{"a new file", nil, func(p *folder) { p.write("new.txt", "two\n") }, []string{"created new.txt"}},
		{"a new file that the user opens", nil, func(p *folder) { p.write("new.txt", "two\n"); p.open("new.txt") },
			[]string{"created new.txt"}},
		{"a removed file", nil, func(p *folder) { os.Remove(p.path("gone.txt")) }, []string{"deleted gone.txt"}},
		{"a file that had changed before", nil, func(p *folder) { p.write("dirty.txt", "three\n") }, []string{"changed dirty.txt"}},
		{"temporary files of editors", nil, func(p *folder) {
			for _, name := range temporaries {
				p.write(name, "one\n")
			}
			if err := os.Symlink("user@host.1:2", p.path(".#a.txt")); err != nil && runtime.GOOS != "windows" {
				p.t.Error(err)
			}
		}, nil},
		{"a file of git with the name of a temporary file", nil, func(p *folder) { p.write("old.txt~", "two\n") },
			[]string{"changed old.txt~"}},
		{"a new file whose name is almost that of a temporary file", nil, func(p *folder) {
			p.write("a.swp", "one\n")
			p.write(".a.sql", "one\n")
			p.write("#a", "one\n")
			p.write("4913.txt", "one\n")
		}, []string{"created #a", "created .a.sql", "created 4913.txt", "created a.swp"}},
		{"an ignored file", []string{"x.log"}, func(p *folder) { p.write("x.log", "two\n") }, nil},
		{"a secret", []string{".env"}, func(p *folder) { p.write(".env", "two\n") }, nil},
		{"a file with the same text", []string{"a.txt"}, func(p *folder) { p.write("a.txt", "one\ntwo\nthree\n") }, nil},
		{"the line endings of git", nil, func(p *folder) { p.write("b.txt", "one\r\n") }, nil},
		{"a file as before again", nil, func(p *folder) { p.write("a.txt", "x"); p.wait(); p.write("a.txt", "one\ntwo\nthree\n") }, nil},
		{"a file that an editor saved", []string{"a.txt"}, func(p *folder) {
			p.write("a.txt", "two\n")
			p.outside.account(p.path("a.txt"))
		}, nil},
		{"a new file that an editor saved", nil, func(p *folder) {
			p.write("new.txt", "two\n")
			p.outside.account(p.path("new.txt"))
		}, nil},
		{"a file that an agent changed after that", []string{"a.txt"}, func(p *folder) {
			p.write("a.txt", "two\n")
			p.outside.account(p.path("a.txt"))
			p.wait()
			p.write("a.txt", "three\n")
		}, []string{"changed a.txt"}},
		{"a file that an editor saved through a link", []string{"link.txt"}, func(p *folder) {
			p.write("link.txt", "two\n")
			p.outside.account(p.path("link.txt"))
		}, nil},
		{"a file that is open through a link", []string{"link.txt"}, func(p *folder) { p.write("a.txt", "two\n") }, []string{"changed a.txt"}},
		{"a file with a proposal that is open through a link", []string{"link.txt"}, func(p *folder) {
			if err := p.Propose(p.session, Proposal{Path: p.path("link.txt"), Text: "two\n"}); err != nil {
				p.t.Error(err)
			}
			p.write("a.txt", "three\n")
		}, nil},
		{"a change that was committed", nil, func(p *folder) { p.write("a.txt", "two\n"); p.wait(); p.git("commit", "-qam", "x") },
			[]string{"changed a.txt"}},
		{"a file that is not text", nil, func(p *folder) { p.write("a.txt", "\x00") }, []string{"changed a.txt"}},
		{"a file with a proposal", nil, func(p *folder) {
			if err := p.Propose(p.session, Proposal{Path: p.path("a.txt"), Text: "two\n"}); err != nil {
				p.t.Error(err)
			}
			p.write("a.txt", "three\n")
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inFolder(t, true, func(t *testing.T, p *folder) {
				p.write("x.log", "one\n")
				p.write(".env", "one\n")
				if err := os.Symlink("a.txt", p.path("link.txt")); err != nil && slices.Contains(tt.open, "link.txt") {
					t.Skip(err)
				}
				p.open(tt.open...)
				p.start()
				p.lists()
				tt.change(p)
				p.wait()
				p.lists(tt.want...)
			})
		})
	}
}

// A change that the user wants, and one that the user does not want, end as the words say.
func TestOutsideAndProposals(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(p *folder, d editor.Diff)
		want []string
	}{
		{"accepted", func(p *folder, d editor.Diff) {
			p.view.Accepts(d, "two\n")
			p.write("a.txt", "two\n")
			p.view.WantClosed(d, editor.ReasonAccepted)
		}, nil},
		{"yes in the terminal", func(p *folder, d editor.Diff) {
			if _, err := p.Withdraw(p.session, d.Path); err != nil {
				p.t.Error(err)
			}
			p.write("a.txt", "two\n")
			p.wait()
			p.lists()
			if e, err := p.journal.Get(d.ID); err != nil || e.Ending != journal.InTerminal {
				p.t.Errorf("the journal has %+v, %v", e, err)
			}
		}, nil},
		{"rejected, and written nevertheless", func(p *folder, d editor.Diff) {
			p.view.Rejects(d)
			p.write("a.txt", "two\n")
		}, []string{"changed a.txt"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inFolder(t, true, func(t *testing.T, p *folder) {
				p.start()
				if err := p.Propose(p.session, Proposal{Path: p.path("a.txt"), Text: "two\n"}); err != nil {
					t.Fatal(err)
				}
				tt.end(p, systest.Receive(t, p.view.Opened))
				p.wait()
				p.lists(tt.want...)
			})
		})
	}
}

// The user reads a change, and takes it back as a whole or in part.
func TestOutsideIsTakenBack(t *testing.T) {
	inFolder(t, true, func(t *testing.T, p *folder) {
		p.start()
		p.write("a.txt", "1\ntwo\n3\n")
		p.write("dirty.txt", "three\n")
		p.write("new.txt", "new\n")
		p.write("b.txt", "two\n")
		systest.Remove(t, p.path("gone.txt"))
		p.wait()

		p.view.Saves(p.shows("a.txt", "one\ntwo\nthree\n", "1\ntwo\n3\n"), "one\ntwo\n3\n")
		p.holds("a.txt", "one\ntwo\n3\n")
		d := p.shows("dirty.txt", "two\n", "three\n")
		p.view.Saves(d, "two\n")
		p.holds("dirty.txt", "two\n")
		p.view.Saves(p.shows("new.txt", "", "new\n"), "")
		if _, err := os.Stat(p.path("new.txt")); err == nil {
			t.Error("the new file is still there")
		}
		p.view.Saves(p.shows("gone.txt", "gone\n", ""), "gone\n")
		p.holds("gone.txt", "gone\n")
		p.lists("changed b.txt")

		// The journal has the overwritten text.
		kept := []string{}
		all, err := p.journal.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.State == journal.Replaced {
				text, _ := p.journal.Text(e.ID)
				kept = append(kept, text)
			}
		}
		slices.Sort(kept)
		if want := []string{"1\ntwo\n3\n", "new\n", "three\n"}; !slices.Equal(kept, want) {
			t.Errorf("the journal has %q, want %q", kept, want)
		}

		for len(p.view.Closed) > 0 {
			<-p.view.Closed
		}
		d = p.shows("b.txt", "one\n", "two\n")
		if _, err := p.view.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: "two\n"}); err == nil {
			t.Error("it can be accepted")
		}
		p.write("b.txt", "three\n")
		if res, err := p.view.Save(t.Context(), editor.DiffAccept{ID: d.ID, Content: "one\n"}); err != nil || res.Status != editor.StatusConflict {
			t.Errorf("save = %+v, %v, want a conflict", res, err)
		}
		p.view.Rejects(d)
		p.view.WantClosed(d, editor.ReasonKept)
		p.holds("b.txt", "three\n")
		p.lists()
		p.wait()
		p.lists("changed b.txt") // since the user has not seen this one
		p.shows("b.txt", "two\n", "three\n")
	})
}

// Other clients do not see the view that a client has asked for.
func TestOutsideViewIsForOneClient(t *testing.T) {
	inFolder(t, true, func(t *testing.T, p *folder) {
		other := p.bare.view(t)
		p.start()
		p.write("a.txt", "two\n")
		p.wait()
		d := p.shows("a.txt", "one\ntwo\nthree\n", "two\n")
		if list, err := other.Diffs(t.Context()); err != nil || len(list) > 0 || len(other.Opened) > 0 {
			t.Errorf("another client sees %+v, %v", list, err)
		}
		if st, err := other.Status(t.Context()); err != nil || len(st.Diffs) > 0 || len(st.Outside.Files) != 1 {
			t.Errorf("the status is %+v, %v", st, err)
		}
		p.view.Client.Close()
		systest.Until(t, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.diffs[d.ID] == nil
		})
		p.lists("changed a.txt")
	})
}

// Every client receives the list when it attaches and when it changes.
func TestOutsideIsAnnounced(t *testing.T) {
	inFolder(t, true, func(t *testing.T, p *folder) {
		lists := make(chan editor.Outside, 10)
		p.start()
		p.attach(t, editor.InitializeParams{}, editor.Handler{Outside: func(o editor.Outside) { lists <- o }})
		p.write("a.txt", "two\n")
		p.wait()
		if o := systest.Receive(t, lists); len(o.Files) != 1 || o.Files[0].Path != p.path("a.txt") {
			t.Errorf("the client receives %+v", o)
		}
		late := make(chan editor.Outside, 10)
		client := p.attach(t, editor.InitializeParams{}, editor.Handler{Outside: func(o editor.Outside) { late <- o }})
		if o := systest.Receive(t, late); len(o.Files) != 1 {
			t.Errorf("a late client receives %+v", o)
		}
		if err := client.Call(t.Context(), editor.MethodOutsideDismiss, editor.FilePath{}, nil); err != nil {
			t.Error(err)
		}
		if o := systest.Receive(t, lists); len(o.Files) > 0 {
			t.Errorf("the client receives %+v", o)
		}
		p.holds("a.txt", "two\n")
	})
}

// The companion looks at the files until the agent has ended.
func TestOutsideLooksWhileAnAgentIsConnected(t *testing.T) {
	t.Parallel()
	inFolder(t, false, func(t *testing.T, p *folder) {
		p.write("a.txt", "one\n")
		p.open("a.txt")
		p.start()
		p.write("a.txt", "two\n")
		p.wait()
		p.lists("changed a.txt")
		p.write("a.txt", "one\n")
		p.Disconnect(p.session)
		p.wait()
		p.lists()
		p.write("a.txt", "three\n")
		p.wait()
		p.lists()
	})
}

// An agent writes an open file while Pollux looks at it for the first time.
func TestOutsideSeesWhatIsWrittenDuringTheFirstLook(t *testing.T) {
	t.Parallel()
	inFolder(t, false, func(t *testing.T, p *folder) {
		p.write("a.txt", "one\n")
		var once sync.Once
		p.watch.stat = func(path string) fileState {
			state := stateOf(path)
			once.Do(func() { p.write("a.txt", "second\n") })
			return state
		}
		p.open("a.txt")
		p.start()
		p.lists("changed a.txt")
	})
}

// A repository may name programs in its configuration. None of them runs.
func TestOutsideRunsNoProgramOfTheRepository(t *testing.T) {
	inFolder(t, true, func(t *testing.T, p *folder) {
		mark := filepath.Join(t.TempDir(), "mark")
		program := fmt.Sprintf("touch '%s'; cat", mark)
		p.write(".gitattributes", "* filter=evil\n")
		for _, name := range []string{"filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.fsmonitor", "diff.external"} {
			p.git("config", name, program)
		}
		p.git("config", "filter.evil.required", "true")
		p.start()
		p.write("a.txt", "one\ntwo\nthree\n") // the same size, in the second of the index
		p.write("b.txt", "two\n")
		p.wait()
		p.lists("changed b.txt")
		p.shows("b.txt", "one\n", "two\n")
		if _, err := os.Stat(mark); err == nil {
			t.Error("a program of the repository ran")
		}
	})
}

// Neither many files nor large ones cost much.
func TestOutsideIsLimited(t *testing.T) {
	t.Parallel()
	inFolder(t, true, func(t *testing.T, p *folder) {
		p.start()
		for i := range maxOutsideFiles + 10 {
			p.write(fmt.Sprintf("f%d.txt", i), "x\n")
		}
		p.wait()
		if o := p.outside.list(); len(o.Files) > maxOutsideFiles || !o.More {
			t.Errorf("%d files are listed, more: %v", len(o.Files), o.More)
		}

		p = newFolder(t, false)
		p.write("large.txt", strings.Repeat("x\n", maxOutsideFile))
		p.open("large.txt")
		p.start()
		p.write("large.txt", "x\n")
		p.wait()
		p.lists("changed large.txt")
		err := p.view.Call(t.Context(), editor.MethodOutsideOpen, editor.FilePath{Path: p.path("large.txt")}, nil)
		systest.WantError(t, err, "larger than 1 MiB")

		p = newFolder(t, false)
		const size = maxOutsideFile - 1
		names := []string{}
		for i := range maxOutsideTexts/size + 2 {
			names = append(names, fmt.Sprintf("f%d.txt", i))
			p.write(names[i], strings.Repeat("x", size))
		}
		p.open(names...)
		p.start()
		if p.outside.texts > maxOutsideTexts {
			t.Errorf("%d bytes are kept", p.outside.texts)
		}
	})
}

// A change keeps the line endings and the byte order mark of the file.
func TestOutsideKeepsLineEndings(t *testing.T) {
	inFolder(t, false, func(t *testing.T, p *folder) {
		p.write("a.txt", bom+"one\r\ntwo\r\n")
		p.open("a.txt")
		p.start()
		p.write("a.txt", bom+"1\r\n2\r\n")
		p.wait()
		p.view.Saves(p.shows("a.txt", "one\ntwo\n", "1\n2\n"), "one\n2\n")
		p.holds("a.txt", bom+"one\r\n2\r\n")
	})
}

// With the setting turned off, nothing is looked at.
func TestOutsideIsOff(t *testing.T) {
	inFolder(t, false, func(t *testing.T, p *folder) {
		p.cfg.Outside = false
		p.write("a.txt", "one\n")
		p.open("a.txt")
		p.start()
		p.outside.account(p.path("a.txt"))
		if p.wait(); len(p.outside.files) > 0 {
			t.Error("it looks at files")
		}
	})
}
