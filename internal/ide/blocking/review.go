package blocking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"pollux/internal/companion"
)

// ErrDropped reports that a notification was dropped: the agent cannot receive one now.
var ErrDropped = errors.New("the agent cannot receive a notification now")

// ErrUndelivered reports that the session ended before the agent had the answer.
var ErrUndelivered = errors.New("the agent ended before it received the outcome")

// ErrUndecided answers a change that another one has replaced, or that could not be
// displayed.
var ErrUndecided = errors.New("the user has not decided in the editor: ask in the terminal")

// A review is a call that shows a change and whose answer has not been written.
type review struct {
	call     *Call
	proposal companion.Proposal
	tab      string
	outcome  chan companion.Outcome // holds at most one
	decided  bool                   // it has an outcome, or gets none
	done     func(error)            // reports that the agent has the answer; may be nil
}

// A Proposed is what an agent asks to show.
type Proposed struct {
	companion.Proposal
	// Tab names the diff for the tools that close it.
	Tab string
}

// ParseProposed parses the arguments of the tool that shows a change. pathName is the
// argument with the file's path.
func ParseProposed(args json.RawMessage, pathName string) (p Proposed, err error) {
	var a struct {
		NewPath      json.RawMessage `json:"new_file_path"`
		OriginalPath json.RawMessage `json:"original_file_path"`
		Text         *string         `json:"new_file_contents"`
		Tab          string          `json:"tab_name"`
	}
	if err := Unmarshal(args, &a); err != nil {
		return p, err
	}
	path := a.NewPath
	if pathName == "original_file_path" {
		path = a.OriginalPath
	}
	if err := Unmarshal(path, &p.Path); err != nil {
		return p, err
	}
	switch {
	case p.Path == "":
		return p, fmt.Errorf("%s is missing: pass the file's absolute path", pathName)
	case strings.ContainsRune(p.Path, 0):
		return p, fmt.Errorf("%s holds a NUL byte: pass the file's absolute path", pathName)
	case a.Text == nil:
		return p, errors.New("new_file_contents is missing: pass the proposed text of the whole file")
	}
	p.Tab, p.Text, p.Binary = a.Tab, *a.Text, companion.Unprintable(*a.Text, args)
	return p, nil
}

// ParseTab parses the arguments of the tool that closes a diff.
func ParseTab(args json.RawMessage, opener string) (tab string, err error) {
	var a struct {
		Tab *string `json:"tab_name"`
	}
	if err := Unmarshal(args, &a); err != nil {
		return "", err
	}
	if a.Tab == nil {
		return "", fmt.Errorf("tab_name is missing: pass the name given to %s", opener)
	}
	return *a.Tab, nil
}

// Open shows a proposal and returns the user's decision. The outcome is accepted or
// rejected; every other one is an error.
func (s *Calls) Open(ctx context.Context, c *Call, p Proposed) (companion.Outcome, error) {
	r := &review{call: c, proposal: p.Proposal, tab: p.Tab, outcome: make(chan companion.Outcome, 1)}
	s.mu.Lock()
	s.reviews = append(s.reviews, r)
	s.mu.Unlock()
	err := s.backend.Propose(ctx, s.session, r.proposal)
	s.tookEffect(c)
	if err != nil {
		s.giveUp(r)
		return companion.Outcome{}, err
	}
	select {
	case o := <-r.outcome:
		return decided(o)
	case <-s.ctx.Done():
	case <-ctx.Done(): // the agent has canceled the call, or the session has ended
		closing := s.enqueue(jsonrpc.ID{}, nil)
		if s.wait(closing) == nil {
			s.close(s.ctx, func(other *review) bool { return other == r })
		}
		s.answered(closing, nil)
	}
	if s.giveUp(r) {
		return companion.Outcome{}, ErrUndelivered
	}
	return decided(<-r.outcome)
}

// decided returns an outcome if it is a decision of the user.
func decided(o companion.Outcome) (companion.Outcome, error) {
	if o.Superseded || o.Failed {
		return companion.Outcome{}, ErrUndecided
	}
	return o, nil
}

// giveUp makes a review take no outcome any more. It reports false if the review has
// one.
func (s *Calls) giveUp(r *review) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	undecided := !r.decided
	r.decided = true
	return undecided
}

// Close ends the reviews whose tab matches, because the user has answered in the
// terminal. It returns how many there were. The agent no longer waits for the answers
// of their calls. It must be the turn of the caller's call, so that there is at most
// one review for a path.
func (s *Calls) Close(ctx context.Context, match func(tab string) bool) (closed int) {
	return s.close(ctx, func(r *review) bool { return match(r.tab) })
}

func (s *Calls) close(ctx context.Context, match func(*review) bool) (closed int) {
	s.mu.Lock()
	open := slices.DeleteFunc(slices.Clone(s.reviews), func(r *review) bool { return r.decided || !match(r) })
	s.mu.Unlock()
	for _, r := range open {
		if _, err := s.backend.Withdraw(ctx, s.session, r.proposal.Path); err != nil {
			continue // the user has just decided
		}
		if s.giveUp(r) {
			r.outcome <- companion.Outcome{}
			closed++
		}
	}
	return closed
}

// Resolve is [companion.Session.Resolve]: the call that shows the proposal returns.
func (s *Calls) Resolve(p companion.Proposal, o companion.Outcome, done func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.reviews, func(r *review) bool { return !r.decided && r.proposal == p })
	if i < 0 {
		go done(ErrUndelivered)
		return
	}
	r := s.reviews[i]
	r.decided, r.done = true, done
	r.outcome <- o
}

// Flush waits until the agent has the answers to the reviews that are decided, for as
// long as ctx allows.
func (s *Calls) Flush(ctx context.Context) {
	s.mu.Lock()
	if !s.unwrittenLocked() {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
}

func (s *Calls) unwrittenLocked() bool {
	return slices.ContainsFunc(s.reviews, func(r *review) bool { return r.decided })
}

func (s *Calls) idleLocked() {
	if s.idle != nil && !s.unwrittenLocked() {
		close(s.idle)
		s.idle = nil
	}
}

// Abandon reports that the remaining answers did not arrive. The session has ended.
func (s *Calls) Abandon() {
	s.mu.Lock()
	left := s.reviews
	s.reviews = nil
	s.idleLocked()
	s.mu.Unlock()
	for _, r := range left {
		if r.done != nil {
			r.done(ErrUndelivered)
		}
	}
}
