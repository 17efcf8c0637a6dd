package cli

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pollux/internal/usage"
)

func TestCompact(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 9999: "9999", 10_000: "10k", 999_499: "999k", 999_500: "1.0M", 1_234_567: "1.2M", 9_949_999: "9.9M",
		9_950_000: "10M", 12_345_678: "12M", 999_499_999: "999M", 999_500_000: "1.0G", 1_000_000_000_000: "1.0T",
	} {
		if got := compact(n); got != want {
			t.Errorf("compact(%d) = %q, want %q", n, got, want)
		}
	}
	if got := compact(math.MaxInt64); !strings.HasSuffix(got, "T") {
		t.Errorf("the largest number is %q", got)
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0s", 1234 * time.Millisecond: "1.2s", 9949 * time.Millisecond: "9.9s", 9950 * time.Millisecond: "10s",
		59499 * time.Millisecond: "59s", 59500 * time.Millisecond: "1m00s", 185 * time.Second: "3m05s",
		time.Hour - time.Second: "59m59s", time.Hour - time.Millisecond: "1h00m", 130 * time.Minute: "2h10m", 100 * time.Hour: "100h00m",
	} {
		if got := brief(d); got != want {
			t.Errorf("brief(%s) = %q, want %q", d, got, want)
		}
	}
}

// TestUsageTable checks that the table fits into a terminal, and that names from an
// agent cannot change the terminal.
func TestUsageTable(t *testing.T) {
	full := usage.Counts{
		Calls: 12345, Errors: map[string]int{"timeout": 2, "auth": 2, "quota per day": 30}, Fallbacks: 1,
		InputTokens: 999_000_000, CachedTokens: 999_000_000, OutputTokens: 999_000_000, DurationMs: 99 * 3600 * 1000,
	}
	report := usage.Report{Total: full, Rows: []usage.Row{
		{Day: "2026-03-09", Agent: "gemini", Model: "gemini-2.5-flash-lite", Counts: full},
		{Day: "2026-03-10", Agent: "gemini", Model: "a\x1b[31m", Counts: usage.Counts{Calls: 1}},
		{Day: "2026-03-10", Agent: "gemini", Model: "gemini-2.5-pro", Counts: usage.Counts{Calls: 1}},
	}}
	var out strings.Builder
	if err := printUsage(&out, report, 7); err != nil {
		t.Fatal(err)
	}
	want := `Day        Agent  Model                 Calls Errors Input Cached Output   Time
2026-03-09 gemini gemini-2.5-flash-lite 12345     34  999M   999M   999M 99h00m
2026-03-10 gemini a␛[31m                    1      0     0      0      0   0.0s
           gemini gemini-2.5-pro            1      0     0      0      0   0.0s
Total                                   12345     34  999M   999M   999M 99h00m
Errors: quota per day 30, auth 2, timeout 2
Fallback model asked: 1 call
`
	if out.String() != want {
		t.Errorf("the table is\n%s\nwant\n%s", out.String(), want)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > tableWidth {
			t.Errorf("%d characters: %s", n, line)
		}
	}
}
