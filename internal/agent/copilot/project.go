package copilot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"pollux/internal/agent"
	"pollux/internal/jsontoml"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// settingsFiles are the settings of a project in which Copilot CLI finds hooks, plugins and
// servers, if the user trusts the folder.
var settingsFiles = []string{
	".mcp.json", ".github/mcp.json", ".github/copilot/settings.json", ".github/copilot/settings.local.json", ".claude/settings.json", ".claude/settings.local.json",
}

// maxSettings limits a file with settings, in bytes.
const maxSettings = 1 << 20

// runsCode returns the path of a file that makes Copilot CLI run code of the project in dir, or "".
// Copilot CLI reads the files in the repository's root too. Files in the home directory itself
// belong to the user.
func runsCode(env agent.Env, dir string) string {
	home, _ := env.HomeDir()
	home = paths.Real(home)
	for d := paths.Real(dir); ; d = filepath.Dir(d) {
		hooks := filepath.Join(d, ".github", "hooks")
		// What Pollux cannot list, Copilot CLI cannot either.
		if entries, _ := os.ReadDir(hooks); len(entries) > 0 {
			return filepath.Join(hooks, entries[0].Name())
		}
		for _, name := range settingsFiles {
			if path := filepath.Join(d, filepath.FromSlash(name)); d != home && names(path) {
				return path
			}
		}
		if d == filepath.Dir(d) {
			return ""
		}
	}
}

// names reports whether a file names hooks, plugins or servers, or may do so.
func names(path string) bool {
	text, err := disk.ReadFile(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false
	}
	var settings struct {
		Hooks, EnabledPlugins, ExtraKnownMarketplaces, MCPServers map[string]any
	}
	if err == nil {
		err = jsontoml.Decode(text, &settings)
	}
	return err != nil || len(settings.Hooks)+len(settings.EnabledPlugins)+len(settings.ExtraKnownMarketplaces)+len(settings.MCPServers) > 0
}

// leadsOut returns the path of a file with instructions that is a link out of its directory, or
// "". Copilot CLI follows such links. No option of its server makes it ignore instructions.
func leadsOut(env agent.Env, dir string) string {
	home, _ := env.HomeDir()
	home = paths.Real(home)
	for d := paths.Real(dir); d != home; d = filepath.Dir(d) {
		if path := paths.LeadsOut(d, instructions(d)...); path != "" {
			return path
		}
		if path := linkBelow(d, filepath.Join(d, instructionsDir)); path != "" {
			return path
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	return ""
}

// instructionsDir is a project's directory with more instructions.
var instructionsDir = filepath.Join(".github", "instructions")

// instructions returns the paths of a directory's instructions for agents.
func instructions(dir string) (all []string) {
	for _, name := range []string{"AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md"} {
		all = append(all, filepath.Join(dir, filepath.FromSlash(name)))
	}
	return append(all, filepath.Join(dir, instructionsDir))
}

// linkBelow returns the path of a link below a directory in dir that leads out of dir, or to
// another directory, or "".
func linkBelow(dir, below string) (found string) {
	filepath.WalkDir(paths.Real(below), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := os.Stat(path)
		if paths.LeadsOut(dir, path) != "" || err == nil && info.IsDir() && !e.IsDir() {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	return found
}
