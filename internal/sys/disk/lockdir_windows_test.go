package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A pool that could never lock its directory tried forever, with no console to end it.
func TestLockDirGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		lock := filepath.Join(dir, "lock")
		if err := os.Mkdir(lock, 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := LockDir(ctx, dir); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), lock) {
			t.Errorf("the error is %v", err)
		}
	})
}
