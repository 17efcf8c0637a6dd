package proc

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Pages of a file that a process has mapped are not its memory: the system can drop them,
// and shares them with other processes.
func TestMemoryWithoutFiles(t *testing.T) {
	const size = 64 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pages, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	before := Memory(os.Getpid())
	if err := unix.Munmap(pages); err != nil {
		t.Fatal(err)
	}
	if with := before - Memory(os.Getpid()); with > size/2 {
		t.Errorf("a mapped file of %d bytes counts as %d bytes of memory", size, with)
	}
}
