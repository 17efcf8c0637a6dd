package geminiide

import (
	"fmt"
	"maps"

	"pollux/internal/editor"
)

// IgnoreFile is the file that hides others from Gemini CLI, as .gitignore hides
// them from git.
const IgnoreFile = ".geminiignore"

// reserved names make the CLI offer to install another extension.
var reserved = map[string]bool{"vscode": true, "antigravity": true, "positron": true, "firebasestudio": true}

// CheckEditor returns an error if a companion cannot have the editor's name.
func CheckEditor(info editor.Info) error {
	if reserved[info.Name] {
		return fmt.Errorf("the editor cannot be named %q: Gemini CLI would try to install its own companion for it",
			info.Name)
	}
	return nil
}

// Publish writes the discovery files that lead CLIs to the server. stdio is the
// command that connects a CLI that cannot dial the port; it may be empty.
func (s *Server) Publish(roots, stdio []string) error {
	p, err := Publish(Endpoint{
		Port: s.port, Token: s.cfg.Token, Info: s.cfg.Editor, Roots: roots, PIDs: s.cfg.PIDs, Stdio: stdio,
	})
	if err != nil {
		return err
	}
	s.publication.Store(p)
	return nil
}

// SetRoots publishes other workspace roots.
func (s *Server) SetRoots(roots []string) error { return s.publication.Load().SetRoots(roots) }

// Unpublish removes the discovery files.
func (s *Server) Unpublish() {
	if p := s.publication.Load(); p != nil {
		p.Remove()
	}
}

// AddEnv adds the variables that lead a CLI to the published server.
func (s *Server) AddEnv(env map[string]string) { maps.Copy(env, s.publication.Load().Endpoint().Env()) }
