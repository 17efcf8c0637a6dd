package proc

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestTerminalName(t *testing.T) {
	for want, device := range map[string]uint64{
		"": 0, "pts/0": unix.Mkdev(136, 0), "pts/300": unix.Mkdev(136, 300), "tty1": unix.Mkdev(4, 1), "ttyS0": unix.Mkdev(4, 64),
	} {
		if got := terminalName(device); got != want {
			t.Errorf("%#x is %q, want %q", device, got, want)
		}
	}
}
