package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

// A faulty is a small companion that follows the contract except for one fault,
// which an argument names and the kit must find.
type faulty struct {
	fault string
	port  int

	mu       sync.Mutex
	wrote    sync.Cond // a stream has written its queue, or has ended
	sessions map[string]*session
}

type session struct {
	diffs map[string]string
	queue []string
	wake  chan bool
	live  bool
	// The stream has taken and written so many messages of queue.
	taken, written int
}

const (
	// withInput makes the companion end with its standard input, too.
	withInput = "-with-input"

	secret = "0123456789abcdef0123456789abcdef"
)

func companionMain(fault string, options ...string) {
	host := "127.0.0.1"
	if fault == "everywhere" {
		host = ""
	}
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		panic(err)
	}
	f := &faulty{fault: fault, port: l.Addr().(*net.TCPAddr).Port, sessions: make(map[string]*session)}
	f.wrote.L = &f.mu
	wd, _ := os.Getwd()
	file := map[string]any{"port": f.port, "workspacePath": wd, "authToken": secret, "ideInfo": map[string]string{"name": "faulty", "displayName": "Faulty"}}
	pid := os.Getpid()
	switch fault {
	case "elsewhere":
		file["workspacePath"] = systest.Abs("/elsewhere")
	case "everything":
		file["workspacePath"] = wd + string(os.PathListSeparator)
	case "no folder":
		file["workspacePath"] = ""
	case "short token":
		file["authToken"] = "abc"
	case "nameless":
		delete(file, "ideInfo")
	case "vscode":
		file["ideInfo"] = map[string]string{"name": "vscode", "displayName": "VS Code"}
	case "dead pid":
		pid = 1<<22 - 1
	}
	name := fmt.Sprintf("gemini-ide-server-%d-%d.json", pid, f.port)
	if fault == "other name" {
		name = fmt.Sprintf("gemini-ide-server-%d.json", pid)
	}
	dir := filepath.Join(os.Getenv("TMPDIR"), "gemini", "ide")
	if err := disk.PrivateDir(dir); err != nil {
		panic(err)
	}
	data, _ := json.Marshal(file)
	path := filepath.Join(dir, name)
	err = disk.WriteFile(path+".new", data)
	if fault == "readable" {
		err = errors.Join(err, systest.Share(path+".new"))
	}
	if err := errors.Join(err, os.Rename(path+".new", path)); err != nil {
		panic(err)
	}
	server := &http.Server{Handler: f}
	go server.Serve(l)
	end := make(chan os.Signal, 1)
	signal.Notify(end, proc.TerminationSignals...)
	if slices.Contains(options, withInput) {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			end <- os.Interrupt
		}()
	}
	<-end
	if fault == "stays" {
		select {}
	}
	if fault != "leaves its file" {
		os.Remove(path)
	}
	if fault == "breaks streams" {
		os.Exit(0)
	}
	f.mu.Lock()
	for id, s := range f.sessions {
		close(s.wake)
		delete(f.sessions, id)
	}
	f.mu.Unlock()
	server.Shutdown(context.Background())
}

// launcherMain leaves a process behind that is not in its parent's group and has its
// standard error.
func launcherMain(addressFile string, _ ...string) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, "left", addressFile)
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	if _, err := proc.StartDetached(cmd); err != nil {
		panic(err)
	}
	r.Read(make([]byte, 1))
}

// leftMain waits for a connection to the address that it writes to a file.
func leftMain(addressFile string, _ ...string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = os.WriteFile(addressFile, []byte(l.Addr().String()), 0o600)
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("listens")
	l.Accept()
}

// do asks the companion whose temporary directory that is to act as if the user did something.
func do(tmp, what, file, text string) error {
	found, _ := filepath.Glob(filepath.Join(tmp, "gemini", "ide", "*.json"))
	if len(found) == 0 {
		return errors.New("no companion in " + tmp)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	var at struct{ Port int }
	json.Unmarshal(data, &at)
	res, err := http.PostForm(fmt.Sprintf("http://127.0.0.1:%d/do", at.Port), url.Values{"what": {what}, "file": {file}, "text": {text}})
	if err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/do" {
		f.user(r.FormValue("what"), r.FormValue("file"), r.FormValue("text"))
		return
	}
	refuse := func(fault string, wrong bool, status int) bool {
		if wrong && f.fault != fault {
			http.Error(w, "", status)
			return true
		}
		return false
	}
	id := r.Header.Get("Mcp-Session-Id")
	authorized := r.Header.Get("Authorization") == "Bearer "+secret
	switch {
	case f.fault == "short token":
		authorized = r.Header.Get("Authorization") == "Bearer abc"
	case f.fault == "any token":
		authorized = r.Header.Get("Authorization") != ""
	case f.fault == "token once":
		authorized = authorized || id != ""
	}
	if refuse("any host", !strings.HasPrefix(r.Host, "127.0.0.1"), 403) || refuse("any origin", r.Header.Get("Origin") != "", 403) || refuse("no token", !authorized, 401) {
		return
	}
	f.mu.Lock()
	s := f.sessions[id]
	f.mu.Unlock()
	if s == nil && id != "" && refuse("any session", true, 404) {
		return
	}
	switch r.Method {
	case http.MethodGet:
		f.stream(w, r, s)
	case http.MethodDelete:
		w.WriteHeader(204)
	default:
		f.post(w, r, s)
	}
}

func (f *faulty) post(w http.ResponseWriter, r *http.Request, s *session) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     any
		Method string
		Params struct {
			Name      string
			Arguments map[string]any
		}
	}
	json.Unmarshal(body, &m)
	answer := func(key string, v any) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, key: v})
	}
	switch {
	case m.Method == "initialize":
		f.mu.Lock()
		id := fmt.Sprint("s", len(f.sessions))
		s = &session{diffs: make(map[string]string), wake: make(chan bool, 100)}
		switch f.fault {
		case "no first context":
		case "nulls":
			s.queue = append(s.queue, `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[],"isTrusted":null}}}`)
		case "no such file":
			s.queue = append(s.queue, `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[{"path":"Untitled-1","timestamp":1}]}}}`)
		default:
			s.queue = append(s.queue, `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[]}}}`)
		}
		f.sessions[id] = s
		f.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", id)
		answer("result", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "faulty", "version": "1"}})
	case m.Method == "notifications/initialized":
		if f.fault == "initialized is 200" {
			w.WriteHeader(200)
			return
		}
		w.WriteHeader(202)
	case m.Method == "tools/list":
		tools := []any{map[string]any{"name": "openDiff"}, map[string]any{"name": "closeDiff"}}
		if f.fault == "no closeDiff" {
			tools = tools[:1]
		}
		answer("result", map[string]any{"tools": tools})
	case m.Method == "tools/call" && s != nil:
		answer("result", f.call(s, m.Params.Name, m.Params.Arguments))
	case f.fault == "unknown is 400":
		http.Error(w, "", 400)
	default:
		answer("error", map[string]any{"code": -32601, "message": "no such method"})
	}
}

func (f *faulty) call(s *session, tool string, args map[string]any) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	failure := map[string]any{"isError": true, "content": []any{map[string]any{"type": "text", "text": "no"}}}
	path, _ := args["filePath"].(string)
	if _, strict := args["someday"]; strict && f.fault == "strict" {
		return failure
	}
	diffs := s.diffs
	if f.fault == "one for all" {
		diffs = f.sessions["s0"].diffs
	}
	if tool == "openDiff" {
		if f.fault == "no new files" {
			if _, err := os.Stat(path); err != nil {
				return failure
			}
		}
		diffs[path], _ = args["newContent"].(string)
		if f.fault == "talks" {
			return map[string]any{"content": []any{map[string]any{"type": "text", "text": "opened"}}}
		}
		return map[string]any{"content": []any{}}
	}
	text, ok := diffs[path]
	if !ok {
		if f.fault == "closes with HTTP 500" {
			panic(http.ErrAbortHandler)
		}
		return failure
	}
	delete(diffs, path)
	if f.fault == "rejects at close" {
		s.say(`{"method":"ide/diffRejected","params":{"filePath":%s}}`, path)
		// It comes before the answer, which the kit waits for.
		for all := s.taken + len(s.queue); s.live && s.written < all; {
			f.wrote.Wait()
		}
	}
	answer, _ := json.Marshal(map[string]string{"content": text})
	switch f.fault {
	case "bare text":
		answer = []byte(text)
	case "closes with nothing":
		return map[string]any{"content": []any{}}
	}
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": string(answer)}}}
}

// say queues a notification with texts in it.
func (s *session) say(format string, texts ...string) {
	args := make([]any, len(texts))
	for i, t := range texts {
		b, _ := json.Marshal(t)
		args[i] = b
	}
	s.queue = append(s.queue, fmt.Sprintf(format, args...))
	s.wake <- true
}

// user acts as a user does, on the diffs of all sessions.
func (f *faulty) user(what, path, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sessions {
		if what == "open" {
			if f.fault == "no context" {
				continue
			}
			line := 1
			if f.fault == "counts from 0" {
				line = 0
			}
			other := filepath.Join(filepath.Dir(path), "one.txt")
			rest, _ := json.Marshal([]any{map[string]any{"path": path, "timestamp": 2000, "isActive": true, "cursor": map[string]int{"line": line, "character": 1}}})
			if path != other {
				stamp := 1000
				if f.fault == "old files are newest" {
					stamp = 3000
				}
				rest, _ = json.Marshal([]any{
					map[string]any{"path": path, "timestamp": 2000, "isActive": true, "cursor": map[string]int{"line": 1, "character": 1}},
					map[string]any{"path": other, "timestamp": stamp},
				})
			}
			s.queue = append(s.queue, `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":`+string(rest)+`}}}`)
			s.wake <- true
			continue
		}
		diffs := s.diffs
		if f.fault == "one for all" {
			diffs = f.sessions["s0"].diffs
		}
		proposed, ok := diffs[path]
		if !ok {
			continue
		}
		switch what {
		case "edit":
			if f.fault != "loses edits" {
				diffs[path] = text
			}
			continue
		case "accept":
			switch f.fault {
			case "trims":
				proposed = strings.TrimSpace(proposed) + "\n"
			case "other path":
				path = filepath.Join(filepath.Dir(path), ".", "x", "..", filepath.Base(path)) + "/"
			case "writes":
				os.WriteFile(path, []byte(proposed), 0o644)
			}
			if f.fault == "loses outcomes" && !s.live {
				break
			}
			if f.fault == "accepts in silence" {
				break
			}
			s.say(`{"method":"ide/diffAccepted","params":{"filePath":%s,"content":%s}}`, path, proposed)
			if f.fault == "says it twice" {
				s.say(`{"method":"ide/diffAccepted","params":{"filePath":%s,"content":%s}}`, path, proposed)
			}
		case "reject":
			method := "ide/diffRejected"
			if f.fault == "diffClosed" {
				method = "ide/diffClosed"
			}
			s.say(`{"method":"`+method+`","params":{"filePath":%s}}`, path)
		}
		if f.fault != "one for all" { // which tells all sessions
			delete(diffs, path)
		}
	}
}

func (f *faulty) stream(w http.ResponseWriter, r *http.Request, s *session) {
	if s == nil {
		http.Error(w, "", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	f.mu.Lock()
	s.live = true
	f.mu.Unlock()
	for open := true; ; {
		f.mu.Lock()
		if !open || r.Context().Err() != nil {
			s.live = false
			f.wrote.Broadcast()
			f.mu.Unlock()
			return
		}
		queue := s.queue
		s.queue, s.taken = nil, s.taken+len(s.queue)
		f.mu.Unlock()
		for _, m := range queue {
			fmt.Fprintf(w, "data: %s\n\n", `{"jsonrpc":"2.0",`+m[1:])
		}
		w.(http.Flusher).Flush()
		f.mu.Lock()
		s.written += len(queue)
		f.wrote.Broadcast()
		f.mu.Unlock()
		select {
		case _, open = <-s.wake:
		case <-r.Context().Done():
		}
	}
}
