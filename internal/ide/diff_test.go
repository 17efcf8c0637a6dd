package ide

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/ide/claudeide"
)

// bigText has 5 MB.
var bigText = strings.Repeat("a line of \"some\" fifty characters, as code has them\n", 5<<20/52)

// A rawView is a client of the editor protocol that does not decode what it shows.
type rawView struct {
	conn   net.Conn
	shown  chan struct{} // one for each diff/open
	closes string        // the result of diff/close
}

var messageHead = regexp.MustCompile(`"id":(\d+)|"method":"([^"]+)"`)

func newRawView(b *testing.B, h *Host) *rawView {
	conn, theirs := net.Pipe()
	v := &rawView{conn: conn, shown: make(chan struct{}, 1), closes: "{}"}
	go h.Companion.Attach(theirs)
	initialized := make(chan struct{})
	go func() {
		in := bufio.NewReaderSize(conn, 64<<10)
		for {
			head, err := in.ReadSlice('\n')
			head = bytes.Clone(head[:min(len(head), 300)])
			for err == bufio.ErrBufferFull {
				_, err = in.ReadSlice('\n')
			}
			if err != nil {
				return
			}
			var id, method string
			for _, m := range messageHead.FindAllSubmatch(head, -1) {
				id, method = id+string(m[1]), method+string(m[2])
			}
			switch method {
			case "":
				if id == "1" {
					close(initialized)
				}
			case "diff/open":
				v.answer(id, "{}")
				v.shown <- struct{}{}
			case "diff/close":
				v.answer(id, v.closes)
			}
		}
	}()
	fmt.Fprintln(conn, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":1,"diff":true,`+
		`"client":{"name":"raw","version":"1"},"editor":{"name":"raw","displayName":"Raw"}}}`)
	<-initialized
	b.Cleanup(func() { conn.Close() })
	return v
}

func (v *rawView) answer(id, result string) {
	fmt.Fprintf(v.conn, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
}

// An httpAgent sends what Gemini CLI sends, and does not decode the answers.
type httpAgent struct {
	b       *testing.B
	h       *Host
	session string
}

func (a *httpAgent) post(body string) []byte {
	req, err := http.NewRequest("POST", fmt.Sprintf("http://127.0.0.1:%d/mcp", a.h.Port()), strings.NewReader(body))
	if err != nil {
		a.b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.h.Token())
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if a.session != "" {
		req.Header.Set("Mcp-Session-Id", a.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-06-18")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.b.Fatal(err)
	}
	defer res.Body.Close()
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		a.session = id
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1000))
	if err != nil || res.StatusCode/100 != 2 || bytes.Contains(answer, []byte(`"isError":true`)) {
		a.b.Fatalf("%d: %.300s, %v", res.StatusCode, answer, err)
	}
	io.Copy(io.Discard, res.Body)
	return answer
}

const initializeCall = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
	`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

func call(id int, tool string, args any) string {
	data, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args},
	})
	if err != nil {
		panic(err)
	}
	return string(data)
}

// A measurement compares what a benchmark does with a plain json.Unmarshal of the same
// message in the same run.
type measurement struct {
	b           *testing.B
	message     []byte
	plain, took time.Duration // the shortest
	during      uint64        // allocated bytes
	n           uint64
}

func (m *measurement) run(work func()) {
	var v struct {
		Params struct {
			Arguments struct {
				FilePath    string
				NewContent  string
				NewContents string `json:"new_file_contents"`
			}
		}
		Result struct{ Content string }
	}
	start := time.Now()
	if err := json.Unmarshal(m.message, &v); err != nil {
		m.b.Fatal(err)
	}
	if d := time.Since(start); m.plain == 0 || d < m.plain {
		m.plain = d
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	before := stats.TotalAlloc
	start = time.Now()
	work()
	if d := time.Since(start); m.took == 0 || d < m.took {
		m.took = d
	}
	runtime.ReadMemStats(&stats)
	m.during += stats.TotalAlloc - before
	m.n++
}

func (m *measurement) report() {
	m.b.ReportMetric(float64(m.took)/float64(m.plain), "x-unmarshal")
	m.b.ReportMetric(float64(m.during)/float64(m.n)/float64(len(bigText)), "x-text-allocated")
	m.b.ReportMetric(float64(m.took.Microseconds())/1000, "ms-best")
	m.b.ReportMetric(float64(m.plain.Microseconds())/1000, "ms-unmarshal")
}

func benchHost(b *testing.B, original string) (h *Host, path string) {
	cfg := newConfig(b)
	if err := os.Mkdir(filepath.Join(os.Getenv("HOME"), ".claude"), 0o700); err != nil { // its user has Claude Code
		b.Fatal(err)
	}
	h, err := Start(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(h.Close)
	path = filepath.Join(cfg.Roots[0], "file.go")
	if err := os.WriteFile(path, []byte(original), 0o600); err != nil {
		b.Fatal(err)
	}
	return h, path
}

// BenchmarkOpenDiff measures openDiff of 5 MB, until the view has read it and the agent
// has its answer.
func BenchmarkOpenDiff(b *testing.B) {
	for name, original := range map[string]string{"small": "package p\n", "large": strings.ToUpper(bigText)} {
		b.Run("gemini/"+name, func(b *testing.B) {
			h, path := benchHost(b, original)
			v := newRawView(b, h)
			a := &httpAgent{b: b, h: h}
			a.post(initializeCall)
			a.post(initialized)
			open := call(3, "openDiff", map[string]any{"filePath": path, "newContent": bigText})
			m := measurement{b: b, message: []byte(open)}
			for b.Loop() {
				m.run(func() {
					a.post(open)
					<-v.shown
				})
				a.post(call(4, "closeDiff", map[string]any{"filePath": path}))
			}
			m.report()
		})
		b.Run("claude/"+name, func(b *testing.B) {
			h, path := benchHost(b, original)
			v := newRawView(b, h)
			a := dialClaude(b)
			args := map[string]any{"old_file_path": path, "new_file_path": path, "new_file_contents": bigText, "tab_name": "t"}
			m := measurement{b: b}
			id := 1
			for b.Loop() {
				id += 2
				open := call(id, "openDiff", args)
				m.message = []byte(open)
				m.run(func() {
					a.write(open)
					<-v.shown
				})
				a.write(call(id+1, "close_tab", map[string]any{"tab_name": "t"}))
				a.answers(id, id+1)
			}
			m.report()
		})
	}
}

// BenchmarkCloseDiff measures closeDiff of 5 MB that the user has edited, until the agent
// has the text.
func BenchmarkCloseDiff(b *testing.B) {
	h, path := benchHost(b, "package p\n")
	v := newRawView(b, h)
	edited, err := json.Marshal(map[string]string{"content": bigText + "edited"})
	if err != nil {
		b.Fatal(err)
	}
	v.closes = string(edited)
	a := &httpAgent{b: b, h: h}
	a.post(initializeCall)
	a.post(initialized)
	open := call(3, "openDiff", map[string]any{"filePath": path, "newContent": bigText})
	m := measurement{b: b, message: []byte(`{"result":` + v.closes + `}`)}
	for b.Loop() {
		a.post(open)
		<-v.shown
		m.run(func() {
			if answer := a.post(call(4, "closeDiff", map[string]any{"filePath": path})); !bytes.Contains(answer, []byte("a line of")) {
				b.Fatalf("closeDiff answers %.300s", answer)
			}
		})
	}
	m.report()
}

// A wsAgent sends what Claude Code sends.
type wsAgent struct {
	b  *testing.B
	ws *websocket.Conn
}

func dialClaude(b *testing.B) *wsAgent {
	dir := filepath.Join(os.Getenv("HOME"), ".claude", "ide")
	locks := claudeide.Find(dir)
	for deadline := time.Now().Add(time.Minute); len(locks) == 0; locks = claudeide.Find(dir) {
		if time.Now().After(deadline) {
			b.Fatal("there is no lock file")
		}
		time.Sleep(10 * time.Millisecond)
	}
	ws, _, err := websocket.Dial(context.Background(), "ws://127.0.0.1:"+strconv.Itoa(locks[0].Port), &websocket.DialOptions{
		Subprotocols: []string{"mcp"}, HTTPHeader: http.Header{"X-Claude-Code-Ide-Authorization": {locks[0].AuthToken}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ws.CloseNow() })
	ws.SetReadLimit(-1)
	a := &wsAgent{b, ws}
	a.write(initializeCall)
	a.write(initialized)
	a.answers(1)
	return a
}

func (a *wsAgent) write(message string) {
	if err := a.ws.Write(context.Background(), websocket.MessageText, []byte(message)); err != nil {
		a.b.Fatal(err)
	}
}

// answers waits for the answers to the requests.
func (a *wsAgent) answers(ids ...int) {
	for left := len(ids); left > 0; {
		_, data, err := a.ws.Read(context.Background())
		if err != nil {
			a.b.Fatal(err)
		}
		var m struct{ ID int }
		if json.Unmarshal(data, &m) == nil && m.ID != 0 {
			left--
		}
	}
}
