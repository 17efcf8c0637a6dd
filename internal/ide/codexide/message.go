package codexide

import "encoding/json"

// Types of a message.
const (
	typeRequest   = "request"
	typeResponse  = "response"
	typeBroadcast = "broadcast"
	typeSuccess   = "success" // of a result
)

// Methods of a request. Codex CLI sends methodContext with each prompt; older releases
// send methodInitialize first, on the same connection. methodCandidate is between
// companions.
const (
	methodInitialize = "initialize"
	methodContext    = "ide-context"
	methodCandidate  = "pollux/candidate"
)

// Errors of a response. Codex CLI tells its user what each one means.
const (
	errNoClient  = "no-client-found"
	errNoHandler = "no-handler-for-request"
)

const (
	// self names the companion in its answers.
	self = "pollux"
	// codexTUI is the sender of Codex CLI's requests.
	codexTUI = "codex-tui"
	// doctor is the sender of the requests of [Ask], which is not an agent.
	doctor = "pollux-doctor"
	// initializing is the sender of methodInitialize, which has no name yet.
	initializing = "initializing-client"
)

// Kinds of clients that send methodInitialize. An older Codex CLI says that it is a
// desktopType, as the vendor's desktop app does.
const (
	desktopType   = "desktop"
	extensionType = "vscode" // also in editors made from VS Code
)

// A request is a message from an agent or another companion.
type request struct {
	Type      string `json:"type"`
	RequestID string `json:"requestId"`
	Source    string `json:"sourceClientId"`
	Version   int    `json:"version"`
	Method    string `json:"method"`
	Params    params `json:"params"`
}

// initializes reports whether the request is the first message of that kind of client.
func (r request) initializes(clientType string) bool {
	return r.Type == typeRequest && r.RequestID != "" && r.Source == initializing && r.Version == 0 &&
		r.Method == methodInitialize && r.Params.ClientType == clientType
}

// wantsServer reports whether the request is from a program of the vendor that expects one
// of the vendor's servers here: an editor's extension, which says so first, or the desktop
// app, which later sends what an older Codex CLI never sends, under the id that it received.
func (r request) wantsServer(id string) bool {
	if r.Source == id && (r.Type == typeRequest || r.Type == typeBroadcast) {
		return r.Method != "" && r.Method != methodInitialize && r.Method != methodContext
	}
	return r.initializes(extensionType)
}

type params struct {
	// WorkspaceRoot is the agent's working directory.
	WorkspaceRoot string `json:"workspaceRoot,omitempty"`
	// ClientType is the kind of client that sends methodInitialize.
	ClientType string `json:"clientType,omitempty"`
	// Process is the agent's process, or 0 if unknown. Only a companion sends it.
	Process int `json:"polluxProcess,omitempty"`
}

// A response answers a request with a result or an error.
type response struct {
	Type       string          `json:"type"`
	RequestID  string          `json:"requestId"`
	ResultType string          `json:"resultType"`
	Method     string          `json:"method"`
	HandledBy  string          `json:"handledByClientId"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
}

func (r request) success(result any) response {
	data, err := json.Marshal(result)
	if err != nil {
		panic(err) // structs of this package
	}
	return response{
		Type: typeResponse, RequestID: r.RequestID, ResultType: typeSuccess, Method: r.Method, HandledBy: self, Result: data,
	}
}

func (r request) failure(reason string) response {
	return response{
		Type: typeResponse, RequestID: r.RequestID, ResultType: "error", Method: r.Method, HandledBy: self, Error: reason,
	}
}

// An initializeResult answers methodInitialize.
type initializeResult struct {
	ClientID string `json:"clientId"`
}

// A contextResult answers methodContext.
type contextResult struct {
	IDEContext ideContext `json:"ideContext"`
}

// An ideContext describes what the user has open. Without an active file, ActiveFile
// is nil.
type ideContext struct {
	ActiveFile *activeFile `json:"activeFile,omitempty"`
	OpenTabs   []tab       `json:"openTabs"`
}

// A tab is an open file. Path is relative to the workspace root that was asked for, if
// the root contains the file. Codex CLI sends Label and Path to its model.
type tab struct {
	Label  string `json:"label"`
	Path   string `json:"path"`
	FSPath string `json:"fsPath"`
}

// An activeFile is the file with the focus. Without a selection, Selection is the
// position of the cursor, and Selections is empty.
type activeFile struct {
	tab
	Selection  span   `json:"selection"`
	Content    string `json:"activeSelectionContent"`
	Selections []span `json:"selections"`
}

// A span has positions that count from 0.
type span struct {
	Start position `json:"start"`
	End   position `json:"end"`
}

type position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}
