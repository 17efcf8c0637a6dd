package companion

import "time"

// SetClosing sets how long a companion that shuts down waits until accepted changes are written. It
// returns the former time.
func SetClosing(timeout time.Duration) (before time.Duration) {
	before, closingWrittenTimeout = closingWrittenTimeout, timeout
	return before
}

// Attached returns the number of attached clients.
func (c *Companion) Attached() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// Watches reports whether the watcher has seen the file.
func (c *Companion) Watches(path string) bool {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	f := c.watch.files[path]
	return f != nil && f.known != unseen
}

// FirstShown waits for the surfaces' answers to a diff that has not ended.
func (c *Companion) FirstShown(acks chan error) error {
	return c.firstShown(&diff{ended: make(chan struct{})}, acks)
}
