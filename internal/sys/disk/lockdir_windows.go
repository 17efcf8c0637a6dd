package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// deniedTimeout limits how long a lock may be denied. Windows denies it for a moment after
// another process has closed the file.
const deniedTimeout = 5 * time.Second

// lockDir opens a file that only one process may have open. The system removes it when
// that process closes it or ends.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	path := filepath.Join(dir, "lock")
	failed := func(err error) error { return &fs.PathError{Op: "lock", Path: path, Err: err} }
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, failed(err)
	}
	for denied := time.Now(); ; {
		h, err := windows.CreateFile(name, windows.GENERIC_WRITE, 0, nil, windows.OPEN_ALWAYS, windows.FILE_FLAG_DELETE_ON_CLOSE, 0)
		switch {
		case err == nil:
			return func() { windows.CloseHandle(h) }, nil
		case errors.Is(err, windows.ERROR_SHARING_VIOLATION):
			denied = time.Now()
		case !errors.Is(err, windows.ERROR_ACCESS_DENIED):
			return nil, failed(err)
		case time.Since(denied) >= deniedTimeout:
			return nil, fmt.Errorf("%w: remove it, and check that you may write to its directory", failed(err))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockDelay):
		}
	}
}
