package companion

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

func none(string) bool { return false }

// files makes empty files and returns their paths.
func files(t *testing.T, names ...string) []string {
	t.Helper()
	dir := t.TempDir()
	paths := make([]string, len(names))
	for i, n := range names {
		paths[i] = filepath.Join(dir, n)
		systest.WriteFile(t, paths[i], "")
	}
	return paths
}

func TestContextIsDebounced(t *testing.T) {
	p := files(t, "a")
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		s := newStore(none, 0, func() { sent.Add(1) })
		update := func(line int) {
			s.update("x", editor.Snapshot{Files: []editor.File{{Path: p[0], Active: true, Cursor: &editor.Cursor{Line: line, Character: 1}}}})
		}
		start := time.Now()
		update(1)
		time.Sleep(debounceDelay - time.Millisecond)
		synctest.Wait()
		if sent.Load() != 0 {
			t.Errorf("sent after %v", time.Since(start))
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := sent.Load(); n != 1 {
			t.Errorf("%d updates after %v, want 1", n, time.Since(start))
		}
		// A held key: events every 10 ms for a second reach the CLI about
		// twenty times, not never and not a hundred times.
		sent.Store(0)
		for i := range 100 {
			update(i + 2)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := sent.Load(); n < 10 || n > 20 {
			t.Errorf("%d updates in a second of events", n)
		}
		s.close()
		update(1)
		time.Sleep(time.Second)
	})
}

func TestNoUpdateWhenNothingChanged(t *testing.T) {
	p := files(t, "a", "b")
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		s := newStore(none, 0, func() { sent.Add(1) })
		snap := editor.Snapshot{Files: []editor.File{{Path: p[0], Focused: 5, Active: true, Cursor: &editor.Cursor{Line: 1, Character: 1}}, {Path: p[1], Focused: 3}}}
		step := func(want int32, what string) {
			t.Helper()
			s.update("x", snap)
			time.Sleep(time.Second)
			synctest.Wait()
			if n := sent.Load(); n != want {
				t.Errorf("%s: %d updates, want %d", what, n, want)
			}
		}
		step(1, "first")
		step(1, "the same again")
		snap.Files[0].Focused = 9
		step(1, "a later focus that changes no order")
		snap.Files = []editor.File{{Path: p[0], Focused: 9, Active: true, Cursor: &editor.Cursor{Line: 1, Character: 2}}, snap.Files[1]}
		step(2, "the cursor")
		snap.Files = []editor.File{{Path: p[0], Focused: 9}, {Path: p[1], Focused: 10, Active: true}}
		step(3, "the focus")
		selected := func(end int) {
			snap.Files = []editor.File{{Path: p[1], Focused: 10, Active: true, Selection: "x", Range: &editor.Range{
				Start: editor.Cursor{Line: 1, Character: 1}, End: editor.Cursor{Line: 1, Character: end},
			}}}
		}
		selected(2)
		step(4, "a selection")
		selected(2)
		step(4, "the same selection")
		selected(3)
		step(5, "where the selection is")
		s.close()
	})
}

func TestBuild(t *testing.T) {
	p := files(t, "a", "b", "c")
	dir := filepath.Dir(p[0])
	cursor := &editor.Cursor{Line: 2, Character: 3}
	for _, tt := range []struct {
		name  string
		files []editor.File
		want  string
	}{
		{"nothing", nil, ``},
		{"the active file is the newest", []editor.File{{Path: p[0], Focused: 1, Active: true}, {Path: p[1], Focused: 7}}, `a 1 active; b 7`},
		{"newest first", []editor.File{{Path: p[1], Focused: 1}, {Path: p[0], Focused: 2}}, `a 2; b 1`},
		{"no active file", []editor.File{{Path: p[0], Focused: 1, Cursor: cursor, Selection: "x"}}, `a 1`},
		{"cursor and selection of the active file only", []editor.File{
			{Path: p[0], Focused: 2, Active: true, Cursor: cursor, Selection: "x"},
			{Path: p[1], Focused: 1, Cursor: cursor, Selection: "y"}}, `a 2 active 2:3 "x"; b 1`},
		{"two active files", []editor.File{{Path: p[0], Focused: 1, Active: true, Selection: "x"}, {Path: p[1], Focused: 2, Active: true}}, `b 2 active; a 1`},
		{"a selection that is not UTF-8", []editor.File{{Path: p[0], Focused: 1, Active: true, Selection: "a\xff"}}, "a 1 active \"a\uFFFD\""},
		{"a cursor that is none", []editor.File{{Path: p[0], Focused: 1, Active: true, Cursor: &editor.Cursor{Line: 0, Character: 1}}}, `a 1 active`},
		{"not on disk, relative, a directory", []editor.File{{Path: filepath.Join(dir, "gone")}, {Path: "a"}, {Path: dir}, {Path: "term://x"}}, ``},
		{"twice", []editor.File{{Path: p[0], Focused: 1}, {Path: dir + "/./a", Focused: 4}}, `a 4`},
	} {
		got := ""
		for i, f := range build([]snapshot{{editor.Snapshot{Files: tt.files}, 1000}}, 0, func(path string) bool { return !regular(path) }).Files {
			if i > 0 {
				got += "; "
			}
			got += fmt.Sprintf("%s %d", filepath.Base(f.Path), f.Focused)
			if f.Active {
				got += " active"
			}
			if f.Cursor != nil {
				got += fmt.Sprintf(" %d:%d", f.Cursor.Line, f.Cursor.Character)
			}
			if f.Selection != "" {
				got += fmt.Sprintf(" %q", f.Selection)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

func TestValidRange(t *testing.T) {
	at := func(startLine, startCharacter, endLine, endCharacter int) *editor.Range {
		return &editor.Range{Start: editor.Cursor{Line: startLine, Character: startCharacter}, End: editor.Cursor{Line: endLine, Character: endCharacter}}
	}
	p := files(t, "a", "b")
	for _, tt := range []struct {
		name      string
		selection string
		where     *editor.Range
		valid     bool
	}{
		{"none", "x", nil, false},
		{"one line", "x", at(1, 2, 1, 3), true},
		{"several lines", "x\ny", at(1, 9, 2, 2), true},
		{"the end of a line", "x\n", at(1, 1, 2, 1), true},
		{"no selection", "", at(1, 2, 1, 3), false},
		{"empty", "x", at(1, 2, 1, 2), true},
		{"an end before the start", "x", at(1, 3, 1, 2), false},
		{"an end on an earlier line", "x", at(2, 1, 1, 3), false},
		{"a line 0", "x", at(0, 1, 1, 3), false},
		{"a character 0", "x", at(1, 0, 1, 3), false},
		{"an end at line 0", "x", at(1, 1, 0, 3), false},
		{"an end at character 0", "x", at(1, 1, 2, 0), false},
	} {
		open := []editor.File{{Path: p[0], Active: true, Selection: tt.selection, Range: tt.where}, {Path: p[1], Range: at(1, 1, 1, 2), Selection: "y"}}
		got := build([]snapshot{{editor.Snapshot{Files: open}, 1}}, 0, none).Files
		if r := got[0].Range; (r != nil) != tt.valid || r != nil && *r != *tt.where {
			t.Errorf("%s: %+v, want valid %v", tt.name, r, tt.valid)
		}
		if r := got[1].Range; r != nil {
			t.Errorf("%s: a file that is not active has %+v", tt.name, r)
		}
	}
}

func TestBuildKeepsTheNewest(t *testing.T) {
	names := make([]string, 30)
	for i := range names {
		names[i] = fmt.Sprintf("f%02d", i)
	}
	var open []editor.File
	for i, p := range files(t, names...) {
		open = append(open, editor.File{Path: p, Focused: int64(i)})
	}
	odd := func(path string) bool { return (path[len(path)-1]-'0')%2 == 1 }
	got := build([]snapshot{{editor.Snapshot{Files: open}, 1}}, 10, odd).Files
	if len(got) != 10 || filepath.Base(got[0].Path) != "f28" || filepath.Base(got[9].Path) != "f10" {
		t.Errorf("kept %v", got)
	}
}

func TestTrustOnlyWhenTold(t *testing.T) {
	yes := true
	for _, trusted := range []*bool{nil, &yes} {
		got := build([]snapshot{{editor.Snapshot{Trusted: trusted}, 1}}, 0, none).Trusted
		if got != trusted {
			t.Errorf("isTrusted = %v, told %v", got, trusted)
		}
	}
}

// An editor sends trusted only if it has changed.
func TestTrustIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(none, 0, func() {})
		yes, no := true, false
		for _, step := range []struct{ sent, want *bool }{{nil, nil}, {&yes, &yes}, {nil, &yes}, {&no, &no}, {nil, &no}} {
			s.update("editor", editor.Snapshot{Trusted: step.sent})
			time.Sleep(time.Second)
			if got := s.context().Trusted; got != step.want {
				t.Errorf("isTrusted = %v after %v, want %v", got, step.sent, step.want)
			}
		}
	})
}

func TestEventsKeepASnapshot(t *testing.T) {
	p := files(t, "a", "b")
	synctest.Test(t, func(t *testing.T) {
		s := newStore(none, 0, func() {})
		state := func() (out string) {
			time.Sleep(time.Second)
			synctest.Wait()
			for _, f := range s.context().Files {
				out += filepath.Base(f.Path)
				if f.Active {
					out += "*"
				}
			}
			return out
		}
		for _, tt := range []struct{ event, path, want string }{
			{"focus", p[0], "a*"}, {"focus", p[1], "b*a"}, {"focus", p[0], "a*b"}, {"close", p[0], "b"}, {"quit", "", ""},
		} {
			s.event(editor.ContextEvent{Source: "kak", Event: tt.event, Path: tt.path})
			if got := state(); got != tt.want {
				t.Errorf("after %s %s: %q, want %q", tt.event, filepath.Base(tt.path), got, tt.want)
			}
		}
		where := editor.Range{Start: editor.Cursor{Line: 1, Character: 1}, End: editor.Cursor{Line: 1, Character: 2}}
		s.event(editor.ContextEvent{Source: "kak", Event: "focus", Path: p[0], Selection: "x", Range: &where})
		state()
		if f := s.context().Files[0]; f.Selection != "x" || f.Range == nil || *f.Range != where {
			t.Errorf("selected %q at %+v", f.Selection, f.Range)
		}
		s.close()
	})
}

// A hook starts a process for each event, so a later event may arrive first.
func TestEventsInTheOrderOfTheirNumbers(t *testing.T) {
	p := files(t, "a", "b", "c")
	type event struct {
		number uint64
		event  string
		path   string
	}
	for _, tt := range []struct {
		name   string
		events []event
		want   string
	}{
		{"in order", []event{{1, "focus", p[0]}, {2, "focus", p[1]}, {3, "close", p[0]}}, "b*"},
		{"a late focus", []event{{2, "focus", p[1]}, {1, "focus", p[0]}}, "b* a"},
		{"between two", []event{{1, "focus", p[0]}, {3, "focus", p[2]}, {2, "focus", p[1]}}, "c* b a"},
		{"an old cursor", []event{{2, "focus", p[0]}, {1, "focus", p[0]}}, "a*"},
		{"a focus after the close", []event{{2, "close", p[0]}, {1, "focus", p[0]}}, ""},
		{"a close after the next focus", []event{{1, "focus", p[0]}, {3, "focus", p[0]}, {2, "close", p[0]}}, "a*"},
		{"a focus after the end", []event{{1, "focus", p[0]}, {3, "quit", ""}, {2, "focus", p[1]}}, ""},
		{"the close of the active file", []event{{1, "focus", p[0]}, {2, "focus", p[1]}, {3, "close", p[1]}}, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(none, 0, func() {})
				defer s.close()
				for _, e := range tt.events {
					cursor := editor.Cursor{Line: int(e.number), Character: 1}
					s.event(editor.ContextEvent{Source: "kak", Event: e.event, Path: e.path, Number: e.number, Cursor: &cursor})
					time.Sleep(time.Second)
				}
				synctest.Wait()
				var got []string
				for _, f := range s.context().Files {
					name := filepath.Base(f.Path)
					if f.Active {
						name += "*"
						for _, e := range tt.events {
							if e.path == f.Path && int(e.number) > f.Cursor.Line {
								t.Errorf("the cursor is that of event %d", f.Cursor.Line)
							}
						}
					}
					got = append(got, name)
				}
				if got := strings.Join(got, " "); got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
			})
		})
	}
}

// The events that a store keeps are bounded, also those of closed files.
func TestEventsAreBounded(t *testing.T) {
	s := newStore(none, 0, func() {})
	defer s.close()
	for n := range uint64(10 * maxHookFiles) {
		path := fmt.Sprintf("/%d", n)
		s.event(editor.ContextEvent{Source: "kak", Event: "focus", Path: path, Number: 2*n + 1})
		s.event(editor.ContextEvent{Source: "kak", Event: "close", Path: path, Number: 2*n + 2})
	}
	if n := len(s.hooks["kak"].events); n > maxHookFiles {
		t.Errorf("%d events", n)
	}
}

func TestExcluded(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { systest.WriteFile(t, filepath.Join(dir, name), text) }
	write(".git/info/exclude", "excluded\n")
	write(".gitignore", "# comment\n*.log\n!keep.log\n/build/\nnested/*.tmp\n")
	write(".geminiignore", "private/\n")
	write("sub/.gitignore", "local\n")
	x := excluder{names: []string{".geminiignore"}}
	for _, tt := range []struct {
		path string
		want bool
	}{
		{"main.go", false}, {"a.log", true}, {"sub/deep/a.log", true}, {"keep.log", false}, {"build/x", true}, {"sub/build/x", false},
		{"nested/a.tmp", true}, {"private/x", true}, {"sub/private/x", true}, {"sub/local", true}, {"local", false}, {"excluded", true},
		{".env", true}, {".env.production", true}, {".env.example", false}, {"sub/id_rsa", true}, {"cert.pem", true}, {"environment.go", false},
		{".ssh/config", true}, {"secrets.yaml", true}, {"key.go", false}, {"credentials.json", true},
	} {
		if got := x.excluded(filepath.Join(dir, tt.path), []string{dir}); got != tt.want {
			t.Errorf("%s excluded = %v, want %v", tt.path, got, tt.want)
		}
	}
	t.Run("a link does not hide what it leads to", func(t *testing.T) {
		for link, target := range map[string]string{"conf": ".env", "notes": "a.log"} {
			write(target, "")
			systest.Link(t, filepath.Join(dir, target), filepath.Join(dir, link))
			if !x.excluded(filepath.Join(dir, link), []string{dir}) {
				t.Errorf("%s, a link to %s, is not excluded", link, target)
			}
		}
	})
	// A change of the ignore file takes effect immediately. Git skips a byte order mark,
	// which Windows PowerShell writes.
	write(".gitignore", bom+"main.go\r\n")
	if !x.excluded(filepath.Join(dir, "main.go"), []string{dir}) {
		t.Error("the changed .gitignore has no effect")
	}
}

func TestEOL(t *testing.T) {
	for text, want := range map[string]string{"": "", "a": "", "a\n": "lf", "a\r\nb\r\n": "crlf", "a\r\nb\n": "mixed"} {
		if got := eol(text); got != want {
			t.Errorf("eol(%q) = %q, want %q", text, got, want)
		}
	}
}

// Agents receive only files that exist, also without an event of the editor.
func TestDeletedFileIsNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t)
		v := b.view(t)
		there, later := b.file(t, "there"), b.dir+"/later"
		v.Update(editor.Snapshot{Files: []editor.File{{Path: there, Active: true, Focused: 2}, {Path: later, Focused: 1}}})
		files := func(want ...string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			var got []string
			for _, f := range b.Context().Files {
				got = append(got, f.Path)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the files are %v, want %v", got, want)
			}
		}
		files(there)
		systest.Remove(t, there) // before an agent is there
		b.connect(t, newFakeSession())
		files()
		systest.WriteFile(t, there, "x\n")
		files(there)
		systest.Remove(t, there)
		systest.WriteFile(t, later, "x\n")
		files(later)
		systest.WriteFile(t, there, "x\n")
		files(there, later)
	})
}
