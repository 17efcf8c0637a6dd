// Package wall keeps processes from writing, with Landlock in the kernel of Linux. Behind
// the wall, a process and all that it starts can read and run everything, and can change
// only the files that it is given.
//
// A process cannot leave the wall, so the wall is built by a launcher: this program, which
// restricts itself and then becomes the program to run, as the same process. See [Enclose]
// and [Launch].
package wall

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	kernel "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"pollux/internal/sys/proc"
)

// Self is the path of the program that a process runs, even if its file has been replaced.
const Self = "/proc/self/exe"

// Command is the launcher's command in the command line of Pollux.
const Command = "wall"

// A Gate lets a process behind the wall change something. Paths are absolute. The wall skips
// those that do not exist.
type Gate struct {
	// Writable are files and directories that the process may change, with all that is in
	// them.
	Writable []string
	// Parents are directories in which, at any depth, it may make directories, and nothing
	// else.
	Parents []string
}

// separator ends each list of paths in the launcher's arguments. Paths are absolute, so that
// none is taken for it.
const separator = "--"

// devices are the files and directories that every program may write to. Terminals are not
// among them.
var devices = []string{"/dev/null", "/dev/shm"}

// taken are the rights that the wall takes away. Without the last one, to control devices, a
// program cannot type into the terminal. Signals stay allowed: with a signal, agents look
// whether the owner of a lock file runs, and some remove the file if they cannot send it.
const taken = kernel.AccessFSWriteFile | kernel.AccessFSTruncate | kernel.AccessFSRemoveDir | kernel.AccessFSRemoveFile |
	kernel.AccessFSMakeChar | kernel.AccessFSMakeDir | kernel.AccessFSMakeReg | kernel.AccessFSMakeSock |
	kernel.AccessFSMakeFifo | kernel.AccessFSMakeBlock | kernel.AccessFSMakeSym | kernel.AccessFSRefer |
	kernel.AccessFSIoctlDev

// Available returns why this system cannot build a wall, or nil.
func Available() error {
	_, err := version()
	return err
}

// version returns the version of Landlock in this kernel.
func version() (int, error) {
	if runtime.GOOS != "linux" {
		return 0, errors.New("only Linux has Landlock")
	}
	v, err := kernel.LandlockGetABIVersion()
	switch {
	case errors.Is(err, syscall.ENOSYS):
		return 0, errors.New("this kernel has no Landlock, which Linux has from 5.13 on")
	case errors.Is(err, syscall.EOPNOTSUPP):
		return 0, errors.New("Landlock is turned off in this kernel (its parameter lsm)")
	case err != nil:
		return 0, fmt.Errorf("Landlock is not allowed here, as in some containers (%w)", err)
	}
	return v, nil
}

// Enclose changes a command that has not started: it will run behind a wall with a gate.
// launcher is the path of Pollux.
func Enclose(cmd *exec.Cmd, launcher string, gate Gate) error {
	for _, path := range slices.Concat(gate.Writable, gate.Parents) {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%q is not an absolute path", path)
		}
	}
	cmd.Args = slices.Concat([]string{"pollux", Command}, gate.Writable, []string{separator}, gate.Parents,
		[]string{separator, cmd.Path}, cmd.Args[1:])
	cmd.Path = launcher
	return nil
}

// Launch is the launcher: it restricts this process and runs the program in its place. args
// are the arguments that [Enclose] has put behind [Command]. Launch returns only an error.
func Launch(args []string) error {
	var gate Gate
	var argv []string
	if i := slices.Index(args, separator); i >= 0 {
		gate.Writable, args = append(args[:i:i], devices...), args[i+1:]
		if i := slices.Index(args, separator); i >= 0 {
			gate.Parents, argv = args[:i], args[i+1:]
		}
	}
	if len(argv) == 0 {
		return errors.New("no command: only Pollux starts this, with an agent")
	}
	if err := restrict(gate); err != nil {
		return err
	}
	return proc.Exec(argv[0], argv, os.Environ())
}

// restrict keeps this process from changing anything but through the gate.
func restrict(gate Gate) error {
	v, err := version()
	if err != nil {
		return err
	}
	var rules []landlock.Rule
	for _, path := range gate.Writable {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		rule := landlock.RWFiles(path)
		if info.IsDir() {
			rule = landlock.RWDirs(path)
			// The first version never lets files move between directories. If a rule asks
			// for that right, the module would build no wall.
			if v > 1 {
				rule = rule.WithRefer()
			}
		}
		rules = append(rules, rule)
	}
	for _, path := range gate.Parents {
		rules = append(rules, landlock.PathAccess(kernel.AccessFSMakeDir, path).IgnoreIfMissing())
	}
	cfg, err := landlock.NewConfig(landlock.AccessFSSet(taken))
	if err != nil {
		return err
	}
	return cfg.BestEffort().Restrict(rules...)
}
