// Package fakemodel serves a scripted replacement for the model APIs of Google,
// Anthropic and OpenAI on loopback, so that the demo and the tests run the real
// agents offline and without a key. One script answers in all dialects.
//
// GOOGLE_GEMINI_BASE_URL points Gemini CLI at it, and ANTHROPIC_BASE_URL Claude Code.
// Codex CLI and opencode name the server in their configuration, with the path /v1.
package fakemodel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Request is a request from the CLI to the model.
type Request struct {
	Model string
	// Key is the API key that Gemini CLI sent.
	Key string
	// Method is the API method: generateContent, streamGenerateContent, countTokens;
	// messages; chat/completions, responses.
	Method string
	// Prompt is the last text of the user; Text is all text of the request.
	Prompt, Text string
	// System is the system instruction.
	System string
	// Tools are the names of functions and built-in tools that the CLI offers. Codex CLI
	// offers a namespace for each MCP server: its name and, after a dot, that of each tool.
	Tools []string
	// Step is the number of tool results since the user's last text.
	Step int
	// Results are the tool results in this request.
	Results []Result
	// Images are the MIME types of all files in the request.
	Images []string
	// JSON is set when the agent asks for JSON, as Gemini CLI's own classifiers do. It is
	// the schema, or an empty object.
	JSON json.RawMessage
}

// A Result is a tool result that the CLI sent to the model.
type Result struct {
	Name     string
	Response json.RawMessage
}

// A Part is a part of a reply: text, a thought, or a function call. Delay is
// the time to wait before it is sent.
type Part struct {
	Text    string
	Thought bool
	Call    string
	Args    map[string]any
	Delay   time.Duration
}

// A Reply is a reply from the model. With Status and Message it is an error.
// With Hang, the server accepts the request and never replies.
type Reply struct {
	Parts   []Part
	Finish  string // default: STOP
	Status  int
	Message string
	// PerDay makes a 429 report the daily quota, which the CLI does not retry.
	PerDay bool
	// Reset makes a 429 say that the account's quota is used up for this time, as Google
	// tells users who have signed in. The CLI does not retry it.
	Reset time.Duration
	Hang  bool
}

// Say returns a reply with one text.
func Say(text string) Reply { return Reply{Parts: []Part{{Text: text}}} }

// CallTool returns a reply that calls a function.
func CallTool(name string, args map[string]any) Reply {
	return Reply{Parts: []Part{{Call: name, Args: args}}}
}

// A Script replies to requests. Several goroutines call it.
type Script func(Request) Reply

// A Server is a running fake model.
type Server struct {
	URL    string
	http   *http.Server
	script Script
	done   chan struct{}

	mu       sync.Mutex
	requests []Request
	arrived  chan struct{} // closed and replaced at each request
}

// Start serves the script on a loopback port.
func Start(script Script) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		URL: "http://" + l.Addr().String(), script: script,
		done: make(chan struct{}), arrived: make(chan struct{}),
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		s.http.Serve(l)
	}()
	return s, nil
}

// Close stops the server and the replies in progress.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// Requests returns the requests so far that belong to the conversation. It
// leaves out the CLI's own requests.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Wait returns the first request that matches, past or future.
func (s *Server) Wait(ctx context.Context, fits func(Request) bool) (Request, error) {
	for {
		s.mu.Lock()
		requests, arrived := s.requests, s.arrived
		s.mu.Unlock()
		for _, r := range requests {
			if fits(r) {
				return r, nil
			}
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("no such request among %d: %w", len(requests), ctx.Err())
		}
	}
}

type part struct {
	Text         string          `json:"text,omitempty"`
	FunctionCall json.RawMessage `json:"functionCall,omitempty"`
	InlineData   struct {
		MimeType string `json:"mimeType"`
	} `json:"inlineData,omitzero"`
	FunctionResponse *struct {
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
	} `json:"functionResponse,omitempty"`
}

type content struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

func (c content) text() string {
	var b strings.Builder
	for _, p := range c.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// google is the API of Gemini CLI.
var google = dialect{parse: parseGoogle, fail: failGoogle, write: writeGoogle, own: ownOfGemini}

func parseGoogle(r *http.Request, body []byte) (x exchange, err error) {
	var raw struct {
		Contents          []content `json:"contents"`
		SystemInstruction content   `json:"systemInstruction"`
		Tools             []map[string]json.RawMessage
		GenerationConfig  struct {
			ResponseMimeType   string          `json:"responseMimeType"`
			ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
		} `json:"generationConfig"`
	}
	_, name, _ := strings.Cut(r.URL.Path, "/models/")
	model, method, ok := strings.Cut(name, ":")
	if !ok {
		return x, fmt.Errorf("%w %s", errNoMethod, r.URL.Path)
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return x, err
	}
	x.Model, x.Method, x.System, x.Key = model, method, raw.SystemInstruction.text(), r.Header.Get("x-goog-api-key")
	x.stream = method == "streamGenerateContent"
	var items []item
	for _, c := range raw.Contents {
		x.Text += c.text() + "\n"
		before := len(items)
		for _, p := range c.Parts {
			if p.InlineData.MimeType != "" {
				x.Images = append(x.Images, p.InlineData.MimeType)
			}
			if f := p.FunctionResponse; f != nil {
				items = append(items, item{name: f.Name, isResult: true, result: f.Response})
			}
		}
		if len(items) == before {
			role := "user"
			if c.Role == "model" {
				role = c.Role
			}
			items = append(items, item{role: role, text: c.text()})
		}
	}
	x.converse(items)
	for _, t := range raw.Tools {
		for key, value := range t {
			var functions []named
			if key != "functionDeclarations" || json.Unmarshal(value, &functions) != nil {
				x.Tools = append(x.Tools, key)
			}
			for _, f := range functions {
				x.Tools = append(x.Tools, f.Name)
			}
		}
	}
	if raw.GenerationConfig.ResponseMimeType == "application/json" {
		x.JSON = raw.GenerationConfig.ResponseJSONSchema
		if x.JSON == nil {
			x.JSON = json.RawMessage("{}")
		}
	}
	return x, nil
}

// A dialect is the API of a vendor.
type dialect struct {
	parse func(*http.Request, []byte) (exchange, error)
	fail  func(http.ResponseWriter, Reply)
	write func(http.ResponseWriter, *http.Request, exchange, Reply)
	// own returns the reply to a request of the agent itself, which does not reach the script,
	// and false for another request.
	own func(Request) (Reply, bool)
}

var errNoMethod = errors.New("no such method")

// An exchange is a request in a dialect.
type exchange struct {
	Request
	stream bool // the reply is sent in parts
	// custom are the tools that take text instead of JSON: the argument "input".
	custom map[string]bool
}

// An item is a part of a conversation: a text, a tool's call or its result.
type item struct {
	role string // of a text
	text string
	name string // of the tool, in a call; in a result without an ID
	id   string // of the call, in a call and in a result

	isResult bool
	result   json.RawMessage
}

// named is a tool in a request.
type named struct {
	Name string `json:"name"`
}

// converse fills in the prompt, the steps since then, and the results of the last step.
func (x *exchange) converse(items []item) {
	names := make(map[string]string) // of calls, by ID
	for _, i := range items {
		if !i.isResult {
			names[i.id] = i.name
		}
	}
	inResults := false // results of calls at the same time are one step
	for _, i := range slices.Backward(items) {
		if i.role == "user" {
			x.Prompt = i.text
			break
		}
		if i.isResult {
			if !inResults {
				x.Step++
			}
			if x.Step == 1 {
				x.Results = slices.Insert(x.Results, 0, Result{cmp.Or(i.name, names[i.id]), i.result})
			}
		}
		inResults = i.isResult
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	d := google
	switch {
	case path == modelsPath:
		writeJSON(w, map[string]any{"object": "list", "data": []any{}, "models": []any{}})
		return
	case path == anthropicPath+"/count_tokens":
		writeJSON(w, map[string]any{"input_tokens": 100})
		return
	case path == chatPath:
		d = openAIChat
	case path == responsesPath:
		d = openAIResponses
	case strings.HasPrefix(path, "/v1/"):
		d = anthropic
	}
	body, err := io.ReadAll(r.Body)
	var x exchange
	if err == nil {
		x, err = d.parse(r, body)
	}
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errNoMethod) {
			status = http.StatusNotFound
		}
		d.fail(w, Reply{Status: status, Message: err.Error()})
		return
	}
	if x.Method == "countTokens" {
		writeJSON(w, map[string]any{"totalTokens": len(x.Text)/4 + 1})
		return
	}
	reply, own := d.own(x.Request)
	if !own {
		reply = s.reply(x.Request)
	}
	switch {
	case reply.Hang:
		<-r.Context().Done()
	case reply.Status != 0:
		reply.Message = cmp.Or(reply.Message, "scripted error")
		d.fail(w, reply)
	default:
		d.write(w, r, x, reply)
	}
}

// withoutTools returns the reply to a request that offers no tools: the agent asks for itself,
// such as for a title.
func withoutTools(r Request) (Reply, bool) { return Say("ok"), len(r.Tools) == 0 }

// reply records a request of the conversation and returns the script's reply.
func (s *Server) reply(r Request) Reply {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	close(s.arrived)
	s.arrived = make(chan struct{})
	s.mu.Unlock()
	return s.script(r)
}

// ownOfGemini replies to routing, and to checks that ask for JSON.
func ownOfGemini(r Request) (Reply, bool) {
	answer := "{}"
	switch schema := string(r.JSON); {
	case strings.Contains(schema, "complexity_score"):
		answer = `{"complexity_reasoning":"short","complexity_score":10}`
	case strings.Contains(schema, "model_choice"):
		answer = `{"reasoning":"short","model_choice":"flash"}`
	case strings.Contains(schema, "next_speaker"):
		answer = `{"reasoning":"done","next_speaker":"user"}`
	}
	return Say(answer), r.JSON != nil
}

// args returns the arguments of a call, not nil.
func (p Part) args() map[string]any {
	if p.Args == nil {
		return map[string]any{}
	}
	return p.Args
}

func (p Part) wire() map[string]any {
	switch {
	case p.Call != "":
		return map[string]any{"functionCall": map[string]any{"name": p.Call, "args": p.args()}}
	case p.Thought:
		return map[string]any{"text": p.Text, "thought": true}
	}
	return map[string]any{"text": p.Text}
}

func chunk(r exchange, reply Reply, parts []map[string]any, last bool) map[string]any {
	candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	out := map[string]any{"candidates": []any{candidate}, "modelVersion": r.Model, "responseId": "fake"}
	if last {
		candidate["finishReason"] = cmp.Or(reply.Finish, "STOP")
		size := 0
		for _, p := range reply.Parts {
			size += len(p.Text)
		}
		in, n := len(r.Text)/4+1, size/4+1
		out["usageMetadata"] = map[string]any{"promptTokenCount": in, "candidatesTokenCount": n, "totalTokenCount": in + n}
	}
	return out
}

// An eventStream writes server-sent events.
type eventStream struct {
	w http.ResponseWriter
	r *http.Request
}

func newEvents(w http.ResponseWriter, r *http.Request) eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	return eventStream{w, r}
}

// send sends an event. Its name may be empty.
func (e eventStream) send(name string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // a map of this package and of the script
	}
	if name != "" {
		fmt.Fprintf(e.w, "event: %s\n", name)
	}
	fmt.Fprintf(e.w, "data: %s\n\n", text)
	http.NewResponseController(e.w).Flush()
}

// pause waits before a part. It reports false if the client has gone.
func (e eventStream) pause(p Part) bool {
	if p.Delay == 0 {
		return true
	}
	select {
	case <-time.After(p.Delay):
		return true
	case <-e.r.Context().Done():
		return false
	}
}

func writeGoogle(w http.ResponseWriter, r *http.Request, x exchange, reply Reply) {
	parts := []map[string]any{}
	for _, p := range reply.Parts {
		parts = append(parts, p.wire())
	}
	if !x.stream {
		writeJSON(w, chunk(x, reply, parts, true))
		return
	}
	e := newEvents(w, r)
	if len(parts) == 0 {
		e.send("", chunk(x, reply, parts, true))
	}
	for i, p := range reply.Parts {
		if !e.pause(p) {
			return
		}
		e.send("", chunk(x, reply, parts[i:i+1], i == len(parts)-1))
	}
}

var statuses = map[int]string{
	400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
	429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE",
}

func failGoogle(w http.ResponseWriter, r Reply) {
	message := r.Message
	if r.Reset > 0 {
		message = fmt.Sprintf("You have exhausted your capacity on this model. Your quota will reset after %s.", r.Reset)
	}
	e := map[string]any{"code": r.Status, "message": message, "status": statuses[r.Status]}
	if r.Status == http.StatusTooManyRequests {
		e["details"] = []any{quotaDetails(r)}
	}
	writeError(w, r.Status, map[string]any{"error": e})
}

func writeError(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeJSON(w, v)
}

// quotaDetails says which quota is used up.
func quotaDetails(r Reply) map[string]any {
	if r.Reset > 0 {
		return map[string]any{
			"@type":  "type.googleapis.com/google.rpc.ErrorInfo",
			"reason": "QUOTA_EXHAUSTED", "domain": "cloudcode-pa.googleapis.com",
		}
	}
	per := "Minute"
	if r.PerDay {
		per = "Day"
	}
	return map[string]any{
		"@type": "type.googleapis.com/google.rpc.QuotaFailure",
		"violations": []any{map[string]any{
			"quotaId": "GenerateRequestsPer" + per + "PerProjectPerModel-FreeTier",
		}},
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
