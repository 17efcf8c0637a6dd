package cli

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

func TestFileAndLines(t *testing.T) {
	dir := systest.Dir(t)
	t.Chdir(dir)
	type test struct {
		arg, path string
		line, end int
		plain     bool
		wrong     bool
	}
	tests := []test{
		{arg: "ab", path: "ab"},
		{arg: "ab:1", path: "ab", line: 1},
		{arg: "ab:2-30", path: "ab", line: 2, end: 30},
		{arg: "ab:c:2-3", path: "ab:c", line: 2, end: 3},
		{arg: "ab:1", path: "ab:1", plain: true},
		{arg: "ab:", path: "ab:"},
		{arg: "ab:x", path: "ab:x"},
		{arg: "ab:0", wrong: true},
		{arg: "ab:3-2", wrong: true},
		{arg: "ab:99999999999999999999", wrong: true},
	}
	if runtime.GOOS == "windows" { // no file has a colon in its name
		volume := filepath.VolumeName(dir)
		tests = append(tests,
			test{arg: filepath.Join(dir, "a") + ":2-30", path: "a", line: 2, end: 30},
			test{arg: filepath.ToSlash(dir) + "/a", path: "a"},
			test{arg: volume + "a:7", path: "a", line: 7},
		)
	} else {
		systest.WriteFile(t, "b:7", "")
		tests = append(tests, test{arg: "b:7", path: "b:7"}, test{arg: "b:7:8", path: "b:7", line: 8})
	}
	for _, tt := range tests {
		path, line, end, err := fileAndLines(tt.arg, tt.plain)
		if tt.wrong {
			systest.WantError(t, err, "write FILE:LINE or FILE:LINE-END")
			continue
		}
		if err != nil || path != filepath.Join(dir, tt.path) || line != tt.line || end != tt.end {
			t.Errorf("%s: %s, %d-%d, %v", tt.arg, path, line, end, err)
		}
	}
}

// The cursor may be at either end of the selection.
func TestSelectedLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	systest.WriteFile(t, path, "one\ntwo\nthree\nfour\n")
	for _, tt := range []struct {
		text              string
		cursor, line, end int
	}{
		{"", 3, 3, 0},
		{"t", 2, 2, 0},
		{"\U0001F600", 2, 2, 0},
		{"two", 2, 2, 2},
		{"o\nthr", 3, 2, 3}, // from top to bottom
		{"o\nthr", 2, 2, 3}, // from bottom to top
		{"two\nthree\n", 3, 2, 3},
		{"one\ntwo\n", 1, 1, 2},
		{"changed\nin the buffer", 4, 4, 5},
		{"three\nfour\n", 9, 9, 10},
	} {
		line, end, err := selectedLines(strings.NewReader(tt.text), path, "-", tt.cursor)
		if err != nil || line != tt.line || end != tt.end {
			t.Errorf("%q at %d: %d-%d, %v; want %d-%d", tt.text, tt.cursor, line, end, err, tt.line, tt.end)
		}
	}
	if _, _, err := selectedLines(nil, path+"x", "ab", 1); err == nil {
		t.Error("a file that does not exist has lines")
	}
}

func TestQuestionIn(t *testing.T) {
	for _, tt := range []struct {
		args        []string
		stdin, want string
		wrong       bool
	}{
		{args: nil, stdin: "x", want: ""},
		{args: []string{"why", "so?"}, want: "why so?"},
		{args: []string{"-"}, stdin: "a\nb\n", want: "a\nb\n"},
		{args: []string{"-"}, stdin: " \n", wrong: true},
		{args: []string{"-"}, stdin: strings.Repeat("x", maxInput+1), wrong: true},
	} {
		got, err := questionIn(strings.NewReader(tt.stdin), tt.args)
		if (err != nil) != tt.wrong || err == nil && got != tt.want {
			t.Errorf("%q: %q, %v", tt.args, got, err)
		}
	}
}
