package pool

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// Some agents write to files what they do not say elsewhere: a model without quota delayed a question
// until its timeout, and an ignored policy went unnoticed.
func TestLogs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log[s]") // no pattern
	write := func(name, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	got, want := make(map[string]string), make(map[string]string)
	l := newLogs(filepath.Join(dir, "*.log"), func(name string) func([]byte) {
		return func(b []byte) { got[name] += string(b) }
	})
	check := func(when string) {
		t.Helper()
		l.read()
		if !maps.Equal(got, want) {
			t.Errorf("%s: read %.200q, want %.200q", when, got, want)
		}
	}
	says := func(name, text string) {
		t.Helper()
		write(name, text)
		want[name] += text
	}
	check("without a directory")
	systest.MakeDir(t, dir)
	says("one.log", "at the start\n")
	check("at the start")
	says("one.log", "Attempt 1 failed\n")
	says("two.log", "another log\n")
	write("other.txt", "no log\n")
	check("two logs")
	says("one.log", strings.Repeat("x", maxLog))
	check("a large log")
	if info, err := os.Stat(filepath.Join(dir, "one.log")); err != nil || info.Size() != 0 {
		t.Errorf("the file was not emptied: %v", err)
	}
	says("one.log", "after it was emptied\n")
	check("after it was emptied")
	newLogs("", nil).read()
}
