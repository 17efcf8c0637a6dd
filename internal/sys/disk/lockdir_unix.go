//go:build unix

package disk

import (
	"context"
	"errors"
	"os"
	"time"
)

func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		switch err := lock(f, false); {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, errLocked):
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(lockDelay):
		}
	}
}
