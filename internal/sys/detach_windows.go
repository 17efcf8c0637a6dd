package sys

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// lockDir opens a file that only one process may have open. The system removes it when
// that process closes it or ends.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	name, err := windows.UTF16PtrFromString(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	for {
		h, err := windows.CreateFile(name, windows.GENERIC_WRITE, 0, nil, windows.OPEN_ALWAYS, windows.FILE_FLAG_DELETE_ON_CLOSE, 0)
		switch {
		case err == nil:
			return func() { windows.CloseHandle(h) }, nil
		case !errors.Is(err, windows.ERROR_SHARING_VIOLATION) && !errors.Is(err, windows.ERROR_ACCESS_DENIED):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockDelay):
		}
	}
}
