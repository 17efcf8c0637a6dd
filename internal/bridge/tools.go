package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/bridge/change"
	"pollux/internal/paths"
)

const (
	// MaxPrompt limits the prompt of a call, in bytes.
	MaxPrompt = 2_000_000
	// MaxWords is the highest limit of an answer's length, in words.
	MaxWords  = 100_000
	maxSchema = 20_000
)

// Common holds the input that query, search and structured share.
type Common struct {
	// Agent is the name of the agent to ask. If it is empty, the bridge chooses.
	Agent            string `json:"agent"`
	Model            string `json:"model"`
	WorkingDirectory string `json:"workingDirectory"`
	// Timeout is in milliseconds. If it is nil, [DefaultTimeout] applies.
	Timeout *Integer `json:"timeout"`
	// RequireFiles makes it an error if a file cannot be attached. MCP clients
	// instead get an answer without the file, and a note.
	RequireFiles bool `json:"-"`
	// Emit, if set, receives the agent's events while it works, from one goroutine.
	Emit func(agent.Event) `json:"-"`

	client string // the name of the MCP client
}

// An Integer is a whole number. Some clients write it as 1.0 or 1e3.
type Integer int

// UnmarshalJSON implements [json.Unmarshaler].
func (w *Integer) UnmarshalJSON(data []byte) error {
	var f float64
	if err := json.Unmarshal(data, &f); err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<31 {
		return &json.UnmarshalTypeError{Value: "value " + string(data), Type: reflect.TypeFor[int]()}
	}
	*w = Integer(f)
	return nil
}

// QueryInput is the input of the tool query.
type QueryInput struct {
	Common
	// Agents are for [Bridge.Panel] only.
	Agents            []string `json:"agents"`
	Prompt            string   `json:"prompt"`
	Files             []string `json:"files"`
	MaxResponseLength *Integer `json:"maxResponseLength"`
	ChangeMode        bool     `json:"changeMode"`
	// SessionID continues an earlier query in its directory, and with its model
	// unless the input names another one.
	SessionID string `json:"sessionId"`
}

// SearchInput is the input of the tool search.
type SearchInput struct {
	Common
	Query             string   `json:"query"`
	MaxResponseLength *Integer `json:"maxResponseLength"`
}

// An Answer is the output of query and search.
type Answer struct {
	// Text is the answer. Notes describe it: for example, a fallback or files
	// that were left out.
	Text  string
	Notes []string
	// Changes is set in change mode.
	Changes *Changes
	// Cut says why Text is incomplete. It is empty if Text is the whole answer.
	Cut  string
	Meta Meta
}

// Query asks a question, optionally with files. If report is not nil, Query
// calls it with the progress of the call.
func (b *Bridge) Query(ctx context.Context, in QueryInput, report func(string)) (Answer, error) {
	if err := b.checkQuery(in); err != nil {
		return Answer{}, err
	}
	ctx, c, err := b.begin(ctx, in.Common, false, report)
	if err != nil {
		return Answer{}, err
	}
	a, err := c.converse(ctx, in, lengthLimit(in.MaxResponseLength))
	a.Meta = c.end(err)
	return a, err
}

// checkQuery checks the input of a query, except for its [Common] part.
func (b *Bridge) checkQuery(in QueryInput) error {
	if err := b.checkPrompt(b.cfg.Names.Prompt, in.Prompt); err != nil {
		return err
	}
	if err := b.checkLength(in.MaxResponseLength); err != nil {
		return err
	}
	return checkFiles(in.Files)
}

// checkSearch checks the input of a search, except for its [Common] part.
func (b *Bridge) checkSearch(in SearchInput) error {
	if err := b.checkPrompt(b.cfg.Names.Query, in.Query); err != nil {
		return err
	}
	return b.checkLength(in.MaxResponseLength)
}

func (c *call) converse(ctx context.Context, in QueryInput, limit string) (a Answer, err error) {
	talk, err := c.b.conversations.take(ctx, in.SessionID)
	if err != nil {
		return Answer{}, c.failure(err, agent.Result{})
	}
	var said *exchange
	defer func() {
		if c.b.conversations.give(talk, said, c.agent, c.dir, c.model) && said != nil {
			c.meta.SessionID = talk.id
		}
	}()
	if len(talk.said) > 0 {
		c.dir = talk.dir
		talk.agent = cmp.Or(talk.agent, c.b.cfg.Agent.Name) // older versions asked one agent
		if in.Agent == "" {
			if err := c.use(talk.agent); err != nil {
				return Answer{}, err
			}
		}
		if in.Model == "" && talk.agent == c.agent.Agent.Name {
			c.model, c.meta.Model = talk.model, talk.model
		}
	}
	var task *change.Task
	if in.ChangeMode {
		if task, err = c.beginChange(ctx); err != nil {
			return Answer{}, err
		}
	}
	files, err := c.attach(in.Files, in.RequireFiles)
	if err != nil {
		return Answer{}, err
	}
	prompt := in.Prompt + files.text
	if in.ChangeMode {
		a, err = c.change(ctx, task, talk, prompt, limit, files)
	} else {
		var result agent.Result
		result, err = c.ask(ctx, question{prompt: prompt + limit, images: files.images, conversation: talk.id, replay: talk.replay(prompt + limit)})
		a, err = c.answer(result, err, files.skipped)
	}
	if err == nil && !c.meta.Partial {
		said = &exchange{prompt, a.Text}
	}
	return a, err
}

// Search asks the agent to search the web.
func (b *Bridge) Search(ctx context.Context, in SearchInput, report func(string)) (Answer, error) {
	if err := b.checkSearch(in); err != nil {
		return Answer{}, err
	}
	ctx, c, err := b.begin(ctx, in.Common, true, report)
	if err != nil {
		return Answer{}, err
	}
	prompt := b.templates.fill("search", map[string]string{"query": in.Query, "limit": strings.TrimSpace(lengthLimit(in.MaxResponseLength))})
	result, err := c.ask(ctx, question{prompt: prompt})
	a, err := c.answer(result, err, nil)
	a.Meta = c.end(err)
	return a, err
}

// answer returns the answer of a run: the complete one, or the part that had
// arrived at the timeout. Other failures are returned as errors.
func (c *call) answer(r agent.Result, err error, skipped []string) (Answer, error) {
	c.fellBack = c.fellBack && (err == nil || c.meta.Partial) // a failure is no answer
	a := Answer{Text: r.Answer, Notes: c.notes(skipped)}
	var f *Failure
	if errors.As(err, &f) && c.meta.Partial {
		a.Text, a.Cut = f.Partial, "timed out after "+seconds(c.timeout)
		return a, nil
	}
	return a, err
}

// notes returns notes on the answer of the call.
func (c *call) notes(skipped []string) (notes []string) {
	for _, s := range skipped {
		notes = append(notes, "left out "+s)
	}
	if f := c.meta.Fallback; f != nil {
		what := "also tried"
		if c.fellBack {
			what = "answered by"
		}
		notes = append(notes, fmt.Sprintf("%s %s, because %s failed (%s)", what, f.To, f.From, f.Why))
	}
	if c.meta.Truncated {
		notes = append(notes, fmt.Sprintf("the answer was cut after %d bytes", agent.MaxAnswer))
	}
	return notes
}

// checkPrompt returns an error for a prompt that is empty or too long.
func (b *Bridge) checkPrompt(name, text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%s is empty: write a question", name)
	case len(text) > MaxPrompt:
		return fmt.Errorf("%s has %d bytes, over the limit of %d: send less, or attach files", name, len(text), MaxPrompt)
	}
	return nil
}

// checkFiles returns an error for too many files.
func checkFiles(files []string) error {
	if len(files) > maxFiles {
		return fmt.Errorf("%d files exceed the limit of %d: send fewer, or name a directory in the prompt",
			len(files), maxFiles)
	}
	return nil
}

// checkLength returns an error for a limit of the answer's length that makes no sense.
func (b *Bridge) checkLength(words *Integer) error {
	if words != nil && (*words < 1 || *words > MaxWords) {
		return fmt.Errorf("%s is %d: it must be a number of words from 1 to %d", b.cfg.Names.Length, *words, MaxWords)
	}
	return nil
}

// lengthLimit returns the part of a prompt that limits the length of the answer.
func lengthLimit(words *Integer) string {
	if words == nil {
		return ""
	}
	return fmt.Sprintf("\n\nAnswer in at most %d words.", *words)
}

// workingDirectory returns the real path of dir. If dir is empty, it returns the
// working directory of the process.
func workingDirectory(dir string) (string, error) {
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = paths.Existing(abs)
	}
	if err != nil {
		return "", fmt.Errorf("%s does not exist: name an existing directory", dir)
	}
	if info, err := os.Stat(abs); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory: name an existing directory", dir)
	}
	return abs, nil
}
