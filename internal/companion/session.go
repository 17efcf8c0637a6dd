package companion

import (
	"time"

	"pollux/internal/editor"
)

// A Session is one connected agent, as the companion needs it. A package below
// ide implements it for each kind of agent. [Companion.Connect] and
// [Companion.Disconnect] tell the companion which sessions exist.
//
// The companion calls the methods from many goroutines. It holds its lock while it
// calls any of them, so they must neither wait, nor do I/O, nor call the companion.
type Session interface {
	TextRules

	// Client returns the agent's name, as people know it, and its version. Either
	// may be empty. Both are safe to show in a terminal.
	Client() (name, version string)
	// Transport returns how the agent is connected, such as "http".
	Transport() string
	// Since returns when the agent connected.
	Since() time.Time
	// Process returns what is known about the agent's process. [Companion.Changed]
	// announces another result.
	Process() Process
	// ContextChanged announces that [Companion.Context] has changed. The session
	// sends the state as it is when the agent is ready for it.
	// [Companion.Connect] calls ContextChanged, too.
	ContextChanged()
	// Resolve queues the outcome of a proposal. Outcomes of one session reach the
	// agent in call order. done is called once, on another goroutine:
	// with nil when the agent has received the outcome or does not need it, with an
	// error if the session ended before that.
	//
	// The companion calls Resolve once for each proposal, when the user has accepted
	// or rejected it, when no view is left that could show it, when the session
	// proposes again for the file, and when the companion stops: see [Outcome]. The
	// call may come before [Companion.Propose] returns. It comes before any call for
	// a later proposal for the same file.
	//
	// Resolve is not called for a proposal that ends in another way: Propose returned an
	// error, [Companion.Withdraw] found it, or [Companion.Disconnect] came first.
	Resolve(p Proposal, o Outcome, done func(error))
}

// A Process describes an agent's process. Fields that are not known yet are empty.
type Process struct {
	PID int // in the namespace of this process
	Dir string
	// Terminal is the system's name for the terminal, such as "pts/3".
	Terminal string
}

// A LimitedSession is a [Session] of an agent that cannot do all that Pollux offers.
type LimitedSession interface {
	// Limits returns what the agent cannot do, for people, such as "no review". It may
	// be empty. The rules for the methods of [Session] apply.
	Limits() string
}

// TextRules are an agent's rules for the text of a file. They are pure
// functions of their arguments.
type TextRules interface {
	// Shown returns the text of the file to show next to a proposal, without the
	// differences that the agent does not intend.
	Shown(original, proposed string) string
	// Refuses returns why the user cannot accept the text in place of the
	// proposal, or "".
	Refuses(text, original, proposed string) string
	// Answer returns the user's text as the agent receives it.
	Answer(text, original, proposed string) string
	// Written returns what the agent would write to a file that holds onDisk
	// after it received the answer. Pollux writes it for an agent that has ended.
	// `pollux journal restore` runs without the rules: the journal records whether
	// Answer and Written turn LF into CRLF and add a byte order mark, and a restore
	// does no more than that.
	Written(answer, onDisk string) string
	// Holds reports whether a file that holds onDisk has the user's text. It ignores
	// what Answer and Written change in the text.
	Holds(onDisk, text string) bool
	// Unwritten returns why the agent may leave a file unwritten after an
	// accept, or "".
	Unwritten() string
}

// A Proposal is a change to one file.
type Proposal struct {
	// Path is the file's absolute path, as the agent named it.
	Path string
	// Text is the proposed text of the whole file.
	Text string
	// Binary, if not empty, says why Text cannot go through an editor and come
	// back unchanged.
	Binary string
	// ReadOnly, if not empty, says why the user cannot change Text. The agent writes its
	// own text, so the user cannot accept the proposal either after the file has changed.
	ReadOnly string
	// Hidden means that the agent asks in its terminal without showing the change. It is then
	// displayed even if its file is outside the workspace.
	Hidden bool
}

// An Outcome is how a proposal ended. At most one of Accepted, Superseded and
// Failed is set; if none is, the proposal is rejected.
type Outcome struct {
	Accepted bool
	// Text is the text to write; empty unless Accepted.
	Text string
	// Superseded means that the session proposed again for the same file. The user
	// decides about the new proposal only.
	Superseded bool
	// Failed means that the companion stops, and that it could not display the
	// proposal. The user answers it in the agent's terminal.
	Failed bool
}

// A Context lists the open files that agents may receive, the active one first,
// then the one that had the focus last.
type Context struct {
	Files []File
	// Trusted is nil unless an editor knows whether the user trusts the folder.
	Trusted *bool
}

// A File is one open file of a [Context]. Cursor, Selection and Range are those of
// the active file; the others have none.
type File struct {
	Path string
	// Focused is when the file last had the focus, in milliseconds since the
	// Unix epoch; 0 is never.
	Focused   int64
	Active    bool
	Cursor    *editor.Cursor
	Selection string
	// Range is where the selection is; nil unless the editor has said so.
	Range *editor.Range
}

// A Host runs a companion: it owns the servers and publishes the files and
// variables that lead agents and editors to it. Its methods may be called at any
// time, from many goroutines.
type Host interface {
	// Port and Token let an editor start the companion again after a crash.
	Port() int
	Token() string
	// Env returns the variables that lead agents, and Pollux's own commands, to
	// this companion.
	Env() map[string]string
	// SetRoots publishes other workspace roots.
	SetRoots(roots []string) error
	// Link returns a link that opens the review page once.
	Link() (string, error)
	// Agents returns the agents that the user can start and name.
	Agents() []AgentKind
	// Prompt is that of [AgentKind], for an agent that is in none of them.
	Prompt(p editor.PromptParams, roots []string) editor.Prompt
	// Notes returns what keeps agents from connecting, for the companion's status.
	Notes() []string
	// ViewsChanged announces that the result of [Companion.Shows] may have changed.
	// It does not wait.
	ViewsChanged()
}
