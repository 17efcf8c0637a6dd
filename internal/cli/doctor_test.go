package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"pollux/internal/doctor"
)

// A signal arrives before or while doctor changes something. It says that nothing was
// changed only if that is true.
func TestFixesInterrupted(t *testing.T) {
	cannot := errors.New("cannot")
	for name, tt := range map[string]struct {
		before bool // the signal
		apply  error
		want   error
		fixed  bool
	}{
		"before":           {true, nil, interrupted, false},
		"during":           {false, nil, nil, true},
		"during a failure": {false, cannot, cannot, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, signal := context.WithCancel(t.Context())
			fixed := false
			apply := func() error {
				fixed = true
				signal()
				return tt.apply
			}
			if tt.before {
				signal()
			}
			var said bytes.Buffer
			err := applyFixes(ctx, IO{Err: &said}, doctor.Report{Findings: []doctor.Finding{{Fix: "fix it", Apply: apply}}}, true)
			if !errors.Is(err, tt.want) || fixed != tt.fixed {
				t.Errorf("%v; fixed: %v", err, fixed)
			}
			if says := strings.Contains(said.String(), "nothing was changed"); says == fixed {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}
