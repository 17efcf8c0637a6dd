// Package change turns an agent's output in change mode into edits and a diff. A
// [Task] verifies that nothing is written to disk.
//
// An agent proposes changes in one of two ways. Its tools write to an [Overlay],
// or its answer describes the changes in blocks, which [Task.Parse] reads.
package change

import (
	"context"
	"errors"
	"fmt"
)

// A Set is a set of edits to files.
type Set struct {
	Edits []Edit `json:"edits"`
	// Diff contains all edits as one unified diff for `git apply`. Its paths are
	// relative to the top of the repository, as git expects.
	Diff string `json:"diff"`
	// Response is the model's text around its edits.
	Response string `json:"response"`
}

// An Edit replaces the lines StartLine to EndLine of a file, or creates a file.
// Lines are counted from 1, before any edit.
type Edit struct {
	Path      string `json:"path"`
	StartLine int    `json:"startLine,omitempty"`
	EndLine   int    `json:"endLine,omitempty"`
	Old       string `json:"old"`
	New       string `json:"new"`
	Create    bool   `json:"create,omitempty"`
	// Delete distinguishes deleted lines from lines that become one empty line.
	Delete bool `json:"delete,omitempty"`
}

// ErrWritten reports that files changed on disk while the agent ran.
var ErrWritten = errors.New("files changed on disk")

// A Task is one request for changes. It records the state of all files at its
// start. Its methods must not be called concurrently.
//
// The check is complete for each agent, also for one whose tools write to an
// [Overlay]: the overlay shows only what the tools write through it. The agent's
// process, and the programs that it starts, can write to any file without it.
type Task struct {
	tree     tree
	before   state
	overlays []*Overlay // one per attempt; only the last one counts
}

// Begin starts a task for the files below dir, which is a real path.
func Begin(ctx context.Context, dir string) (*Task, error) {
	tree, err := openTree(ctx, dir)
	if err != nil {
		return nil, err
	}
	before, err := tree.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Task{tree: tree, before: before}, nil
}

// Files returns the files for the tools of a new attempt. It discards the
// changes of earlier attempts.
func (t *Task) Files() *Overlay {
	o := newOverlay(t.tree.dir)
	t.overlays = append(t.overlays, o)
	return o
}

// Tidy removes the empty directories that the agent created for new files. Call
// it after the agent has ended, before Verify.
func (t *Task) Tidy() {
	for _, o := range t.overlays {
		o.tidy()
	}
}

// Verify returns [ErrWritten] if files differ from those at the start, or
// another error if it cannot tell.
func (t *Task) Verify(ctx context.Context) error {
	after, err := t.tree.snapshot(ctx)
	if err == nil && after != t.before {
		err = ErrWritten
	}
	return err
}

// Written returns the edits that the tools of the last attempt made.
func (t *Task) Written() (Set, error) {
	if len(t.overlays) == 0 {
		return Set{Edits: []Edit{}}, nil
	}
	return t.overlays[len(t.overlays)-1].edits(t.tree.prefix)
}

// Parse returns the edits in the blocks of an answer. It checks that each fits
// its file. unescape undoes the escapes of a prompt that the answer may quote.
// It is nil if the prompt was not escaped.
func (t *Task) Parse(answer string, unescape func(string) string) (Set, error) {
	return parse(t.tree.dir, t.tree.prefix, answer, unescape)
}

func parse(dir, prefix, answer string, unescape func(string) string) (Set, error) {
	blocks, response, err := parseBlocks(answer)
	if err != nil {
		return Set{}, err
	}
	set := Set{Edits: []Edit{}, Response: response}
	if unescape != nil {
		set.Response = unescape(response)
	}
	files := make(map[string]*file)
	var order []string
	for _, b := range blocks {
		path, err := target(dir, b)
		if err != nil {
			return Set{}, err
		}
		f := files[path]
		if f == nil {
			if f, err = readFile(dir, path, b.create); err != nil {
				return Set{}, err
			}
			files[path] = f
			order = append(order, path)
		} else if b.create || f.create {
			return Set{}, fmt.Errorf("%s is both created and changed", path)
		}
		e, err := f.place(b, unescape)
		if err != nil {
			return Set{}, err
		}
		set.Edits = append(set.Edits, e)
	}
	for _, path := range order {
		d, err := files[path].diff(prefix)
		if err != nil {
			return Set{}, err
		}
		set.Diff += d
	}
	return set, nil
}
