package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// add adds an entry, and returns its ID.
func add(t *testing.T, j *Journal, e Entry, proposal string) string {
	t.Helper()
	id, err := j.Add(e, proposal)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func wantText(t *testing.T, j *Journal, id, want string) {
	t.Helper()
	if text, err := j.Text(id); err != nil || text != want {
		t.Errorf("the text of %s is %q, %v; want %q", id, text, err, want)
	}
}

func TestEntries(t *testing.T) {
	j := New(filepath.Join(t.TempDir(), "journal"))
	if all, err := j.List(); err != nil || all != nil {
		t.Errorf("an empty journal lists %v, %v", all, err)
	}
	id := add(t, j, Entry{Path: "/f", Client: "CLI 1"}, "proposal")
	wantText(t, j, id, "proposal")
	if err := j.Edit(id, "edited"); err != nil {
		t.Fatal(err)
	}
	if err := j.Finish(id, Accepted, false); err != nil {
		t.Fatal(err)
	}
	all, err := j.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("List = %v, %v", all, err)
	}
	if e := all[0]; e.ID != id || e.State != Accepted || !e.Edited || e.Unwritten || e.Bytes != 6 || e.PID != os.Getpid() {
		t.Errorf("the entry is %+v", e)
	}
	text, _ := j.Text(id)
	proposal, _ := j.Proposal(id)
	if text != "edited" || proposal != "proposal" {
		t.Errorf("Text = %q, Proposal = %q", text, proposal)
	}
	files, _ := filepath.Glob(filepath.Join(j.dir, "*"))
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || !disk.Private(f, info) {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	if info, _ := os.Stat(j.dir); !disk.Private(j.dir, info) {
		t.Errorf("the directory: %v", info.Mode())
	}
}

// Accepted texts that the file does not contain are marked, from the end of the
// diff on or later.
func TestUnwritten(t *testing.T) {
	j := New(t.TempDir())
	want := func(id string, state State, unwritten bool) {
		t.Helper()
		if e, err := j.Get(id); err != nil || e.State != state || e.Unwritten != unwritten {
			t.Errorf("the entry is %+v, %v; want %s, unwritten %v", e, err, state, unwritten)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}

	id := add(t, j, Entry{Path: "/f"}, "p")
	do(j.Finish(id, Accepted, true))
	want(id, Accepted, true)
	do(j.Edit(id, "mine"))
	want(id, Accepted, true)
	do(j.Finish(id, Accepted, false))
	want(id, Accepted, false)
	do(j.Finish(id, Accepted, true))
	want(id, Accepted, true)
}

// If a process was killed after it wrote the user's text and before it updated
// the entry, the text counts.
func TestKilledWithinAnEdit(t *testing.T) {
	j := New(t.TempDir())
	id := add(t, j, Entry{Path: "/f"}, "proposal")
	before, err := os.ReadFile(j.file(id, "json"))
	if err == nil {
		err = j.Edit(id, "mine")
	}
	if err != nil {
		t.Fatal(err)
	}
	systest.WriteFile(t, j.file(id, "json"), string(before))
	wantText(t, j, id, "mine")
	if e, err := j.Get(id); err != nil || !e.Edited || e.Bytes != 4 {
		t.Errorf("the entry is %+v, %v", e, err)
	}
	if text, err := j.Proposal(id); err != nil || text != "proposal" {
		t.Errorf("Proposal = %q, %v", text, err)
	}
}

// The text of an entry that a newer Pollux wrote can be read, and the error
// says where it is.
func TestEntryOfANewerPollux(t *testing.T) {
	j := New(t.TempDir())
	id := add(t, j, Entry{Path: "/f"}, "proposal")
	systest.WriteFile(t, j.file(id, "json"), `{"state":{"was":"open"}}`)
	wantText(t, j, id, "proposal")
	_, err := j.Get(id)
	systest.WantError(t, err, "pollux journal show "+id) // the next step
}

func TestUnknownEntries(t *testing.T) {
	j := New(t.TempDir())
	for _, id := range []string{"", "x", "../../etc/passwd", "000000000-aaaaaa"} {
		_, err := j.Text(id)
		systest.WantError(t, err, "pollux journal") // the next step
	}
}

// An entry that was open in a companion that was killed is an orphan.
func TestKilledCompanion(t *testing.T) {
	j := New(t.TempDir())
	id := add(t, j, Entry{Path: "/f"}, "x")
	path := j.file(id, "json")
	data, _ := os.ReadFile(path)
	data = []byte(strings.Replace(string(data), fmt.Sprintf(`"pid":%d`, os.Getpid()), `"pid":536870912`, 1))
	systest.WriteFile(t, path, string(data))
	if e, err := j.Get(id); err != nil || e.State != Orphaned {
		t.Errorf("Get = %+v, %v", e, err)
	}
}

func TestRestore(t *testing.T) {
	dir := t.TempDir()
	j := New(filepath.Join(dir, "journal"))
	for _, tt := range []struct {
		name       string
		e          Entry
		text, want string
	}{
		{"plain", Entry{}, "a\nb\n", "a\nb\n"},
		{"CRLF", Entry{CRLF: true}, "a\nb\n", "a\r\nb\r\n"},
		{"CRLF already", Entry{CRLF: true}, "a\r\nb\r\n", "a\r\nb\r\n"},
		{"BOM", Entry{BOM: true}, "a\n", "\uFEFFa\n"},
		{"BOM already", Entry{BOM: true}, "\uFEFFa\n", "\uFEFFa\n"},
		{"BOM, no text", Entry{BOM: true}, "", ""},
		{"CRLF and BOM", Entry{CRLF: true, BOM: true}, "a\n", "\uFEFFa\r\n"},
	} {
		path := filepath.Join(dir, tt.name)
		tt.e.Path = path
		id := add(t, j, tt.e, tt.text)
		if replaced, err := j.Restore(id, ""); err != nil || replaced != "" {
			t.Errorf("%s: Restore of a new file = %q, %v", tt.name, replaced, err)
		}
		if got, _ := os.ReadFile(path); string(got) != tt.want {
			t.Errorf("%s: the file holds %q, want %q", tt.name, got, tt.want)
		}
	}

	// The old content of a file is kept, and so are its mode and a link to it.
	for _, name := range []string{"real", "link"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, path := filepath.Join(dir, "real"), filepath.Join(dir, name)
			os.WriteFile(file, []byte("old\n"), 0o755)
			if path != file {
				systest.Link(t, file, path)
			}
			id := add(t, j, Entry{Path: path}, "new\n")
			replaced, err := j.Restore(id, "")
			if err != nil {
				t.Fatal(err)
			}
			got, _ := os.ReadFile(file)
			info, _ := os.Stat(file)
			kept, _ := j.Text(replaced)
			if string(got) != "new\n" || runtime.GOOS != "windows" && info.Mode().Perm() != 0o755 || kept != "old\n" {
				t.Errorf("the file holds %q, mode %v, the journal %q", got, info.Mode(), kept)
			}
			if path == file {
				return
			}
			if target, err := os.Readlink(path); err != nil || target != file {
				t.Errorf("the link leads to %q, %v", target, err)
			}
		})
	}
}

// The journal listed a file as replaced that could not be written, and @ was that entry.
func TestRestoreOfAReadOnlyFile(t *testing.T) {
	j := New(t.TempDir())
	path := filepath.Join(t.TempDir(), "f.txt")
	systest.WriteFile(t, path, "old\n")
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(path, 0o600) }) // so that Windows can remove it
	id := add(t, j, Entry{Path: path}, "new\n")
	if replaced, err := j.Restore(id, ""); err == nil || replaced != "" {
		t.Errorf("Restore = %q, %v", replaced, err)
	}
	if latest, err := j.Resolve("@"); err != nil || latest != id {
		t.Errorf("@ is %s, %v; want %s", latest, err, id)
	}
}

// A new file that Copilot CLI wrote on Windows, with CRLF, was said to hold another text.
func TestInFile(t *testing.T) {
	j := New(t.TempDir())
	path := filepath.Join(t.TempDir(), "f.txt")
	for _, tt := range []struct {
		crlf           bool
		proposal, disk string
		want           bool
	}{
		{false, "a\nb\n", "a\nb\n", true},
		{false, "a\nb\n", "a\r\nb\r\n", true},
		{true, "a\nb\n", "a\nb\n", true},
		{true, "a\nb\n", "a\r\nb\r\n", true},
		{false, "a\r\nb\n", "a\nb\n", true},
		{false, "a\nb\n", "a\rb\r", false},
		{false, "a\nb\n", "a\nB\n", false},
		{false, "a\nb\n", "a\nb", false},
		{false, "a\n", "a\nbc\n", false},
	} {
		e := Entry{Path: path, CRLF: tt.crlf, State: Closed}
		var err error
		if e.ID, err = j.Add(e, tt.proposal); err == nil {
			err = os.WriteFile(path, []byte(tt.disk), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := j.InFile(e); got != tt.want || err != nil {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	j := New(t.TempDir())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				id, err := j.Add(Entry{Path: "/f"}, "p")
				if err == nil {
					err = j.Edit(id, fmt.Sprint(i, n))
				}
				if text, e := j.Text(id); err != nil || e != nil || text != fmt.Sprint(i, n) {
					t.Errorf("%q, %v, %v", text, err, e)
				}
			}
		})
	}
	wg.Wait()
	if all, err := j.List(); err != nil || len(all) != 160 {
		t.Errorf("%d entries, %v", len(all), err)
	}
}

// The journal keeps the text before a change, unless it is large, and deletes it with the
// entry.
func TestOriginal(t *testing.T) {
	j := New(t.TempDir())
	id, other := add(t, j, Entry{Path: "/f", PID: 1}, "new\n"), add(t, j, Entry{Path: "/g"}, "new\n")
	if err := errors.Join(
		j.Finish(id, Rejected, false), j.SetOriginal(id, "old\n"), j.SetOriginal(other, strings.Repeat("x", MaxOriginal+1)),
	); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Original(id); err != nil || got != "old\n" {
		t.Fatalf("the original is %q, %v", got, err)
	}
	if _, err := j.Original(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a large original gives %v", err)
	}
	j.remove(&files{id: id, described: true})
	if left, _ := filepath.Glob(filepath.Join(j.dir, id+".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	j.Wait()
}

// The demo's journal is another one, which `pollux journal` does not list.
func TestIsDefault(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	user, err := Default()
	if err != nil || !user.IsDefault() {
		t.Errorf("the user's journal: %v, %v", user, err)
	}
	if New(t.TempDir()).IsDefault() {
		t.Error("another journal is the user's")
	}
}
