package geminiide

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"pollux/internal/gate"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/systest"
)

// childServes makes this test binary a companion's server, which prints its
// port and ends with its standard input. With the value "panic", its backend panics when
// an agent proposes a change.
const childServes = "POLLUX_TEST_SERVE"

func serveChild() {
	b := newBackend()
	if os.Getenv(childServes) == "panic" {
		close(b.Proposed)
	}
	s, err := New(Config{Companion: attach.Companion{Backend: b, Log: slog.New(slog.DiscardHandler), Version: "test"}, Token: "secret"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Serve()
	fmt.Println(s.port)
	io.Copy(io.Discard, os.Stdin)
}

// startChild starts a server in a child process, which ends with its standard input.
func startChild(t *testing.T, cmd *exec.Cmd, serves string) (port int, in io.Closer) {
	t.Helper()
	cmd.Env = append(os.Environ(), childServes+"="+serves)
	in, out := systest.Start(t, cmd)
	if _, err := fmt.Fscan(out, &port); err != nil {
		t.Fatal(err)
	}
	return port, in
}

// The HTTP server recovers from a panic of its handlers, so a companion that had a bug
// continued, without its discovery files.
func TestPanicEndsTheProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	var log bytes.Buffer
	cmd.Stderr = &log
	port, in := startChild(t, cmd, "panic")
	c := dialPort(t, port).initialize()
	res, err := c.http.Do(c.request(t.Context(), "POST",
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"openDiff","arguments":{"filePath":"/a","newContent":"x"}}}`))
	if err == nil { // the response has begun
		if answer, _ := io.ReadAll(res.Body); len(answer) > 0 {
			t.Errorf("openDiff answers %s", answer)
		}
		res.Body.Close()
	}
	in.Close()
	if err := cmd.Wait(); err == nil || !strings.Contains(log.String(), "panic: send on closed channel") {
		t.Errorf("the process ends with %v: %s", err, log.String())
	}
}

// raw opens a connection, sends text, and leaves it open.
func raw(t *testing.T, port int, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// bodyless returns a POST request that promises a body and never sends it.
func bodyless(port int, path, host string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n", path, host, port)
}

// Anybody who could connect could keep the user's own CLI out: 350 requests
// without a token, whose bodies never came, held every file descriptor.
func TestSlowStrangersDoNotKeepTheCLIOut(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no limit of descriptors")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 128 && exec "$0"`, os.Args[0])
	cmd.Stderr = os.Stderr
	port, in := startChild(t, cmd, "1")
	defer cmd.Wait()
	defer in.Close()
	for range 350 {
		raw(t, port, bodyless(port, "/mcp", "127.0.0.1"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cli, err := client.Dial(ctx, port, "secret")
	if err != nil {
		t.Fatalf("the user's CLI cannot connect: %v", err)
	}
	if n, ok := <-cli.Notifications; !ok || n.Method != MethodContextUpdate {
		t.Errorf("the CLI received %q", n.Method)
	}
	cli.Close()
}

// A refused request gets its answer immediately and its connection ends, even if
// the announced body never arrives.
func TestRefusedRequestsAreNotHeld(t *testing.T) {
	s := start(t, newBackend(), nil)
	for name, request := range map[string]string{
		"no token":   bodyless(s.port, "/mcp", "127.0.0.1"),
		"no page":    bodyless(s.port, "/other", "127.0.0.1"),
		"wrong host": bodyless(s.port, "/mcp", "evil.example"),
		"wrong origin": strings.Replace(bodyless(s.port, "/mcp", "127.0.0.1"), "\r\n\r\n",
			"\r\nOrigin: http://evil.example\r\n\r\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := raw(t, s.port, request)
			conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode/100 != 4 || !res.Close {
				t.Errorf("answered %s, close %v", res.Status, res.Close)
			}
			io.Copy(io.Discard, res.Body)
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("the connection did not end: %v", err)
			}
		})
	}
}

// A CLI whose body arrives in full sees the refusal, not a broken connection.
func TestRefusalReachesAClientThatSendsABody(t *testing.T) {
	s := start(t, newBackend(), nil)
	c := dial(t, s)
	c.token = "old"
	for _, size := range []int{10, 100_000} {
		if code, body, _ := c.do(c.request(t.Context(), "POST", strings.Repeat("x", size))); code != http.StatusUnauthorized || !strings.Contains(body, "token") {
			t.Errorf("a body of %d bytes: %d %s", size, code, body)
		}
	}
}

// A client that sends the rest of its body after the refusal, and said that this is the
// connection's last request, can still read the refusal.
func TestRefusalWaitsForTheBody(t *testing.T) {
	s := start(t, newBackend(), nil)
	const half = 50_000
	conn := raw(t, s.port, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		s.port, 2*half, strings.Repeat("x", half)))
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusUnauthorized || err != nil {
		t.Errorf("%s %s %v", res.Status, body, err)
	}
	if _, err := io.WriteString(conn, strings.Repeat("x", half)); err != nil {
		t.Error(err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("the connection ended with %v", err)
	}
}

// A connection that does not authenticate ends.
func TestStrangersHaveLittleTime(t *testing.T) {
	for name, text := range map[string]string{
		"silent":    "",
		"no header": "GET /",
	} {
		inBubble(t, func(t *testing.T, _ *backend, _ *Server, c *cl) {
			conn, err := c.http.Transport.(*http.Transport).DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, text)
			conn.SetReadDeadline(time.Now().Add(gate.Timeout + time.Second))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection stays open", name)
			}
		})
	}
}

// A request whose body does not arrive ends with the server.
func TestCloseEndsRequests(t *testing.T) {
	s := start(t, newBackend(), nil)
	conn := raw(t, s.port, strings.Replace(bodyless(s.port, "/mcp", "127.0.0.1"), "\r\n\r\n",
		"\r\nAuthorization: Bearer secret\r\nAccept: */*\r\nExpect: 100-continue\r\n\r\n", 1))
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); !strings.Contains(line, "100 Continue") { // the server waits for the body
		t.Fatal(line, err)
	}
	s.Close(t.Context())
	if _, err := io.Copy(io.Discard, in); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
}

// A connection that has authenticated stays.
func TestAuthenticatedConnectionsStay(t *testing.T) {
	s := start(t, newBackend(), nil)
	get := fmt.Sprintf("GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer secret\r\n\r\n", s.port)
	cli := raw(t, s.port, get)
	expectAnswer(t, cli)
	s.http.Sweep(time.Now().Add(gate.Timeout))
	io.WriteString(cli, get)
	expectAnswer(t, cli)
}

// When too many connections have not authenticated, the oldest one of them is
// closed. All others stay.
func TestStrangersAreFew(t *testing.T) {
	b := newBackend()
	s := start(t, b, nil)
	st := dial(t, s).initialize().listen()
	st.next()
	var conns []net.Conn
	for range gate.MaxStrangers + 1 {
		conns = append(conns, raw(t, s.port, ""))
	}
	conns[0].SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := conns[0].Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the oldest connection: %v", err)
	}
	for _, conn := range conns[1:] {
		io.WriteString(conn, fmt.Sprintf("GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer secret\r\n\r\n", s.port))
		expectAnswer(t, conn)
	}
	b.setContext("/a")
	if got := st.next(); !strings.Contains(got, `"/a"`) {
		t.Errorf("the CLI's stream carries %s", got)
	}
}

func expectAnswer(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, res.Body)
}
