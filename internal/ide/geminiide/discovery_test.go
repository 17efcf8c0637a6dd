package geminiide

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

func TestNodeTempDir(t *testing.T) {
	for _, tt := range []struct {
		goos string
		env  map[string]string
		want string
	}{
		{"linux", nil, "/tmp"},
		{"linux", map[string]string{"TMPDIR": "/a/"}, "/a"},
		{"linux", map[string]string{"TMPDIR": "/a//"}, "/a/"},
		{"linux", map[string]string{"TMPDIR": "/"}, "/"},
		{"linux", map[string]string{"TMP": "/b", "TEMP": "/c"}, "/b"},
		{"linux", map[string]string{"TEMP": "/c"}, "/c"},
		{"darwin", map[string]string{"TMPDIR": "/var/folders/x/T/"}, "/var/folders/x/T"},
		{"windows", map[string]string{"TEMP": `C:\T\`, "TMP": `D:\`}, `C:\T`},
		{"windows", map[string]string{"TMP": `D:\`}, `D:\`},
		{"windows", map[string]string{"SystemRoot": `C:\Windows`}, `C:\Windows\temp`},
	} {
		if got := NodeTempDir(tt.goos, func(k string) string { return tt.env[k] }); got != tt.want {
			t.Errorf("NodeTempDir(%s, %v) = %q, want %q", tt.goos, tt.env, got, tt.want)
		}
	}
}

// TestNodeTempDirIsNodes asks Node itself.
func TestNodeTempDirIsNodes(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine")
	}
	for _, env := range [][]string{{}, {"TMPDIR=/a/"}, {"TMPDIR=/a//"}, {"TMPDIR=/"}, {"TMP=/b/", "TEMP=/c"}, {"TEMP=/c"}, {"TMPDIR=", "TMP=/d"}} {
		cmd := exec.Command(node, "-p", "require('os').tmpdir()")
		env = append(env, "SystemRoot="+os.Getenv("SystemRoot")) // Windows needs it
		cmd.Env = env
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		getenv := func(k string) string {
			for _, kv := range env {
				if v, ok := strings.CutPrefix(kv, k+"="); ok {
					return v
				}
			}
			return ""
		}
		if got, want := NodeTempDir(runtime.GOOS, getenv), strings.TrimSpace(string(out)); got != want {
			t.Errorf("%v: %q, Node says %q", env, got, want)
		}
	}
}

func TestWorkspacePath(t *testing.T) {
	tests := []struct {
		roots []string
		want  string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"/a", "", "/b c"}, "/a:/b c"},
		{[]string{"/a:b", "/100%"}, "/a%3Ab:/100%"},
		{[]string{"/x%41"}, "/x%41"},
	}
	if runtime.GOOS == "windows" {
		tests = append(tests[:2], []struct {
			roots []string
			want  string
		}{
			{[]string{`C:\a`, "", `D:\b c`}, `C:\a;D:\b c`},
			{[]string{`C:\a;b`, `\\host\share\100%`}, `C:\a%3Bb;\\host\share\100%`},
			{[]string{`C:\x%41`}, `C:\x%41`},
		}...)
	}
	for _, tt := range tests {
		if got := WorkspacePath(tt.roots); got != tt.want {
			t.Errorf("WorkspacePath(%q) = %q, want %q", tt.roots, got, tt.want)
		}
	}
}

// isolate points the discovery directories into a test's own.
func isolate(t *testing.T) (geminiDir, qwenDir string) {
	t.Helper()
	tmp, home := t.TempDir(), t.TempDir()
	systest.SetTemp(t, tmp)
	systest.SetHome(t, home)
	return filepath.Join(tmp, "gemini", "ide"), filepath.Join(home, ".qwen", "ide")
}

// listen returns a port that accepts connections and sends nothing.
func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func TestPublishWritesTheContractsFile(t *testing.T) {
	dir, qwen := isolate(t)
	port := listen(t)
	pub, err := Publish(Endpoint{Port: port, Token: "secret", Info: editor.Info{Name: "vim", DisplayName: "Vim"}, Roots: []string{"/p1", "/p2"}, PIDs: []int{os.Getppid(), os.Getpid()}})
	if err != nil {
		t.Fatal(err)
	}
	names, _ := filepath.Glob(dir + "/*")
	if len(names) != 2 {
		t.Fatalf("files: %v, want one for each PID", names)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !disk.Private(name, info) {
			t.Errorf("%s: %v, %v; others have permissions", name, info.Mode(), err)
		}
		data, _ := os.ReadFile(name)
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if got["port"] != float64(port) || got["workspacePath"] != "/p1"+string(os.PathListSeparator)+"/p2" || got["authToken"] != "secret" {
			t.Errorf("%s holds %s", name, data)
		}
		info2, _ := got["ideInfo"].(map[string]any)
		if info2["name"] != "vim" || info2["displayName"] != "Vim" {
			t.Errorf("ideInfo = %v", info2)
		}
	}
	if info, _ := os.Stat(dir); !disk.Private(dir, info) {
		t.Errorf("the directory is %v: others have permissions", info.Mode())
	}
	locks, _ := filepath.Glob(qwen + "/*.lock")
	if len(locks) != 1 {
		t.Fatalf("Qwen Code's lock files: %v", locks)
	}
	lock, err := Read(locks[0])
	if err != nil || lock.PPID != os.Getppid() {
		t.Errorf("Qwen Code's lock = %+v, %v; want a live ppid", lock, err)
	}
	llxprt := filepath.Join(filepath.Dir(filepath.Dir(dir)), "llxprt", "ide")
	named := filepath.Join(llxprt, fmt.Sprintf("llxprt-ide-server-%d-%d.json", os.Getppid(), port))
	file, err := Read(named)
	if token := pub.Endpoint().Env()["LLXPRT_CODE_IDE_AUTH_TOKEN"]; err != nil || file.Port != port || token == "secret" ||
		file.AuthToken != token || file.IDEInfo.DisplayName != "Vim" {
		t.Errorf("LLxprt Code's file = %+v, %v; its variables have the token %q", file, err, token)
	}

	if err := pub.SetRoots([]string{"/other"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, append(locks, named)...) {
		if f, err := Read(name); err != nil || f.WorkspacePath != "/other" {
			t.Errorf("after SetRoots %s = %+v, %v", name, f, err)
		}
	}
	pub.Remove()
	pub.Remove()
	if err := pub.SetRoots([]string{"/late"}); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Dir(dir)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, dir := range []string{qwen, llxprt} {
		if left, _ := filepath.Glob(filepath.Dir(dir)); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func TestPublishRefusesSomebodyElsesPlace(t *testing.T) {
	for name, place := range map[string]func(t *testing.T, dir string){
		"a symbolic link": func(t *testing.T, dir string) { systest.Link(t, t.TempDir(), dir) },
		"a file": func(t *testing.T, dir string) {
			systest.WriteFile(t, dir, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := isolate(t)
			systest.MakeDir(t, filepath.Dir(dir))
			place(t, dir)
			_, err := Publish(Endpoint{Port: 1, PIDs: []int{1}})
			systest.WantError(t, err, "remove it")
		})
	}
}

// Another user can make the directory, or a link in its place, before the user
// does, and redirect it later.
func TestPublishRefusesALinkOfAnother(t *testing.T) {
	systest.NeedRoot(t)
	const other = 65534
	for name, tt := range map[string]struct {
		make func(tmp, mine string) error // tmp is TMPDIR, which all can write to; mine belongs to the user
		fine bool
	}{
		"nothing yet": {func(tmp, mine string) error { return nil }, true},
		"a link of another's to mine": {func(tmp, mine string) error {
			return errors.Join(os.Symlink(mine, tmp+"/gemini"), os.Lchown(tmp+"/gemini", other, other))
		}, false},
		"a link of mine": {func(tmp, mine string) error { return systest.TryLink(mine, tmp+"/gemini") }, true},
		"a link of mine to one of another's": {func(tmp, mine string) error {
			return errors.Join(os.Symlink(tmp+"/theirs", tmp+"/gemini"), os.Symlink(mine, tmp+"/theirs"), os.Lchown(tmp+"/theirs", other, other))
		}, false},
		"a directory of another's": {func(tmp, mine string) error {
			return errors.Join(os.Mkdir(tmp+"/gemini", 0o777), os.Chown(tmp+"/gemini", other, other))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			isolate(t)
			tmp, mine := t.TempDir(), t.TempDir()
			systest.SetTemp(t, tmp)
			if err := errors.Join(os.Chmod(tmp, 0o777|os.ModeSticky), tt.make(tmp, mine)); err != nil {
				t.Fatal(err)
			}
			p, err := Publish(Endpoint{Port: 1, Token: "secret", PIDs: []int{1}})
			if (err == nil) != tt.fine || err != nil && !strings.Contains(err.Error(), "set "+disk.TempVars) {
				t.Errorf("Publish = %v", err)
			}
			if p != nil {
				p.Remove()
			}
			if left, _ := filepath.Glob(mine + "/*"); len(left) > 0 {
				t.Errorf("in the link's target: %v", left)
			}
		})
	}
}

// After a failed write the files are written again, even for the same roots.
func TestSetRootsAfterAFailure(t *testing.T) {
	dir, _ := isolate(t)
	p, err := Publish(Endpoint{Port: 1, PIDs: []int{1}, Roots: []string{"/old"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Remove()
	for _, roots := range [][]string{{"/new"}, {"/old"}, {"/new"}} {
		was := p.Endpoint().Roots
		if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := p.SetRoots([]string{"/failed"}); err == nil {
			t.Fatal("SetRoots did not fail")
		}
		if got := p.Endpoint().Roots; !slices.Equal(got, was) {
			t.Errorf("after a failure the endpoint has %v, want %v", got, was)
		}
		if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
			t.Fatal(err)
		}
		names, _ := filepath.Glob(dir + "/*.json")
		for _, name := range names { // one that the failed write did replace
			os.WriteFile(name, []byte(`{"port":1,"workspacePath":"/failed"}`), 0o600)
		}
		if err := p.SetRoots(roots); err != nil {
			t.Fatal(err)
		}
		if f, err := Read(names[0]); err != nil || f.WorkspacePath != roots[0] {
			t.Errorf("%v: the file says %q, %v", roots, f.WorkspacePath, err)
		}
	}
}

// The next start removes the files that a crash left. The files of live
// companions, and files that Pollux does not understand, stay.
func TestPrune(t *testing.T) {
	dir, qwen := isolate(t)
	const deadPID = 1 << 29 // beyond pid_max
	live := listen(t)
	gone := systest.FreePort(t)
	me := os.Getpid()

	type file struct {
		path string
		f    DiscoveryFile
		keep bool
	}
	at := func(pid, port int) string { return clis[0].files([]int{pid}, port)[0] }
	files := []file{
		{filepath.Join(dir, at(me, live)), DiscoveryFile{Port: live}, true},
		{filepath.Join(dir, at(deadPID, live)), DiscoveryFile{Port: live}, true},
		{filepath.Join(dir, at(deadPID, gone)), DiscoveryFile{Port: gone}, false},
		{filepath.Join(dir, at(me, gone)), DiscoveryFile{Port: gone}, false}, // would shadow ours
		{filepath.Join(dir, at(os.Getppid(), gone)), DiscoveryFile{Port: gone}, proc.Alive(os.Getppid())},
		{filepath.Join(dir, at(os.Getppid(), live)), DiscoveryFile{Port: live, Pollux: deadPID}, false},
		// A companion in another container, whose processes are not visible
		// here.
		{filepath.Join(dir, at(os.Getppid(), live+1)), DiscoveryFile{Port: live, Pollux: deadPID, Namespace: "another"}, true},
		{filepath.Join(dir, "gemini-ide-server-7.json"), DiscoveryFile{Port: gone}, true},
		{filepath.Join(qwen, "1.lock"), DiscoveryFile{Port: gone, PPID: deadPID}, false},
		{filepath.Join(qwen, "2.lock"), DiscoveryFile{Port: live, PPID: me}, true},
	}
	for _, f := range files {
		data, _ := json.Marshal(f.f)
		systest.WriteFile(t, f.path, string(data))
	}
	garbage := filepath.Join(dir, at(deadPID, 1))
	os.WriteFile(garbage, []byte("{"), 0o600)
	prune([]int{me})
	for _, f := range append(files, file{path: garbage, keep: true}) {
		if _, err := os.Stat(f.path); (err == nil) != f.keep {
			t.Errorf("%s kept = %v, want %v", filepath.Base(f.path), err == nil, f.keep)
		}
	}
}

func TestPIDs(t *testing.T) {
	env := func(k string) string {
		if k == "TMUX" {
			return "/tmp/tmux-0/default,4242,0"
		}
		return ""
	}
	want := []int{os.Getppid(), os.Getpid(), 4242}
	if !proc.Alive(os.Getppid()) { // Wine does not know who started it
		want = want[1:]
	}
	got := EditorPIDs(os.Getpid(), env)
	if !slices.Equal(got, want) {
		t.Errorf("EditorPIDs = %v, want parent, editor, tmux server: %v", got, want)
	}
	got = TerminalPIDs(os.Getpid(), env)
	if got[0] != os.Getpid() || got[len(got)-1] != 4242 {
		t.Errorf("TerminalPIDs = %v", got)
	}
}

// In a container the editor, or Pollux, can be process 1, which has no parent.
func TestPIDsOfProcess1(t *testing.T) {
	none := func(string) string { return "" }
	want := []int{1}
	if got := EditorPIDs(1, none); !slices.Equal(got, want) {
		t.Errorf("EditorPIDs = %v", got)
	}
	if got := TerminalPIDs(1, none); !slices.Equal(got, want) {
		t.Errorf("TerminalPIDs = %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"port":1234,"workspacePath":"/a","authToken":"t","ideInfo":{"name":"x","displayName":"X"}}`))
	f.Add([]byte(`{"port":"1234"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Parse(data)
		if err == nil && (got.Port < 1 || got.Port > 65535) {
			t.Errorf("Parse accepted port %d", got.Port)
		}
	})
}
