package pool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// On Windows, Gemini CLI writes its log to a file. Pollux did not read that file: a model
// without quota delayed a question until its timeout, and an ignored policy went unnoticed.
func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	synctest.Test(t, func(t *testing.T) {
		var got strings.Builder
		l, err := createLog(path, func(b []byte) { got.Write(b) })
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		says := func(text string) {
			write(text)
			want += text
		}
		says("at the start\n")
		done := make(chan struct{})
		following := make(chan struct{})
		go func() {
			defer close(following)
			l.follow(done)
		}()
		check := func(when string) {
			t.Helper()
			if got.String() != want {
				t.Errorf("%s: read %d bytes, want %d", when, got.Len(), len(want))
			}
		}
		l.read()
		check("at once")
		says("Attempt 1 failed\n")
		time.Sleep(logInterval)
		synctest.Wait()
		check("after a moment")
		says(strings.Repeat("x", maxLog))
		time.Sleep(logInterval)
		synctest.Wait()
		check("a large log")
		if size() != 0 {
			t.Errorf("the file has %d bytes", size())
		}
		says("after it was emptied\n")
		time.Sleep(logInterval)
		synctest.Wait()
		check("after it was emptied")
		says("the last words\n")
		close(done)
		<-following
		check("at the end")
		l.read() // as a request does that ends at the same time
		(*logFile)(nil).read()
	})
}
