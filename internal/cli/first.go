package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/shell"
	"pollux/internal/termtext"
	"pollux/internal/view/tmux"
)

// A first is something that Pollux explains to each user once: an agent, by its command, or
// one of the constants.
type first string

const (
	firstReview  first = "review"  // where the first change will appear
	firstAccept  first = "accept"  // where an accepted change can be seen again
	firstInstall first = "install" // how to decide on a change in an editor; with its name
)

// maxState bounds what is read from a file of [readState], in bytes.
const maxState = 1 << 10

// readState returns the text of a small file in the state directory; "" without one. It returns
// an error if there is no such directory.
func readState(name string) (string, error) {
	dir, err := disk.StateDir()
	if err != nil {
		return "", err
	}
	text, _ := disk.ReadFile(filepath.Join(dir, name), maxState)
	return string(text), nil
}

// writeState replaces a small file in the state directory, or in a directory there.
func writeState(name, text string) error {
	dir, err := disk.StateDir()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := disk.PrivateDir(dir); err != nil {
		return err
	}
	if err := disk.PrivateDir(filepath.Dir(path)); err != nil {
		return err
	}
	return disk.WriteFile(path, []byte(text))
}

// explained is the file with the words of all that were explained.
const explained = "started"

// was reports whether it was explained, or cannot be remembered.
func (f first) was() bool {
	words, err := readState(explained)
	return err != nil || slices.Contains(strings.Fields(words), string(f))
}

// remember keeps that it was explained.
func (f first) remember(streams IO) {
	words, err := readState(explained)
	if err == nil {
		err = writeState(explained, words+string(f)+"\n")
	}
	if err != nil {
		say(streams.Err, "cannot remember that: %v", err)
	}
}

// explain prints a text for the user of a terminal, unless it was explained before.
func (f first) explain(streams IO, text string) {
	if !isTerminal(streams.In) || f.was() {
		return
	}
	say(streams.Err, "%s", text)
	f.remember(streams)
}

// explainReview says where the agent's changes will appear, and how to decide.
func (s session) explainReview(streams IO) {
	hidden := s.agent.Hides && (s.attached || first(s.agent.Name).was()) // see readFirst
	if s.demo || hidden || s.agent.NoReview {                            // its hint says how it asks
		return
	}
	text := "a change that the agent proposes appears on the page: edit it there, then press Accept or Reject; " +
		"in a terminal: pollux review"
	switch {
	case s.attached:
		text = "a change that the agent proposes appears in the editor: `pollux help editors` has the keys; " +
			"on a page: pollux open"
	case s.review == reviewSplit, s.review == reviewPopup:
		text = "a change that the agent proposes appears in tmux: y accepts it, r rejects it, ? shows all keys"
	}
	firstReview.explain(streams, text)
}

// explainJournal says how to see accepted changes again, if the user has accepted one since a
// time.
func explainJournal(streams IO, since time.Time) {
	if !isTerminal(streams.In) || firstAccept.was() {
		return
	}
	j, err := journal.Default()
	if err != nil {
		return
	}
	entries, _ := j.List()
	if slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.State == journal.Accepted && !e.Time.Before(since) }) {
		firstAccept.explain(streams, "to see again what you accepted: `pollux journal`, `pollux journal show --diff @`; "+
			"it can restore each text")
	}
}

const (
	// toldLeft is the file with the ID of the newest entry that [explainLeft] has reported.
	toldLeft = "left"
	// maxLeft is how many entries it reports.
	maxLeft = 3
)

// explainLeft says how to get the texts that the user edited, if the agent or Pollux ended before
// the user decided. It is called before the agent starts, whose screen may hide the message, and
// with ended set after its end. Only then do the texts count as reported.
func explainLeft(streams IO, ended bool) {
	if !isTerminal(streams.In) {
		return
	}
	told, err := readState(toldLeft)
	j, journalErr := journal.Default()
	if err != nil || journalErr != nil {
		return
	}
	left := j.Left(strings.TrimSpace(told))
	for _, e := range left[:min(len(left), maxLeft)] {
		say(streams.Err, "you edited a change of %s, and the agent disconnected or Pollux ended before you decided: "+
			"`pollux journal restore %s` writes your text", termtext.Visible(paths.Short(e.Path)), e.ID)
	}
	if len(left) > 0 && ended {
		writeState(toldLeft, left[0].ID+"\n") // otherwise the next run repeats it
	}
}

// readFirst tells the user of an agent that starts for the first time that Pollux has set its
// mode, and waits until the user has read what Pollux has printed, if the agent hides that.
// With --attach it does not wait: the editor shows the changes, and may type into the agent's
// terminal.
func (s session) readFirst(ctx context.Context, streams IO, setsMode bool) error {
	start := first(s.agent.Name)
	if !s.agent.Hides && !setsMode || s.attached || !isTerminal(streams.In) || !isTerminal(streams.Err) || start.was() {
		return nil
	}
	if setsMode {
		say(streams.Err, "%s starts in the mode in which it asks before it changes a file; "+
			"for its own mode, use --own-mode, or the setting run.own-mode (pollux config edit)", s.agent.Title)
	}
	if s.agent.Hides {
		ctx, stop := untilSignal(ctx)
		defer stop()
		say(streams.Err, "%s hides these lines; `%s` and `%s` show them again", s.agent.Title, typed("open"), typed("status"))
		fmt.Fprint(streams.Err, prose(streams.Err, "Press Enter to start it. Pollux does not wait here again."), " ")
		if _, err := readLine(ctx, bufio.NewReader(streams.In)); errors.Is(err, io.EOF) || ctx.Err() != nil {
			return interrupted
		}
	}
	start.remember(streams)
	return nil
}

// waitingInterval is the shortest time between two messages that a change waits.
const waitingInterval = 10 * time.Second

// waitingShower returns a function that tells the user that a change waits, where no view
// shows it: in the status line of tmux, or on the desktop. It leaves out messages that
// follow each other within [waitingInterval].
func waitingShower() func(ctx context.Context, agent, path string) {
	var mu sync.Mutex
	var last time.Time
	return func(ctx context.Context, agent, path string) {
		mu.Lock()
		soon := time.Since(last) < waitingInterval
		if !soon {
			last = time.Now()
		}
		mu.Unlock()
		if !soon {
			show(ctx, fmt.Sprintf("%s proposes a change to %s. Review it: pollux open, or pollux review",
				termtext.Line(agent, 64), termtext.Line(filepath.Base(path), 64)))
		}
	}
}

// show shows a text in the status line of tmux or on the desktop, and reports whether it did.
func show(ctx context.Context, text string) bool {
	if os.Getenv("TMUX") != "" {
		return tmux.Show(ctx, text) == nil
	}
	return shell.Notify(ctx, "Pollux", text)
}
