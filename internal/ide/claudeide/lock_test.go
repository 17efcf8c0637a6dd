package claudeide

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/editor"
	"pollux/internal/ide/blocking"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// deadPID is above the limits of all systems.
const deadPID = 1 << 30

// publish starts a server that does not serve, and publishes it.
func publish(t *testing.T, roots []string, change func(*Config, *backend)) (*Server, *backend) {
	t.Helper()
	b := newBackend()
	cfg := config(t, b)
	if change != nil {
		change(&cfg, b)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Unpublish(); s.Close(t.Context()) })
	if err := s.Publish(roots, nil); err != nil {
		t.Fatal(err)
	}
	return s, b
}

// place writes a lock file into a directory.
func place(t *testing.T, dir string, port int, text string) string {
	t.Helper()
	path := filepath.Join(dir, strconv.Itoa(port)+blocking.Ext)
	systest.WriteFile(t, path, text)
	return path
}

func encode(t *testing.T, l Lock) string {
	t.Helper()
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (s *Server) lockPath() string { return filepath.Join(s.Dir, strconv.Itoa(s.port)+blocking.Ext) }

// folders returns the folders of a server's lock file.
func (s *Server) folders(t *testing.T) string {
	t.Helper()
	for _, f := range Find(s.Dir) {
		if f.Port == s.port {
			return strings.Join(f.WorkspaceFolders, " ")
		}
	}
	return "no lock file"
}

// A Claude Code in C:\Work did not connect to a companion that was started there, if the disk
// says C:\work.
func TestInSpelling(t *testing.T) {
	one, two := systest.Abs("/work/one"), systest.Abs("/work/two")
	upper := systest.Abs("/WORK/One")
	for dir, added := range map[string]string{
		one:                            "",
		filepath.Join(one, "Sub"):      "",
		upper:                          upper,
		filepath.Join(upper, "a", "b"): upper,
		systest.Abs("/work"):           "",
		systest.Abs("/Work/ones"):      "",
		"":                             "",
	} {
		want := []string{two, one}
		if added != "" && paths.Same(one, added) { // not on Linux
			want = append(want, added)
		}
		if got := inSpelling([]string{two, one}, dir); !slices.Equal(got, want) {
			t.Errorf("in %q: %q, want %q", dir, got, want)
		}
	}
}

func TestLockFile(t *testing.T) {
	dir := systest.Dir(t)
	project := filepath.Join(dir, "project")
	systest.MakeDir(t, project)
	alias := systest.Alias(t, project) // an agent has the real path
	s, _ := publish(t, []string{alias}, nil)
	path := filepath.Join(s.Dir, strconv.Itoa(s.port)+".lock")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Lock
		Pollux blocking.Mark `json:"pollux"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Pollux.Host != blocking.Here() || time.Since(time.UnixMilli(got.Pollux.Since)).Abs() > time.Minute {
		t.Errorf("the mark is %+v", got.Pollux)
	}
	if want := fmt.Sprintf(`{"pid":%d,"workspaceFolders":[%q],"ideName":"Test","transport":"ws",`+
		`"runningInWindows":%v,"authToken":%q,"pollux":`,
		os.Getpid(), project, runtime.GOOS == "windows", s.token); !strings.HasPrefix(string(data), want) {
		t.Errorf("the file is %s\nwant %s", data, want)
	}
	if runtime.GOOS != "windows" {
		for path, want := range map[string]os.FileMode{path: 0o600, s.Dir: 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v; want %o", path, info.Mode(), err, want)
			}
		}
	}
	if err := s.SetRoots([]string{dir, alias}); err != nil {
		t.Fatal(err)
	}
	if got := s.folders(t); got != dir+" "+project {
		t.Errorf("after SetRoots: %s", got)
	}
	s.Unpublish()
	s.Update()
	if err := s.SetRoots([]string{dir}); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.Dir); len(left) > 0 {
		t.Errorf("after Unpublish: %v", left)
	}
}

// Claude Code wrote "Opened changes in Pollux", without the changes, where no view was open.
func TestNameSaysHowToSeeTheChange(t *testing.T) {
	for _, tt := range []struct {
		editor      editor.Info
		name, title string
	}{
		{editor.NoEditor, "Pollux (run: pollux open)", "Pollux"},
		{editor.Info{Name: "neovim", DisplayName: "Neovim"}, "Neovim", "Neovim"},
		{editor.Info{}, "Pollux", "Pollux"},
	} {
		lock := Lock{IDEName: ideName(tt.editor)}
		if lock.IDEName != tt.name || lock.Title() != tt.title {
			t.Errorf("%+v: %q, %q", tt.editor, lock.IDEName, lock.Title())
		}
	}
}

// The server looks after its lock: an agent in a container deletes it, since it does
// not see the process.
func TestLockFileDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		if err := f.Publish([]string{t.TempDir()}, nil); err != nil {
			t.Fatal(err)
		}
		before := f.folders(t)
		systest.Remove(t, f.lockPath())
		time.Sleep(blocking.CheckInterval)
		synctest.Wait()
		if got := f.folders(t); got != before {
			t.Errorf("%s, want %s", got, before)
		}
		f.backend.setShows(false)
		f.ViewsChanged()
		synctest.Wait()
		if disk.Exists(f.lockPath()) {
			t.Error("nothing shows changes, but the lock file is there")
		}
		f.backend.setShows(true)
		f.ViewsChanged()
		synctest.Wait()
		if got := f.folders(t); got != before {
			t.Errorf("%s, want %s", got, before)
		}
		path := f.lockPath()
		f.Unpublish()
		time.Sleep(2 * blocking.CheckInterval)
		synctest.Wait()
		if disk.Exists(path) {
			t.Error("the lock file came back")
		}
	})
}

// A companion without views has no lock from the start.
func TestPublishWithoutViews(t *testing.T) {
	s, b := publish(t, []string{t.TempDir()}, func(_ *Config, b *backend) { b.hidden = true })
	if disk.Exists(s.Dir) {
		t.Error("there is a directory of locks")
	}
	b.setShows(true)
	s.Update()
	if !disk.Exists(s.lockPath()) {
		t.Error("there is no lock file")
	}
}

// A lock with the server's port that another machine or program has written is not
// removed.
func TestLockOfAnotherWithThePort(t *testing.T) {
	s, b := publish(t, []string{t.TempDir()}, nil)
	place(t, s.Dir, s.port, `{"pid":1,"authToken":"other"}`)
	b.setShows(false)
	s.Update()
	if !disk.Exists(s.lockPath()) {
		t.Error("update removed it")
	}
	path := s.lockPath()
	s.Unpublish()
	if !disk.Exists(path) {
		t.Error("Unpublish removed it")
	}
}

func TestRival(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := listener.Addr().(*net.TCPAddr).Port
	folder := systest.Abs("/work/project")
	alive := os.Getpid()
	lock := func(pid int, mark *blocking.Mark, folders ...string) func(int64) string {
		return func(since int64) string {
			if mark != nil {
				mark.Since += since
			}
			return encode(t, Lock{PID: pid, WorkspaceFolders: folders, IDEName: "Other", Transport: "ws", Pollux: mark})
		}
	}
	text := func(text string) func(int64) string { return func(int64) string { return text } }
	for name, tt := range map[string]struct {
		port  int
		lock  func(since int64) string // the companion's
		yield string
	}{
		"same folder":        {1, lock(alive, nil, folder), fmt.Sprintf("Other (process %d)", alive)},
		"with a slash":       {1, lock(alive, nil, folder+"/"), fmt.Sprintf("Other (process %d)", alive)},
		"parent":             {1, lock(alive, nil, filepath.Dir(folder)), fmt.Sprintf("Other (process %d)", alive)},
		"child":              {1, lock(alive, nil, "/elsewhere", folder+"/child"), fmt.Sprintf("Other (process %d)", alive)},
		"sibling":            {1, lock(alive, nil, folder+"s"), ""},
		"no folder":          {1, lock(alive, nil), ""},
		"dead":               {1, lock(deadPID, nil, folder), ""},
		"odd process":        {1, lock(-1, nil, folder), ""},
		"port without PID":   {served, lock(0, nil, folder), "Other"},
		"a free port":        {1, lock(0, nil, folder), ""},
		"an older companion": {1, lock(alive, &blocking.Mark{Since: -1}, folder), fmt.Sprintf("Other (process %d)", alive)},
		"a younger one":      {1, lock(alive, &blocking.Mark{Since: 1}, folder), ""},
		"of the same time":   {1, lock(alive, &blocking.Mark{}, folder), fmt.Sprintf("Other (process %d)", alive)},
		"and a higher port":  {65535, lock(alive, &blocking.Mark{}, folder), ""},
		"a dead older one":   {1, lock(deadPID, &blocking.Mark{Since: -1}, folder), ""},
		"old format":         {served, text(folder + "\n/x\n"), "another program"},
		"odd name": {1, text(fmt.Sprintf(`{"pid":%d,"workspaceFolders":[%q],"ideName":"a\u001b[1m\nb"}`, alive, folder)),
			fmt.Sprintf("a[1m b (process %d)", alive)},
		"odd types": {1, text(fmt.Sprintf(`{"pid":%d,"ideName":5,"workspaceFolders":[%q],"authToken":{}}`, alive, folder)),
			fmt.Sprintf("another program (process %d)", alive)},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := publish(t, []string{folder}, nil)
			if got := s.folders(t); got != folder {
				t.Fatal(got)
			}
			path := place(t, s.Dir, tt.port, tt.lock(s.Mark.Since))
			s.Update()
			want := folder
			if tt.yield != "" {
				want = ""
			}
			if got := s.folders(t); got != want || !strings.HasPrefix(s.Note(), tt.yield) || (s.Note() != "") != (tt.yield != "") {
				t.Errorf("folders %q, note %q; want %q, %q", got, s.Note(), want, tt.yield)
			}
			// The other companion's agent works: do not advise to end it.
			if ours := strings.Contains(name, "companion") || name == "of the same time"; strings.Contains(s.Note(), "end that program") == (ours || tt.yield == "") {
				t.Errorf("the note is %q", s.Note())
			}
			if tt.yield != "" && !strings.Contains(s.Note(), "unless `pollux run` starts it") {
				t.Errorf("the note is wrong about the agent of `pollux run`: %q", s.Note())
			}
			os.Remove(path)
			s.Update()
			if got := s.folders(t); got != folder || s.Note() != "" {
				t.Errorf("after it has gone: folders %q, note %q", got, s.Note())
			}
		})
	}
}

// A lock that no agent can see has no rival.
func TestRivalWithoutViews(t *testing.T) {
	s, b := publish(t, []string{"/project"}, nil)
	place(t, s.Dir, 1, encode(t, Lock{PID: os.Getpid(), WorkspaceFolders: []string{"/project"}}))
	s.Update()
	if s.Note() == "" {
		t.Fatal("there is no rival")
	}
	b.setShows(false)
	s.Update()
	if got := s.Note(); got != "" {
		t.Error(got)
	}
}

// Two companions for a folder: the first one has it, then the second.
func TestTwoCompanions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ide")
	in := func(c *Config, _ *backend) { c.Dir = dir }
	first, _ := publish(t, []string{systest.Abs("/project")}, in)
	second, _ := publish(t, []string{systest.Abs("/project/sub")}, in)
	second.Mark.Since = first.Mark.Since + 1
	second.Update()
	first.Update()
	if a, b := first.folders(t), second.folders(t); a != systest.Abs("/project") || b != "" {
		t.Errorf("%q, %q", a, b)
	}
	first.Unpublish()
	second.Update()
	if got := second.folders(t); got != systest.Abs("/project/sub") {
		t.Error(got)
	}
}

// The server removes what companions left that were killed, and nothing else in the directory.
func TestPrune(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ide")
	killed := encode(t, Lock{PID: deadPID, Pollux: &blocking.Mark{Since: 1, Host: blocking.Here()}})
	ours := place(t, dir, 1, killed)
	leftover := filepath.Join(dir, disk.TempName())
	kept := []string{place(t, dir, 2, "no JSON"), filepath.Join(dir, "3"), filepath.Join(dir, "4.json"), filepath.Join(dir, "5.lock")}
	systest.MakeDir(t, kept[3])
	for _, path := range []string{kept[1], kept[2], leftover} {
		systest.WriteFile(t, path, killed)
	}
	systest.SetTime(t, leftover, time.Now().Add(-2*disk.TempTTL))
	publish(t, []string{"/project"}, func(cfg *Config, _ *backend) { cfg.Dir = dir })
	for _, path := range []string{ours, leftover} {
		if disk.Exists(path) {
			t.Errorf("%s is left", path)
		}
	}
	for _, path := range kept {
		if !disk.Exists(path) {
			t.Errorf("%s was removed", path)
		}
	}
}

// A directory that cannot be used is reported once, and used as soon as it can be.
func TestDirectory(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(dir string) error
		fine bool
	}{
		"missing":     {func(string) error { return nil }, true},
		"open to all": {func(dir string) error { return os.Mkdir(dir, 0o777) }, true},
		"a link":      {func(dir string) error { return systest.TryLink(t.TempDir(), dir) }, true},
		"a file":      {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, false},
		"another user's": {func(dir string) error {
			if os.Getuid() != 0 {
				return errors.New("only root can give a directory away")
			}
			if err := os.Mkdir(dir, 0o777); err != nil {
				return err
			}
			return os.Chown(dir, 12345, 12345)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.log.mu.Lock()
				f.log.b.Reset()
				f.log.mu.Unlock()
				if err := tt.make(f.Dir); err != nil {
					t.Skip(err)
				}
				if err := f.Publish([]string{"/project"}, nil); err != nil {
					t.Error(err)
				}
				time.Sleep(3 * blocking.CheckInterval)
				synctest.Wait()
				warnings := strings.Count(f.log.String(), "cannot write the lock file")
				if disk.Exists(f.lockPath()) != tt.fine || warnings != map[bool]int{true: 0, false: 1}[tt.fine] {
					t.Errorf("%d warnings: %s", warnings, f.log)
				}
				if strings.Contains(f.log.String(), "TMPDIR") {
					t.Error("the warning names the wrong variable")
				}
				if tt.fine {
					return
				}
				systest.Remove(t, f.Dir)
				time.Sleep(blocking.CheckInterval)
				synctest.Wait()
				if !disk.Exists(f.lockPath()) {
					t.Error("there is no lock file")
				}
			})
		})
	}
}

func FuzzParseLock(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `"x"`, "/a\n/b\r\n\n", `{"pid":-1,"workspaceFolders":["/a"],"pollux":{"since":1,"host":"x"}}`,
		`{"pid":1e99,"workspaceFolders":[5,null,"/a"],"pollux":5}`, `{"workspaceFolders":"x","authToken":["y"]}`, "\xff\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l := parseLock(data)
		if l.Covers("/a") && !l.overlaps([]string{"/a"}) {
			t.Errorf("%+v covers a folder, and does not overlap it", l)
		}
		if _, err := json.Marshal(l); err != nil {
			t.Error(err)
		}
	})
}
