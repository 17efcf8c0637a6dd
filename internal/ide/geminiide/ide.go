// Package geminiide implements the contract between Gemini CLI or Qwen Code
// and a companion (companion-spec I-III): the wire types, the MCP server with
// its sessions, the discovery files, and a replay of the CLI's search for them.
//
// Optional fields are left out when unset and never null: the CLI validates
// every notification, and one null in an optional field disconnects it for good.
package geminiide

import (
	"encoding/json"

	"pollux/internal/editor"
)

// Names of the tools a companion registers (companion-spec III).
const (
	ToolOpenDiff  = "openDiff"
	ToolCloseDiff = "closeDiff"
)

// Methods of the notifications that a companion sends (companion-spec II, III).
const (
	MethodContextUpdate = "ide/contextUpdate"
	MethodDiffAccepted  = "ide/diffAccepted"
	MethodDiffRejected  = "ide/diffRejected"
)

// Limits of the context that the CLI keeps; what is beyond them is not sent
// (companion-spec II, "Truncation").
const (
	// MaxOpenFiles is how many files a context lists at the most.
	MaxOpenFiles = 10
	// MaxSelectedText is the size of a selection in bytes of UTF-8.
	MaxSelectedText = 16 << 10
)

// A Context is the payload of ide/contextUpdate: the contract's IdeContext.
type Context struct {
	WorkspaceState *WorkspaceState `json:"workspaceState,omitempty"`
}

// A WorkspaceState is what the user has open. IsTrusted is nil unless the
// editor really knows: a change to false makes the CLI ask for a restart.
type WorkspaceState struct {
	OpenFiles []File `json:"openFiles"`
	IsTrusted *bool  `json:"isTrusted,omitempty"`
}

// A File is one open file. Timestamp is when it was last focused, in
// milliseconds since the Unix epoch; Cursor and SelectedText are set for the
// active file only.
type File struct {
	Path         string         `json:"path"`
	Timestamp    int64          `json:"timestamp"`
	IsActive     bool           `json:"isActive,omitempty"`
	Cursor       *editor.Cursor `json:"cursor,omitempty"`
	SelectedText string         `json:"selectedText,omitempty"`
}

// A Stdio is a command that speaks MCP on its standard input and output. The
// real CLI gives it HOME, PATH and TERM and nothing else of its environment.
type Stdio struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// RootsCapability is the experimental capability by which a Pollux companion
// tells its workspace's roots. The CLIs pass over it.
const RootsCapability = "pollux/roots"

// Realm is the authentication realm that a Pollux companion names to who has
// no token.
const Realm = `Bearer realm="pollux"`

// OpenDiffRequest holds the arguments of the openDiff tool. The real CLI
// sends FilePath with symlinks resolved, and NewContent with LF line ends
// whatever the file has; it restores CRLF itself when it writes.
type OpenDiffRequest struct {
	FilePath   string `json:"filePath"`
	NewContent string `json:"newContent"`
	// Binary, if not empty, says why NewContent is not text that can go through
	// an editor and come back unchanged. It is not on the wire.
	Binary string `json:"-"`
}

// CloseDiffRequest holds the arguments of the closeDiff tool.
// SuppressNotification is not in the contract; the real CLI sends it when the
// user has answered in the terminal.
type CloseDiffRequest struct {
	FilePath             string `json:"filePath"`
	SuppressNotification bool   `json:"suppressNotification,omitempty"`
}

// DiffAccepted is the payload of ide/diffAccepted. FilePath is the path of the
// request, byte for byte.
type DiffAccepted struct {
	FilePath string `json:"filePath"`
	Content  string `json:"content"`
}

// DiffRejected is the payload of ide/diffRejected.
type DiffRejected struct {
	FilePath string `json:"filePath"`
}

// ClosedContent is what closeDiff answers, as JSON inside its one text block.
// The contract says bare text; the real CLI parses JSON and drops anything
// else, the user's edits with it.
type ClosedContent struct {
	Content string `json:"content"`
}

// Text returns the text block's text.
func (c ClosedContent) Text() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // a struct of one string
	}
	return string(b)
}

// A DiscoveryFile is the content of the file by which a CLI finds a companion
// (companion-spec I.2). WorkspacePath joins the absolute roots with the
// system's list separator.
type DiscoveryFile struct {
	Port          int         `json:"port"`
	WorkspacePath string      `json:"workspacePath"`
	AuthToken     string      `json:"authToken"`
	IDEInfo       editor.Info `json:"ideInfo"`
	// Stdio is how a CLI that cannot dial the port reaches the companion.
	Stdio *Stdio `json:"stdio,omitempty"`
	// PPID is a live process; Qwen Code deletes a lock file without it.
	PPID int `json:"ppid,omitempty"`
	// Pollux is the process that wrote the file: how a later start knows a
	// stale file of ours. The CLIs ignore it.
	Pollux int `json:"polluxPid,omitempty"`
	// Namespace is where that process and the port are to be seen: a container
	// and its host may share the directory, and neither sees the other's.
	Namespace string `json:"polluxNamespace,omitempty"`
}
