package change

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/bridge/change/changetest"
	"pollux/internal/sys/systest"
)

// Writes to an overlay result in edits with line numbers, and in a diff that git
// applies exactly.
func TestOverlay(t *testing.T) {
	for _, test := range []struct {
		name, before, after string
		edits               []Edit
	}{
		{"a line", "a\nb\nc\n", "a\nB\nc\n", []Edit{{StartLine: 2, EndLine: 2, Old: "b", New: "B"}}},
		{"two places", "a\nb\nc\nd\ne\n", "A\nb\nc\nd\nE\n", []Edit{{StartLine: 1, EndLine: 1, Old: "a", New: "A"}, {StartLine: 5, EndLine: 5, Old: "e", New: "E"}}},
		{"a line comes in", "a\nb\n", "a\nx\nb\n", []Edit{{StartLine: 2, EndLine: 2, Old: "b", New: "x\nb"}}},
		{"at the end", "a\nb\n", "a\nb\nx\n", []Edit{{StartLine: 2, EndLine: 2, Old: "b", New: "b\nx"}}},
		{"at the start", "a\n", "x\na\n", []Edit{{StartLine: 1, EndLine: 1, Old: "a", New: "x\na"}}},
		{"lines go", "a\nb\nc\n", "a\n", []Edit{{StartLine: 2, EndLine: 3, Old: "b\nc", Delete: true}}},
		{"an empty file", "", "x\ny\n", []Edit{{New: "x\ny"}}},
		{"emptied", "a\n", "", []Edit{{StartLine: 1, EndLine: 1, Old: "a", Delete: true}}},
		{"no final line ending", "a\nb", "a\nB", []Edit{{StartLine: 2, EndLine: 2, Old: "b", New: "B"}}},
		{"CRLF, written with LF", "a\r\nb\r\n", "a\nB\n", []Edit{{StartLine: 2, EndLine: 2, Old: "b", New: "B"}}},
		{"before and after the last line", "a\nb\n", "a\nX\nb\nY\n", []Edit{{StartLine: 2, EndLine: 2, Old: "b", New: "X\nb\nY"}}},
		{"blank lines after", "a\n\n\n\n", "A\n\n\n\n", []Edit{{StartLine: 1, EndLine: 1, Old: "a", New: "A"}}},
		{"blank lines, then text", "a\n\n\n\nb\n", "A\n\n\n\nb\n", []Edit{{StartLine: 1, EndLine: 1, Old: "a", New: "A"}}},
		{"spaces after", "a\n  \n\t\n", "A\n  \n\t\n", []Edit{{StartLine: 1, EndLine: 1, Old: "a", New: "A"}}},
		{"blank lines go", "a\n\n\n", "a\n", []Edit{{StartLine: 2, EndLine: 3, Old: "\n", Delete: true}}},
		{"blank lines come", "a\n", "a\n\n\n", []Edit{{StartLine: 1, EndLine: 1, Old: "a", New: "a\n\n"}}},
		{"before a last line without an ending", "a\nb", "A\nb", []Edit{{StartLine: 1, EndLine: 1, Old: "a", New: "A"}}},
		{"CRLF, no final line ending", "a\r\n\r\nb", "A\n\nb", []Edit{{StartLine: 1, EndLine: 1, Old: "a", New: "A"}}},
		{"nothing", "a\n", "a\n", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := systest.Dir(t)
			path := filepath.Join(dir, "f.txt")
			systest.WriteFile(t, path, test.before)
			o := newOverlay(dir)
			if got, err := o.Read(path); err != nil || got != test.before {
				t.Errorf("it holds %q, %v", got, err)
			}
			if err := o.Write(path, test.after); err != nil {
				t.Fatal(err)
			}
			want := test.after
			if strings.Contains(test.before, "\r\n") {
				want = strings.ReplaceAll(want, "\n", "\r\n")
			}
			if got, err := o.Read(path); err != nil || got != want {
				t.Errorf("then it holds %q, %v", got, err)
			}
			ch, err := o.edits("")
			if err != nil || len(ch.Edits) != len(test.edits) {
				t.Fatalf("%v: %+v", err, ch)
			}
			for i, e := range test.edits {
				if e.Path = "f.txt"; ch.Edits[i] != e {
					t.Errorf("edit %+v, want %+v", ch.Edits[i], e)
				}
			}
			if ch.Diff == "" {
				return
			}
			patch := filepath.Join(t.TempDir(), "patch")
			systest.WriteFile(t, patch, ch.Diff)
			lf := strings.ReplaceAll(want, "\r\n", "\n")
			for autocrlf, want := range map[string]string{"false": want, "true": strings.ReplaceAll(lf, "\n", "\r\n")} {
				systest.WriteFile(t, path, test.before)
				changetest.Git(t, dir, "-c", "core.autocrlf="+autocrlf, "apply", "--whitespace=nowarn", patch)
				if got, _ := os.ReadFile(path); string(got) != want {
					t.Errorf("git with core.autocrlf=%s makes it %q, want %q", autocrlf, got, want)
				}
			}
		})
	}
}

// A file keeps its byte order mark, which agents do not see.
func TestOverlayKeepsTheMark(t *testing.T) {
	for _, test := range [][3]string{
		{"\ufeffa\nb\n", "a\nB\n", "\ufeffa\nB\n"},
		{"\ufeffa\r\nb\n", "a\nB\n", "\ufeffa\r\nB\n"},
		{"\ufeffa\n", "\ufeffA\n", "\ufeffA\n"},
		{"\ufeffa\n", "", ""},
		{"a\n", "A\n", "A\n"},
	} {
		dir := systest.Dir(t)
		path := filepath.Join(dir, "f.txt")
		systest.WriteFile(t, path, test[0])
		o := newOverlay(dir)
		if err := o.Write(path, test[1]); err != nil {
			t.Fatal(err)
		}
		if got, err := o.Read(path); err != nil || got != test[2] {
			t.Errorf("%q to %q is %q, %v, want %q", test[0], test[1], got, err, test[2])
		}
	}
}

// Unchanged lines keep their line endings, regardless of what the agent writes.
func TestKeepLineEnds(t *testing.T) {
	for _, test := range [][3]string{
		{"a\nb\n", "a\nB\n", "a\nB\n"},
		{"a\r\nb\r\n", "a\nB\n", "a\r\nB\r\n"},
		{"a\r\nb\nc\n", "a\r\nb\r\nC\r\n", "a\r\nb\nC\n"},
		{"a\r\nb\nc\n", "a\nx\nb\nc\n", "a\r\nx\r\nb\nc\n"},
		{"a\r\nb", "a\nb", "a\r\nb"},
		{"a\r\nb", "a\nb\nc", "a\r\nb\r\nc"},
		{"a\r\n", "", ""},
		{"\r\n", "x\ny\n", "x\r\ny\r\n"},
		{"a\r\nb\r\n", "x\na\nb\n", "x\r\na\r\nb\r\n"},
	} {
		if got := keepLineEndings(test[0], test[1]); got != test[2] {
			t.Errorf("%q to %q is %q, want %q", test[0], test[1], got, test[2])
		}
	}
}

func TestOverlayNewFiles(t *testing.T) {
	dir := systest.Dir(t)
	o := newOverlay(dir)
	path := filepath.Join(dir, "a", "b.txt")
	if got, err := o.Read(path); err != nil || got != "" {
		t.Errorf("a file that is not there holds %q, %v", got, err)
	}
	for _, text := range []string{"one\n", "one\ntwo\n"} {
		if err := o.Write(path, text); err != nil {
			t.Fatal(err)
		}
	}
	ch, err := o.edits("sub/")
	if err != nil || len(ch.Edits) != 1 || ch.Edits[0] != (Edit{Path: "a/b.txt", New: "one\ntwo", Create: true}) || !strings.Contains(ch.Diff, "+++ b/sub/a/b.txt\n") {
		t.Errorf("%v: %+v", err, ch)
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("it is on the disk")
	}
}

// An overlay refuses files outside the directory, git's files and binaries.
func TestOverlayRefuses(t *testing.T) {
	dir := systest.Dir(t)
	outside := filepath.Join(t.TempDir(), "secret")
	for name, content := range map[string]string{outside: "secret", filepath.Join(dir, "binary"): "a\x00b"} {
		systest.WriteFile(t, name, content)
	}
	systest.MakeDir(t, filepath.Join(dir, ".git"))
	paths := []string{outside, filepath.Join(dir, "..", "x"), filepath.Join(dir, ".git", "config"), filepath.Join(dir, "binary")}
	if runtime.GOOS == "windows" { // git applies no diff of these
		for _, name := range []string{"NUL", "con.txt", "new.txt:stream", "binary.", ".git::$INDEX_ALLOCATION\\config"} {
			paths = append(paths, dir+`\`+name)
		}
	}
	if link := filepath.Join(dir, "link"); systest.TryLink(outside, link) == nil {
		paths = append(paths, link)
	}
	o := newOverlay(dir)
	for _, path := range paths {
		if text, err := o.Read(path); err == nil {
			t.Errorf("%s is read: %q", path, text)
		}
		if err := o.Write(path, "x"); err == nil {
			t.Errorf("%s is written", path)
		}
	}
	if err := o.Write(filepath.Join(dir, "big"), strings.Repeat("x", MaxFile+1)); err == nil {
		t.Error("a huge file is written")
	}
	if ch, err := o.edits(""); err != nil || len(ch.Edits) > 0 {
		t.Errorf("%v: %+v", err, ch)
	}
}
