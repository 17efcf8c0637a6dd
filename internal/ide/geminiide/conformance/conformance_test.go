package conformance

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	// The kit starts this program in several roles.
	if len(os.Args) > 2 {
		if play := roles[os.Args[1]]; play != nil {
			play(os.Args[2], os.Args[3:]...)
			return
		}
	}
	// Most of the time the tests wait for processes or for silence.
	flag.Set("test.parallel", "24")
	systest.VerifyTestMain(m)
}

var roles = map[string]func(arg string, more ...string){
	"companion": companionMain,
	"do": func(what string, _ ...string) {
		text, _ := os.ReadFile(os.Getenv("TEXT"))
		if err := do(os.Getenv("TMPDIR"), what, os.Getenv("FILE"), string(text)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	},
	"launcher": launcherMain,
	"left":     leftMain,
}

// Every check of the kit can fail: a companion with one fault fails the checks
// of that fault and passes all others.
func TestFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"":                     "",
		"other name":           "discovery.name discovery.pid?",
		"dead pid":             "discovery.pid",
		"elsewhere":            "discovery.workspace",
		"everything":           "discovery.workspace",
		"no folder":            "discovery.workspace",
		"short token":          "discovery.token",
		"nameless":             "discovery.ideinfo",
		"vscode":               "discovery.ideinfo",
		"readable":             "discovery.private",
		"everywhere":           "transport.loopback",
		"initialized is 200":   "transport.initialized",
		"no token":             "auth.missing auth.wrong auth.every",
		"any token":            "auth.wrong",
		"token once":           "auth.every",
		"any host":             "transport.host",
		"any origin":           "transport.origin",
		"any session":          "transport.session",
		"unknown is 400":       "transport.unknown-method",
		"no closeDiff":         "tools.listed",
		"no first context":     "context.first",
		"no context":           "context.open context.order",
		"counts from 0":        "context.open",
		"old files are newest": "context.order",
		"nulls":                "context.shape",
		"no such file":         "context.shape",
		"talks":                "diff.open diff.close diff.close-json diff.close-silent diff.accept diff.not-written diff.edit diff.edit-close diff.reject diff.new-file diff.sessions diff.reconnect lifecycle.lost",
		"closes with nothing":  "diff.close diff.close-json diff.close-silent diff.lenient diff.edit-close diff.sessions lifecycle.lost",
		"bare text":            "diff.close-json diff.edit-close",
		"rejects at close":     "diff.close-silent diff.sessions",
		"strict":               "diff.lenient",
		"other path":           "diff.accept diff.not-written diff.edit diff.new-file",
		"trims":                "diff.accept",
		"accepts in silence":   "diff.accept diff.not-written diff.edit diff.new-file diff.reconnect",
		"says it twice":        "diff.accept diff.not-written diff.edit diff.new-file diff.close-unknown?",
		"writes":               "diff.not-written",
		"loses edits":          "diff.edit diff.edit-close",
		"diffClosed":           "diff.reject",
		"no new files":         "diff.new-file",
		"one for all":          "diff.sessions",
		"loses outcomes":       "diff.reconnect",
		"leaves its file":      "lifecycle.file",
		"breaks streams":       "lifecycle.graceful",
		"stays":                "lifecycle.file lifecycle.server lifecycle.process lifecycle.graceful",
		"closes with HTTP 500": "diff.close-unknown",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			if fault == "everywhere" && len(addresses()) == 0 {
				t.Skip("this machine has no other address")
			}
			self, timeouts := systest.Self(t), timeoutsFor(fault)
			actions := make(map[Action]string)
			// A person has longer for an effect that never comes.
			if fault == "" || len(timeouts.effect) > 0 {
				for _, a := range []Action{Open, Edit, Accept, Reject} {
					actions[a] = fmt.Sprintf(`"%s" do %s`, self, a)
				}
			}
			command := []string{self, "companion", fault}
			if !proc.CanAskToEnd() {
				// Windows without a console. A companion that does not end with its input
				// is not asked to, and its end is not checked.
				command = append(command, withInput)
				if fault == "stays" {
					want = ""
				}
			}
			report, err := Run(t.Context(), Config{
				Command: command, Actions: actions, Errors: os.Stderr, timeouts: timeouts,
				Ask: func(a Action, file, text string) error {
					return do(filepath.Join(filepath.Dir(filepath.Dir(file)), "tmp"), string(a), file, text)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			details := ""
			for _, r := range report.Results {
				if r.Outcome == Fail || r.Outcome == Warning {
					got = append(got, r.ID)
				}
				details += fmt.Sprintf("%s %s %s\n", r.Outcome, r.ID, r.Detail)
			}
			wanted := strings.Fields(want)
			for _, id := range wanted {
				// A check with a question mark may fail as a consequence.
				if optional, ok := strings.CutSuffix(id, "?"); ok {
					got = slices.DeleteFunc(got, func(g string) bool { return g == optional })
				}
			}
			wanted = slices.DeleteFunc(wanted, func(id string) bool { return strings.HasSuffix(id, "?") })
			slices.Sort(got)
			slices.Sort(wanted)
			if !slices.Equal(got, wanted) {
				t.Errorf("failed %q, want %q:\n%s", got, wanted, details)
			}
		})
	}
}

// On Windows the kit can ask a companion to end only from a console. Without one it killed
// the companion, which then failed the checks of its end.
func TestCannotAskToEnd(t *testing.T) {
	for option, want := range map[string]Outcome{withInput: Pass, "": Skipped} {
		t.Run("option "+option, func(t *testing.T) {
			t.Parallel()
			to := timeoutsFor("")
			if want == Skipped {
				to.remove = 50 * time.Millisecond
			}
			report, err := Run(t.Context(), Config{
				Command: []string{systest.Self(t), "companion", "", option}, Errors: os.Stderr, timeouts: to, mute: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Results {
				if strings.HasPrefix(r.ID, "lifecycle.") && r.ID != "lifecycle.lost" &&
					(r.Outcome != want || want == Skipped && !strings.Contains(r.Detail, "run the kit in a terminal")) {
					t.Errorf("%s: %s %s, want %s", r.ID, r.Outcome, r.Detail, want)
				}
			}
		})
	}
}

// timeoutsFor returns how long the kit waits for a companion with a fault: briefly
// for what such a companion never does, and long enough on a busy machine for what
// it does.
func timeoutsFor(fault string) *timeouts {
	const never, soon = 50 * time.Millisecond, 5 * time.Second
	to := &timeouts{
		start: 2 * time.Minute, output: time.Minute, answer: time.Minute, effect: make(map[Action]time.Duration),
		quiet: never, notice: 500 * time.Millisecond, remove: time.Minute, end: time.Minute,
	}
	switch fault {
	case "says it twice", "rejects at close", "one for all": // must be noticed meanwhile
		to.quiet = time.Second
	case "no first context":
		to.answer = soon
	case "no context":
		to.effect[Open] = never
	case "counts from 0", "old files are newest", "loses outcomes":
		// Only one of several effects is missing.
		to.effect[Open], to.effect[Accept] = soon, soon
	case "accepts in silence":
		to.effect[Accept] = never
	case "diffClosed":
		to.effect[Reject] = never
	case "leaves its file":
		if proc.CanAskToEnd() { // otherwise its end says that it leaves the file
			to.remove = never
		}
	case "stays":
		to.remove, to.end = never, never
	}
	return to
}

// A process that a launcher leaves behind, with standard error open, delays
// nothing.
func TestLauncherThatLeavesSomethingBehind(t *testing.T) {
	addressFile := filepath.Join(t.TempDir(), "address")
	t.Cleanup(func() {
		address, err := os.ReadFile(addressFile)
		if err != nil {
			t.Error(err)
		}
		// On Windows it has ended: no process can leave the launcher's job.
		if conn, err := net.Dial("tcp", string(address)); err == nil {
			conn.Close()
		}
	})
	_, err := Run(t.Context(), Config{Command: []string{systest.Self(t), "launcher", addressFile}, Errors: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "ended before it made a discovery file") {
		t.Errorf("%v", err)
	}
}
