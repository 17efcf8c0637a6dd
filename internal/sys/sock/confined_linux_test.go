package sock

import (
	"os"
	"os/exec"
	"testing"

	"pollux/internal/sys/systest"
)

func TestConfined(t *testing.T) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	if inside, err := noNewPrivileges(os.Getpid()); err != nil || inside {
		t.Skipf("these tests are confined themselves: %v, %v", inside, err)
	}
	for want, argv := range map[bool][]string{false: {"cat"}, true: {setpriv, "--no-new-privs", "cat"}} {
		cmd := exec.Command(argv[0], argv[1:]...)
		in, out := systest.Start(t, cmd)
		in.Write([]byte("x"))
		out.Read(make([]byte, 1)) // setpriv has started cat
		if got := confined(cmd.Process.Pid); got != want {
			t.Errorf("%q: %v", argv, got)
		}
		in.Close()
		cmd.Wait()
	}
	if !confined(1 << 30) {
		t.Error("a process that does not exist counts as harmless")
	}
}
