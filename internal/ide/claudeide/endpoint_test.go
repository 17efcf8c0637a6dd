package claudeide

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/ide/blocking"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func needPeers(t *testing.T) {
	t.Helper()
	if !sock.KnowsPeers {
		t.Skip("no token is used again here")
	}
}

// next starts a server for the same roots.
func (f *fixture) next() *Server {
	f.t.Helper()
	s, err := New(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close(f.t.Context()) })
	return s
}

func (f *fixture) leave(a *agent) {
	f.t.Helper()
	a.ws.CloseNow()
	systest.Receive(f.t, f.backend.Gone)
	synctest.Wait()
}

// kill leaves the server's file as it is when the server's process is killed.
func (f *fixture) kill() {
	f.StopWatch()
	synctest.Wait()
}

// place writes the file of another server.
func (e endpoint) place(t *testing.T, path string) {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	systest.WriteFile(t, path, string(data))
	if err := os.Chtimes(path, time.Now(), time.Now()); err != nil { // the time of a bubble is another one
		t.Fatal(err)
	}
}

// After a normal end, another user could take the port, receive the token from an agent
// that tries to come back, and use it at the next companion.
func TestEndpointIsForgotten(t *testing.T) {
	needPeers(t)
	inBubble(t, func(t *testing.T, f *fixture) {
		if synctest.Wait(); disk.Exists(f.state) {
			t.Error("the endpoint is kept without an agent")
		}
		one := f.connect("claude-code")
		two := f.connect("opencode")
		synctest.Wait()
		if e, err := readEndpoint(f.state); err != nil || e.Port != f.port || e.Token != f.token {
			t.Fatalf("the file has %+v, %v", e, err)
		}
		for path, want := range map[string]os.FileMode{f.state: 0o600, filepath.Dir(f.state): 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v; want %o", path, info, err, want)
			}
		}
		if f.leave(one); !disk.Exists(f.state) {
			t.Error("it is not kept while an agent is connected")
		}
		if f.leave(two); disk.Exists(f.state) {
			t.Error("it is kept when the last agent has left")
		}
		f.connect("claude-code")
		if synctest.Wait(); !disk.Exists(f.state) {
			t.Error("it is not kept for the next agent")
		}
		f.close()
		if disk.Exists(f.state) {
			t.Error("it is kept after Close")
		}
		if next := f.next(); next.token == f.token || next.old {
			t.Error("the token is used again after a normal end")
		}
	})
}

// An agent comes back to the same port with the same token only.
func TestEndpointAfterAKill(t *testing.T) {
	needPeers(t)
	inBubble(t, func(t *testing.T, f *fixture) {
		f.connect("claude-code")
		time.Sleep(time.Hour)
		f.kill()
		time.Sleep(maxAge - touchInterval - blocking.CheckInterval)
		next := f.next()
		if next.port != f.port || next.token != f.token || !next.old {
			t.Errorf("port %d and token %s, want %d and %s", next.port, next.token, f.port, f.token)
		}
		// A second companion in the folder.
		if second := f.next(); second.port == f.port || second.token == f.token || second.old {
			t.Error("two servers have the same port or token")
		}
		next.HTTP.Listeners[0].Close()
		time.Sleep(touchInterval + blocking.CheckInterval + time.Second)
		if late := f.next(); late.token == f.token || late.old {
			t.Error("the token is used when no agent tries to come back any more")
		}
	})
}

// A program that listens on the port may have received the token.
func TestEndpointTaken(t *testing.T) {
	needPeers(t)
	inBubble(t, func(t *testing.T, f *fixture) {
		f.connect("claude-code")
		synctest.Wait()
		f.kill()
		thief, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", f.port))
		if err != nil {
			t.Fatal(err)
		}
		defer thief.Close()
		if next := f.next(); next.token == f.token || next.old {
			t.Error("the token is used on another port")
		}
	})
}

// Two companions for a folder share a file. It belongs to the first one with an agent.
func TestEndpointOfAnother(t *testing.T) {
	needPeers(t)
	inBubble(t, func(t *testing.T, f *fixture) {
		other := endpoint{Port: 1, Token: "other"}
		other.place(t, f.state)
		a := f.connect("claude-code")
		time.Sleep(2 * touchInterval)
		synctest.Wait()
		if e, err := readEndpoint(f.state); err != nil || e.Token != "other" {
			t.Fatalf("the file has %+v, %v", e, err)
		}
		if f.leave(a); !disk.Exists(f.state) {
			t.Error("the other's file is gone")
		}
		f.connect("claude-code")
		time.Sleep(maxAge) // the other has ended
		synctest.Wait()
		if e, err := readEndpoint(f.state); err != nil || e.Token != f.token {
			t.Errorf("the file has %+v, %v", e, err)
		}
		other.place(t, f.state)
		f.close()
		if !disk.Exists(f.state) {
			t.Error("Close removes the other's file")
		}
	})
}

func TestEndpointFile(t *testing.T) {
	needPeers(t)
	b := newBackend()
	cfg := config(t, b)
	path := (&Server{cfg: cfg}).statePath()
	token := func(s *Server, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s.Close(t.Context())
		return s.token
	}
	for name, text := range map[string]string{
		"no JSON": "x", "empty": "", "no token": `{"port":1}`, "no port": `{"token":"x"}`,
		"odd port": `{"port":70000,"token":"x"}`,
	} {
		endpoint{}.place(t, path)
		systest.WriteFile(t, path, text)
		if got := token(New(cfg)); got == "" || got == "x" {
			t.Errorf("%s: the token is %q", name, got)
		}
	}
	e := endpoint{Port: systest.FreePort(t), Token: "chosen"}
	e.place(t, path)
	if got := token(New(cfg)); got != "chosen" {
		t.Errorf("the token is %q", got)
	}
	elsewhere := cfg
	elsewhere.Roots = []string{"/elsewhere"}
	e.place(t, path)
	if token(New(elsewhere)) == "chosen" {
		t.Error("two folders share a token")
	}
	// Others can write to the directory, so another user may have chosen the token.
	if err := systest.Share(cfg.State); err != nil {
		t.Fatal(err)
	}
	if token(New(cfg)) == "chosen" {
		t.Error("the token is of a directory that others can write to")
	}
}

// Another user can have had the port for a moment before a killed companion started again,
// and received the token there.
func TestOldTokenIsForThisUserOnly(t *testing.T) {
	needPeers(t)
	cfg := config(t, newBackend())
	e := endpoint{Port: systest.FreePort(t), Token: "old"}
	e.place(t, (&Server{cfg: cfg}).statePath())
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	defer s.Close(t.Context())
	for uid, want := range map[int]int{os.Getuid(): http.StatusSwitchingProtocols, 12345: http.StatusForbidden} {
		var conn net.Conn
		if err := systest.AsUser(t, uid, func() (err error) {
			conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", e.Port))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		ws, res, err := websocket.Dial(t.Context(), "ws://127.0.0.1/", &websocket.DialOptions{
			HTTPHeader: http.Header{TokenHeader: {"old"}},
			HTTPClient: &http.Client{Transport: &http.Transport{
				DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
			}},
		})
		if res == nil || res.StatusCode != want {
			t.Errorf("user %d: %v, %v; want %d", uid, res, err, want)
		}
		if ws != nil {
			ws.CloseNow()
		}
		conn.Close()
	}
}
