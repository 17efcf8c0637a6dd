package journal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	systest.Main(m, map[string]func() error{"add": addMany, "starve": starve})
}

// past adds an entry that looks as if it was written some time ago.
func past(t *testing.T, j *Journal, e Entry, ago time.Duration, proposal string) string {
	t.Helper()
	e.Time = time.Now().Add(-ago)
	e.ID = fmt.Sprintf("%09s-%s", strconv.FormatInt(e.Time.UnixMilli(), 36), NewID()[10:])
	add(t, j, e, proposal)
	j.Wait() // the journal's own pruning must not see what the test does to the entry
	return backdate(t, j, e.ID, ago)
}

// backdate sets the times of an entry's files.
func backdate(t *testing.T, j *Journal, id string, ago time.Duration) string {
	t.Helper()
	at := time.Now().Add(-ago)
	names, err := filepath.Glob(j.file(id, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("the entry has the files %v, %v", names, err)
	}
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Mode()&os.ModeSymlink != 0 {
			continue
		}
		systest.SetTime(t, name, at)
	}
	return id
}

// prune prunes as the first Add of another process does.
func prune(t *testing.T, j *Journal) {
	t.Helper()
	other := New(j.dir)
	add(t, other, Entry{Path: "/new", State: Rejected}, "new")
	other.Wait()
}

func has(j *Journal, id, ext string) bool {
	_, err := os.Lstat(j.file(id, ext))
	return err == nil
}

func TestBounds(t *testing.T) {
	const old = MaxAge + time.Hour
	j := New(t.TempDir())
	// The journal was in use all the time.
	for day := range 14 {
		past(t, j, Entry{Path: "/f", State: Rejected}, time.Duration(day)*24*time.Hour, "x")
	}
	expired := past(t, j, Entry{Path: "/f", State: Rejected}, old, "old")
	open := past(t, j, Entry{Path: "/f"}, old, "open")
	orphan := past(t, j, Entry{Path: "/f", State: Orphaned}, old, "orphan")
	recent := past(t, j, Entry{Path: "/f", State: Rejected}, MaxAge-time.Hour, "recent")
	touched := past(t, j, Entry{Path: "/f", State: Accepted}, old, "touched")
	if err := j.Finish(touched, Accepted, true); err != nil {
		t.Fatal(err)
	}
	half := past(t, j, Entry{Path: "/f"}, old, "half") // its process was killed
	os.Remove(j.file(half, "json"))
	stray := filepath.Join(j.dir, disk.TempName())
	os.WriteFile(stray, nil, 0o600)
	day := time.Now().Add(-24 * time.Hour)
	os.Chtimes(stray, day, day)
	mine := filepath.Join(j.dir, disk.TempName()) // somebody writes it
	os.WriteFile(mine, nil, 0o600)

	prune(t, j)
	for _, ext := range []string{"json", "proposal"} {
		if has(j, expired, ext) {
			t.Errorf("an entry's %s outlived its age", ext)
		}
	}
	for what, id := range map[string]string{"an open diff's": open, "a shown orphan's": orphan, "a recent": recent, "a changed": touched} {
		if _, err := j.Get(id); err != nil {
			t.Errorf("%s entry is gone: %v", what, err)
		}
	}
	if has(j, half, "proposal") {
		t.Error("half an entry is left")
	}
	if _, err := os.Stat(stray); err == nil {
		t.Error("a killed process's temporary file is left")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error("another process's temporary file is gone")
	}
}

func TestMaxEntries(t *testing.T) {
	j := New(t.TempDir())
	first := past(t, j, Entry{Path: "/f", State: Rejected}, 3*time.Hour, "x")
	orphan := past(t, j, Entry{Path: "/f", State: Orphaned}, 4*time.Hour, "mine")
	unwritten := past(t, j, Entry{Path: "/f", State: Accepted, Unwritten: true}, 4*time.Hour, "mine, too")
	for range MaxEntries {
		add(t, j, Entry{Path: "/f", State: Rejected}, "x")
	}
	j.Wait()
	prune(t, j)
	all, err := j.List()
	if err != nil || len(all) < MaxEntries-1 || len(all) > MaxEntries+3 { // the two above, and the one that prune adds
		t.Errorf("%d entries, %v", len(all), err)
	}
	if _, err := j.Get(first); err == nil {
		t.Error("the oldest entry is left")
	}
	wantText(t, j, orphan, "mine")
	wantText(t, j, unwritten, "mine, too")
}

func TestMaxBytes(t *testing.T) {
	j := New(t.TempDir())
	id := past(t, j, Entry{Path: "/f", State: Rejected}, 2*time.Hour, "big")
	if err := os.Truncate(j.file(id, "proposal"), MaxBytes); err != nil {
		t.Fatal(err)
	}
	backdate(t, j, id, 2*time.Hour)
	fresh := past(t, j, Entry{Path: "/f", State: Rejected}, time.Hour, "small")
	prune(t, j)
	if has(j, id, "proposal") {
		t.Error("an entry keeps the others from being deleted")
	}
	if _, err := j.Get(fresh); err != nil {
		t.Error("an entry had to go for no reason:", err)
	}
}

// Unreadable entries stay, however old they are: the next attempt may succeed.
func TestUnreadableEntriesStay(t *testing.T) {
	j := New(t.TempDir())
	ids := make(map[string]string)
	for what, spoil := range map[string]func(json string) error{
		"cut off":   func(p string) error { return os.WriteFile(p, []byte(`{"id":`), 0o600) },
		"empty":     func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"newer":     func(p string) error { return os.WriteFile(p, []byte(`{"state":{"was":"open"}}`), 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"looping":   func(p string) error { return systest.TryLink(filepath.Base(p), p) },
		"huge":      func(p string) error { return os.WriteFile(p, make([]byte, maxEntry+1), 0o600) },
		"device":    func(p string) error { return systest.TryLink(os.DevNull, p) },
	} {
		id := past(t, j, Entry{Path: "/f", State: Rejected}, 3*MaxAge, "p")
		if err := j.Edit(id, "the user's text"); err != nil {
			t.Fatal(err)
		}
		os.Remove(j.file(id, "json"))
		if err := spoil(j.file(id, "json")); err != nil {
			if runtime.GOOS == "windows" {
				continue // links need a privilege there
			}
			t.Fatal(err)
		}
		ids[what] = backdate(t, j, id, 3*MaxAge)
	}
	for day := range 30 {
		past(t, j, Entry{Path: "/f", State: Rejected}, time.Duration(day)*24*time.Hour, "x")
	}
	prune(t, j)
	for what, id := range ids {
		if !has(j, id, "json") || !has(j, id, "proposal") || !has(j, id, "edited") {
			t.Errorf("%s: the entry was deleted", what)
		}
		if text, err := j.Text(id); err != nil || text != "the user's text" {
			t.Errorf("%s: the text is %q, %v", what, text, err)
		}
	}
}

// A flood of connections can take a companion's last file descriptors.
func TestNoFileDescriptors(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no limit of open files")
	}
	j := New(t.TempDir())
	ids := make([]string, 50)
	for i := range ids {
		// Open in this process, and old: a pruning looks at each.
		id := past(t, j, Entry{Path: "/f"}, 3*MaxAge, "p")
		if err := j.Edit(id, "mine"); err != nil {
			t.Fatal(err)
		}
		ids[i] = backdate(t, j, id, 3*MaxAge)
	}
	for day := range 30 {
		past(t, j, Entry{Path: "/f"}, time.Duration(day)*24*time.Hour, "x")
	}
	t.Setenv("GORACE", "atexit_sleep_ms=10")
	program := systest.Program(t, "starve")
	cmd := exec.Command("sh", "-c", `ulimit -n 40 && exec "$0" "$1"`, program.Path, j.dir)
	cmd.Env = program.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "too many open files") {
		t.Fatalf("the process had enough: %s", out)
	}
	for _, id := range ids {
		wantText(t, j, id, "mine")
	}
}

// starve prunes a journal while there is hardly a file descriptor left.
func starve() error {
	var refused error
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			var all []*os.File
			for {
				f, err := os.Open(os.DevNull)
				if err != nil {
					refused = err
					break
				}
				all = append(all, f)
			}
			for _, f := range all {
				f.Close()
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 200 {
		j := New(os.Args[1])
		j.Add(Entry{Path: "/g"}, "x") // which may fail
		j.Wait()
	}
	close(stop)
	<-stopped
	fmt.Println(refused)
	return nil
}

// Another process may prune between the writes of an entry's files.
func TestUnfinishedEntriesStay(t *testing.T) {
	j := New(t.TempDir())
	id := add(t, j, Entry{Path: "/f"}, "proposal")
	j.Wait()
	data, err := os.ReadFile(j.file(id, "json"))
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(j.file(id, "json"))
	prune(t, j)
	systest.WriteFile(t, j.file(id, "json"), string(data))
	wantText(t, j, id, "proposal")
}

// Companions share a journal: 3 of 240 entries were without their text.
func TestProcessesShareAJournal(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=10")
	dir := t.TempDir()
	var children []*exec.Cmd
	for range 3 {
		cmd := systest.Program(t, "add", dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, cmd)
	}
	for _, cmd := range children {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	j := New(dir)
	all, err := j.List()
	if err != nil || len(all) != 3*added {
		t.Errorf("%d entries, %v", len(all), err)
	}
	for _, e := range all {
		if text, err := j.Text(e.ID); err != nil || len(text) != addedBytes {
			t.Errorf("an entry's text has %d bytes, %v", len(text), err)
		}
	}
}

const (
	added      = 60
	addedBytes = 200_000
)

// addMany adds entries to a journal, and prunes at each.
func addMany() error {
	text := strings.Repeat("x", addedBytes)
	for range added {
		j := New(os.Args[1])
		if _, err := j.Add(Entry{Path: "/f"}, text); err != nil {
			return err
		}
		j.Wait()
	}
	return nil
}

// The clock may jump forward and back: fresh entries stay.
func TestClockJumps(t *testing.T) {
	j := New(t.TempDir())
	fresh := past(t, j, Entry{Path: "/f", State: Rejected}, 24*time.Hour, "fresh")
	j.Wait()
	j.pruneAt(time.Now().Add(365 * 24 * time.Hour))
	if _, err := j.Get(fresh); err != nil {
		t.Errorf("the clock jumped by a year: %v", err)
	}

	// The clock was a year ahead, and is right again.
	for range MaxEntries + 10 {
		past(t, j, Entry{Path: "/g", State: Rejected}, -365*24*time.Hour, "ahead")
	}
	j.Wait()
	prune(t, j)
	if _, err := j.Get(fresh); err != nil {
		t.Errorf("the clock was a year ahead: %v", err)
	}
	all, err := j.List()
	if err != nil || len(all) > MaxEntries+1 {
		t.Errorf("%d entries, %v", len(all), err)
	}
}

// The cost of a diff does not grow with the journal.
func TestAddOfManyEntries(t *testing.T) {
	work := func(entries int) float64 {
		j := New(t.TempDir())
		for range entries {
			add(t, j, Entry{Path: "/f", State: Rejected}, "x")
		}
		j.Wait()
		j = New(j.dir) // a new process, which prunes once
		add(t, j, Entry{Path: "/f"}, "x")
		j.Wait()
		return testing.AllocsPerRun(10, func() {
			if _, err := j.Add(Entry{Path: "/f"}, "x"); err != nil {
				t.Error(err)
			}
		})
	}
	few, many := work(10), work(500)
	if many > few+50 {
		t.Errorf("an Add allocates %v times among 10 entries, %v times among 500", few, many)
	}
}

// A pruning opens only what it would delete.
func TestPruneReadsCandidates(t *testing.T) {
	j := New(t.TempDir())
	const kept = pruneAdds - 10 // no other pruning starts meanwhile
	for range kept {
		past(t, j, Entry{Path: "/f", State: Rejected}, time.Hour, "x")
	}
	j.Wait() // the first entry started a pruning
	for range 3 {
		past(t, j, Entry{Path: "/f", State: Rejected}, 2*MaxAge, "x")
	}
	past(t, j, Entry{Path: "/f", State: Rejected}, MaxAge, "x") // a gap of two weeks would count as one
	j.Wait()
	j = New(j.dir)
	j.pruneAt(time.Now())
	if n := j.prune.reads.Load(); n != 3 {
		t.Errorf("a pruning read %d entries to delete 3", n)
	}
	if all, err := j.List(); err != nil || len(all) != kept+1 {
		t.Errorf("%d entries, %v", len(all), err)
	}
}
