package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/bridge/change"
)

// Changes is the result of change mode. The tool returns it as structured content.
type Changes struct {
	change.Set
	// AppliedWrites reports whether files below the working directory changed
	// while the agent ran. If so, Edits is empty.
	AppliedWrites bool `json:"appliedWrites"`
	// Notes describe the answer: for example, a fallback or files that were left
	// out.
	Notes []string `json:"notes,omitempty"`
	// Error explains why there are no edits. It is for clients that show models
	// only the structured content.
	Error string `json:"error,omitempty"`
}

// changesSchema is the JSON Schema of [Changes].
var changesSchema = map[string]any{
	"type": "object",
	"properties": map[string]any{
		"edits": map[string]any{
			"type": "array",
			"items": map[string]any{
				"type": "object",
				"properties": map[string]any{
					"path":      schemaOf("string", "Relative to workingDirectory."),
					"startLine": schemaOf("integer", "The first line to replace, counted from 1, before any edit."),
					"endLine":   schemaOf("integer", "The last line to replace."),
					"old":       schemaOf("string", "The lines to replace."),
					"new":       schemaOf("string", "The new lines."),
					"create":    schemaOf("boolean", "The file is new."),
					"delete":    schemaOf("boolean", "The lines are removed."),
				},
				"required": []string{"path", "old", "new"},
			},
		},
		"diff":          schemaOf("string", "All edits as one unified diff, for git apply. Empty if there are none."),
		"response":      schemaOf("string", "The model's text about its edits."),
		"appliedWrites": schemaOf("boolean", "Files changed on the disk during the call. Then there are no edits."),
		"notes":         map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		"error":         schemaOf("string", "Why there are no edits."),
	},
	"required": []string{"edits", "diff", "response", "appliedWrites"},
}

func schemaOf(kind, description string) map[string]any {
	return map[string]any{"type": kind, "description": description}
}

// change asks for changes and returns them without writing them. It compares the
// files on disk before and after the run, to verify that nothing was written.
func (c *call) change(ctx context.Context, task *change.Task, talk *conversation, prompt, limit string, attached attachments) (Answer, error) {
	limit = strings.Replace(limit, "Answer in", "Around the changes write", 1)
	fill := func(template string) string {
		tools := strings.Join(c.agent.Agent.WriteTools, ", ")
		return c.b.templates.fill(template, map[string]string{"prompt": prompt, "tools": tools}) + limit
	}
	blocks, tools := fill("change-mode"), fill("change-mode-tools")
	result, askErr := c.request(ctx, question{
		prompt: blocks, images: attached.images, conversation: talk.id, replay: talk.replay(blocks),
		change: &agent.Change{
			Prompt: tools, Replay: talk.replay(tools), Files: func() agent.Files { return task.Files() },
		},
	})
	// Also verify after the deadline, once no process is left that could write.
	err := c.wait()
	task.Tidy()
	if err == nil {
		err = task.Verify(context.WithoutCancel(ctx))
	}
	if err != nil {
		const next = "look at what changed (git status), then try again"
		name := c.agent.Agent.DisplayName
		if errors.Is(err, change.ErrWritten) {
			err = fmt.Errorf("files changed while %s ran, so its edits may not fit: %s", name, next)
		} else {
			err = fmt.Errorf("cannot tell whether files changed while %s ran (%w): %s", name, err, next)
		}
		if askErr != nil {
			err = fmt.Errorf("%w; and %w", err, askErr)
		}
		changes := &Changes{AppliedWrites: true, Error: err.Error()}
		changes.Edits, changes.Response = []change.Edit{}, result.Partial()
		return Answer{Changes: changes}, &Failure{Err: err, Partial: result.Partial()}
	}
	if askErr != nil { // the edits may be incomplete
		return Answer{}, askErr
	}
	set, err := c.edits(task, result, blocks)
	if err != nil {
		err = fmt.Errorf("the edits cannot be used: %w: try again, or ask for fewer changes at once", err)
		return Answer{}, &Failure{Err: err, Partial: result.Answer}
	}
	text := strings.TrimSpace(set.Response)
	if set.Diff != "" { // not trimmed: a diff may end with blank lines
		if text != "" {
			text += "\n\n"
		}
		text += set.Diff
	}
	notes := c.notes(attached.skipped)
	return Answer{Text: text, Notes: notes, Changes: &Changes{Set: set, Notes: notes}}, nil
}

// edits returns the edits of a run: those made by its tools or, without any,
// those in the blocks of its answer. prompt asked for blocks.
func (c *call) edits(task *change.Task, r agent.Result, prompt string) (change.Set, error) {
	if r.Changed {
		set, err := task.Written()
		if err != nil || len(set.Edits) > 0 {
			set.Response = r.Answer
			return set, err
		}
		return task.Parse(r.Answer, nil)
	}
	row := c.agent.Agent
	if !row.Escaped(prompt) {
		return task.Parse(r.Answer, nil)
	}
	return task.Parse(r.Answer, row.Unescape)
}
