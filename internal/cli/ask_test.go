package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/bridge"
)

// A terminal shows the text as it arrives. The last text is the answer, and a line after
// each earlier text says why that text is not the answer.
func TestScreen(t *testing.T) {
	text := func(s string) agent.Event { return agent.Text{Text: s} }
	reads := agent.ToolUse{Name: "read_file", Summary: "a.go"}
	for name, test := range map[string]struct {
		events []agent.Event
		answer string
		want   string
	}{
		"in pieces":       {[]agent.Event{text(" \n One"), text(" two\n"), text("\nthree "), text("\n")}, "One two\n\nthree", "One two\n\nthree\n"},
		"not streamed":    {nil, "all", "all\n"},
		"narration":       {[]agent.Event{text("I will read it. "), reads, agent.ToolResult{OK: true}, text("It says x.")}, "It says x.", "I will read it.\nIt says x.\n"},
		"control":         {[]agent.Event{text("a\x1b"), text("[31mb")}, "a\x1b[31mb", "a[31mb\n"},
		"another model":   {[]agent.Event{text("Half of"), agent.FellBack{Fallback: agent.Fallback{From: "pro", To: "flash", Why: "capacity"}}, agent.Started{}, text("All.")}, "All.", "Half of\npollux: the text above is incomplete, because pro failed (capacity): asking flash\nAll.\n"},
		"asked again":     {[]agent.Event{agent.Started{}, text("Half of"), agent.Started{}, text("All.")}, "All.", "Half of\npollux: the text above is incomplete: the question is asked again\nAll.\n"},
		"repeated":        {[]agent.Event{text("Half"), agent.Retry{Kind: agent.Capacity, Wait: 2 * time.Second}, text("Half of it")}, "Half of it", "Half\npollux: capacity; Gemini CLI tries again in 2s, and may repeat the text above\nHalf of it\n"},
		"no wait":         {[]agent.Event{text("Half"), agent.Retry{Kind: agent.Capacity}, text(" of it")}, "Half of it", "Half\npollux: capacity; Gemini CLI tries again, and may repeat the text above\nof it\n"},
		"continued":       {[]agent.Event{text("Half"), agent.Retry{Kind: agent.Capacity, Wait: 2 * time.Second}, text(" of it")}, "Half of it", "Half\npollux: capacity; Gemini CLI tries again in 2s, and may repeat the text above\nof it\n"},
		"of another call": {[]agent.Event{text("Half"), agent.Retry{Kind: agent.Capacity, Unsure: true}, text(" of it")}, "Half of it", "Half of it\n"},
		"not the answer":  {[]agent.Event{text("Half Half of it")}, "Half of it", "Half Half of it\npollux: the text above is not the whole answer, which follows\nHalf of it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			s := newScreen(IO{Out: &out, Err: &out}, agents.Default(), true)
			s.live = true
			for _, ev := range test.events {
				s.event(ev)
			}
			if err := s.answer(test.answer); err != nil || out.String() != test.want {
				t.Errorf("the terminal shows %q, want %q; %v", out.String(), test.want, err)
			}
		})
	}
}

// A pipe receives the answer alone, and at the end.
func TestScreenOfAPipe(t *testing.T) {
	var out, errs bytes.Buffer
	s := newScreen(IO{Out: &out, Err: &errs}, agents.Default(), true)
	for _, ev := range []agent.Event{agent.Text{Text: "I will read it."}, agent.ToolUse{Name: "read_file"}, agent.Text{Text: "It says x."}} {
		s.event(ev)
	}
	if s.report() != nil || out.Len()+errs.Len() > 0 {
		t.Errorf("%q and %q before the end", out.String(), errs.String())
	}
	if err := s.answer("It says\x1b x."); err != nil || out.String() != "It says\x1b x.\n" || errs.Len() > 0 {
		t.Errorf("%q and %q, %v", out.String(), errs.String(), err)
	}
}

// A part of an answer is not shown twice, and not lost.
func TestScreenOfAPart(t *testing.T) {
	for _, live := range []bool{true, false} {
		var out bytes.Buffer
		s := newScreen(IO{Out: &out, Err: &out}, agents.Default(), true)
		s.live = live
		s.event(agent.Text{Text: "Half of"})
		if err := s.part("Half of"); err != nil || out.String() != "Half of\n" {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}

// The error for a standard input that is too long does not read all of it.
func TestQuestionIsLimited(t *testing.T) {
	in := strings.NewReader(strings.Repeat("x", bridge.MaxPrompt+100))
	if _, err := question(in, nil); err == nil || !strings.Contains(err.Error(), "more than 2000000 bytes") || in.Len() == 0 {
		t.Errorf("%v, and %d bytes are left", err, in.Len())
	}
	if text, err := question(strings.NewReader(strings.Repeat("x", bridge.MaxPrompt)), nil); err != nil || len(text) != bridge.MaxPrompt {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
