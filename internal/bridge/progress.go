package bridge

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/outbox"
	"pollux/internal/termtext"
)

const (
	// progressInterval is the longest time without a report. Clients give up on
	// calls that report nothing.
	progressInterval = 8 * time.Second
	// wordsInterval is the minimum time between two reports of an answer's
	// words.
	wordsInterval = time.Second
	// progressLength is how many characters of a report clients show.
	progressLength = 200
	// keptWords is how many bytes of an unfinished answer are kept for reports.
	keptWords = 600
	// progressBacklog limits the reports that wait for a slow client. The oldest
	// are dropped first.
	progressBacklog = 64
)

// A progress reports on a call in progress: each step, the latest words of an
// unfinished answer, and at least one report per progressInterval.
type progress struct {
	send  func(message string)
	row   *agent.Agent
	start time.Time
	steps *outbox.Queue[string] // steps to report

	started bool // a process was started for the call; used by the goroutine of the call only

	end   context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex
	doing string // the last step
	words string // the last words of the answer
	spoke bool   // there are words to report
}

// newProgress starts the reports. send is called from one goroutine. If it is
// nil, there are no reports.
func newProgress(row *agent.Agent, send func(string)) *progress {
	p := &progress{
		send: send, row: row, start: time.Now(),
		steps: outbox.NewQueue(outbox.Limits[string]{Items: progressBacklog}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.end = cancel
	if send != nil {
		p.ended.Go(func() { p.report(ctx) })
	}
	return p
}

// stop ends the reports. send is not called again.
func (p *progress) stop() {
	p.end()
	p.ended.Wait()
}

func (p *progress) report(ctx context.Context) {
	beat := time.NewTicker(progressInterval)
	defer beat.Stop()
	words := time.NewTicker(wordsInterval)
	defer words.Stop()
	for {
		var messages []string
		select {
		case <-ctx.Done():
			return
		case <-p.steps.Ready():
			messages = p.steps.TakeAll()
		case <-words.C:
			p.mu.Lock()
			if p.spoke {
				messages = []string{oneLine(p.doing + ": " + p.words)}
				p.spoke = false
			}
			p.mu.Unlock()
		case <-beat.C:
			p.mu.Lock()
			messages = []string{oneLine(fmt.Sprintf("%s (%s)", p.doing, time.Since(p.start).Round(time.Second)))}
			p.mu.Unlock()
		}
		for _, message := range messages {
			p.send(message)
			beat.Reset(progressInterval)
		}
	}
}

// now reports the current step of the call.
func (p *progress) now(format string, args ...any) {
	step := oneLine(fmt.Sprintf(format, args...))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing, p.words, p.spoke = step, "", false
	if p.send != nil {
		p.steps.PutLatest(step)
	}
}

// event reports an event of the agent.
func (p *progress) event(ev agent.Event) {
	switch ev := ev.(type) {
	case agent.Queued:
		if ev.Position == 0 {
			p.now("queued")
		} else {
			p.now("queued, position %d", ev.Position)
		}
	case agent.Starting:
		p.started = true
		p.now("starting %s", p.row.DisplayName)
	case agent.FellBack:
		p.now("%s: asking %s instead", ev.Why, ev.To)
	case agent.Started:
		if p.started { // a warm process was running before
			p.now("%s has started", p.row.DisplayName)
		} else {
			p.now("asking %s", p.row.DisplayName)
		}
		p.started = false
	case agent.ToolUse:
		p.now("%s", Doing(p.row, ev))
	case agent.ToolResult:
		if !ev.OK {
			p.now("%s failed", ev.Name)
		}
	case agent.Retry:
		p.now("%s; %s %s", ev.Kind, p.row.DisplayName, ev.Next())
	case agent.Text:
		// Do not report this as a step: the words follow. A report right before
		// the answer may reach a client together with it, and the TypeScript SDK
		// then finds no call for it.
		p.mu.Lock()
		if p.doing != "writing" {
			p.doing, p.words = "writing", ""
		}
		p.words += ev.Text
		if cut := len(p.words) - keptWords; cut > 0 {
			p.words = strings.ToValidUTF8(p.words[cut:], "")
		}
		p.spoke = true
		p.mu.Unlock()
	}
}

// Doing says in one line what an agent does with a tool, such as "reading main.go".
func Doing(row *agent.Agent, use agent.ToolUse) string {
	return oneLine(strings.TrimSpace(cmp.Or(row.ToolVerbs[use.Name], use.Name) + " " + use.Summary))
}

// oneLine returns a report as one line that is safe for a terminal. It cuts a
// long report in the middle, because the end is the most informative part.
func oneLine(s string) string {
	s = flat(s)
	if r := []rune(s); len(r) > progressLength {
		head, _, _ := strings.Cut(s, ": ")
		head = agent.Shorten(head, 40)
		s = head + ": …" + string(r[len(r)-(progressLength-len([]rune(head))-3):])
	}
	return s
}

// flat returns a text as one line that is safe for a terminal.
func flat(s string) string {
	return termtext.Line(strings.Join(strings.Fields(s), " "), 0)
}

// summary returns the start of a prompt, for lists.
func summary(prompt string) string { return agent.Shorten(flat(prompt), 80) }
