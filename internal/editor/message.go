// Package editor implements the protocol between Pollux and the programs that
// show the user's files: an editor's plugin, the browser page, a terminal view, a
// shell hook. docs/PROTOCOL.md describes it for authors of plugins. This package
// has its messages, its framing and a client.
//
// The protocol is JSON-RPC 2.0. It is small and based on snapshots: a client
// sends its whole state, not what changed, and Pollux keeps all state. Either
// side ignores unknown notifications and fields.
package editor

import (
	"cmp"
	"fmt"
	"strings"

	"pollux/internal/termtext"
)

// ProtocolVersion increases when clients must change.
const ProtocolVersion = 1

// Methods that a client calls. Those marked (n) are notifications.
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
	MethodSend          = "send"
	MethodStatus        = "status"
	MethodReviewLink    = "review/link"

	MethodDiagnosticsChanged = "diagnostics/changed" // (n)

	MethodFileSaved      = "file/saved" // (n)
	MethodOutsideOpen    = "outside/open"
	MethodOutsideDismiss = "outside/dismiss"
)

// Methods that Pollux calls.
const (
	MethodDiffOpen    = "diff/open"
	MethodDiffClose   = "diff/close"
	MethodDiffChanged = "diff/changed" // (n)
	MethodClients     = "clients"      // (n)
	MethodEnv         = "env"          // (n)
	MethodMessage     = "message"      // (n)
	MethodFileChanged = "file/changed" // (n)
	MethodDiagnostics = "diagnostics"
	MethodOutside     = "outside" // (n)
)

// InitializeParams are the parameters of a client's first message.
type InitializeParams struct {
	Protocol int `json:"protocol"`
	// Client is the program that sends this: the plugin, not the editor.
	Client Implementation `json:"client"`
	// Editor is the name that agents show. It must not be the name of an editor
	// that an agent has its own extension for.
	Editor Info `json:"editor"`
	// PID is the editor's process; the parent of `pollux ide` if left out.
	PID int `json:"pid,omitempty"`
	// Roots are the workspace's directories, absolute.
	Roots   []string `json:"roots,omitempty"`
	Trusted *bool    `json:"trusted,omitempty"`
	// Diff is set if the client shows diffs.
	Diff bool `json:"diff,omitempty"`
	// Diagnostics is set if the client answers diagnostics.
	Diagnostics bool `json:"diagnostics,omitempty"`
	// Settings apply to the whole companion. Only the message that starts it can
	// set them.
	Settings Settings `json:"settings,omitzero"`
}

// Settings are the user's choices, made in the editor's configuration.
type Settings struct {
	// IncludeIgnored shares files that .gitignore or an agent's own ignore file
	// exclude, and those that look like secrets.
	IncludeIgnored bool `json:"includeIgnored,omitempty"`
	// ReviewPage shows diffs in the browser page when no client shows them.
	ReviewPage bool `json:"reviewPage,omitempty"`
	// Port and Token are those of a companion that crashed. Agents that know
	// them can reconnect.
	Port  int    `json:"port,omitempty"`
	Token string `json:"token,omitempty"`
}

// An Implementation names a program.
type Implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// InitializeResult answers initialize.
type InitializeResult struct {
	Protocol int            `json:"protocol"`
	Server   Implementation `json:"server"`
	PID      int            `json:"pid"`
	Port     int            `json:"port"`
	Token    string         `json:"token,omitempty"`
	// Env are the variables that the editor sets in its own environment, so that
	// agents in its terminals find this companion.
	Env map[string]string `json:"env"`
	// Agents are the agents that the user can name.
	Agents []AgentKind `json:"agents,omitempty"`
}

// An AgentKind is an agent that the user can start and name.
type AgentKind struct {
	// Command starts the agent: `pollux run --attach -- COMMAND`. It is also what the
	// user calls the agent.
	Command string `json:"command"`
	// Name names agents of this kind in messages.
	Name string `json:"name"`
}

// A Snapshot is all that the editor has open now.
type Snapshot struct {
	Files []File `json:"files"`
	// Roots and Trusted, if given, replace those of initialize.
	Roots   []string `json:"roots,omitempty"`
	Trusted *bool    `json:"trusted,omitempty"`
}

// A File is one open file of a [Snapshot].
type File struct {
	// Path is absolute. Pollux ignores paths without a regular file on disk.
	Path string `json:"path"`
	// Focused is when the file last had the focus, in milliseconds since the
	// Unix epoch; 0 is never.
	Focused int64 `json:"focused,omitempty"`
	// Active marks the one file that has the focus, or had it before the focus
	// went to a terminal.
	Active    bool    `json:"active,omitempty"`
	Cursor    *Cursor `json:"cursor,omitempty"`
	Selection string  `json:"selection,omitempty"`
	// Range is where the selection is. Without it, Pollux assumes for agents
	// that need a range that the selection ends at the cursor.
	Range *Range `json:"range,omitempty"`
}

// A ContextEvent is for clients that can only run a shell command. Pollux keeps
// the snapshot for them, by Source.
type ContextEvent struct {
	// Source identifies the editor.
	Source string `json:"source"`
	// Event is "focus", "close", or "quit", which forgets the source.
	Event     string  `json:"event"`
	Path      string  `json:"path,omitempty"`
	Cursor    *Cursor `json:"cursor,omitempty"`
	Selection string  `json:"selection,omitempty"`
	Range     *Range  `json:"range,omitempty"`
	// Number is the event's place in the order of the source's events, from 1. Without it, the
	// order is that of arrival.
	Number uint64 `json:"number,omitempty"`
}

// States of a [Diff] as a client sees it.
const (
	StateOpen     = "open"
	StateOrphaned = "orphaned" // the agent is disconnected: save or reject it
	// StateAccepted: the user has accepted it, and the agent has to write the
	// file. Nothing is left to decide.
	StateAccepted = "accepted"
	// StateOutside: a change outside Pollux, which the client asked to see. The file holds
	// it already: save an edited text, or reject it to take it off the list.
	StateOutside = "outside"
)

// A Diff is a proposed change that waits for the user.
type Diff struct {
	ID    string `json:"id"`
	Path  string `json:"path"`
	State string `json:"state"`
	// Original is the file's text now, or "" if the file does not exist. If the
	// file ends all its lines with CRLF and the proposal with LF, Original also
	// has LF, and EOL is crlf.
	Original string `json:"original"`
	Exists   bool   `json:"exists"`
	// EOL is how the file on disk ends its lines: lf, crlf, mixed, or "".
	EOL string `json:"eol,omitempty"`
	// Proposed is the agent's proposal. Content is the text with the user's edits
	// so far, in this client or another; nil without edits.
	Proposed string  `json:"proposed"`
	Content  *string `json:"content,omitempty"`
	// Client is the agent's name and version, such as "Gemini CLI 0.61.0".
	Client string `json:"client"`
	// Agent names the agent that proposed the change, such as "Gemini CLI", or "Gemini CLI
	// (pts/3)" if several were connected.
	Agent string `json:"agent"`
	// Opened is in milliseconds since the Unix epoch.
	Opened int64 `json:"opened"`
	// ReadOnly, if not empty, says why the text cannot be edited: the agent writes its
	// own.
	ReadOnly string `json:"readOnly,omitempty"`
}

// Text returns the diff's text with the edits so far.
func (d Diff) Text() string {
	if d.Content != nil {
		return *d.Content
	}
	return d.Proposed
}

// NoAgent reports whether no agent waits for an answer: the text is saved with
// [Client.Save].
func (d Diff) NoAgent() bool { return d.State == StateOrphaned || d.State == StateOutside }

// AgentName returns what to call the agent that proposed the change.
func (d Diff) AgentName() string { return cmp.Or(d.Agent, d.Client, "the agent") }

// Reasons of a [DiffClose].
const (
	ReasonAccepted   = "accepted"  // the file holds the accepted text
	ReasonUnwritten  = "unwritten" // accepted, but the file does not hold the text
	ReasonRejected   = "rejected"
	ReasonSuperseded = "superseded"
	ReasonClosed     = "closed" // answered in the agent's terminal
	ReasonSaved      = "saved"
	ReasonFailed     = "failed"
	ReasonKept       = "kept"  // a change outside Pollux stays as it is
	ReasonEnded      = "ended" // Pollux ends, and the user had not decided
)

// A DiffClose tells a client to close its view.
type DiffClose struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// DiffCloseResult is the client's answer. Content, if given, is the text as the
// user left it, with the last edits.
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

// A DiffAccept accepts a diff with a content, or saves it. Overwrite, the version that an
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
	// StatusConflict: the file has changed since the diff was opened. The agent
	// received nothing; Disk is the file's text now.
	StatusConflict = "conflict"
	// StatusRefused: the agent would not write what the user accepts, so it received
	// nothing. Message says why, and what to do. Its value is from the time when only an
	// empty text was refused.
	StatusRefused = "empty"
)

// DiffAcceptResult answers diff/accept and diff/save.
type DiffAcceptResult struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
	Disk    string `json:"disk,omitempty"`
	Deleted bool   `json:"deleted,omitempty"` // the file does not exist any more
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

// A DiffHunk is one run of lines where the client's text differs from the original.
// Lines count from 1.
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
	TakeProposed = "proposed" // restore the agent's change
)

// A DiffTake asks for the edit that makes the hunk at a line equal to the original
// or to the proposal.
type DiffTake struct {
	DiffText
	Line int    `json:"line"`
	Take string `json:"take"`
}

// A DiffEdit is an edit of the text: Text replaces Lines lines from Line on.
type DiffEdit struct {
	Line  int    `json:"line"`
	Lines int    `json:"lines"`
	Text  string `json:"text"`
	// EOL reports whether the whole text then ends in a line feed.
	EOL bool `json:"eol"`
}

// A PromptParams asks for the text to type into the agent's terminal to ask about
// a file. All fields are optional.
type PromptParams struct {
	Path string `json:"path,omitempty"`
	// Line and EndLine, from 1, are the selected lines; 0 for none.
	Line     int       `json:"line,omitempty"`
	EndLine  int       `json:"endLine,omitempty"`
	Question string    `json:"question,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
}

// A Problem is a diagnostic of the editor for the file.
type Problem struct {
	Line     int    `json:"line"`
	Severity string `json:"severity,omitempty"`
	Message  string `json:"message"`
	Source   string `json:"source,omitempty"`
}

// A Prompt answers [PromptParams]. Paste is Text as a terminal sends pasted text.
// Submit asks for Enter, at least 100 ms later: an agent treats an earlier one as
// part of the pasted text.
type Prompt struct {
	Text   string `json:"text"`
	Paste  string `json:"paste"`
	Submit bool   `json:"submit"`
	// Ready is a part of what the agent shows once it reads its keyboard.
	Ready string `json:"ready"`
}

// A FileChanged announces that an open file has changed on disk. The client reads
// it again, unless the user has unsaved changes.
type FileChanged struct {
	Path string `json:"path"`
}

// A FilePath names a file by its absolute path.
type FilePath struct {
	Path string `json:"path,omitempty"`
}

// An Outside lists the changes outside Pollux, the oldest first: files that changed while an
// agent was connected, and that neither an accepted change nor an editor wrote.
type Outside struct {
	Files []OutsideFile `json:"files"`
	// More is set if there may be others.
	More bool `json:"more,omitempty"`
	// Manual is how the user makes the connected agents ask about their next changes, such as
	// "press Shift+Tab in Claude Code ..."; "" if they ask, or if that is known to be different.
	Manual string `json:"manual,omitempty"`
}

// Note returns a sentence about the list for the user, or "" if it is empty. how says how to
// see the changes.
func (o Outside) Note(how string) string {
	if len(o.Files) == 0 {
		return ""
	}
	more := ""
	if o.More {
		more = " or more"
	}
	note := fmt.Sprintf("%s%s changed outside Pollux, without a review; %s shows what changed, to keep or undo it",
		termtext.Count(len(o.Files), "file"), more, how)
	if o.Manual != "" {
		note += ". To review an agent's next change, " + o.Manual
	}
	return note
}

// Changes of an [OutsideFile].
const (
	OutsideChanged = "changed"
	OutsideCreated = "created"
	OutsideDeleted = "deleted"
)

// An OutsideFile is a file of an [Outside].
type OutsideFile struct {
	Path   string `json:"path"`
	Change string `json:"change"`
	// Since is when Pollux noticed it, in milliseconds since the Unix epoch.
	Since int64 `json:"since"`
	// Notice, if given, says why the change cannot be displayed.
	Notice string `json:"notice,omitempty"`
}

// DiagnosticsParams ask for the diagnostics of a file, or of all files that the
// client knows if Path is empty.
type DiagnosticsParams struct {
	Path string `json:"path,omitempty"`
}

// A DiagnosticsResult answers diagnostics.
type DiagnosticsResult struct {
	Files []FileDiagnostics `json:"files"`
}

// FileDiagnostics are the problems of one file. A file without problems is listed
// too, if something checks it: the others are not expected to change.
type FileDiagnostics struct {
	Path        string       `json:"path"`
	Diagnostics []Diagnostic `json:"diagnostics"`
}

// A Diagnostic is a problem that an editor shows.
type Diagnostic struct {
	Range    Range  `json:"range"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	// Source is the program that reports it, and Code its name for it.
	Source string `json:"source,omitempty"`
	Code   string `json:"code,omitempty"`
}

// Severities of a [Diagnostic], the worst first.
const (
	SeverityError       = "error"
	SeverityWarning     = "warning"
	SeverityInformation = "information"
	SeverityHint        = "hint"
)

// DiagnosticsChanged names files whose diagnostics may have changed.
type DiagnosticsChanged struct {
	Paths []string `json:"paths"`
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
	Clients []Agent      `json:"clients"`
	Diffs   []DiffStatus `json:"diffs"`
	// Surfaces names the clients that show diffs now.
	Surfaces []string `json:"surfaces"`
	Page     bool     `json:"page"`
	Files    int      `json:"files"`
	// Journal reports whether `pollux journal` lists the companion's changes. Those of
	// the demo are deleted.
	Journal bool `json:"journal"`
	// Notes say what keeps agents from connecting, and what to do about it.
	Notes []string `json:"notes,omitempty"`
	// Unconnected says that the running agent has not connected, and what to do about it. Show
	// it while there are no Clients. It is left out if no agent may run.
	Unconnected string `json:"unconnected,omitempty"`
	// Outside lists the changes outside Pollux.
	Outside Outside `json:"outside"`
	// Text is the status for the user of an editor; left out if [StatusParams] has no commands.
	Text string `json:"text,omitempty"`
}

// A StatusParams asks for the status of the companion.
type StatusParams struct {
	// Commands is the beginning of the editor's commands, such as ":Pollux ".
	Commands string `json:"commands,omitempty"`
}

// An Agent is one connected agent.
type Agent struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Transport string `json:"transport"`
	Since     int64  `json:"since"`
	// PID is the agent's process, and Dir its working directory; left out if they are
	// not known.
	PID int    `json:"pid,omitempty"`
	Dir string `json:"dir,omitempty"`
	// Terminal is the system's name for the agent's terminal, such as "pts/3"; left out if
	// it is not known.
	Terminal string `json:"terminal,omitempty"`
	// Label is the agent's description for people: [Agent.Describe].
	Label string `json:"label"`
	// Limits says what the agent cannot do, such as "no review"; empty if nothing.
	Limits string `json:"limits,omitempty"`
	// Silent says that the agent changes files without asking, and how to change that;
	// empty if it asks, or if that is not known.
	Silent string `json:"silent,omitempty"`
}

// Describe returns the agent's name and version, and what distinguishes it from others:
// "Gemini CLI 0.61.0 (pid 123, tty pts/3)".
func (a Agent) Describe() string {
	text := strings.TrimSpace(cmp.Or(a.Name, "an agent") + " " + a.Version)
	var process []string
	if a.PID > 0 {
		process = append(process, fmt.Sprintf("pid %d", a.PID))
	}
	if a.Terminal != "" {
		process = append(process, "tty "+a.Terminal)
	}
	if len(process) > 0 {
		text += " (" + strings.Join(process, ", ") + ")"
	}
	return text
}

// A DiffStatus is a diff without its text.
type DiffStatus struct {
	ID    string `json:"id"`
	Path  string `json:"path"`
	State string `json:"state"`
	// Notice, if given, says why the diff cannot be displayed. No client shows
	// such a diff, and the user can answer it only in the agent's terminal.
	Notice string `json:"notice,omitempty"`
	Client string `json:"client"`
	// Agent names the agent that proposed the change, such as "Gemini CLI", or "Gemini CLI
	// (pts/3)" if several were connected.
	Agent  string `json:"agent"`
	Opened int64  `json:"opened"`
}

// Clients announces the connected agents.
type Clients struct {
	Clients []Agent `json:"clients"`
}

// Env announces new variables of [InitializeResult].
type Env struct {
	Env map[string]string `json:"env"`
}

// A Message is for the user.
type Message struct {
	// Level is "info", "warning" or "error".
	Level string `json:"level"`
	Text  string `json:"text"`
	// Diff, if given, is the diff that the message is about. A later message about the
	// same diff replaces it, and diff/close withdraws it.
	Diff string `json:"diff,omitempty"`
	// Unwritten is set if diff/save with Diff writes the text that the user accepted.
	Unwritten bool `json:"unwritten,omitempty"`
}

// A Link opens the review page once.
type Link struct {
	URL string `json:"url"`
}
