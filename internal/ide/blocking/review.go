package blocking

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"pollux/internal/companion"
	"pollux/internal/mcp"
)

// ErrUndecided answers a change that another one has replaced, or that could not be
// displayed.
var ErrUndecided = errors.New("the user has not decided in the editor: ask in the terminal")

// A review is a call that shows a change and waits for the user's decision.
type review struct {
	call     *mcp.Call
	proposal companion.Proposal
	tab      string
	texts    func(companion.Outcome) []string
}

// answer answers the call. done is as in [companion.Session.Resolve]; it may be nil.
func (r *review) answer(o companion.Outcome, done func(error)) {
	if o.Superseded || o.Failed {
		r.call.Answer(nil, ErrUndecided, done)
	} else {
		r.call.Answer(mcp.Text(r.texts(o)...), nil, done)
	}
}

// Open shows a proposal. The call is answered later, when the user has decided: texts returns the
// texts of the result for an outcome that is accepted or rejected; every other one is an error. tab
// names the diff for the tool that closes it. The error is for the tool to return, [mcp.ErrLater] if
// the call waits.
func (s *Session) Open(c *mcp.Call, tab string, p companion.Proposal, texts func(companion.Outcome) []string) error {
	r := &review{call: c, proposal: p, tab: tab, texts: texts}
	s.mu.Lock()
	s.reviews = append(s.reviews, r)
	s.mu.Unlock()
	if err := s.backend.Propose(s.dialect.Self, r.proposal); err != nil {
		if s.take(r) {
			return err
		}
		return mcp.ErrLater // the proposal has an outcome, which answers the call
	}
	c.OnCanceled(func() { s.close(func(other *review) bool { return other == r }) })
	return mcp.ErrLater
}

// take removes a review. It reports false if the review has an outcome.
func (s *Session) take(r *review) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.reviews)
	s.reviews = slices.DeleteFunc(s.reviews, func(other *review) bool { return other == r })
	return len(s.reviews) < n
}

// CloseTab is the tool that closes a diff, because the user has answered in the terminal. opener is
// the tool that has opened it. CloseTab returns the name of the diff. The agent no longer waits for
// the answer of the opener's call. Only a tool that takes its turn calls CloseTab, so that there is
// at most one review for a path.
func (s *Session) CloseTab(args json.RawMessage, opener string) (tab string, err error) {
	var a struct {
		Tab *string `json:"tab_name"`
	}
	if err := mcp.DecodeArgs(args, &a); err != nil {
		return "", err
	}
	if a.Tab == nil {
		return "", fmt.Errorf("tab_name is missing: pass the name given to %s", opener)
	}
	s.close(func(r *review) bool { return r.tab == *a.Tab })
	return *a.Tab, nil
}

func (s *Session) close(match func(*review) bool) {
	s.mu.Lock()
	open := slices.DeleteFunc(slices.Clone(s.reviews), func(r *review) bool { return !match(r) })
	s.mu.Unlock()
	for _, r := range open {
		if _, err := s.backend.Withdraw(s.dialect.Self, r.proposal.Path); err != nil {
			continue // the user has just decided
		}
		if s.take(r) {
			r.answer(companion.Outcome{}, nil)
		}
	}
}

// Resolve implements [companion.Session]: the call that shows the proposal is answered.
func (s *Session) Resolve(p companion.Proposal, o companion.Outcome, done func(error)) {
	s.mu.Lock()
	i := slices.IndexFunc(s.reviews, func(r *review) bool { return r.proposal == p })
	if i < 0 {
		s.mu.Unlock()
		go done(mcp.ErrUndelivered)
		return
	}
	r := s.reviews[i]
	s.reviews = slices.Delete(s.reviews, i, i+1)
	s.mu.Unlock()
	r.answer(o, done)
}
