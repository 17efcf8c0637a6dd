package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

func write(t *testing.T, l *File, record string) {
	t.Helper()
	if _, err := l.Write([]byte(record)); err != nil {
		t.Fatal(err)
	}
}

// The first record creates the log, for the user alone.
func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "pollux.log")
	l := New(path)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log without a record: %v", err)
	}
	if err := Show(t.Context(), io.Discard, path, 1, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	write(t, l, "one\n")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	write(t, l, "two\n")
	l.Close()
	if got := systest.ReadFile(t, path); got != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != want) {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := Open(filepath.Join(path, "x")); err == nil {
		t.Error("a log below a file")
	}
}

// Many processes share a log. A full one becomes the old one, and no record is lost or torn
// as long as it is in one of the two.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pollux.log")
	writers, each := 4, 40
	if systest.OnWine() {
		writers, each = 1, 160 // it appends at the size that the file had before, over what others append then
	}
	filler := strings.Repeat("x", MaxSize/(writers*each)+100) // more than one log and less than two
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			l := New(path)
			defer l.Close()
			for i := range each {
				if _, err := fmt.Fprintf(l, "%d-%d %s\n", w, i, filler); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	records := make(map[string]bool)
	for line := range strings.Lines(systest.ReadFile(t, Old(path)) + systest.ReadFile(t, path)) {
		name, text, _ := strings.Cut(line, " ")
		records[name] = text == filler+"\n"
	}
	for w := range writers {
		for i := range each {
			if !records[fmt.Sprintf("%d-%d", w, i)] {
				t.Errorf("record %d-%d is lost", w, i)
			}
		}
	}
	for _, name := range []string{path, Old(path)} {
		if info, err := os.Stat(name); err != nil || info.Size() > MaxSize+int64(writers*len(filler)) {
			t.Errorf("%s: %d bytes, %v", name, info.Size(), err)
		}
	}
	l := New(path)
	defer l.Close()
	write(t, l, strings.Repeat("y", MaxSize)+"\n")
	write(t, l, "last\n")
	if got := systest.ReadFile(t, path); got != "last\n" {
		t.Errorf("the log holds %d bytes", len(got))
	}
}

// A log that was removed begins again.
func TestRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pollux.log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write(t, l, "one\n")
	if err := os.Remove(path); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	write(t, l, "two\n")
	if got := systest.ReadFile(t, path); !strings.HasSuffix(got, "two\n") {
		t.Errorf("got %q", got)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pollux.log")
	for name, text := range map[string]string{Old(path): "1\n2\n", path: "3\n4\n"} {
		systest.WriteFile(t, name, text)
	}
	for lines, want := range map[int]string{0: "", 1: "4\n", 3: "2\n3\n4\n", 4: "1\n2\n3\n4\n", 9: "1\n2\n3\n4\n"} {
		var got strings.Builder
		if err := Show(t.Context(), &got, path, lines, false); err != nil || got.String() != want {
			t.Errorf("%d lines: got %q, %v", lines, got.String(), err)
		}
	}
}

// A record receives what Follow writes, and tells when it has all it waits for.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(p)
	select {
	case r.news <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (r *record) await(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		r.mu.Lock()
		got := r.text.String()
		r.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-r.news:
		case <-timeout:
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// Show continues with what is appended, also to the log that follows, and waits for one that
// does not exist.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pollux.log")
	for _, existing := range []string{"1\n2\n", ""} {
		os.Remove(path)
		want := ""
		if existing != "" {
			want = "2\n"
			systest.WriteFile(t, path, existing)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &record{news: make(chan struct{}, 1)}
		ended := make(chan error, 1)
		go func() { ended <- Show(ctx, r, path, 1, true) }()
		r.await(t, want)
		l := New(path)
		write(t, l, "3\n")
		r.await(t, want+"3\n")
		l.Close()
		if err := os.Rename(path, Old(path)); err != nil && runtime.GOOS != "windows" {
			t.Fatal(err)
		}
		write(t, l, "4\n")
		r.await(t, want+"3\n4\n")
		l.Close()
		os.Remove(Old(path))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
