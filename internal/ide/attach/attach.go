// Package attach connects agents' MCP sessions to a companion.
package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/mcp"
)

// A Backend has the methods of a [companion.Companion] that servers use; the companion documents
// them. Many goroutines call them. They do not block for long, since an agent waits.
type Backend interface {
	// Connect is called once an agent has sent notifications/initialized, and Disconnect when its
	// session has ended.
	Connect(s companion.Session)
	Disconnect(s companion.Session)
	Changed(s companion.Session)
	Acted(s companion.Session)

	// Propose returns soon. The agent shows the text of an error to the user and considers the
	// change lost, so an error means that there is no way to show the change.
	Propose(s companion.Session, p companion.Proposal) error
	Withdraw(s companion.Session, path string) (text string, err error)
	Abandon(s companion.Session, path string) (text string, err error)
	Shows() bool

	// Context may be called often.
	Context() companion.Context
	Roots() []string
	Diagnostics(ctx context.Context, path string) ([]editor.FileDiagnostics, error)
	BeforeWrite(ctx context.Context, s companion.Session, path string) ([]editor.FileDiagnostics, error)
	AfterWrites(ctx context.Context, s companion.Session)
}

// A Companion holds what every server of a companion needs.
type Companion struct {
	Backend Backend
	Log     *slog.Logger
	// Version is the companion's version.
	Version string
	// Editor names the companion to the agents' users.
	Editor editor.Info
}

// Server returns a server for that many sessions. experimental returns its experimental
// capabilities; may be nil.
func (c Companion) Server(maxSessions int, experimental func() map[string]any) *mcp.Server {
	return mcp.New(mcp.Config{
		Title: c.Editor.DisplayName, Version: c.Version, Log: c.Log, MaxSessions: maxSessions, Experimental: experimental,
	})
}

// NewSession returns a session of a server. The companion has it, as self, from Connected until
// Disconnected; it has it before d.Connected is called, which may be nil. d.Disconnected is
// replaced.
func (c Companion) NewSession(srv *mcp.Server, self companion.Session, d mcp.Dialect) (*mcp.Session, error) {
	connected := d.Connected
	d.Connected = func() {
		name, version := self.Client()
		c.Log.Info("an agent connected", "client", name, "version", version, "transport", self.Transport())
		c.Backend.Connect(self)
		if connected != nil {
			connected()
		}
	}
	d.Disconnected = func() {
		c.Log.Info("an agent has disconnected", "transport", self.Transport())
		c.Backend.Disconnect(self)
	}
	return srv.NewSession(d)
}

// MaxName bounds the name and the version of an agent, in bytes.
const MaxName = 64

// NewProposal returns the change that the arguments of a tool propose: path and text, which is nil
// if it is missing, and the names of these two arguments.
func NewProposal(args json.RawMessage, pathName, path, textName string, text *string) (p companion.Proposal, err error) {
	switch {
	case path == "":
		return p, fmt.Errorf("%s is missing: pass the file's absolute path", pathName)
	case strings.ContainsRune(path, 0):
		return p, fmt.Errorf("%s holds a NUL byte: pass the file's absolute path", pathName)
	case text == nil:
		return p, fmt.Errorf("%s is missing: pass the proposed text of the whole file", textName)
	}
	return companion.Proposal{Path: path, Text: *text, Binary: unprintable(*text, args)}, nil
}

// unprintable returns why a proposal's text cannot go through an editor and come back
// unchanged, or "": NUL bytes, invalid UTF-8, and half of a surrogate pair, which decoding
// replaces. message is the JSON that the text was decoded from.
func unprintable(text string, message []byte) string {
	switch {
	case strings.ContainsRune(text, 0):
		return "the proposal holds NUL bytes"
	case strings.Contains(text, "\uFFFD") && !jsontext.Value(message).IsValid(jsontext.AllowDuplicateNames(true)):
		return "the proposal is not valid UTF-8"
	}
	return ""
}
