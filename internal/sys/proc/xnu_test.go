package proc

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// words returns strings as the kernel of macOS writes them, after a number.
func words(count int32, text ...string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(count)), strings.Join(text, "\x00")...)
}

func TestProcArgs(t *testing.T) {
	for name, test := range map[string]struct {
		data    []byte
		path    string
		args    []string
		environ []string
		name    string
		bad     bool
	}{
		"a program with padding, an environment and strings of the kernel": {
			data: words(3, "/opt/homebrew/bin/node", "", "node", "/usr/local/bin/gemini", "-p",
				"TMPDIR=/var/folders/zz/T/", "A=b=c", "", "stack_guard=0x1", "main_stack=0x2", ""),
			path: "/opt/homebrew/bin/node", args: []string{"node", "/usr/local/bin/gemini", "-p"},
			environ: []string{"TMPDIR=/var/folders/zz/T/", "A=b=c"}, name: "node",
		},
		"a login shell, without an environment, as for Apple's programs": {
			data: words(1, "/bin/zsh", "", "", "", "", "", "", "-zsh", ""),
			path: "/bin/zsh", args: []string{"-zsh"}, name: "-zsh",
		},
		"no padding":             {words(1, "/bin/sh", "sh", ""), "/bin/sh", []string{"sh"}, nil, "sh", false},
		"an empty argument":      {words(3, "/bin/x", "x", "", "y", ""), "/bin/x", []string{"x", "", "y"}, nil, "x", false},
		"a title":                {words(1, "/bin/x", "nginx: worker process", ""), "/bin/x", []string{"nginx: worker process"}, nil, "nginx:", false},
		"a space in the path":    {words(1, "/a b/c", "/a b/c", ""), "/a b/c", []string{"/a b/c"}, nil, "a", false},
		"a path in the argument": {words(1, "/x/claude", "/x/claude", ""), "/x/claude", []string{"/x/claude"}, nil, "claude", false},
		"no arguments":           {words(0, "/bin/x", "", "A=b", ""), "/bin/x", nil, []string{"A=b"}, "other", false},
		"an environment that is cut off": {
			words(1, "/bin/x", "x", "A=b", "C="), "/bin/x", []string{"x"}, []string{"A=b"}, "x", false},
		"nothing":                       {nil, "", nil, nil, "other", true},
		"a number only":                 {words(1), "", nil, nil, "other", true},
		"a path that is cut off":        {words(1, "/bin/x"), "", nil, nil, "other", true},
		"arguments that are cut off":    {words(2, "/bin/x", "x", "y"), "/bin/x", []string{"x"}, nil, "x", true},
		"a number that is not one":      {words(-1, "/bin/x", "x", ""), "", nil, nil, "other", true},
		"more arguments than there are": {words(1<<30, "/bin/x", "x", ""), "/bin/x", []string{"x"}, nil, "x", true},
	} {
		got, ok := parseProcArgs(test.data)
		if ok == test.bad || got.path != test.path || !slices.Equal(got.args, test.args) ||
			!slices.Equal(got.environ, test.environ) || got.name("other") != test.name {
			t.Errorf("%s: %+v, named %q, %v", name, got, got.name("other"), ok)
		}
	}
}

func FuzzProcArgs(f *testing.F) {
	f.Add(words(2, "/bin/sh", "", "sh", "-c", "A=b", "", "x=y", ""))
	f.Add(words(1<<30, "/bin/sh"))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, ok := parseProcArgs(data)
		size := len(p.path)
		for _, s := range slices.Concat(p.args, p.environ) {
			size += len(s) + 1
			if strings.Contains(s, "\x00") {
				t.Errorf("%q has a NUL", s)
			}
		}
		if size > len(data) {
			t.Errorf("%d bytes in strings, of %d", size, len(data))
		}
		if ok && len(p.args) != int(binary.LittleEndian.Uint32(data)) {
			t.Errorf("%d arguments", len(p.args))
		}
		if name := p.name("other"); name == "" || strings.ContainsAny(name, " ") {
			t.Errorf("the name is %q", name)
		}
	})
}

func TestProcInfo(t *testing.T) {
	info := make([]byte, 2352) // sizeof(struct proc_vnodepathinfo)
	copy(info[152:], "/private/tmp/x\x00rest")
	for dir, data := range map[string][]byte{
		"/private/tmp/x": info,
		"":               info[:2351],
	} {
		if got := currentDir(data); got != dir {
			t.Errorf("%d bytes: the directory is %q, want %q", len(data), got, dir)
		}
	}
	if dir := currentDir(make([]byte, 2352)); dir != "" {
		t.Errorf("the directory is %q", dir)
	}
	task := make([]byte, 96) // sizeof(struct proc_taskinfo)
	binary.LittleEndian.PutUint64(task, 1<<40)
	binary.LittleEndian.PutUint64(task[8:], 1<<20)
	if got := residentSize(task); got != 1<<20 {
		t.Errorf("the process has %d bytes", got)
	}
	if got := residentSize(task[:95]); got != 0 {
		t.Errorf("a result that is cut off has %d bytes", got)
	}
}
