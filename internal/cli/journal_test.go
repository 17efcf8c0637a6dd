package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/companion/journal"
	"pollux/internal/hostile"
	"pollux/internal/sys/systest"
	"pollux/internal/termtext"
)

// newTestJournal returns the user's journal, in a temporary directory.
func newTestJournal(t *testing.T) *journal.Journal {
	t.Helper()
	t.Setenv("POLLUX_STATE_DIR", t.TempDir())
	j, err := journal.Default()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// pollux runs a command, which must succeed.
func pollux(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := Run(t.Context(), IO{strings.NewReader(""), &o, &e}, args); code != 0 {
		t.Fatalf("pollux %s: exit code %d, %s", strings.Join(args, " "), code, e.String())
	}
	return o.String(), e.String()
}

// A restore neither blocks nor reads unlimited data.
func TestJournalRestoresRegularFiles(t *testing.T) {
	for kind, says := range map[string]string{"FIFO": "not a regular file", "device": "not a regular file", "sparse": "too large"} {
		t.Run(kind, func(t *testing.T) {
			j := newTestJournal(t)
			path := filepath.Join(systest.Dir(t), "f")
			hostile.Plant(t, kind, path)
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			id, err := j.Add(journal.Entry{Path: path}, "text")
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"journal", "restore", id}, {"journal", "restore", id, "--to", path}} {
				errs := polluxFails(t, args...)
				if !strings.Contains(errs, says) || !strings.Contains(errs, "--to") {
					t.Errorf("pollux %v: %s", args, errs)
				}
			}
			if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) || after.Size() != before.Size() {
				t.Errorf("it has changed: %v, %v", after, err)
			}
		})
	}
}

// polluxFails runs a command, which must fail.
func polluxFails(t *testing.T, args ...string) (errs string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := Run(t.Context(), IO{strings.NewReader(""), &o, &e}, args); code != 1 || o.Len() > 0 {
		t.Errorf("pollux %s: exit code %d, output %q", strings.Join(args, " "), code, o.String())
	}
	return e.String()
}

// A link to another directory replaced a directory: the text goes to the
// proposal's file, or nowhere.
func TestJournalRestoreAfterALinkChanged(t *testing.T) {
	j := newTestJournal(t)
	dir := systest.Dir(t)
	project, elsewhere := filepath.Join(dir, "project"), filepath.Join(dir, "elsewhere")
	for _, d := range []string{project, elsewhere} {
		systest.WriteFile(t, filepath.Join(d, "f"), "old\n")
	}
	path := filepath.Join(project, "f")
	id, err := j.Add(journal.Entry{Path: path, Real: path}, "new\n")
	if err == nil {
		err = j.Finish(id, journal.Accepted, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(project, project+".moved"); err != nil {
		t.Fatal(err)
	}
	systest.Link(t, elsewhere, project)

	errs := polluxFails(t, "journal", "restore", id)
	actual := filepath.Join(elsewhere, "f")
	if !strings.Contains(errs, actual) || !strings.Contains(errs, "--to") {
		t.Errorf("restore says %q", errs)
	}
	systest.WantFile(t, actual, "old\n")

	// With --to, the file is written and its real path is printed.
	_, errs = pollux(t, "journal", "restore", id, "--to", path)
	if !strings.Contains(errs, "wrote "+actual+"\n") {
		t.Errorf("restore says %q", errs)
	}
	systest.WantFile(t, actual, "new\n")
	if e, err := j.Get(id); err != nil || !e.Unwritten {
		t.Errorf("the file of the proposal was not written, and the entry is %+v, %v", e, err)
	}
	_, undo, _ := strings.Cut(strings.TrimSuffix(errs, "`\n"), "`pollux journal restore ")
	if pollux(t, "journal", "restore", undo); systest.ReadFile(t, actual) != "old\n" {
		t.Errorf("after the undo the file holds %q", systest.ReadFile(t, actual))
	}

	// When the directory is restored, the text goes to its file.
	os.Remove(project)
	if err := os.Rename(project+".moved", project); err != nil {
		t.Fatal(err)
	}
	_, errs = pollux(t, "journal", "restore", id)
	if !strings.Contains(errs, "wrote "+path+"\n") || systest.ReadFile(t, path) != "new\n" {
		t.Errorf("restore says %q, the file holds %q", errs, systest.ReadFile(t, path))
	}
	if e, err := j.Get(id); err != nil || e.Unwritten {
		t.Errorf("the file is written, and the entry is %+v, %v", e, err)
	}
}

// steering sets a terminal's title, clipboard and colours, moves the cursor back,
// and starts an 8-bit control sequence.
const steering = "\x1b]0;title\a\x1b]52;c;ZXZpbA==\a\x1b[31mred\rback\b\u009b2J"

// A model's text cannot control the terminal. A pipe gets the text unchanged.
func TestJournalShowOnATerminal(t *testing.T) {
	j := newTestJournal(t)
	text := "\tfunc f() {\n" + steering + "\r\n}\n"
	id, err := j.Add(journal.Entry{Path: "/f"}, text)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PAGER", "cat")
	for _, args := range [][]string{{"journal", "show", id}, {"journal", "show", "--proposal", id}} {
		if out, _ := pollux(t, args...); out != text {
			t.Errorf("a pipe gets %q", out)
		}
		got := onTerminal(t, args...)
		want := "\tfunc f() {\n]0;title]52;c;ZXZpbA==[31mredback2J\n}\n"
		if runtime.GOOS == "windows" { // a console turns tabs into spaces
			want = strings.ReplaceAll(want, "\t", "        ")
		}
		if got != want {
			t.Errorf("a terminal gets %q, want %q", got, want)
		}
	}
}

// onTerminal runs a command in a terminal and returns its output.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("GORACE", "atexit_sleep_ms=10")
	out, code, err := systest.OnTerminal("pollux", args...)
	if code != 0 || err != nil {
		t.Fatalf("pollux %s: exit code %d, %v, %s", strings.Join(args, " "), code, err, out)
	}
	return out
}

// The path may contain foreign text too.
func TestJournalRestorePrintsPathsSafely(t *testing.T) {
	j := newTestJournal(t)
	dir := systest.Dir(t)
	name := strings.ReplaceAll(steering, "/", "")
	if runtime.GOOS == "windows" { // where names have no ASCII controls
		name = "title\u009b2J\u202e"
	}
	path := filepath.Join(dir, name)
	id, err := j.Add(journal.Entry{Path: path, Real: path}, "text\n")
	if err != nil {
		t.Fatal(err)
	}
	safe := func(what, s string) {
		t.Helper()
		if strings.ContainsAny(s, "\x1b\a\b\r\u009b\u202e") || !strings.Contains(s, "title") {
			t.Errorf("%s prints %q", what, s)
		}
	}
	_, errs := pollux(t, "journal", "restore", id)
	safe("restore", errs)
	if systest.ReadFile(t, path) != "text\n" {
		t.Errorf("the file holds %q", systest.ReadFile(t, path))
	}
	missing := polluxFails(t, "journal", "restore", id, "--to", filepath.Join(path, "x"))
	safe("restore to a missing directory", missing)
	systest.Remove(t, path)
	systest.MakeDir(t, path)
	safe("restore to a directory", polluxFails(t, "journal", "restore", id, "--to", path))
	safe("restore over a directory", polluxFails(t, "journal", "restore", id))
	out, _ := pollux(t, "journal")
	safe("the list", out)
}

// On a terminal the list has colours and goes through the user's pager. NO_COLOR, a
// terminal that can do nothing, and --no-pager are respected.
func TestJournalOnATerminal(t *testing.T) {
	j := newTestJournal(t)
	id, err := j.Add(journal.Entry{Path: "/f\x1b[2J"}, "new\n")
	if err == nil {
		err = j.SetOriginal(id, "old\n")
	}
	if err == nil {
		err = j.Finish(id, journal.Rejected, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	const paged = "stub paged"
	for _, test := range []struct {
		name string
		env  map[string]string
		args []string
		want []string
		not  []string
	}{
		{"colours", nil, nil, []string{sgrYellow, sgrRed + "rejected" + sgrPlain, "/f␛[2J"}, []string{"paged"}},
		{"a diff", nil, []string{"show", "--diff", "@"},
			[]string{sgrRed + "-old" + sgrPlain + "\n" + sgrGreen + "+new" + sgrPlain + "\n", sgrBold + "--- a/f␛[2J"}, []string{"f\x1b"}},
		{"NO_COLOR", map[string]string{"NO_COLOR": "1"}, nil, []string{"(rejected)"}, []string{"\x1b"}},
		{"dumb", map[string]string{"TERM": "dumb", "PAGER": paged}, nil, []string{"(rejected)"}, []string{"\x1b", "paged"}},
		{"without TERM", map[string]string{"TERM": "", "PAGER": paged}, nil,
			map[bool][]string{true: {"paged: "}, false: {"(rejected)"}}[runtime.GOOS == "windows"], []string{"\x1b"}},
		{"a pager", map[string]string{"PAGER": paged}, nil, []string{"paged: ", sgrRed + "rejected"}, nil},
		{"a pager for a text", map[string]string{"PAGER": paged}, []string{"show", "@"}, []string{"paged: new\n"}, nil},
		{"no pager", map[string]string{"PAGER": paged}, []string{"--no-pager"}, []string{"rejected"}, []string{"paged"}},
		{"an empty pager", map[string]string{"PAGER": ""}, nil, []string{"rejected"}, nil},
		{"options for less", map[string]string{"PAGER": "stub less", "LESS": "FX"}, nil, []string{"FX\n"}, []string{"R"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("TERM", "xterm-256color")
			t.Setenv("NO_COLOR", "")
			t.Setenv("PAGER", "cat")
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			got := onTerminal(t, append([]string{"journal"}, test.args...)...)
			for _, text := range test.want {
				if !strings.Contains(got, text) {
					t.Errorf("it prints %q, want %q", got, text)
				}
			}
			for _, text := range test.not {
				if strings.Contains(got, text) {
					t.Errorf("it prints %q, with %q", got, text)
				}
			}
		})
	}
}

// On Windows, more showed the bytes of another code page.
func TestDefaultPager(t *testing.T) {
	t.Setenv("PAGER", "")
	os.Unsetenv("PAGER")
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	install := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+map[bool]string{true: ".exe"}[runtime.GOOS == "windows"]), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install("more")
	if got := pager(); got != "" {
		t.Errorf("without less, the pager is %q", got)
	}
	install("less")
	if got := pager(); got != "less" {
		t.Errorf("the pager is %q", got)
	}
}

// The shell completes the IDs of entries, the latest first.
func TestJournalCompletion(t *testing.T) {
	j := newTestJournal(t)
	dir := systest.Dir(t)
	t.Chdir(dir)
	var ids []string
	for _, name := range []string{"a.go", "b\tc.go"} {
		id, err := j.Add(journal.Entry{Path: filepath.Join(dir, name)}, "proposal")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	both := ids[1] + "\t" + termtext.Visible("b\tc.go") + " (open)\n" + ids[0] + "\ta.go (open)\n:36\n"
	for _, command := range []string{"show", "restore"} {
		if out, _ := pollux(t, "__complete", "journal", command, ""); out != both {
			t.Errorf("%s: %q, want %q", command, out, both)
		}
		if out, _ := pollux(t, "__complete", "journal", command, ids[0]); out != ids[0]+"\ta.go (open)\n:36\n" {
			t.Errorf("%s with the ID %s: %q", command, ids[0], out)
		}
		if out, _ := pollux(t, "__complete", "journal", command, ids[0], ""); out != ":36\n" {
			t.Errorf("%s with two IDs: %q", command, out)
		}
	}
}
