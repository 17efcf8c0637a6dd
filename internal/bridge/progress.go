package bridge

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"pollux/internal/agent"
)

const (
	// progressInterval is the longest silence of a call that reports progress;
	// clients give up on silent ones.
	progressInterval = 8 * time.Second
	// wordsInterval keeps a stream of words from being a flood of reports.
	wordsInterval = time.Second
	// progressLength is how much of a report a client shows.
	progressLength = 200
	// progressBacklog bounds the steps that wait to be reported, where a
	// client takes them slowly; the oldest go first.
	progressBacklog = 64
)

// A progress tells a caller what its call is doing: each step, the last words
// of an answer that is being written, and something every few seconds in any
// case.
type progress struct {
	send  func(message string)
	start time.Time
	wake  chan struct{}
	done  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	steps []string // not yet reported
	doing string   // the last step
	words string   // the last of the answer
	spoke bool     // words are not yet reported
}

// newProgress starts reporting to send, which is called from one goroutine.
// Without a send it does nothing.
func newProgress(send func(string)) *progress {
	p := &progress{send: send, start: time.Now(), wake: make(chan struct{}, 1), done: make(chan struct{})}
	if send != nil {
		p.ended.Go(p.report)
	}
	return p
}

// stop ends the reports; none comes after it.
func (p *progress) stop() {
	close(p.done)
	p.ended.Wait()
}

func (p *progress) report() {
	beat := time.NewTicker(progressInterval)
	defer beat.Stop()
	words := time.NewTicker(wordsInterval)
	defer words.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-p.wake:
			p.mu.Lock()
			steps := p.steps
			p.steps = nil
			p.mu.Unlock()
			for _, s := range steps {
				p.send(s)
			}
			if len(steps) > 0 {
				beat.Reset(progressInterval)
			}
		case <-words.C:
			p.mu.Lock()
			message := ""
			if p.spoke {
				message = clean(p.doing + ": " + p.words)
				p.spoke = false
			}
			p.mu.Unlock()
			if message != "" {
				p.send(message)
				beat.Reset(progressInterval)
			}
		case <-beat.C:
			p.mu.Lock()
			doing := p.doing
			p.mu.Unlock()
			p.send(clean(fmt.Sprintf("%s (%s)", doing, time.Since(p.start).Round(time.Second))))
		}
	}
}

// now sets the step that the call is at.
func (p *progress) now(format string, args ...any) {
	p.mu.Lock()
	p.doing, p.words, p.spoke = clean(fmt.Sprintf(format, args...)), "", false
	p.steps = append(p.steps, p.doing)
	if over := len(p.steps) - progressBacklog; over > 0 {
		p.steps = p.steps[over:]
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// event turns what the CLI does into what the call is doing.
func (p *progress) event(ev agent.Event) {
	switch ev := ev.(type) {
	case agent.Started:
		p.now("Gemini CLI has started")
	case agent.ToolUse:
		p.now("%s", toolWords(ev))
	case agent.ToolResult:
		if !ev.OK {
			p.now("%s failed", ev.Name)
		}
	case agent.Retry:
		p.now("%s; Gemini CLI tries again in %s", ev.Kind, ev.Wait.Round(time.Second))
	case agent.Text:
		// Not a step of its own: the words follow. A report right before the
		// answer may reach a client together with it, and be taken for one of no
		// call (by the TypeScript SDK).
		p.mu.Lock()
		if p.doing != "writing" {
			p.doing, p.words = "writing", ""
		}
		p.words, p.spoke = lastWords(p.words+ev.Text), true
		p.mu.Unlock()
	}
}

func toolWords(t agent.ToolUse) string {
	verb := map[string]string{
		"read_file": "reading", "list_directory": "listing", "glob": "looking for files",
		"grep_search": "searching the files for", "google_web_search": "searching the web for",
	}[t.Name]
	if verb == "" {
		verb = t.Name
	}
	return strings.TrimSpace(verb + " " + t.Summary)
}

// lastWords is the end of a text.
func lastWords(s string) string {
	const keep = 600
	if len(s) > keep {
		s = strings.ToValidUTF8(s[len(s)-keep:], "")
	}
	return s
}

// clean makes one line of a report, the end of which tells most if it is too
// long, without the control characters that a terminal would obey.
func clean(s string) string {
	s = visible(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > progressLength {
		head, _, _ := strings.Cut(s, ": ")
		head = shorten(head, 40)
		s = head + ": …" + string(r[len(r)-(progressLength-len([]rune(head))-3):])
	}
	return s
}

// visible is a text without control characters, which a terminal would obey.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}

// shorten cuts a text to n characters.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
