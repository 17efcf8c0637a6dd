package git

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestWhyItEnded(t *testing.T) {
	for want, cause := range map[string]error{
		"git took too long":                        nil,
		"git was stopped: Pollux is shutting down": errors.New("Pollux is shutting down"),
	} {
		ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now(), cause)
		defer cancel()
		g := Repository{Context: ctx, Dir: t.TempDir()}
		if _, err := g.Output("version"); err == nil || err.Error() != want {
			t.Errorf("the error is %v; want %q", err, want)
		}
	}
}
