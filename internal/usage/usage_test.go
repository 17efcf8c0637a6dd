package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

// envWriter makes the test binary a process that records calls in that directory.
const envWriter = "POLLUX_TEST_USAGE_DIR"

// callsPerWriter is less than maxWaiting.
const callsPerWriter = 200

func TestMain(m *testing.M) {
	if dir := os.Getenv(envWriter); dir != "" {
		r := NewRecorder(dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		for i := range callsPerWriter {
			r.Record(agent.Usage{
				Start: noon, Agent: "gemini", Model: "m" + strconv.Itoa(os.Getpid()),
				Duration: time.Duration(i) * time.Millisecond, Tokens: agent.Tokens{Input: 1},
			})
		}
		r.calls.Drain(context.Background()) // Close does not wait for a slow disk
		r.Close()
		os.Exit(0)
	}
	systest.VerifyTestMain(m)
}

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// record records calls in dir and returns what was logged.
func record(dir string, calls ...agent.Usage) string {
	var log bytes.Buffer
	r := NewRecorder(dir, slog.New(slog.NewTextHandler(&log, nil)))
	for _, c := range calls {
		r.Record(c)
	}
	r.calls.Drain(context.Background())
	r.Close()
	return log.String()
}

// read returns the report on dir, as of noon.
func read(t *testing.T, dir string, days int) Report {
	t.Helper()
	report, err := Read(dir, days, noon)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestReport(t *testing.T) {
	east := time.FixedZone("east", 14*3600)
	call := func(start time.Time, change func(*agent.Usage)) agent.Usage {
		c := agent.Usage{Start: start, Agent: "gemini", Model: "pro", Duration: 2 * time.Second, Queued: time.Second,
			Tokens: agent.Tokens{Input: 100, Output: 10, Cached: 50}}
		if change != nil {
			change(&c)
		}
		return c
	}
	dir := filepath.Join(t.TempDir(), "state", "usage")
	if log := record(dir,
		call(noon, nil),
		call(noon.Add(time.Hour), func(c *agent.Usage) { c.Error, c.Tokens = "quota per day", agent.Tokens{} }),
		call(noon.Add(2*time.Hour), func(c *agent.Usage) { c.Error, c.Duration = "quota per day", 0 }),
		call(noon, func(c *agent.Usage) { c.Model, c.Fallback = "flash", true }),
		call(noon, func(c *agent.Usage) { c.Model, c.Error = "", "cancelled" }),
		call(noon, func(c *agent.Usage) { c.Agent = "codex" }),
		// The day is the local one of the call.
		call(time.Date(2026, 3, 9, 23, 59, 59, 0, time.UTC), nil),
		call(time.Date(2026, 3, 9, 0, 1, 0, 0, east), nil), // still 8 March in UTC
		call(time.Date(2026, 2, 28, 23, 0, 0, 0, time.UTC), nil),
		call(time.Date(2025, 3, 10, 12, 0, 0, 0, time.UTC), nil),
	); log != "" {
		t.Errorf("logged %s", log)
	}

	one := Counts{Calls: 1, Errors: map[string]int{}, InputTokens: 100, CachedTokens: 50, OutputTokens: 10, DurationMs: 2000, QueuedMs: 1000}
	with := func(change func(*Counts)) Counts {
		c := one
		c.Errors = map[string]int{}
		change(&c)
		return c
	}
	today := []Row{
		{"2026-03-10", "codex", "pro", one},
		{"2026-03-10", "gemini", "", with(func(c *Counts) { c.Errors["cancelled"] = 1 })},
		{"2026-03-10", "gemini", "flash", with(func(c *Counts) { c.Fallbacks = 1 })},
		{"2026-03-10", "gemini", "pro", Counts{Calls: 3, Errors: map[string]int{"quota per day": 2},
			InputTokens: 200, CachedTokens: 100, OutputTokens: 20, DurationMs: 4000, QueuedMs: 3000}},
	}
	yesterday := Row{"2026-03-09", "gemini", "pro", Counts{Calls: 2, Errors: map[string]int{},
		InputTokens: 200, CachedTokens: 100, OutputTokens: 20, DurationMs: 4000, QueuedMs: 2000}}
	february := Row{"2026-02-28", "gemini", "pro", one}
	lastYear := Row{"2025-03-10", "gemini", "pro", one}
	for _, tt := range []struct {
		days  int
		from  string
		rows  []Row
		calls int
	}{
		{1, "2026-03-10", today, 6},
		{2, "2026-03-09", append([]Row{yesterday}, today...), 8},
		{10, "2026-03-01", append([]Row{yesterday}, today...), 8},
		{11, "2026-02-28", append([]Row{february, yesterday}, today...), 9},
		{366, "2025-03-10", append([]Row{lastYear, february, yesterday}, today...), 10},
	} {
		got := read(t, dir, tt.days)
		if got.From != tt.from || got.To != "2026-03-10" || got.Total.Calls != tt.calls || got.Skipped != 0 {
			t.Errorf("%d days: from %s to %s, %d calls, skipped %d; want from %s, %d calls",
				tt.days, got.From, got.To, got.Total.Calls, got.Skipped, tt.from, tt.calls)
		}
		if !reflect.DeepEqual(got.Rows, tt.rows) {
			t.Errorf("%d days: the rows are\n%+v\nwant\n%+v", tt.days, got.Rows, tt.rows)
		}
	}
	if got := read(t, dir, 1).Total; got.Failed() != 3 || got.Fallbacks != 1 || got.InputTokens != 500 {
		t.Errorf("the total is %+v", got)
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "usage")
	record(dir, agent.Usage{Start: noon, Agent: "gemini"})
	for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "2026-03.jsonl"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode && os.PathSeparator == '/' {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}
}

// TestNotAsked checks that calls without an agent are apart from the others, also those of
// releases that did not mark them.
func TestNotAsked(t *testing.T) {
	dir := t.TempDir()
	unmarked := func(model, kind string) string {
		return fmt.Sprintf(`{"v":1,"start":"2026-03-10T11:00:00Z","agent":"gemini","model":%q,"durationMs":5,"fallback":true,"error":%q}`, model, kind) + "\n"
	}
	old := unmarked("", "not installed") + unmarked("pro", "too old") + unmarked("", "unknown version") +
		unmarked("", "credentials not linked") + unmarked("", "cancelled") + unmarked("", "auth")
	systest.WriteFile(t, filepath.Join(dir, "2026-03.jsonl"), old)
	record(dir,
		agent.Usage{Start: noon, Agent: "gemini", Error: "cancelled", NotAsked: true, Fallback: true},
		agent.Usage{Start: noon, Agent: "gemini", Error: "not installed", NotAsked: true, Duration: time.Second},
		agent.Usage{Start: noon.AddDate(0, 0, -1), Agent: "gemini", Error: "not installed", NotAsked: true},
		agent.Usage{Start: noon, Agent: "gemini", Model: "pro"},
	)
	got := read(t, dir, 1)
	want := map[string]int{"not installed": 2, "too old": 1, "unknown version": 1, "credentials not linked": 1, "cancelled": 1}
	if !reflect.DeepEqual(got.NotAsked, want) {
		t.Errorf("not asked: %v, want %v", got.NotAsked, want)
	}
	rows := []Row{
		{"2026-03-10", "gemini", "", Counts{Calls: 2, Errors: map[string]int{"cancelled": 1, "auth": 1}, Fallbacks: 2, DurationMs: 10}},
		{"2026-03-10", "gemini", "pro", Counts{Calls: 1, Errors: map[string]int{}}},
	}
	if !reflect.DeepEqual(got.Rows, rows) || got.Total.Calls != 3 || got.Total.DurationMs != 10 || got.Total.Fallbacks != 2 {
		t.Errorf("the rows are %+v with the total %+v, want %+v", got.Rows, got.Total, rows)
	}
}

// TestEmpty checks that nothing to report is a report with empty lists.
func TestEmpty(t *testing.T) {
	data, err := json.Marshal(read(t, filepath.Join(t.TempDir(), "none"), 7))
	want := `{"from":"2026-03-04","to":"2026-03-10","rows":[],"total":{"calls":0,"errors":{},"fallbacks":0,` +
		`"inputTokens":0,"cachedTokens":0,"outputTokens":0,"durationMs":0,"queuedMs":0},"notAsked":{},"skippedLines":0}`
	if err != nil || string(data) != want {
		t.Errorf("got %s, %v\nwant %s", data, err, want)
	}
}

// TestDamagedFiles checks that lines which are incomplete or not ours cost no
// other line.
func TestDamagedFiles(t *testing.T) {
	good, err := encode(agent.Usage{Start: noon, Agent: "gemini", Model: "pro"})
	if err != nil {
		t.Fatal(err)
	}
	line := string(good)
	half := line[:len(line)/2]
	for _, tt := range []struct {
		name, text     string
		calls, skipped int
	}{
		{"empty", "", 1, 0},
		{"complete", line + line, 3, 0},
		{"torn end", line + half, 2, 1},
		{"only a torn line", half, 1, 1},
		{"torn in the middle", line + half + "\n" + line, 3, 1},
		{"torn without a line feed", half + line + line, 2, 1},
		{"not JSON", "\n\x00\x00\n{}\n[]\nnull\n" + line, 2, 4},
		{"another version", strings.Replace(line, `"v":1`, `"v":2`, 1), 1, 1},
		{"no agent", strings.Replace(line, "gemini", "", 1), 1, 1},
		{"negative", strings.Replace(line, `"durationMs":0`, `"durationMs":-1`, 1), 1, 1},
		{"huge", strings.Replace(line, `"durationMs":0`, `"durationMs":9e18`, 1), 1, 1},
		{"no time", strings.Replace(line, "2026", "0001", 1), 1, 1},
		{"a long line", strings.Repeat("x", 1<<20) + "\n" + line, 2, 1},
		{"a long name", strings.Replace(line, "gemini", strings.Repeat("x", 1000), 1), 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			systest.WriteFile(t, filepath.Join(dir, "2026-03.jsonl"), tt.text)
			record(dir, agent.Usage{Start: noon, Agent: "gemini", Model: "pro"})
			if got := read(t, dir, 1); got.Total.Calls != tt.calls || got.Skipped != tt.skipped {
				t.Errorf("%d calls, skipped %d; want %d calls, skipped %d", got.Total.Calls, got.Skipped, tt.calls, tt.skipped)
			}
		})
	}
}

// TestLinesAreShort checks that names of any size and content fit into a line that
// one write holds.
func TestLinesAreShort(t *testing.T) {
	for _, name := range []string{strings.Repeat("<", 1000), strings.Repeat("\xff", 1000), strings.Repeat("é", 500), "a\n\"\x1b[31m"} {
		c := agent.Usage{Start: noon, Agent: name, Model: name, Error: name, Duration: 1 << 62, Queued: 1 << 62,
			Tokens: agent.Tokens{Input: maxCount, Output: maxCount, Cached: maxCount}}
		data, err := encode(c)
		if err != nil || len(data) > maxLine || bytes.Count(data, []byte("\n")) != 1 {
			t.Errorf("%.10q: %d bytes in %d lines, %v", name, len(data), bytes.Count(data, []byte("\n")), err)
		}
	}
}

// TestProcesses checks that processes lose no call when they record at the same
// time.
func TestProcesses(t *testing.T) {
	self := systest.Self(t)
	dir := t.TempDir()
	processes := 6
	if systest.OnWine() {
		processes = 1 // it appends at the size that the file had before, over what others append then
	}
	var all sync.WaitGroup
	for range processes {
		all.Go(func() {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), envWriter+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	got := read(t, dir, 1)
	if got.Skipped != 0 || len(got.Rows) != processes {
		t.Errorf("skipped %d lines, %d rows, want %d", got.Skipped, len(got.Rows), processes)
	}
	for _, r := range got.Rows {
		if r.Calls != callsPerWriter || r.InputTokens != callsPerWriter || r.DurationMs != callsPerWriter*(callsPerWriter-1)/2 {
			t.Errorf("a process has %+v, want %d calls", r, callsPerWriter)
		}
	}
}

// TestUnwritable checks that a call never fails because it cannot be recorded, and
// that the user is warned once, without paths.
func TestUnwritable(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"directory is a file":    func(t *testing.T, dir string) { systest.WriteFile(t, dir, "") },
		"file is a directory":    func(t *testing.T, dir string) { systest.MakeDir(t, filepath.Join(dir, "2026-03.jsonl")) },
		"directory is elsewhere": func(t *testing.T, dir string) { systest.Link(t, t.TempDir(), dir) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "usage")
			spoil(t, dir)
			c := agent.Usage{Start: noon, Agent: "gemini"}
			log := record(dir, c, c, c)
			if strings.Count(log, "\n") != 1 || !strings.Contains(log, "level=WARN") ||
				!strings.Contains(log, "check that the state directory can be written") || strings.Contains(log, dir) {
				t.Errorf("logged %q, want one warning", log)
			}
		})
	}
}

// TestUnreadable checks that a report never silently misses a file.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	systest.MakeDir(t, filepath.Join(dir, "2026-03.jsonl"))
	_, err := Read(dir, 1, noon)
	systest.WantError(t, err, "make it readable, or delete it")
}

// TestOldMonths checks that the files of MaxDays stay and older ones go, and that
// files which are not ours stay.
func TestOldMonths(t *testing.T) {
	dir := t.TempDir()
	for i := range 40 {
		path := filepath.Join(dir, month(noon.AddDate(0, -i-1, 0)))
		systest.WriteFile(t, path, "{}\n")
	}
	systest.WriteFile(t, filepath.Join(dir, "notes.jsonl"), "")
	record(dir, agent.Usage{Start: noon, Agent: "gemini"})
	names, err := months(dir)
	oldest := month(noon.AddDate(0, 0, -MaxDays))
	if err != nil || len(names) != maxFiles || names[len(names)-1] != "2026-03.jsonl" || names[0] > oldest {
		t.Errorf("the files are %q, %v; want %d, from %s or earlier", names, err, maxFiles, oldest)
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.jsonl")); err != nil {
		t.Error(err)
	}
}

// TestMaxDays checks that maxFiles cover MaxDays on any day.
func TestMaxDays(t *testing.T) {
	for day := range 1500 {
		now := noon.AddDate(0, 0, day)
		first := now.AddDate(0, 0, -MaxDays+1)
		if span := (now.Year()-first.Year())*12 + int(now.Month()-first.Month()) + 1; span > maxFiles {
			t.Fatalf("%d days before %s begin %d files ago", MaxDays, now, span)
		}
	}
}

// FuzzDecode checks that a line is refused or can be added up and written again.
func FuzzDecode(f *testing.F) {
	good, err := encode(agent.Usage{Start: noon, Agent: "gemini", Model: "pro", Error: "timeout", Fallback: true})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "", "{}", "null", `{"v":1}`, `{"v":1,"start":"2026-03-10T00:00:00+23:59","agent":"x"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, ok := decode(data)
		if !ok {
			return
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		same, ok := decode(again)
		if !ok || !same.Start.Equal(l.Start) || same.Agent != l.Agent || same.Model != l.Model || same.Error != l.Error {
			t.Fatalf("%s became %s", data, fmt.Sprint(same))
		}
		if l.Agent == "" || min(l.DurationMs, l.QueuedMs, l.Input, l.Output, l.Cached) < 0 {
			t.Fatalf("%s was accepted", data)
		}
	})
}
