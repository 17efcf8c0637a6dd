package companion

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A checker is a client that reports diagnostics.
type checker struct {
	*editor.Client

	mu    sync.Mutex
	files []editor.FileDiagnostics
	asked []string
}

// set replaces what the client reports.
func (k *checker) set(files ...editor.FileDiagnostics) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files = files
}

func (b *bare) checker(t *testing.T, reports bool, files ...editor.FileDiagnostics) *checker {
	t.Helper()
	k := &checker{files: files}
	k.Client = b.attach(t, editor.InitializeParams{Diagnostics: reports}, editor.Handler{
		Diagnostics: func(p editor.DiagnosticsParams) editor.DiagnosticsResult {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.asked = append(k.asked, p.Path)
			return editor.DiagnosticsResult{Files: k.files}
		},
	})
	return k
}

func (b *bare) file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(b.dir, name)
	systest.WriteFile(t, path, "text\n")
	return path
}

// problem returns a diagnostic in a line.
func problem(line int, severity, message string) editor.Diagnostic {
	at := editor.Cursor{Line: line, Character: 1}
	return editor.Diagnostic{Range: editor.Range{Start: at, End: at}, Severity: severity, Message: message}
}

func inFile(path string, all ...editor.Diagnostic) editor.FileDiagnostics {
	return editor.FileDiagnostics{Path: path, Diagnostics: append([]editor.Diagnostic{}, all...)}
}

func TestDiagnostics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t)
		ignore := filepath.Join(b.dir, ".gitignore")
		systest.WriteFile(t, ignore, "ignored\n")
		one, two, ignored, secret := b.file(t, "1"), b.file(t, "sub/2"), b.file(t, "ignored"), b.file(t, ".env")
		outside := filepath.Join(t.TempDir(), "outside")
		systest.WriteFile(t, outside, "")
		bad, odd := problem(3, "error", "bad"), problem(1, "hint", "odd")
		first := b.checker(t, true, inFile(two), inFile(one, odd, bad))
		second := b.checker(t, true, inFile(one, bad), inFile(ignored, bad), inFile(secret, bad), inFile(outside, bad),
			inFile(filepath.Join(b.dir, "none"), bad), inFile("relative", bad), inFile(b.dir, bad))
		none := b.checker(t, false, inFile(one, problem(1, "error", "not asked")))

		files, err := b.Diagnostics(t.Context(), "")
		if want := []editor.FileDiagnostics{inFile(one, bad, odd), inFile(two)}; err != nil || !reflect.DeepEqual(files, want) {
			t.Errorf("all: %+v, %v; want %+v", files, err, want)
		}
		files, err = b.Diagnostics(t.Context(), two)
		if want := []editor.FileDiagnostics{inFile(two)}; err != nil || !reflect.DeepEqual(files, want) {
			t.Errorf("one: %+v, %v; want %+v", files, err, want)
		}
		// No editor looks at what the agent must not get. Emacs runs ssh for such a name.
		for _, path := range []string{ignored, secret, outside, "/ssh:host:/x", `\\server\share\x`, filepath.Join(b.dir, "none")} {
			if files, err = b.Diagnostics(t.Context(), path); err != nil || len(files) > 0 {
				t.Errorf("%s: %+v, %v", path, files, err)
			}
		}
		want := []string{"", two}
		if !slices.Equal(first.asked, want) || !slices.Equal(second.asked, want) || len(none.asked) > 0 {
			t.Errorf("the clients were asked for %q, %q, %q", first.asked, second.asked, none.asked)
		}

		// Open files come first.
		if err := first.Update(editor.Snapshot{Files: []editor.File{{Path: two}}}); err != nil {
			t.Fatal(err)
		}
		if files, err = b.Diagnostics(t.Context(), ""); err != nil || len(files) != 2 || files[0].Path != two {
			t.Errorf("%s is open: %+v, %v", two, files, err)
		}
	})
}

// A folder that is open under another name.
func TestDiagnosticsThroughLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t)
		path := b.file(t, "a")
		link := filepath.Join(t.TempDir(), "link")
		systest.Link(t, b.dir, link)
		b.checker(t, true, inFile(filepath.Join(link, "a"), problem(1, "error", "bad")))
		for _, asked := range []string{"", path, filepath.Join(link, "a")} {
			want := asked
			if asked == "" {
				want = path
			}
			files, err := b.Diagnostics(t.Context(), asked)
			if err != nil || len(files) != 1 || files[0].Path != want || len(files[0].Diagnostics) != 1 {
				t.Errorf("%q: %+v, %v", asked, files, err)
			}
		}
	})
}

// Clients that do not answer delay the others' answers for a moment only.
func TestDiagnosticsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t)
		if files, err := b.Diagnostics(t.Context(), ""); err != nil || len(files) > 0 {
			t.Errorf("without a client: %+v, %v", files, err)
		}
		path := b.file(t, "a")
		busy := make(chan struct{})
		b.attach(t, editor.InitializeParams{Diagnostics: true}, editor.Handler{
			Diagnostics: func(editor.DiagnosticsParams) (res editor.DiagnosticsResult) { <-busy; return res },
		})
		defer close(busy)
		start := time.Now()
		if files, err := b.Diagnostics(t.Context(), ""); !errors.Is(err, errNoDiagnostics) {
			t.Errorf("no client answers: %+v, %v", files, err)
		}
		b.checker(t, true, inFile(path))
		if files, err := b.Diagnostics(t.Context(), ""); err != nil || len(files) != 1 {
			t.Errorf("one answers: %+v, %v", files, err)
		}
		if d := time.Since(start); d != 2*answerTimeout {
			t.Errorf("the answers took %v", d)
		}
	})
}

// Any JSON that a client sends becomes diagnostics that agents can rely on.
func TestValidDiagnostics(t *testing.T) {
	span := func(a, b, c, d int) editor.Range {
		return editor.Range{Start: editor.Cursor{Line: a, Character: b}, End: editor.Cursor{Line: c, Character: d}}
	}
	made := func(r editor.Range, severity, message, source, code string) editor.Diagnostic {
		return editor.Diagnostic{Range: r, Severity: severity, Message: message, Source: source, Code: code}
	}
	for name, test := range map[string]struct{ in, want editor.Diagnostic }{
		"valid": {
			made(span(1, 2, 3, 1), "warning", "a\nb", "gopls", "E1"),
			made(span(1, 2, 3, 1), "warning", "a\nb", "gopls", "E1"),
		},
		"no position": {
			made(editor.Range{}, "hint", "m", "", ""), made(span(1, 1, 1, 1), "hint", "m", "", ""),
		},
		"negative": {
			made(span(-1, -1, -1, -1), "error", "m", "", ""),
			made(span(1, 1, 1, 1), "error", "m", "", ""),
		},
		"reversed": {
			made(span(5, 4, 5, 3), "error", "m", "", ""),
			made(span(5, 4, 5, 4), "error", "m", "", ""),
		},
		"no severity": {
			made(span(1, 1, 1, 1), "", "m", "", ""),
			made(span(1, 1, 1, 1), "error", "m", "", ""),
		},
		"hostile text": {
			made(span(1, 1, 1, 1), "error", "\x1b[31mm\xff\r\n", "a\nb\x07", strings.Repeat("c", 1000)),
			made(span(1, 1, 1, 1), "error", "[31mm?\n", "a b", strings.Repeat("c", maxDiagnosticName)+"..."),
		},
		"long message": {
			made(span(1, 1, 1, 1), "error", "x"+strings.Repeat("é", maxDiagnosticText), "", ""),
			made(span(1, 1, 1, 1), "error", "x"+strings.Repeat("é", maxDiagnosticText/2-1), "", ""),
		},
	} {
		if got := validDiagnostics([]editor.Diagnostic{test.in, test.in, {}}); !slices.Equal(got, []editor.Diagnostic{test.want}) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestDiagnosticsBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t)
		var all []editor.Diagnostic
		for i := range maxFileDiagnostics {
			all = append(all, problem(i+1, "hint", "m"))
		}
		all = append(all, problem(1, "error", "worst"))
		var reported []editor.FileDiagnostics
		for i := range maxDiagnosticFiles + 1 {
			f := inFile(b.file(t, fmt.Sprint(i)))
			if i <= maxDiagnostics/maxFileDiagnostics {
				f.Diagnostics = all
			}
			reported = append(reported, f)
		}
		b.checker(t, true, reported...)
		files, err := b.Diagnostics(t.Context(), "")
		if err != nil || len(files) != maxDiagnosticFiles {
			t.Fatalf("%d files, %v", len(files), err)
		}
		if f := files[0]; len(f.Diagnostics) != maxFileDiagnostics || f.Diagnostics[0].Message != "worst" {
			t.Errorf("the first file has %d, the first is %+v", len(f.Diagnostics), f.Diagnostics[0])
		}
		n := 0
		for _, f := range files {
			n += len(f.Diagnostics)
		}
		if n != maxDiagnostics {
			t.Errorf("%d diagnostics", n)
		}
	})
}

// A call after a write waits for the editor's report about the new text.
func TestBeforeWrite(t *testing.T) {
	type world struct {
		*bare
		t    *testing.T
		k    *checker
		path string
	}
	write := func(w world) {
		systest.WriteFile(t, w.path, "written\n")
	}
	report := func(w world, path string) {
		if err := w.k.DiagnosticsChanged(path); err != nil {
			w.t.Fatal(err)
		}
		synctest.Wait()
	}
	for name, test := range map[string]struct {
		after func(w world) // the announcement, and before the wait
		late  func(w world) // during the wait
		want  time.Duration // the length of the wait
	}{
		"not written": {func(w world) { report(w, w.path) }, nil, 0},
		"no report":   {write, nil, checkTimeout},
		"reported before the wait": {func(w world) {
			write(w)
			time.Sleep(100 * time.Millisecond)
			report(w, w.path)
		}, nil, checkDelay},
		"reported in the wait": {write, func(w world) {
			time.Sleep(400 * time.Millisecond)
			report(w, w.path)
		}, 400*time.Millisecond + checkDelay},
		"reported twice": {write, func(w world) {
			time.Sleep(400 * time.Millisecond)
			report(w, w.path)
			time.Sleep(200 * time.Millisecond)
			report(w, w.path+"/.")
		}, 600*time.Millisecond + checkDelay},
		"cleared": {write, func(w world) {
			time.Sleep(100 * time.Millisecond)
			w.k.set(inFile(w.path))
			report(w, w.path)
		}, 100*time.Millisecond + checkDelay + clearDelay},
		"cleared, then reported": {write, func(w world) {
			time.Sleep(100 * time.Millisecond)
			w.k.set(inFile(w.path))
			report(w, w.path)
			time.Sleep(600 * time.Millisecond)
			w.k.set(inFile(w.path, problem(2, "error", "new")))
			report(w, w.path)
		}, 700*time.Millisecond + checkDelay},
		"another file": {write, func(w world) {
			time.Sleep(400 * time.Millisecond)
			report(w, w.path+"x")
		}, checkTimeout},
		"about the old text": {func(w world) {
			report(w, w.path)
			write(w)
		}, nil, checkTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBare(t)
				path := b.file(t, "a")
				w := world{b, t, b.checker(t, true, inFile(path, problem(1, "error", "old"))), path}
				s := b.connect(t, newFakeSession())
				files, err := b.BeforeWrite(t.Context(), s, path)
				if err != nil || len(files) != 1 || files[0].Path != path || len(b.writes) != 1 {
					t.Fatalf("%+v, %v", files, err)
				}
				test.after(w)
				start := time.Now()
				if test.late != nil {
					go test.late(w)
				}
				b.AfterWrites(t.Context(), s)
				if d := time.Since(start); d != test.want {
					t.Errorf("it waited %v, want %v", d, test.want)
				}
				if len(b.writes) > 0 {
					t.Error("the write is not forgotten")
				}
			})
		})
	}
}

// Two agents write a file, one right after the other. Each wait ends with the report about its own
// text.
func TestBeforeWriteTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t)
		path := b.file(t, "a")
		k := b.checker(t, true, inFile(path, problem(1, "error", "old")))
		announce := func() Session {
			s := b.connect(t, newFakeSession())
			if _, err := b.BeforeWrite(t.Context(), s, path); err != nil {
				t.Fatal(err)
			}
			return s
		}
		write := func(text string) {
			systest.WriteFile(t, path, text)
		}
		report := func() {
			if err := k.DiagnosticsChanged(path); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		wait := func(s Session, want time.Duration) {
			t.Helper()
			start := time.Now()
			if b.AfterWrites(t.Context(), s); time.Since(start) != want {
				t.Errorf("it waited %v, want %v", time.Since(start), want)
			}
		}
		first := announce()
		write("first\n")
		second := announce()
		time.Sleep(4 * lookSoonInterval)
		report()
		write("second, longer\n")
		wait(first, checkDelay)
		wait(second, checkTimeout)
	})
}

func TestBeforeWriteUnchecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t)
		path := b.file(t, "a")
		s := b.connect(t, newFakeSession())
		if files, err := b.BeforeWrite(t.Context(), s, path); len(files) > 0 || len(b.writes) > 0 || err != nil {
			t.Errorf("without a client: %+v, %v", files, err)
		}
		k := b.checker(t, true)
		if files, err := b.BeforeWrite(t.Context(), s, path); len(files) > 0 || len(b.writes) > 0 || err != nil {
			t.Errorf("not listed: %+v, %v", files, err)
		}
		k.set(inFile(path))
		for range maxWrites + 1 {
			if _, err := b.BeforeWrite(t.Context(), s, path); err != nil || len(b.writes) == 0 || len(b.writes) > maxWrites {
				t.Fatalf("listed: %d writes, %v", len(b.writes), err)
			}
		}
		// The caller has ended.
		systest.WriteFile(t, path, "written\n")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if b.AfterWrites(ctx, s); time.Since(start) > 0 || len(b.writes) > 0 {
			t.Errorf("it waited %v, and %d are left", time.Since(start), len(b.writes))
		}
		if _, err := b.BeforeWrite(t.Context(), s, path); err != nil || len(b.writes) != 1 {
			t.Errorf("again: %d writes, %v", len(b.writes), err)
		}
		if b.Disconnect(s); len(b.writes) > 0 {
			t.Errorf("of an agent that has ended, %d are left", len(b.writes))
		}
	})
}
