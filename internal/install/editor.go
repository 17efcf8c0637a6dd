package install

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"pollux/editors"
	"pollux/internal/jsontoml"
	"pollux/internal/lazy"
)

// An Editor is an editor that Pollux can be installed in: as a package, which is a
// directory whose files all belong to Pollux, or as a block in the user's settings.
type Editor struct {
	Name  string // on the command line
	Title string // for people
	Next  string // what to do after the installation
	// Decide says how to decide on a change. It may be empty.
	Decide string
	// Aliases are other names on the command line.
	Aliases []string

	// folder is the package in [editors.FS], if its name is not that of the editor.
	folder string
	// dir returns the package's directory. It may be nil. Packages of other
	// versions are next to the directory and match the pattern.
	dir      func(machine) (string, error)
	versions string
	// desktop reports whether the editor is often not started from a shell, and so
	// may not have the user's PATH.
	desktop bool
	// extra adds files that are not in the repository's folder, by name.
	extra func(files map[string]string, command string)

	// config returns the path of the user's settings, which contain the block. It may be nil.
	config func(machine) (string, error)
	// block is the template of the block in [editors.FS].
	block string
	// valid checks the user's file after the block was added.
	valid func(text string) error
	// posix is set if the block needs the shell sh, which Windows does not have. It says
	// what to do there instead.
	posix string
}

// HasPlugin reports whether the editor gets a plugin and not only settings.
func (e Editor) HasPlugin() bool { return e.dir != nil }

const vimDecide = "a change appears above the file: %s goes to it from the agent's terminal, :w accepts it, :q! rejects it; " +
	"`pollux journal` shows it again"

// Editors lists the editors.
var Editors = []Editor{
	{Name: "nvim", Title: "Neovim", folder: "vim", dir: nvimDir, extra: addHelpTags, Aliases: []string{"neovim"},
		Next: "restart Neovim and type :Pollux open; :help pollux is the manual", Decide: fmt.Sprintf(vimDecide, `Ctrl-\ Ctrl-N :Pollux next`)},
	{Name: "vim", Title: "Vim", dir: vimDir, extra: addHelpTags,
		Next: "restart Vim and type :Pollux open; :help pollux is the manual", Decide: fmt.Sprintf(vimDecide, `Ctrl-W :Pollux next`)},
	{Name: "emacs", Title: "Emacs", dir: emacsDir, versions: "pollux-[0-9]*", extra: addEmacsPackage, desktop: true,
		Next: "restart Emacs and type M-x pollux-open; `pollux help editors` is the manual",
		Decide: "a change appears above the file: M-x pollux-next goes to it, C-c C-c accepts it, C-c C-k rejects it; " +
			"`pollux journal` shows it again"},
	{Name: "kakoune", Title: "Kakoune", config: under(machine.config, "kak", "kakrc"), block: "kakoune/pollux.kak",
		Aliases: []string{"kak"}, posix: "install Pollux for Linux in WSL, where Kakoune runs",
		Next: "restart Kakoune and type :pollux-open; `pollux help editors` is the manual"},
	{Name: "helix", Title: "Helix", config: under(machine.config, "helix", "config.toml"), block: "helix/pollux.toml",
		valid: validTOML, Aliases: []string{"hx"}, posix: "use `pollux lsp` instead, see `pollux help editors`",
		Next: "run :config-reload in Helix and `pollux run` in another terminal; `pollux help editors` is the manual"},
}

func nvimDir(m machine) (string, error) {
	app := m.getenv("NVIM_APPNAME")
	if app == "" {
		app = "nvim"
	}
	dir, err := m.dir("XDG_DATA_HOME", ".local/share")
	if m.goos == "windows" {
		app += "-data"
		if !m.isAbs(m.getenv("XDG_DATA_HOME")) {
			dir, err = m.local()
		}
	}
	return below(dir, err, app, "site", "pack", "pollux", "start", "pollux")
}

func vimDir(m machine) (string, error) {
	drive := m.getenv("HOMEDRIVE") // which Vim prefers to USERPROFILE
	if drive != "" {
		drive += cmp.Or(m.getenv("HOMEPATH"), `\`)
	}
	home, err := m.unixHome(drive, m.getenv("USERPROFILE"))
	if err != nil {
		return "", err
	}
	name := ".vim"
	if m.goos == "windows" {
		name = "vimfiles"
	}
	dir := filepath.Join(home, name)
	// Vim 9.1.0327 and newer use the XDG directory if the older ones do not
	// exist.
	modern, err := m.dir("XDG_CONFIG_HOME", ".config")
	modern = filepath.Join(modern, "vim")
	if err == nil && m.goos != "windows" && !m.exists(dir) && !m.exists(dir+"rc") && m.exists(filepath.Join(modern, "vimrc")) {
		dir = modern
	}
	return below(dir, nil, "pack", "pollux", "start", "pollux")
}

// emacsDir returns the package's directory. Like Emacs, it prefers ~/.emacs.d
// unless only the XDG directory exists.
func emacsDir(m machine) (string, error) {
	home, err := m.unixHome(m.getenv("APPDATA"))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, ".emacs.d")
	config := m.getenv("XDG_CONFIG_HOME")
	if !m.isAbs(config) {
		config = filepath.Join(home, ".config")
	}
	modern := filepath.Join(config, "emacs")
	names := []string{".emacs"}
	if m.goos == "windows" {
		names = append(names, ".emacs.el", ".emacs.elc", "_emacs", "_emacs.el", "_emacs.elc")
	}
	old := m.exists(dir) || slices.ContainsFunc(names, func(name string) bool { return m.exists(filepath.Join(home, name)) })
	if !old && m.exists(modern) {
		dir = modern
	}
	return below(dir, nil, "elpa", "pollux-"+emacsVersion())
}

var emacsHeader = lazy.Regexp(`(?m)^;; (Version|Package-Requires): (.*)$`)

func emacsHeaders() map[string]string {
	source, _ := editors.FS.ReadFile("emacs/pollux.el")
	headers := make(map[string]string)
	for _, m := range emacsHeader().FindAllStringSubmatch(string(source), -1) {
		headers[m[1]] = m[2]
	}
	return headers
}

func emacsVersion() string { return emacsHeaders()["Version"] }

var delimiter = lazy.Regexp(`POLLUX_[A-Z2-7]{26}`)

// snippet returns the text of a template, with the command and a delimiter for
// here documents. The delimiter is random, so that no file name can contain it.
// If the old text has a delimiter, it is kept.
func snippet(name, command, before string) (string, error) {
	text, err := editors.FS.ReadFile(name)
	if err != nil {
		return "", err
	}
	end := delimiter().FindString(before)
	if end == "" {
		end = "POLLUX_" + rand.Text()
	}
	return strings.NewReplacer("@POLLUX@", command, "@DELIMITER@", end).Replace(string(text)), nil
}

func validTOML(text string) error {
	var v map[string]any
	_, err := jsontoml.DecodeTOML(text, &v)
	return err
}

// addCommand adds a file with the path of the binary, unless the editor finds it
// on the PATH.
func addCommand(files map[string]string, command string) {
	if filepath.Base(command) != command {
		files["command"] = command + "\n"
	}
}

var helpTag = lazy.Regexp(`\*([^*\s|]+)\*(?:\s|$)`)

// addHelpTags adds the index that :help needs. Native packages have no
// installation step that generates it.
func addHelpTags(files map[string]string, command string) {
	addCommand(files, command)
	var tags []string
	for name, text := range files {
		if path.Dir(name) == "doc" {
			for _, m := range helpTag().FindAllStringSubmatch(text, -1) {
				tags = append(tags, fmt.Sprintf("%s\t%s\t/*%s*\n", m[1], path.Base(name), m[1]))
			}
		}
	}
	slices.Sort(tags)
	files["doc/tags"] = strings.Join(tags, "")
}

// addEmacsPackage adds the files that Emacs's package manager generates. They
// turn on the mode, because a user who installs the package this way wants that.
func addEmacsPackage(files map[string]string, command string) {
	addCommand(files, command)
	h := emacsHeaders()
	files["pollux-pkg.el"] = fmt.Sprintf(";;; -*- no-byte-compile: t -*-\n"+
		"(define-package \"pollux\" %q \"Companion for Gemini CLI and other agents\" '%s)\n", h["Version"], h["Package-Requires"])
	files["pollux-autoloads.el"] = `;;; pollux-autoloads.el -- written by pollux install -*- lexical-binding: t -*-
(add-to-list 'load-path (directory-file-name (or (file-name-directory #$) (car load-path))))
(autoload 'pollux-mode "pollux" "Run a companion for Gemini CLI and other agents." t)
(dolist (command '(pollux-open pollux-toggle pollux-send pollux-diagnostics pollux-status pollux-menu))
  (autoload command "pollux" nil t))
;; After the start, when Emacs is idle: loading does not delay the start.
(add-hook 'emacs-startup-hook
          (lambda ()
            (run-with-idle-timer 0.1 nil
                                 (lambda ()
                                   (let ((gc-cons-threshold (max gc-cons-threshold 64000000)))
                                     (pollux-mode 1))))))
`
}
