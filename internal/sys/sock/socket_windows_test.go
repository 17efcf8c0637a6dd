package sock

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"testing"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// A pipe with a name that other programs know has one server at a time, which is the first
// one, and its name is free again once the server and its connections are closed.
func TestNamedPipe(t *testing.T) {
	name := `\\.\pipe\pollux-test-` + rand.Text()
	if _, err := Dial(t.Context(), name); !Refused(err) || !RefusesConnections(name) {
		t.Errorf("a pipe without a listener: %v", err)
	}
	l, err := Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again, err := Listen(name); !errors.Is(err, fs.ErrExist) {
		if err == nil {
			again.Close()
		}
		t.Errorf("a second listener: %v", err)
	}
	client, server := connect(t, l, name)
	l.Close()
	if _, err := Listen(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("with an open connection: %v", err)
	}
	server.Close()
	client.Close()
	again, err := Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// A process without raised rights could connect to the pool of an elevated one, which runs
// the program that a client names.
func TestPipeSecurity(t *testing.T) {
	user, err := disk.CurrentUser()
	if err != nil {
		t.Fatal(err)
	}
	me := user.String()
	for elevated, want := range map[bool]string{
		false: "O:" + me + "D:P(A;;GA;;;" + me + ")",
		true:  "O:" + me + "D:P(A;;GA;;;" + me + ")S:(ML;;NW;;;HI)",
	} {
		got := pipeSecurity(me, elevated)
		if got != want {
			t.Errorf("elevated %v: %s, want %s", elevated, got, want)
		}
		if _, err := winio.SddlToSecurityDescriptor(got); err != nil {
			t.Errorf("elevated %v: %v", elevated, err)
		}
	}
}

// The pipe of an elevated process has the label, and the process can still connect to it.
func TestPipeOfElevatedProcess(t *testing.T) {
	if !proc.Elevated() {
		t.Skip("the tests do not run as administrator")
	}
	name := pipePrefix + rand.Text()
	l, err := Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, server := connect(t, l, name)
	defer client.Close()
	defer server.Close()
	pipe, ok := pipeHandle(client)
	if !ok {
		t.Fatal("the connection is not a pipe")
	}
	sd, err := windows.GetSecurityInfo(pipe, windows.SE_KERNEL_OBJECT, windows.LABEL_SECURITY_INFORMATION)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := sd.SACL()
	if err != nil || list == nil || list.AceCount != 1 {
		t.Fatalf("the pipe has no label: %s, %v", sd, err)
	}
}
