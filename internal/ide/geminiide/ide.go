// Package geminiide implements the contract between Gemini CLI or Qwen Code
// and a companion (companion-spec I-III): the wire types, the MCP server with
// its sessions, and the discovery files.
//
// Optional fields are left out when unset and never null: the CLI validates
// every notification, and one null in an optional field disconnects it until the
// user types /ide enable.
package geminiide

import (
	"pollux/internal/editor"
	"pollux/internal/sys/disk"
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

// Limits of the context that the CLI keeps. The server sends no more
// (companion-spec II, "Truncation").
const (
	// MaxOpenFiles is how many files a context lists at most.
	MaxOpenFiles = 10
	// MaxSelectedText bounds a selection, in bytes of UTF-8.
	MaxSelectedText = 16 << 10
)

// A Context is the payload of ide/contextUpdate: the contract's IdeContext.
type Context struct {
	WorkspaceState *WorkspaceState `json:"workspaceState,omitempty"`
}

// A WorkspaceState lists the open files. IsTrusted is nil unless the editor
// knows it: a change to false makes the CLI ask for a restart.
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
// real CLI passes it only HOME, PATH and TERM.
type Stdio struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// RootsCapability is the experimental capability that contains the workspace's
// roots of a Pollux companion. The CLIs ignore it.
const RootsCapability = "pollux/roots"

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

// ClosedContent is the answer to closeDiff, as JSON inside its one text block.
// The contract says bare text, but the real CLI parses JSON and drops anything
// else, including the user's edits.
type ClosedContent struct {
	Content string `json:"content"`
}

// Text returns the text block's text.
func (c ClosedContent) Text() string { return disk.Text(encode(c)) }

// A DiscoveryFile is the content of the file that leads a CLI to a companion
// (companion-spec I.2). WorkspacePath joins the absolute roots with the system's
// list separator.
type DiscoveryFile struct {
	Port          int         `json:"port"`
	WorkspacePath string      `json:"workspacePath"`
	AuthToken     string      `json:"authToken"`
	IDEInfo       editor.Info `json:"ideInfo"`
	// Stdio connects a CLI that cannot dial the port.
	Stdio *Stdio `json:"stdio,omitempty"`
	// PPID is a live process; Qwen Code deletes a lock file without it.
	PPID int `json:"ppid,omitempty"`
	// Pollux is the process that wrote the file. A later start uses it to
	// recognize a stale file. The CLIs ignore it.
	Pollux int `json:"polluxPid,omitempty"`
	// Namespace identifies the container, or the host, where that process and the
	// port are visible. A container and its host may share the directory.
	Namespace string `json:"polluxNamespace,omitempty"`
}
