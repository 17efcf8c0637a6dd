package install

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each program finds what Pollux installs for it, on each system.
func TestLocations(t *testing.T) {
	unix := map[string]string{"HOME": "/h"}
	windows := map[string]string{
		"USERPROFILE": "C:/Users/me", "APPDATA": "C:/Users/me/AppData/Roaming", "LOCALAPPDATA": "C:/Users/me/AppData/Local",
	}
	with := func(env map[string]string, more ...string) map[string]string {
		env = maps.Clone(env)
		for _, kv := range more {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
		return env
	}
	packaged := "C:/Users/me/AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude"
	const own = "/pack/pollux/start/pollux"
	for _, tt := range []struct {
		program, goos string
		env           map[string]string
		exists        []string
		want          string // VERSION stands for that of the package
	}{
		{program: "nvim", goos: "linux", env: unix, want: "/h/.local/share/nvim/site" + own},
		{program: "nvim", goos: "linux", env: with(unix, "XDG_DATA_HOME=/d", "NVIM_APPNAME=n"), want: "/d/n/site" + own},
		{program: "nvim", goos: "windows", env: windows, want: "C:/Users/me/AppData/Local/nvim-data/site" + own},
		{program: "nvim", goos: "windows", env: with(windows, "XDG_DATA_HOME=D:/d", "NVIM_APPNAME=n"), want: "D:/d/n-data/site" + own},
		{program: "nvim", goos: "windows", env: map[string]string{"USERPROFILE": "C:/Users/me"}, want: "C:/Users/me/AppData/Local/nvim-data/site" + own},

		{program: "vim", goos: "linux", env: unix, want: "/h/.vim" + own},
		{program: "vim", goos: "linux", env: unix, exists: []string{"/h/.config/vim/vimrc"}, want: "/h/.config/vim" + own},
		{program: "vim", goos: "linux", env: unix, exists: []string{"/h/.config/vim/vimrc", "/h/.vimrc"}, want: "/h/.vim" + own},
		{program: "vim", goos: "windows", env: windows, want: "C:/Users/me/vimfiles" + own},
		{program: "vim", goos: "windows", env: with(windows, "HOME=D:/home"), want: "D:/home/vimfiles" + own},
		{program: "vim", goos: "windows", env: with(windows, "HOMEDRIVE=H:", "HOMEPATH=/me"), want: "H:/me/vimfiles" + own},
		{program: "vim", goos: "windows", env: with(windows, "HOMEDRIVE=H:", "HOMEPATH=/me", "HOME=D:/home"), want: "D:/home/vimfiles" + own},
		{program: "vim", goos: "windows", env: windows, exists: []string{"C:/Users/me/.config/vim/vimrc"}, want: "C:/Users/me/vimfiles" + own},

		{program: "emacs", goos: "linux", env: unix, want: "/h/.emacs.d/elpa/pollux-VERSION"},
		{program: "emacs", goos: "linux", env: unix, exists: []string{"/h/.config/emacs"}, want: "/h/.config/emacs/elpa/pollux-VERSION"},
		{program: "emacs", goos: "linux", env: unix, exists: []string{"/h/.config/emacs", "/h/.emacs"}, want: "/h/.emacs.d/elpa/pollux-VERSION"},
		{program: "emacs", goos: "windows", env: windows, want: "C:/Users/me/AppData/Roaming/.emacs.d/elpa/pollux-VERSION"},
		{
			program: "emacs", goos: "windows", env: with(windows, "HOME=C:/h"), exists: []string{"C:/h/.config/emacs", "C:/h/_emacs.el"},
			want: "C:/h/.emacs.d/elpa/pollux-VERSION",
		},
		{program: "emacs", goos: "windows", env: with(windows, "HOME=D:/home"), want: "D:/home/.emacs.d/elpa/pollux-VERSION"},
		{program: "emacs", goos: "windows", env: windows, exists: []string{"C:/Users/me/AppData/Roaming/.config/emacs"},
			want: "C:/Users/me/AppData/Roaming/.config/emacs/elpa/pollux-VERSION"},

		{program: "kakoune", goos: "linux", env: unix, want: "/h/.config/kak/kakrc"},
		{program: "helix", goos: "linux", env: unix, want: "/h/.config/helix/config.toml"},
		{program: "helix", goos: "darwin", env: with(unix, "XDG_CONFIG_HOME=/c"), want: "/c/helix/config.toml"},
		{program: "helix", goos: "windows", env: windows, want: "C:/Users/me/AppData/Roaming/helix/config.toml"},

		{program: "claude-code", goos: "linux", env: unix, want: "/h/.claude.json"},
		{program: "claude-code", goos: "windows", env: windows, want: "C:/Users/me/.claude.json"},
		{program: "claude-code", goos: "windows", env: with(windows, "CLAUDE_CONFIG_DIR=D:/claude", "HOME=D:/home"), want: "D:/claude/.claude.json"},
		{program: "codex", goos: "linux", env: with(unix, "CODEX_HOME=/x"), want: "/x/config.toml"},
		{program: "codex", goos: "windows", env: windows, want: "C:/Users/me/.codex/config.toml"},
		{program: "cursor", goos: "windows", env: windows, want: "C:/Users/me/.cursor/mcp.json"},
		{program: "vscode", goos: "linux", env: unix, want: "/h/.config/Code/User/mcp.json"},
		{program: "vscode", goos: "darwin", env: unix, want: "/h/Library/Application Support/Code/User/mcp.json"},
		{program: "vscode", goos: "windows", env: windows, want: "C:/Users/me/AppData/Roaming/Code/User/mcp.json"},
		{program: "claude-desktop", goos: "darwin", env: unix, want: "/h/Library/Application Support/Claude/claude_desktop_config.json"},
		{program: "claude-desktop", goos: "windows", env: windows, want: "C:/Users/me/AppData/Roaming/Claude/claude_desktop_config.json"},
		{program: "claude-desktop", goos: "windows", env: windows, exists: []string{packaged}, want: packaged + "/claude_desktop_config.json"},

		{program: "vim", goos: "linux", env: map[string]string{}},
		{program: "codex", goos: "windows", env: unix},
	} {
		exists := func(path string) bool { return slices.Contains(tt.exists, filepath.ToSlash(path)) }
		m := machine{tt.goos, func(name string) string { return tt.env[name] }, exists, func(pattern string) (found []string) {
			for _, path := range tt.exists {
				if ok, _ := filepath.Match(pattern, filepath.FromSlash(path)); ok {
					found = append(found, filepath.FromSlash(path))
				}
			}
			return found
		}}
		locate := func(machine) (string, error) { t.Fatalf("there is no %s", tt.program); return "", nil }
		for _, e := range Editors {
			switch {
			case e.Name == tt.program && e.dir != nil:
				locate = e.dir
			case e.Name == tt.program:
				locate = e.config
			}
		}
		for _, c := range Clients {
			if c.Name == tt.program {
				locate = c.file
			}
		}
		if tt.goos != "windows" && filepath.Separator == '\\' {
			continue // its paths are not absolute here
		}
		got, err := locate(m)
		want := strings.ReplaceAll(tt.want, "VERSION", emacsVersion())
		if filepath.ToSlash(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s on %s with %v: %s, %v; want %s", tt.program, tt.goos, tt.env, got, err, want)
		}
	}
}
