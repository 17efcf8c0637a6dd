package checks

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/doctor"
	"pollux/internal/ide/blocking"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// deadPID is above the limits of all systems.
const deadPID = 1 << 30

// A room is a private home with a project, in which checks run.
type room struct {
	t             *testing.T
	home, project string
}

// lock writes a lock file, whose server answers with the status.
func (r *room) lock(status int, change func(lock map[string]any)) {
	r.t.Helper()
	l, scheme, address, err := sock.ListenPrivate("test")
	if err != nil {
		r.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "Nonce secret-nonce" {
			r.t.Error("the headers are missing")
		}
		w.WriteHeader(status)
	}))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	r.t.Cleanup(server.Close)
	lock := map[string]any{
		"socketPath": address, "scheme": scheme, "headers": map[string]string{"Authorization": "Nonce secret-nonce"},
		"pid": os.Getpid(), "ideName": "Test", "timestamp": 1, "workspaceFolders": []string{r.project},
	}
	if change != nil {
		change(lock)
	}
	data, err := json.Marshal(lock)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write("ide/x.lock", string(data))
}

// write writes a file in Copilot CLI's directory.
func (r *room) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.home, ".copilot", name)
	systest.WriteFile(r.t, path, text)
}

func TestCopilot(t *testing.T) {
	folder := func(path string) func(map[string]any) {
		return func(lock map[string]any) { lock["workspaceFolders"] = []string{path} }
	}
	for name, tt := range map[string]struct {
		make func(r *room)
		want []string
	}{
		"healthy":          {func(r *room) { r.lock(http.StatusOK, nil) }, nil},
		"healthy, a slash": {func(r *room) { r.lock(http.StatusBadRequest, folder(r.project+"/")) }, nil},
		"no companion":     {func(*room) {}, []string{"failed companion"}},
		"another folder":   {func(r *room) { r.lock(http.StatusOK, folder(systest.Abs("/elsewhere"))) }, []string{"failed companion"}},
		"a folder above":   {func(r *room) { r.lock(http.StatusOK, folder(filepath.Dir(r.project))) }, []string{"failed workspace"}},
		"a folder below":   {func(r *room) { r.lock(http.StatusOK, folder(filepath.Join(r.project, "sub"))) }, []string{"failed workspace"}},
		"a symbolic link": {func(r *room) {
			link := filepath.Join(r.home, "link")
			systest.Link(r.t, r.project, link)
			r.lock(http.StatusOK, folder(link))
		}, []string{"failed symlink"}},
		"a process that has ended": {func(r *room) {
			r.lock(http.StatusOK, func(lock map[string]any) { lock["pid"] = deadPID })
		}, []string{"failed lock"}},
		// The next companion removes its lock.
		"a companion that was killed": {func(r *room) {
			r.lock(http.StatusOK, func(lock map[string]any) {
				lock["pid"], lock["pollux"] = deadPID, &blocking.Mark{Host: blocking.Here()}
			})
		}, []string{"failed companion"}},
		"a field is missing": {func(r *room) {
			r.lock(http.StatusOK, func(lock map[string]any) { delete(lock, "timestamp") })
		}, []string{"failed lock"}},
		"a wrong nonce": {func(r *room) { r.lock(http.StatusUnauthorized, nil) }, []string{"failed token"}},
		"no view":       {func(r *room) { r.lock(http.StatusServiceUnavailable, nil) }, []string{"failed view"}},
		"a socket without a server": {func(r *room) {
			r.lock(http.StatusOK, func(lock map[string]any) { lock["socketPath"] = lock["socketPath"].(string) + "-gone" })
		}, []string{"failed port"}},
		"a socket of another system": {func(r *room) {
			r.lock(http.StatusOK, func(lock map[string]any) { lock["scheme"] = "vsock" })
		}, nil},
		"no connections": {func(r *room) {
			r.lock(http.StatusOK, nil)
			r.write("settings.json", `{"ide":{"autoConnect":false}}`)
		}, []string{"failed auto-connect"}},
		"no diffs": {func(r *room) {
			r.lock(http.StatusOK, nil)
			r.write("settings.json", `{"ide":{"openDiffOnEdit":false,"autoConnect":true}}`)
		}, []string{"failed diff-tool"}},
		"settings that are no JSON": {func(r *room) {
			r.lock(http.StatusOK, nil)
			r.write("settings.json", `{`)
		}, []string{"warning settings"}},
		"another home": {func(r *room) {
			r.lock(http.StatusOK, nil)
			r.t.Setenv("COPILOT_HOME", r.project)
		}, []string{"failed companion"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := os.MkdirTemp("", "px") // a socket's path must be short
			if err == nil {
				root, err = filepath.EvalSymlinks(root)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(root) })
			r := &room{t: t, home: root, project: filepath.Join(root, "project")}
			systest.MakeDir(t, r.project)
			systest.SetHome(t, r.home)
			t.Setenv("POLLUX_RUNTIME_DIR", filepath.Join(root, "run"))
			t.Setenv("COPILOT_HOME", "")
			t.Setenv("COPILOT_ALLOW_ALL", "")
			tt.make(r)
			report := doctor.Examine(t.Context(), doctor.Config{Dir: r.project}, []doctor.Part{{Checks: []doctor.Check{Copilot}}})
			var got []string
			for _, f := range report.Findings {
				if f.Status != doctor.OK {
					got = append(got, string(f.Status)+" "+f.Check)
				}
				if f.Status != doctor.OK && f.Next == "" || strings.Contains(f.Text+f.Next, "secret-nonce") {
					t.Errorf("the finding is %+v", f)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, report.Findings)
			}
		})
	}
}
