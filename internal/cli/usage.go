package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/bridge"
	"pollux/internal/termtext"
	"pollux/internal/usage"
	"pollux/internal/usage/metrics"
)

// recordUsage makes a bridge record its calls. The caller calls the function that
// it returns after the bridge has closed.
func recordUsage(cfg *bridge.Config) (closeAll func()) {
	meter, err := metrics.Open(os.Getenv, metrics.Options{Version: cfg.Version, Log: cfg.Log})
	if err != nil {
		cfg.Log.Warn("no metrics are sent: " + err.Error())
	}
	dir, err := usage.Dir()
	if err != nil {
		cfg.Log.Warn("`pollux usage` will miss the calls: " + err.Error())
		cfg.Record = meter.Record
		return meter.Close
	}
	recorder := usage.NewRecorder(dir, cfg.Log)
	cfg.Record = func(u agent.Usage) {
		recorder.Record(u)
		meter.Record(u)
	}
	return func() {
		recorder.Close()
		meter.Close()
	}
}

func newUsage(streams IO) *cobra.Command {
	var (
		days   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show how many calls and tokens the bridge and pollux ask have used",
		Long: `Shows the calls of pollux bridge and pollux ask by day, agent and model: how many
there were, how many failed, the tokens, and the time they took. Pollux counts
them on this machine, for 400 days, and keeps no part of a prompt or an answer.

If OTEL_EXPORTER_OTLP_ENDPOINT is set, pollux bridge and pollux ask also send
metrics to that OpenTelemetry collector.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := strconv.Atoi(days)
			if err != nil || n < 1 || n > usage.MaxDays {
				return usageError{fmt.Errorf("--days is %q: use a whole number from 1 to %d", days, usage.MaxDays)}
			}
			dir, err := usage.Dir()
			if err != nil {
				return err
			}
			report, err := usage.Read(dir, n, time.Now())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(streams.Out, report)
			}
			if report.Skipped > 0 {
				say(streams.Err, "skipped %s that cannot be read", termtext.Count(report.Skipped, "line"))
			}
			return printUsage(streams.Out, report, n)
		},
	}
	cmd.Flags().StringVar(&days, "days", "7", "show this `number` of days, today included")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printUsage prints a table with a row for each day, agent and model, and below it
// the kinds of errors, and the calls that reached no agent.
func printUsage(w io.Writer, report usage.Report, days int) error {
	if report.Total.Calls == 0 {
		span := fmt.Sprintf("in the last %d days", days)
		if days == 1 {
			span = "today"
		}
		what := "No calls"
		if len(report.NotAsked) > 0 {
			what = "No agent was asked"
		}
		_, err := fmt.Fprintf(w, "%s %s.\n%s", what, span, notAsked(report.NotAsked))
		return err
	}
	rows := [][]string{{"Day", "Agent", "Model", "Calls", "Errors", "Input", "Cached", "Output", "Time"}}
	day := ""
	for _, r := range report.Rows {
		shown := ""
		if r.Day != day {
			day, shown = r.Day, r.Day
		}
		rows = append(rows, append([]string{shown, r.Agent, cmp.Or(r.Model, "unknown")}, counts(r.Counts)...))
	}
	rows = append(rows, append([]string{"Total", "", ""}, counts(report.Total)...))
	if err := printTable(w, rows, 3); err != nil {
		return err
	}
	var below strings.Builder
	if len(report.Total.Errors) > 0 {
		fmt.Fprintf(&below, "Errors: %s\n", kinds(report.Total.Errors))
	}
	if n := report.Total.Fallbacks; n > 0 {
		fmt.Fprintf(&below, "Fallback model asked: %s\n", termtext.Count(n, "call"))
	}
	below.WriteString(notAsked(report.NotAsked))
	_, err := io.WriteString(w, below.String())
	return err
}

// notAsked returns a line with the number of calls that failed before an agent had the prompt,
// or "" if no call did.
func notAsked(calls map[string]int) string {
	if len(calls) == 0 {
		return ""
	}
	total := 0
	for _, n := range calls {
		total += n
	}
	return fmt.Sprintf("Not asked: %s (%s)\n", termtext.Count(total, "call"), kinds(calls))
}

// counts returns the cells with numbers of a row.
func counts(c usage.Counts) []string {
	return []string{
		strconv.Itoa(c.Calls), strconv.Itoa(c.Failed()),
		compact(c.InputTokens), compact(c.CachedTokens), compact(c.OutputTokens),
		brief(time.Duration(c.DurationMs) * time.Millisecond),
	}
}

// kinds names the kinds of errors with their numbers, the most frequent first.
func kinds(errors map[string]int) string {
	all := slices.SortedFunc(maps.Keys(errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(errors[b], errors[a]), cmp.Compare(a, b))
	})
	for i, kind := range all {
		all[i] = fmt.Sprintf("%s %d", termtext.Visible(kind), errors[kind])
	}
	return strings.Join(all, ", ")
}

// tableWidth is how wide a table should be, in characters.
const tableWidth = 80

// printTable prints rows in columns. The first columns hold text; the others hold
// numbers and are aligned to the right. The gap between columns is two characters,
// or one if the table would be too wide.
func printTable(w io.Writer, rows [][]string, texts int) error {
	widths := make([]int, len(rows[0]))
	total := 0
	for _, row := range rows {
		for i, cell := range row {
			row[i] = termtext.Visible(cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, width := range widths {
		total += width + 2
	}
	gap := "  "
	if total-2 > tableWidth {
		gap = " "
	}
	var out strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			width := widths[i]
			if i < texts {
				width = -width
			}
			if i > 0 {
				out.WriteString(gap)
			}
			fmt.Fprintf(&out, "%*s", width, cell)
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// compact returns a number in at most five characters, such as 9999, 12k or 3.4M.
func compact(n int64) string {
	if n < 10_000 {
		return strconv.FormatInt(n, 10)
	}
	value, unit := float64(n)/1000, 0
	for value >= 999.5 && unit < len("kMGT")-1 {
		value /= 1000
		unit++
	}
	digits := 0
	if value < 9.95 {
		digits = 1
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + "kMGT"[unit:unit+1]
}

// brief returns a duration in two units at most, such as 1.2s, 3m05s or 2h10m.
func brief(d time.Duration) string {
	switch {
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute-time.Second/2:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour-time.Second/2:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}
