package opencode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/jsontoml"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// Codes of errors that this package returns in place of opencode.
const (
	codeProject = 1
	codeFree    = 2
)

// A conn is a connection that neither starts a session where opencode would run code of the
// project, nor asks its free service unless the user chose that.
type conn struct {
	*acp.Conn

	mu  sync.Mutex
	dir string // of the process
	// free are the sessions whose model opencode has chosen for itself, a free one.
	free map[string]bool
}

func connect(r io.ReadCloser, w io.WriteCloser, files bool, client agent.Client) agent.Conn {
	c := &conn{free: make(map[string]bool)}
	known := &calls{Client: client, conn: c, names: make(map[string]string), files: make(map[string]string)}
	c.Conn = acp.NewConn(r, w, files, known, known.allow)
	return c
}

// calls is a client that learns of a tool call when the call runs: before, opencode does not say
// which file it concerns. Later titles are not the tool's name.
type calls struct {
	agent.Client
	conn         *conn
	names, files map[string]string // by the call's ID
}

// allow allows a call that reads in the directory of the process. opencode itself follows links
// that lead out of it.
func (c *calls) allow(call, file string) bool {
	c.conn.mu.Lock()
	dir := c.conn.dir
	c.conn.mu.Unlock()
	file = cmp.Or(file, c.files[call])
	search := slices.Contains(searches, c.names[call])
	if file == "" {
		return search // in the whole directory
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	if search {
		return paths.LeadsOut(dir, file) == ""
	}
	return paths.LeadsOut(dir, append(instructions(dir, file), file)...) == ""
}

// searches are the names of tools that add no instructions to what they find.
var searches = []string{"grep", "glob", "list"}

// instructionFiles are the names of files with instructions for agents.
var instructionFiles = []string{"AGENTS.md", "CLAUDE.md", "CONTEXT.md"}

// instructions returns the paths of the instructions that opencode adds to a file that it reads.
func instructions(dir, file string) (all []string) {
	for d := filepath.Dir(file); paths.Contains(dir, d) && !paths.Same(dir, d) && d != filepath.Dir(d); d = filepath.Dir(d) {
		for _, name := range instructionFiles {
			all = append(all, filepath.Join(d, name))
		}
	}
	return all
}

// Update implements [agent.Client].
func (c *calls) Update(u agent.Update) {
	switch {
	case u.Kind == agent.ToolCall && u.Status == "pending":
		c.names[u.ToolCall] = u.Title
		u.Kind = "" // a sign of life
	case u.Kind == agent.ToolCallUpdate:
		c.files[u.ToolCall] = cmp.Or(u.File, c.files[u.ToolCall])
		u.Title = cmp.Or(c.names[u.ToolCall], u.Title)
		if u.Status == agent.ToolCompleted || u.Status == agent.ToolFailed {
			delete(c.names, u.ToolCall)
			delete(c.files, u.ToolCall)
		}
	}
	c.Client.Update(u)
}

// NewSession implements [agent.Conn].
func (c *conn) NewSession(ctx context.Context, dir string) (agent.Session, error) {
	if reason := runsCode(nil, dir); reason != "" {
		return agent.Session{}, &agent.Refused{Code: codeProject, Message: reason}
	}
	c.mu.Lock()
	c.dir = dir
	c.mu.Unlock()
	s, models, err := c.Conn.NewSessionModels(ctx, dir)
	if err != nil || !isFree(s.Model) {
		return s, err
	}
	if !slices.ContainsFunc(models, isPaid) {
		return s, &agent.Refused{Code: acp.CodeAuth}
	}
	s.Model = ""
	c.mu.Lock()
	c.free[s.ID] = true
	c.mu.Unlock()
	return s, nil
}

// SetModel implements [agent.Conn].
func (c *conn) SetModel(ctx context.Context, session, model string) error {
	err := c.Conn.SetModel(ctx, session, model)
	if err == nil {
		c.mu.Lock()
		delete(c.free, session)
		c.mu.Unlock()
	}
	return err
}

// Prompt implements [agent.Conn].
func (c *conn) Prompt(ctx context.Context, session string, content []agent.Content) (agent.PromptResult, error) {
	c.mu.Lock()
	free := c.free[session]
	c.mu.Unlock()
	if free {
		return agent.PromptResult{}, &agent.Refused{Code: codeFree}
	}
	return c.Conn.Prompt(ctx, session, content)
}

// isFree reports whether a model is one that opencode serves without a login.
func isFree(model string) bool {
	name, ok := strings.CutPrefix(model, "opencode/")
	return ok && (strings.HasSuffix(name, "-free") || name == "big-pickle")
}

// isPaid reports whether a model is offered only with a login, a key or settings.
func isPaid(model string) bool {
	name, ok := strings.CutPrefix(model, "opencode/")
	return !ok || strings.HasPrefix(name, "claude-") || strings.HasPrefix(name, "gpt-") || strings.HasPrefix(name, "gemini-")
}

// maxConfig limits a settings file, in bytes.
const maxConfig = 1 << 20

// runsCode says which code of the project opencode would run in dir, or "". It loads plugins of
// the project and of the directories above it even with OPENCODE_DISABLE_PROJECT_CONFIG. What
// is in the home directory itself is the user's own.
func runsCode(env agent.Env, dir string) string {
	home, _ := env.HomeDir()
	home = paths.Real(home)
	for d := paths.Real(dir); d != home; d = filepath.Dir(d) {
		for _, config := range []string{"opencode.json", "opencode.jsonc", filepath.Join(".opencode", "opencode.json"), filepath.Join(".opencode", "opencode.jsonc")} {
			if reason := namesPlugins(filepath.Join(d, config)); reason != "" {
				return reason
			}
		}
		for _, plugins := range []string{"plugin", "plugins"} {
			entries, _ := os.ReadDir(filepath.Join(d, ".opencode", plugins)) // what Pollux cannot list, opencode cannot either
			for _, e := range entries {
				if ext := filepath.Ext(e.Name()); ext == ".js" || ext == ".ts" {
					return filepath.Join(d, ".opencode", plugins, e.Name())
				}
			}
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	return ""
}

// namesPlugins says that a settings file names plugins, or may name some, or "".
func namesPlugins(path string) string {
	text, err := disk.ReadFile(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return ""
	}
	var config struct{ Plugin, Plugins any }
	if err == nil {
		err = jsontoml.Decode(text, &config)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("%s cannot be read: %v", path, err)
	case config.Plugin != nil || config.Plugins != nil:
		return path + " names plugins"
	}
	return ""
}
