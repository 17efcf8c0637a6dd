package sys

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"testing"
)

func TestFreeMemory(t *testing.T) {
	resident := func() int {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		kB, err := strconv.Atoi(string(regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)[1]))
		if err != nil {
			t.Fatal(err)
		}
		return kB
	}
	before := resident()
	FreeMemory()
	if after := resident(); after > before*3/4 {
		t.Errorf("%d kB of the program file are resident, %d kB before", after, before)
	}
}

func TestFilePages(t *testing.T) {
	smaps := `00400000-00c5f000 r-xp 00000000 fe:00 11838711                           /opt/a dir/pollux
Rss:                7548 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
00c5f000-01716000 r--p 0085f000 fe:00 11838711                           /opt/a dir/pollux
Anonymous:             0 kB
01716000-01720000 r--p 01316000 fe:00 11838711                           /opt/a dir/pollux
Anonymous:             8 kB
01720000-01808000 rw-p 01320000 fe:00 11838711                           /opt/a dir/pollux
Anonymous:             0 kB
01808000-0384f000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 11838711                   /opt/another/opt/a dir/pollux
Anonymous:             0 kB
7ffe39c70000-7ffe39c91000 r--p 00000000 00:00 0                          [stack]
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0xc5f000}, {0xc5f000, 0x1716000}}
	if got := filePages(smaps, "/opt/a dir/pollux"); !reflect.DeepEqual(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}
