// Package editor is the protocol between Pollux and whatever shows the user's
// files: an editor's plugin, the browser page, a terminal view, a shell hook.
// docs/PROTOCOL.md describes it for authors of plugins; this package has its
// messages, its framing, and the client's half.
//
// The protocol is JSON-RPC 2.0. It is small and snapshot-based: a client says
// what is, not what changed, and Pollux keeps all state. Either side ignores
// notifications and fields that it does not know.
package editor

// ProtocolVersion goes up when a client has to change.
const ProtocolVersion = 1

// Methods a client calls. Those marked (n) are notifications.
const (
	MethodInitialize    = "initialize"
	MethodContextUpdate = "context/update" // (n)
	MethodContextEvent  = "context/event"
	MethodDiffEdit      = "diff/edit" // (n)
	MethodDiffAccept    = "diff/accept"
	MethodDiffReject    = "diff/reject"
	MethodDiffSave      = "diff/save"
	MethodDiffList      = "diff/list"
	MethodDiffHunks     = "diff/hunks"
	MethodDiffHunk      = "diff/hunk"
	MethodPrompt        = "prompt"
	MethodStatus        = "status"
	MethodReviewLink    = "review/link"
)

// Methods Pollux calls.
const (
	MethodDiffOpen    = "diff/open"
	MethodDiffClose   = "diff/close"
	MethodDiffChanged = "diff/changed" // (n)
	MethodClients     = "clients"      // (n)
	MethodEnv         = "env"          // (n)
	MethodMessage     = "message"      // (n)
	MethodFileChanged = "file/changed" // (n)
)

// InitializeParams is the first thing a client says.
type InitializeParams struct {
	Protocol int `json:"protocol"`
	// Client is the program that speaks: the plugin, not the editor.
	Client Implementation `json:"client"`
	// Editor is what the CLI's user is told; it must not be the name of an
	// editor for which the CLI has an installer of its own.
	Editor Info `json:"editor"`
	// PID is the editor's process; the parent of `pollux ide` if left out.
	PID int `json:"pid,omitempty"`
	// Roots are the workspace's directories, absolute.
	Roots   []string `json:"roots,omitempty"`
	Trusted *bool    `json:"trusted,omitempty"`
	// Diff says that the client shows diffs.
	Diff bool `json:"diff,omitempty"`
	// Settings apply to the whole companion and count only in the message that
	// starts it.
	Settings Settings `json:"settings,omitzero"`
}

// Settings are the user's choices, made in the editor's configuration.
type Settings struct {
	// IncludeIgnored tells the CLI also of files that .gitignore or
	// .geminiignore exclude, and of those that look like secrets.
	IncludeIgnored bool `json:"includeIgnored,omitempty"`
	// ReviewPage shows diffs in the browser page when no client shows them.
	ReviewPage bool `json:"reviewPage,omitempty"`
	// Port and Token, of a companion that crashed, let CLIs that know them
	// connect again.
	Port  int    `json:"port,omitempty"`
	Token string `json:"token,omitempty"`
}

// An Implementation names a program.
type Implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// InitializeResult answers it.
type InitializeResult struct {
	Protocol int            `json:"protocol"`
	Server   Implementation `json:"server"`
	PID      int            `json:"pid"`
	Port     int            `json:"port"`
	Token    string         `json:"token,omitempty"`
	// Env is what the editor sets in its own environment, so that the CLI in
	// its terminals finds this companion.
	Env map[string]string `json:"env"`
}

// A Snapshot is all that the editor has open now.
type Snapshot struct {
	Files []File `json:"files"`
	// Roots and Trusted, where given, replace those of initialize.
	Roots   []string `json:"roots,omitempty"`
	Trusted *bool    `json:"trusted,omitempty"`
}

// A File is one open file of a [Snapshot].
type File struct {
	// Path is absolute. Buffers that are no file on disk are left out here or,
	// at the latest, by Pollux.
	Path string `json:"path"`
	// Focused is when the file last had the focus, in milliseconds since the
	// Unix epoch; 0 is never.
	Focused int64 `json:"focused,omitempty"`
	// Active marks the one file that has the focus, or had it before the focus
	// went to a terminal.
	Active    bool    `json:"active,omitempty"`
	Cursor    *Cursor `json:"cursor,omitempty"`
	Selection string  `json:"selection,omitempty"`
}

// A ContextEvent is for clients that can run a shell command and nothing more;
// Pollux keeps the snapshot for them, by Source.
type ContextEvent struct {
	// Source tells one such editor from another.
	Source string `json:"source"`
	// Event is "focus", "close", or "quit", which forgets the source.
	Event     string  `json:"event"`
	Path      string  `json:"path,omitempty"`
	Cursor    *Cursor `json:"cursor,omitempty"`
	Selection string  `json:"selection,omitempty"`
}

// States of a [Diff] as a client sees it.
const (
	StateOpen     = "open"
	StateOrphaned = "orphaned" // the CLI is gone; Save or Reject
	// StateAccepted: the user has accepted it, and the CLI has to write the
	// file. Nothing is left to decide.
	StateAccepted = "accepted"
)

// A Diff is a proposed change that waits for the user.
type Diff struct {
	ID    string `json:"id"`
	Path  string `json:"path"`
	State string `json:"state"`
	// Original is the file's text now; where the file ends all its lines with
	// CRLF and the proposal with LF, Original is given with LF too, and EOL
	// says crlf. "" where Exists is false.
	Original string `json:"original"`
	Exists   bool   `json:"exists"`
	// EOL is how the file on disk ends its lines: lf, crlf, mixed, or "".
	EOL string `json:"eol,omitempty"`
	// Proposed is what the CLI proposes, Content what it has become by the
	// user's edits so far, in this client or another; nil for no edits.
	Proposed string  `json:"proposed"`
	Content  *string `json:"content,omitempty"`
	// Client is the agent's name and version, such as "Gemini CLI 0.61.0".
	Client string `json:"client"`
	// Agent names the agent that proposed the change, such as "Gemini CLI".
	Agent string `json:"agent"`
	// Opened is in milliseconds since the Unix epoch.
	Opened int64 `json:"opened"`
}

// Text is the diff's text with the edits made so far.
func (d Diff) Text() string {
	if d.Content != nil {
		return *d.Content
	}
	return d.Proposed
}

// Reasons of a [DiffClose].
const (
	ReasonAccepted   = "accepted"  // the file holds the accepted text
	ReasonUnwritten  = "unwritten" // accepted, but the file does not hold the text
	ReasonRejected   = "rejected"
	ReasonSuperseded = "superseded"
	ReasonClosed     = "closed" // answered in the CLI
	ReasonSaved      = "saved"
	ReasonFailed     = "failed"
)

// A DiffClose tells a client to close its view.
type DiffClose struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// DiffCloseResult is the client's answer. Content, if given, is the text as
// the user left it: the edits of the last moment.
type DiffCloseResult struct {
	Content *string `json:"content,omitempty"`
}

// A DiffChange is the text of an open diff: from a client that edits
// (diff/edit) to the others (diff/changed). State, set by Pollux only, is the
// state the diff is in now.
type DiffChange struct {
	ID      string  `json:"id"`
	Content *string `json:"content,omitempty"`
	State   string  `json:"state,omitempty"`
}

// A DiffAccept accepts a diff with a content. Overwrite, the version that an
// earlier answer with status conflict gave, says that the user has seen what
// the file holds now and accepts anyway.
type DiffAccept struct {
	ID        string `json:"id"`
	Content   string `json:"content"`
	Overwrite string `json:"overwrite,omitempty"`
}

// Statuses of a [DiffAcceptResult].
const (
	StatusAccepted = "accepted"
	// StatusConflict: the file is no longer what the diff was made against.
	// Nothing was sent; Disk is what it holds.
	StatusConflict = "conflict"
	// StatusEmpty: the CLI takes an empty content for none and would write its
	// own proposal. Nothing was sent.
	StatusEmpty = "empty"
)

// DiffAcceptResult answers diff/accept and diff/save.
type DiffAcceptResult struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
	Disk    string `json:"disk,omitempty"`
	Version string `json:"version,omitempty"`
}

// A DiffID names a diff.
type DiffID struct {
	ID string `json:"id"`
}

// A DiffList answers diff/list, the oldest diff first.
type DiffList struct {
	Diffs []Diff `json:"diffs"`
}

// A DiffText is the text of a diff as the client shows it now.
type DiffText struct {
	ID      string `json:"id"`
	Content string `json:"content"`
}

// A DiffHunks answers diff/hunks.
type DiffHunks struct {
	Hunks []DiffHunk `json:"hunks"`
}

// A DiffHunk is one run of lines in which the text that was sent differs from
// the original. Lines count from 1.
type DiffHunk struct {
	// Line is the first of Lines lines of the text. If Lines is 0, lines are
	// only missing, before Line.
	Line  int `json:"line"`
	Lines int `json:"lines"`
	// Original and OriginalLines are the same for the original.
	Original      int `json:"original"`
	OriginalLines int `json:"originalLines"`
	// Removed are the original's lines, without line feeds.
	Removed []string `json:"removed"`
}

// What a [DiffTake] takes.
const (
	TakeOriginal = "original" // undo the change
	TakeProposed = "proposed" // put the CLI's change back
)

// A DiffTake asks for the hunk at a line of the text to be as it is in the
// original or in the proposal.
type DiffTake struct {
	DiffText
	Line int    `json:"line"`
	Take string `json:"take"`
}

// A DiffEdit is the change to the text that does it: Lines lines from Line on
// become Text.
type DiffEdit struct {
	Line  int    `json:"line"`
	Lines int    `json:"lines"`
	Text  string `json:"text"`
	// EOL says whether the whole text ends in a line feed then.
	EOL bool `json:"eol"`
}

// A PromptParams asks for what to type into the CLI's terminal to ask about a
// file. All fields may be left out.
type PromptParams struct {
	Path string `json:"path,omitempty"`
	// Line and EndLine, from 1, are the selected lines; 0 for none.
	Line     int       `json:"line,omitempty"`
	EndLine  int       `json:"endLine,omitempty"`
	Question string    `json:"question,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
}

// A Problem is what the editor knows to be wrong with the file.
type Problem struct {
	Line     int    `json:"line"`
	Severity string `json:"severity,omitempty"`
	Message  string `json:"message"`
	Source   string `json:"source,omitempty"`
}

// A Prompt answers it. Paste is Text as a terminal is given pasted text, and
// Submit says that Enter is to follow, at least 100 ms later: the CLI takes
// one that comes at once for a part of what is pasted.
type Prompt struct {
	Text   string `json:"text"`
	Paste  string `json:"paste"`
	Submit bool   `json:"submit"`
	// Ready is in what the CLI shows once it reads its keyboard.
	Ready string `json:"ready"`
}

// A FileChanged tells that a file of the editor's has changed on disk: read it
// again, unless the user has unsaved changes.
type FileChanged struct {
	Path string `json:"path"`
}

// A Status describes a running companion.
type Status struct {
	PID     int      `json:"pid"`
	Version string   `json:"version"`
	Port    int      `json:"port"`
	Editor  Info     `json:"editor"`
	Roots   []string `json:"roots"`
	// Started is in milliseconds since the Unix epoch.
	Started int64        `json:"started"`
	Clients []CLI        `json:"clients"`
	Diffs   []DiffStatus `json:"diffs"`
	// Surfaces names the clients that show diffs now.
	Surfaces []string `json:"surfaces"`
	Page     bool     `json:"page"`
	Files    int      `json:"files"`
}

// A CLI is one connected CLI.
type CLI struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Transport string `json:"transport"`
	Since     int64  `json:"since"`
}

// A DiffStatus is a diff without its text.
type DiffStatus struct {
	ID    string `json:"id"`
	Path  string `json:"path"`
	State string `json:"state"`
	// Notice, if given, says why the diff cannot be displayed. No client shows
	// such a diff, and only the terminal can answer it.
	Notice string `json:"notice,omitempty"`
	Client string `json:"client"`
	// Agent names the agent that proposed the change, such as "Gemini CLI".
	Agent  string `json:"agent"`
	Opened int64  `json:"opened"`
}

// Clients tells who is connected.
type Clients struct {
	Clients []CLI `json:"clients"`
}

// Env tells that the variables of [InitializeResult] have changed.
type Env struct {
	Env map[string]string `json:"env"`
}

// A Message is for the user.
type Message struct {
	// Level is "info", "warning" or "error".
	Level string `json:"level"`
	Text  string `json:"text"`
}

// A Link opens the review page once.
type Link struct {
	URL string `json:"url"`
}
