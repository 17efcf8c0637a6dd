package systest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

// envConsole says which streams of a program are its console: "in" or "all".
const envConsole = "POLLUX_TEST_CONSOLE"

// noise removes the output of the pseudo console itself, which clears the screen and hides
// the cursor.
var noise = strings.NewReplacer("\x1b[2J\x1b[m\x1b[H", "", "\x1b[?25l", "", "\x1b[?25h", "")

// runInTerminal runs a command. Without input, its output goes to the console, too, and
// runInTerminal returns what the console has shown.
func runInTerminal(input *string, argv []string) (shown string, code int, err error) {
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		return "", 0, err
	}
	console, in, out, err := newConsole()
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	defer out.Close()
	process, err := startIn(console, input == nil, argv)
	if err != nil {
		windows.ClosePseudoConsole(console)
		return "", 0, err
	}
	defer windows.CloseHandle(process)
	printed := make(chan string)
	go func() {
		data, _ := io.ReadAll(out) // until the console is closed
		printed <- string(data)
	}()
	if input != nil {
		const end = "\x1a\r"
		_, err = io.WriteString(in, strings.ReplaceAll(*input, "\n", "\r")+end)
	}
	_, waitErr := windows.WaitForSingleObject(process, windows.INFINITE)
	var exit uint32
	err = errors.Join(err, waitErr, windows.GetExitCodeProcess(process, &exit))
	windows.ClosePseudoConsole(console)
	return noise.Replace(<-printed), int(exit), err
}

// newConsole returns a pseudo console, what the user types in it and what it shows.
func newConsole() (console windows.Handle, in, out *os.File, err error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return 0, nil, nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return 0, nil, nil, err
	}
	defer theirOut.Close()
	size := windows.Coord{X: 200, Y: 50}
	err = windows.CreatePseudoConsole(size, windows.Handle(theirIn.Fd()), windows.Handle(theirOut.Fd()), 0, &console)
	if err != nil {
		in.Close()
		out.Close()
	}
	return console, in, out, err
}

// startIn starts a program in a console.
func startIn(console windows.Handle, all bool, argv []string) (process windows.Handle, err error) {
	attrs, err := windows.NewProcThreadAttributeList(1)
	if err != nil {
		return 0, err
	}
	defer attrs.Delete()
	// The value of this attribute is the handle itself.
	value := *(*unsafe.Pointer)(unsafe.Pointer(&console))
	if err := attrs.Update(windows.PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, value, unsafe.Sizeof(console)); err != nil {
		return 0, err
	}
	info := windows.StartupInfoEx{ProcThreadAttributeList: attrs.List()}
	info.Cb = uint32(unsafe.Sizeof(info))
	info.Flags = windows.STARTF_USESTDHANDLES
	streams := "all"
	if !all {
		streams = "in"
		info.StdOutput, info.StdErr = windows.Handle(os.Stdout.Fd()), windows.Handle(os.Stderr.Fd())
		for _, h := range []windows.Handle{info.StdOutput, info.StdErr} {
			if err := windows.SetHandleInformation(h, windows.HANDLE_FLAG_INHERIT, windows.HANDLE_FLAG_INHERIT); err != nil {
				return 0, err
			}
		}
	}
	os.Setenv(envConsole, streams)
	defer os.Unsetenv(envConsole)
	line, err := windows.UTF16PtrFromString(windows.ComposeCommandLine(argv))
	if err != nil {
		return 0, err
	}
	var p windows.ProcessInformation
	err = windows.CreateProcess(nil, line, nil, nil, true, windows.EXTENDED_STARTUPINFO_PRESENT, nil, nil, &info.StartupInfo, &p)
	if err != nil {
		return 0, err
	}
	windows.CloseHandle(p.Thread)
	return p.Process, nil
}

// UseConsole makes the console that [InTerminal] has created the standard streams of this
// process: Windows does so automatically, Wine does not.
func UseConsole() {
	streams := os.Getenv(envConsole)
	if streams == "" {
		return
	}
	os.Unsetenv(envConsole)
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		return f
	}
	os.Stdin = open("CONIN$")
	if streams == "all" {
		os.Stdout = open("CONOUT$")
		os.Stderr = os.Stdout
	}
}
