package sys

import "time"

// maxRenameDelay limits the delay after a rename that failed.
const maxRenameDelay = 100 * time.Millisecond

// renameTimeout limits how long a rename waits for other programs.
const renameTimeout = time.Second

// rename calls do, which renames a file. Windows refuses that while another program, such
// as a virus scanner, keeps one of the two files open. Then rename calls do again, until
// [renameTimeout]. Before each further call it calls check, and returns the error of that.
func rename(do, check func() error) error {
	return renameIf(inUse, do, check)
}

func renameIf(inUse func(error) bool, do, check func() error) error {
	delay := time.Millisecond
	for start := time.Now(); ; delay = min(2*delay, maxRenameDelay) {
		err := do()
		if err == nil || !inUse(err) || time.Since(start) >= renameTimeout {
			return err
		}
		time.Sleep(delay)
		if err := check(); err != nil {
			return err
		}
	}
}
