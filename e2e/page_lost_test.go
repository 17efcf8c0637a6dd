package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/internal/adapter"
)

// One request of a reconnect failed while the event stream lived. The page said
// "reconnecting" until it was reloaded, and an edit was never sent.
func TestPageConnectsAgain(t *testing.T) {
	for _, method := range []string{adapter.MethodInitialize, adapter.MethodDiffEdit, adapter.MethodDiffList} {
		t.Run(method, func(t *testing.T) {
			s := newStage(t, change("a"))
			s.page(shows("#path", "a.txt"), shows("#status", "1 connected"))
			s.cut()
			s.page(shows("#status", "reconnecting"), typed("mine "))
			var failed atomic.Bool
			s.guard(func(w http.ResponseWriter, r *http.Request) bool {
				s.mu.Lock()
				down := s.down
				s.mu.Unlock()
				if down || !posts(r, method) || failed.Swap(true) {
					return false
				}
				http.Error(w, "too many open files", http.StatusServiceUnavailable)
				return true
			})
			s.up(change("a"))
			s.page(shows("#status", "1 connected"))
			s.settle()
			for s.text("a") == "" {
				next(t, "edit of the page", s.asked)
			}
			if got := s.text("a"); got != "one\nmine a\n" {
				t.Errorf("the page sent %q", got)
			}
			if !failed.Load() {
				t.Error("no request has failed")
			}
		})
	}
}

// typed types at the first change.
func typed(text string) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(chromedp.Focus(chromedp.CSS(".cm-merge-b .cm-content")), chromedp.KeyEvent(text))
}
