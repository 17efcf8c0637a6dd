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

// An Input is the input of a tool that asks an agent: a [QueryInput], a [SearchInput] or a
// [StructuredInput].
type Input interface {
	common() Common
	// check checks everything except for the [Common] part.
	check(*Bridge) error
	// question returns the user's question.
	question() string
	// searches reports whether the agent must be able to search the web.
	searches() bool
	// fulfill asks the agent.
	fulfill(context.Context, *call) (Answer, error)
}

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

func (c Common) common() Common { return c }
func (Common) searches() bool   { return false }

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

// An Answer is the output of a tool that asks an agent.
type Answer struct {
	// Text is the answer. Notes describe it: for example, a fallback or files
	// that were left out.
	Text  string
	Notes []string
	// IsJSON is set for the answer to a [StructuredInput]: Text is valid under the schema.
	IsJSON bool
	// Changes is set in change mode.
	Changes *Changes
	// Cut says why Text is incomplete. It is empty if Text is the whole answer.
	Cut  string
	Meta Meta
}

// Ask asks an agent. If report is not nil, Ask calls it with the progress of the call.
func (b *Bridge) Ask(ctx context.Context, in Input, report func(string)) (Answer, error) {
	ctx, c, err := b.begin(ctx, in, report)
	if err != nil {
		return Answer{}, err
	}
	a, err := in.fulfill(ctx, c)
	a.Meta = c.end(err)
	return a, err
}

func (in QueryInput) question() string { return in.Prompt }

func (in QueryInput) check(b *Bridge) error {
	if err := b.checkPrompt(b.cfg.Names.Prompt, in.Prompt); err != nil {
		return err
	}
	if err := b.checkLength(in.MaxResponseLength); err != nil {
		return err
	}
	return checkFiles(in.Files)
}

func (in QueryInput) fulfill(ctx context.Context, c *call) (a Answer, err error) {
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
	if len(talk.Said) > 0 {
		c.dir = talk.Dir
		talk.Agent = cmp.Or(talk.Agent, c.b.cfg.Agent.Name) // older versions asked one agent
		if in.Agent == "" {
			if err := c.use(talk.Agent); err != nil {
				return Answer{}, err
			}
		}
		if in.Model == "" && talk.Agent == c.agent.Agent.Name {
			c.model, c.meta.Model = talk.Model, talk.Model
		}
	}
	var task *change.Task
	if in.ChangeMode {
		if task, err = change.Begin(ctx, c.dir); err != nil { // before any file is read
			return Answer{}, fmt.Errorf("cannot record the state of the files, so no changes were requested: %w", err)
		}
	}
	files, err := c.attach(in.Files, in.RequireFiles)
	if err != nil {
		return Answer{}, err
	}
	prompt, limit := in.Prompt+files.text, lengthLimit(in.MaxResponseLength)
	if in.ChangeMode {
		a, err = c.change(ctx, task, talk, prompt, limit, files)
	} else {
		var result agent.Result
		result, err = c.request(ctx, question{prompt: prompt + limit, images: files.images, conversation: talk.id, replay: talk.replay(prompt + limit)})
		a, err = c.answer(result, err, files.skipped)
	}
	if err == nil && !c.meta.Partial {
		said = &exchange{prompt, a.Text}
	}
	return a, err
}

func (in SearchInput) question() string { return in.Query }
func (SearchInput) searches() bool      { return true }

func (in SearchInput) check(b *Bridge) error {
	if err := b.checkPrompt(b.cfg.Names.Query, in.Query); err != nil {
		return err
	}
	return b.checkLength(in.MaxResponseLength)
}

func (in SearchInput) fulfill(ctx context.Context, c *call) (Answer, error) {
	prompt := c.b.templates.fill("search", map[string]string{"query": in.Query, "limit": strings.TrimSpace(lengthLimit(in.MaxResponseLength))})
	result, err := c.request(ctx, question{prompt: prompt})
	return c.answer(result, err, nil)
}

// answer returns the answer of a run: the complete one, or the part that had
// arrived at the timeout. Other failures are returned as errors.
func (c *call) answer(r agent.Result, err error, skipped []string) (Answer, error) {
	c.fellBack = c.fellBack && (err == nil || c.meta.Partial) // a failure does not answer
	a := Answer{Text: r.Answer, Notes: c.notes(skipped)}
	if f, ok := errors.AsType[*Failure](err); ok && c.meta.Partial {
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

// checkLength returns an error for an invalid limit of words.
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

// workingDirectory returns the real path of dir, or the working directory of this process
// if dir is empty.
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
