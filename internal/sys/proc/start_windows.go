package proc

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf16"
	"unsafe"

	"golang.org/x/sys/windows"
)

// procThreadAttributeJobList is PROC_THREAD_ATTRIBUTE_JOB_LIST, which Windows 10 and
// later have.
const procThreadAttributeJobList = 0x2000d

// start starts the command in the job, as [exec.Cmd.Start] does. Its standard streams must be
// files (or nil), its context has no effect, and of its SysProcAttr only the command line and
// the creation flags have one.
//
// The command is in the job from its creation on, which os/exec cannot do. It could enter the
// job later, before it runs. But if this process were killed before that, the suspended
// command would stay. In a job of this process, which would prevent that, it would also be in each
// job around that one, such as the one of Node.js, whose end ends all processes in it.
func (j *job) start() (err error) {
	cmd := j.cmd
	if cmd.Err != nil {
		return cmd.Err
	}
	path := cmd.Path
	if cmd.Dir != "" && !filepath.IsAbs(path) {
		path = filepath.Join(cmd.Dir, path)
	}
	if path, err = exec.LookPath(path); err != nil { // adds the extension
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = &fs.PathError{Op: "fork/exec", Path: path, Err: err}
		}
	}()
	attr := cmp.Or(cmd.SysProcAttr, &syscall.SysProcAttr{})
	program, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	line, err := windows.UTF16PtrFromString(cmp.Or(attr.CmdLine, windows.ComposeCommandLine(cmd.Args)))
	if err != nil {
		return err
	}
	var dir *uint16
	if cmd.Dir != "" {
		if dir, err = windows.UTF16PtrFromString(cmd.Dir); err != nil {
			return err
		}
	}
	var streams [3]windows.Handle
	for i, stream := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if streams[i], err = inheritable(stream); err != nil {
			return err
		}
		defer windows.CloseHandle(streams[i])
	}
	attributes, err := windows.NewProcThreadAttributeList(2)
	if err != nil {
		return err
	}
	defer attributes.Delete()
	if err := errors.Join(
		attributes.Update(windows.PROC_THREAD_ATTRIBUTE_HANDLE_LIST, unsafe.Pointer(&streams), unsafe.Sizeof(streams)),
		attributes.Update(procThreadAttributeJobList, unsafe.Pointer(&j.job), unsafe.Sizeof(j.job)),
	); err != nil {
		return err
	}
	info := windows.StartupInfoEx{ProcThreadAttributeList: attributes.List()}
	info.Cb = uint32(unsafe.Sizeof(info))
	info.Flags = windows.STARTF_USESTDHANDLES
	info.StdInput, info.StdOutput, info.StdErr = streams[0], streams[1], streams[2]
	flags := attr.CreationFlags | windows.CREATE_UNICODE_ENVIRONMENT | windows.EXTENDED_STARTUPINFO_PRESENT
	var p windows.ProcessInformation
	if err := windows.CreateProcess(program, line, nil, nil, true, flags, environmentBlock(cmd.Environ()), dir, &info.StartupInfo, &p); err != nil {
		return err
	}
	windows.CloseHandle(p.Thread)
	j.process = p.Process
	cmd.Process, err = os.FindProcess(int(p.ProcessId)) // for cmd.Wait
	return err
}

// inheritable returns a handle of a file, or of the null device, that a child inherits.
func inheritable(stream any) (h windows.Handle, err error) {
	file, ok := stream.(*os.File)
	if stream == nil {
		if file, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			return 0, err
		}
		defer file.Close()
	} else if !ok {
		return 0, errors.New("a standard stream is not a file")
	}
	self := windows.CurrentProcess()
	err = windows.DuplicateHandle(self, windows.Handle(file.Fd()), self, &h, 0, true, windows.DUPLICATE_SAME_ACCESS)
	return h, err
}

// environmentBlock returns the variables as Windows expects them: in the order of their
// names in upper case, and each with a zero at its end.
func environmentBlock(env []string) *uint16 {
	name := func(variable string) string {
		i := strings.IndexByte(variable[min(1, len(variable)):], '=') // a name may start with =
		return strings.ToUpper(variable[:i+1])
	}
	slices.SortStableFunc(env, func(a, b string) int { return cmp.Compare(name(a), name(b)) })
	block := utf16.Encode([]rune(strings.Join(env, "\x00") + "\x00\x00"))
	return &block[0]
}
