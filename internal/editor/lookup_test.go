package editor

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/jsonrpc"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

// listen answers as a companion with a status, or, with none, accepts
// connections and stays silent.
func listen(t *testing.T, port int, status *Status) string {
	t.Helper()
	path, err := SocketPath(os.Getpid(), port)
	if err != nil {
		t.Fatal(err)
	}
	l, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	systest.Serve(t, l, func(conn net.Conn) {
		if status == nil {
			defer conn.Close()
			io.Copy(io.Discard, conn) // until the client gives up
			return
		}
		<-jsonrpc.NewConn(context.Background(), NewStream(conn), jsonrpc.HandlerWithError(func(_ *jsonrpc.Conn, req *jsonrpc.Request) (any, error) {
			if req.Method == MethodStatus {
				return status, nil
			}
			return InitializeResult{Protocol: ProtocolVersion}, nil
		})).DisconnectNotify()
	})
	return path
}

// The most specific workspace wins, then a companion with a connected agent, then
// the newest. A companion that is stopped is listed as such and never chosen.
func TestFind(t *testing.T) {
	run := systest.ShortDir(t)
	t.Setenv("POLLUX_RUNTIME_DIR", run)
	t.Setenv(EnvSocket, "")
	dir := systest.Dir(t)
	sub := filepath.Join(dir, "sub")
	systest.MakeDir(t, sub)
	t.Chdir(sub)
	outer := listen(t, 1, &Status{Roots: []string{dir}, Started: 4})
	used := listen(t, 2, &Status{Roots: []string{"/elsewhere", sub}, Started: 1, Clients: []Agent{{Name: "agent"}}})
	newest := listen(t, 3, &Status{Roots: []string{sub}, Started: 3})
	listen(t, 4, &Status{Roots: []string{filepath.Join(dir, "su")}, Started: 5})

	ctx, self := t.Context(), Implementation{Name: "test"}
	for path, want := range map[string]string{filepath.Join(dir, "f"): outer, filepath.Join(sub, "f"): used, "": used} {
		if got, err := Find(ctx, self, "", path); err != nil || got != want {
			t.Errorf("Find(%q) = %q, %v; want %q", path, got, err, want)
		}
	}
	if got, err := Find(ctx, self, "", "/nowhere"); err == nil {
		t.Errorf("no companion has /nowhere, and Find returns %q", got)
	}
	if got, err := Find(ctx, self, "named", ""); err != nil || got != "named" {
		t.Errorf("a named socket: %q, %v", got, err)
	}
	started := func(path string) (int64, error) {
		var st Status
		err := WithClientFor(ctx, self, "", path, func(ctx context.Context, c *Client) (err error) {
			st, err = c.Status(ctx)
			return err
		})
		return st.Started, err
	}
	if got, err := started(filepath.Join(sub, "f")); err != nil || got != 1 {
		t.Errorf("WithClientFor talks to the companion that started at %d, %v; want 1", got, err)
	}
	if _, err := started("/nowhere"); err == nil {
		t.Error("no companion has /nowhere, and WithClientFor finds one")
	}
	t.Setenv(EnvSocket, newest)
	if got, err := started(""); err != nil || got != 3 {
		t.Errorf("WithClientFor talks to the companion that started at %d, %v; want the one in %s", got, err, EnvSocket)
	}
	if got, err := Find(ctx, self, "", ""); err != nil || got != newest {
		t.Errorf("with %s: %q, %v", EnvSocket, got, err)
	}
	if got, err := FindFor(ctx, self, ""); err != nil || got != used {
		t.Errorf("FindFor uses %s: %q, %v", EnvSocket, got, err)
	}

	stopped := listen(t, 5, nil)
	all, err := List(ctx, self)
	if err != nil || len(all) != 5 || all[0].Started != 5 || all[1].Socket != outer || !all[4].Stopped || all[4].Socket != stopped {
		t.Errorf("List returns %+v, %v", all, err)
	}
	if _, err := Connect(ctx, filepath.Join(run, "none")); !errors.Is(err, ErrGone) {
		t.Errorf("a socket that is not there: %v", err)
	}
}

// The error names the process to continue or to end.
func TestErrorSilent(t *testing.T) {
	path, err := SocketPath(12, 34)
	if err != nil {
		t.Fatal(err)
	}
	if got := ErrorSilent(path).Error(); !strings.HasSuffix(got, " does not answer: "+shell.ResumeOrKill(12)) {
		t.Error(got)
	}
}
