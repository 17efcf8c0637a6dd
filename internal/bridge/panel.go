package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"pollux/internal/mcp"
)

// A PanelAnswer is the answer of one agent of a panel.
type PanelAnswer struct {
	Agent string `json:"agent"`
	Text  string `json:"text"`
	// Error says why the answer is incomplete or missing; Text may hold a part.
	Error string   `json:"error,omitempty"`
	Notes []string `json:"notes,omitempty"`
	Meta  Meta     `json:"meta"`
}

// CheckPanel returns an error for a question that cannot be asked to several agents.
func (b *Bridge) CheckPanel(in QueryInput) error {
	names := b.cfg.Names
	switch {
	case in.ChangeMode:
		return errors.New("several agents cannot be asked for changes at the same time: ask one")
	case in.SessionID != "":
		return fmt.Errorf("several agents cannot continue one conversation: leave out %s, or ask one agent", names.Session)
	case in.Model != "":
		return fmt.Errorf("several agents have different models: leave out %s, or ask one agent", names.Model)
	case in.Agent != "":
		return fmt.Errorf("%s and a list of agents cannot be combined: pass one of them", names.Agent)
	}
	for _, name := range in.Agents {
		if _, err := b.check(in.only(name)); err != nil {
			return err
		}
	}
	return nil
}

// only returns the question for one agent of a panel.
func (in QueryInput) only(name string) QueryInput {
	in.Agents, in.Agent = nil, name
	return in
}

// Panel asks several agents the same question at the same time. It calls done with each
// answer when it arrives, from one goroutine at a time, and returns all of them in the order
// of the names. An agent that fails does not affect the others. The error is one of the
// input.
func (b *Bridge) Panel(ctx context.Context, in QueryInput, report func(string), done func(PanelAnswer)) ([]PanelAnswer, error) {
	if err := b.CheckPanel(in); err != nil {
		return nil, err
	}
	var asked []string
	for _, name := range in.Agents {
		if !slices.Contains(asked, name) {
			asked = append(asked, name)
		}
	}
	answers := make([]PanelAnswer, len(asked))
	var mu sync.Mutex // held while report or done is called
	var asking sync.WaitGroup
	for i, name := range asked {
		asking.Go(func() {
			var tell func(string)
			if report != nil {
				tell = func(message string) {
					mu.Lock()
					defer mu.Unlock()
					report(name + ": " + message)
				}
			}
			a, err := b.Ask(ctx, in.only(name), tell)
			answer := PanelAnswer{Agent: name, Text: a.Text, Notes: a.Notes, Meta: a.Meta}
			answer.Meta.Agent = name
			switch f := (*Failure)(nil); {
			case err != nil:
				if answer.Error = err.Error(); errors.As(err, &f) {
					answer.Text = f.Partial
				}
			case a.Cut != "":
				answer.Error = "the answer is incomplete, because it " + a.Cut
			}
			mu.Lock()
			defer mu.Unlock()
			answers[i] = answer
			if done != nil {
				done(answer)
			}
		})
	}
	asking.Wait()
	return answers, nil
}

// Heading returns a line that says who answered, with which model, and how long it took.
func (b *Bridge) Heading(a PanelAnswer) string {
	details := fmt.Sprintf("%.1f s", float64(a.Meta.DurationMs)/1000)
	if a.Meta.Model != "" {
		details = a.Meta.Model + ", " + details
	}
	return fmt.Sprintf("%s (%s)", b.named(a.Agent).Agent.DisplayName, details)
}

// panelResult returns the answers of a panel as a tool result. cancelled reports whether the
// client did not wait for all of them.
func (s *Server) panelResult(answers []PanelAnswer, cancelled bool) *mcp.Result {
	var text strings.Builder
	failures := 0
	meta := Meta{Model: "several"}
	for _, a := range answers {
		fmt.Fprintf(&text, "## %s\n\n", s.b.Heading(a))
		if a.Error != "" {
			failures++
			fmt.Fprintf(&text, "[%s]\n\n", a.Error)
		}
		if a.Text != "" {
			text.WriteString(a.Text + "\n\n")
		}
		notes := a.Notes
		if id := a.Meta.SessionID; id != "" {
			notes = append(slices.Clone(notes), fmt.Sprintf("to continue with %s, pass sessionId %q", a.Agent, id))
		}
		for _, line := range bracket(notes, notesRoom/2) {
			text.WriteString(line + "\n\n")
		}
		meta.DurationMs = max(meta.DurationMs, a.Meta.DurationMs)
	}
	r := s.result(Answer{Text: strings.TrimSpace(text.String()), Meta: meta}, nil)
	// Some clients show their model only the structured content. It has no pages: if the text has
	// several, it has the beginnings, and says how to get the rest.
	chunk, paged := r.Meta["chunk"].(map[string]any)
	room := (pageOf(s.client()).bytes - notesRoom) / len(answers)
	beginnings := slices.Clone(answers)
	for i, a := range answers {
		if paged && len(a.Text) > room {
			beginnings[i].Text = strings.ToValidUTF8(a.Text[:room], "")
			beginnings[i].Notes = append(slices.Clone(a.Notes), fmt.Sprintf(
				`the text is cut here: for all answers, in %d parts, call fetch-chunk {"cacheKey":"%s","chunkIndex":1}`, chunk["total"], chunk["cacheKey"]))
		}
	}
	r.Structured = map[string]any{"answers": beginnings}
	r.IsError = failures == len(answers) || failures > 0 && cancelled
	return r
}
