package cli

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"pollux/editors"
	"pollux/internal/sys"
)

// An editorHome is where an editor looks for what we bring it: a package of
// files that are all ours, or a block in a file of the user's, or both.
type editorHome struct {
	name, title string
	// dir is the package's directory; nil for none. Those of other versions
	// are beside it, by the pattern.
	dir      func() (string, error)
	versions string
	// extra makes files that are not in the repository's folder, by name.
	extra func(files map[string]string, command string)
	// config is the user's file that gets a block; nil for none.
	config func() (string, error)
	// block is the name of what stands in it.
	block string
	// valid checks the file with the block in it.
	valid func(text string) error
	after string // what to do next
}

var editorHomes = []editorHome{
	{name: "nvim", title: "Neovim", dir: nvimDir, extra: addHelpTags, after: "start Neovim anew; :help pollux"},
	{name: "vim", title: "Vim", dir: vimDir, extra: addHelpTags, after: "start Vim anew; :help pollux"},
	{name: "emacs", title: "Emacs", dir: emacsDir, versions: "pollux-[0-9]*", extra: addEmacsPackage, after: "start Emacs anew; M-x describe-package RET pollux"},
	{name: "kakoune", title: "Kakoune", config: configFile("kak", "kakrc"), block: "kakoune/pollux.kak", after: "start Kakoune anew"},
	{name: "helix", title: "Helix", config: configFile("helix", "config.toml"), block: "helix/pollux.toml", valid: validTOML, after: ":config-reload in Helix, or start it anew"},
}

// xdg is a directory below one of the XDG base directories.
func xdg(variable, fallback string, elem ...string) (string, error) {
	base := os.Getenv(variable)
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(home, fallback)
	}
	return filepath.Join(append([]string{base}, elem...)...), nil
}

func nvimDir() (string, error) {
	app := os.Getenv("NVIM_APPNAME")
	if app == "" {
		app = "nvim"
	}
	if runtime.GOOS == "windows" {
		return xdg("LOCALAPPDATA", `AppData\Local`, app+"-data", "site", "pack", "pollux", "start", "pollux")
	}
	return xdg("XDG_DATA_HOME", ".local/share", app, "site", "pack", "pollux", "start", "pollux")
}

func vimDir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, ".vim")
	if runtime.GOOS == "windows" {
		dir = filepath.Join(home, "vimfiles")
	}
	// Vim 9.1.0327 and newer: only where the older places are not in use.
	if modern, err := xdg("XDG_CONFIG_HOME", ".config", "vim"); err == nil && !exists(dir) && !exists(dir+"rc") && exists(filepath.Join(modern, "vimrc")) {
		dir = modern
	}
	return filepath.Join(dir, "pack", "pollux", "start", "pollux"), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// emacsDir is in Emacs's own order: ~/.emacs.d, unless only the XDG place is
// there.
func emacsDir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, ".emacs.d")
	if runtime.GOOS == "windows" {
		if dir, err = xdg("APPDATA", `AppData\Roaming`, ".emacs.d"); err != nil {
			return "", err
		}
	}
	if modern, err := xdg("XDG_CONFIG_HOME", ".config", "emacs"); err == nil && !exists(dir) && !exists(filepath.Join(home, ".emacs")) && exists(modern) {
		dir = modern
	}
	return filepath.Join(dir, "elpa", "pollux-"+emacsVersion()), nil
}

var emacsHeader = regexp.MustCompile(`(?m)^;; (Version|Package-Requires): (.*)$`)

func emacsHeaders() map[string]string {
	source, _ := editors.FS.ReadFile("emacs/pollux.el")
	headers := make(map[string]string)
	for _, m := range emacsHeader.FindAllStringSubmatch(string(source), -1) {
		headers[m[1]] = m[2]
	}
	return headers
}

func emacsVersion() string { return emacsHeaders()["Version"] }

func configFile(elem ...string) func() (string, error) {
	return func() (string, error) { return xdg("XDG_CONFIG_HOME", ".config", elem...) }
}

var delimiter = regexp.MustCompile(`POLLUX_[0-9a-f]{32}`)

// snippet is a file of ours, with the command in it as a shell takes it, and a
// delimiter of here documents that nobody who names files can know. One that
// was made before stays.
func snippet(name, command, before string) (string, error) {
	text, err := editors.FS.ReadFile(name)
	if err != nil {
		return "", err
	}
	end := delimiter.FindString(before)
	if end == "" {
		random := make([]byte, 16)
		rand.Read(random)
		end = "POLLUX_" + hex.EncodeToString(random)
	}
	return strings.NewReplacer("@POLLUX@", command, "@DELIMITER@", end).Replace(string(text)), nil
}

func validTOML(text string) error {
	var v map[string]any
	return decodeTOML(text, &v)
}

// addCommand names the binary where it is not the one that the editor would
// find.
func addCommand(files map[string]string, command string) {
	if filepath.Base(command) != command {
		files["command"] = command + "\n"
	}
}

var helpTag = regexp.MustCompile(`\*([^*\s|]+)\*(?:\s|$)`)

// addHelpTags makes the index that :help needs: native packages come without
// a step that would.
func addHelpTags(files map[string]string, command string) {
	addCommand(files, command)
	var tags []string
	for name, text := range files {
		if path.Dir(name) == "doc" {
			for _, m := range helpTag.FindAllStringSubmatch(text, -1) {
				tags = append(tags, fmt.Sprintf("%s\t%s\t/*%s*\n", m[1], path.Base(name), m[1]))
			}
		}
	}
	slices.Sort(tags)
	files["doc/tags"] = strings.Join(tags, "")
}

// addEmacsPackage makes what Emacs's package manager makes of a package. The
// mode is on, since the user has asked for it by installing it this way.
func addEmacsPackage(files map[string]string, command string) {
	addCommand(files, command)
	h := emacsHeaders()
	files["pollux-pkg.el"] = fmt.Sprintf(";;; -*- no-byte-compile: t -*-\n(define-package \"pollux\" %q \"Gemini CLI's companion\" '%s)\n", h["Version"], h["Package-Requires"])
	files["pollux-autoloads.el"] = `;;; pollux-autoloads.el -- written by pollux install -*- lexical-binding: t -*-
(add-to-list 'load-path (directory-file-name (or (file-name-directory #$) (car load-path))))
(autoload 'pollux-mode "pollux" "Be the companion of Gemini CLI." t)
(dolist (command '(pollux-open pollux-toggle pollux-send pollux-diagnostics pollux-status pollux-menu))
  (autoload command "pollux" nil t))
;; When Emacs has started and is idle, so that nobody waits for what it loads.
(add-hook 'emacs-startup-hook
          (lambda ()
            (run-with-idle-timer 0.1 nil
                                 (lambda ()
                                   (let ((gc-cons-threshold (max gc-cons-threshold 64000000)))
                                     (pollux-mode 1))))))
`
}

func newInstallEditor(streams IO, h editorHome) *cobra.Command {
	var remove, yes bool
	cmd := &cobra.Command{
		Use:   h.name,
		Short: "Make Pollux a part of " + h.title,
		Long: fmt.Sprintf(`Puts Pollux where %s looks for it. What would be written is shown first, and
written when you agree; run it again after an update of Pollux. Files of yours
stay as they are.

--remove takes it out again.`, h.title),
		RunE: func(*cobra.Command, []string) error { return h.install(streams, remove, yes) },
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "take Pollux out again")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// A plan is what an installation changes.
type plan struct {
	write  map[string]string // by path; the content
	remove []string          // paths of files
	dirs   []string          // of packages; they go when they are empty
	show   string            // to the user
	before map[string]string // by path; what was there when the plan was made
}

// contents are the files that the plan changes, as they are now.
func (p *plan) contents() map[string]string {
	now := make(map[string]string)
	for _, name := range slices.Concat(slices.Collect(maps.Keys(p.write)), p.remove) {
		if data, err := sys.ReadFile(name, maxSettings); err == nil {
			now[name] = string(data)
		}
	}
	return now
}

// carryOut does what the plan says, unless a file has changed since.
func (p *plan) carryOut() error {
	if !maps.Equal(p.before, p.contents()) {
		return errors.New("the files have changed meanwhile, and nothing is written: start it again")
	}
	for _, name := range slices.Sorted(maps.Keys(p.write)) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := sys.EditFile(name, p.before[name], p.write[name], 0o666); err != nil {
			return err
		}
	}
	for _, name := range p.remove {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for d := filepath.Dir(name); p.owns(d) && os.Remove(d) == nil; d = filepath.Dir(d) {
		}
	}
	return nil
}

// owns reports whether a directory is there for a package and nothing else.
func (p *plan) owns(d string) bool {
	return slices.ContainsFunc(p.dirs, func(dir string) bool {
		return strings.HasPrefix(d+string(filepath.Separator), top(dir)+string(filepath.Separator))
	})
}

func (h editorHome) install(streams IO, remove, yes bool) error {
	command, err := ownCommand()
	if err != nil {
		return err
	}
	if filepath.Base(command) == "pollux" && onPath(command) {
		command = "pollux"
	}
	p := plan{write: make(map[string]string)}
	if h.dir != nil {
		dir, err := h.dir()
		if err != nil {
			return err
		}
		if err := h.planPackage(&p, dir, command, remove); err != nil {
			return err
		}
		others, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), h.versions, manifestName))
		for _, manifest := range others {
			if other := filepath.Dir(manifest); other != dir {
				if err := h.planPackage(&p, other, command, true); err != nil {
					return err
				}
			}
		}
	}
	if h.config != nil {
		if err := h.planConfig(&p, command, remove); err != nil {
			return err
		}
	}
	if len(p.write) == 0 && len(p.remove) == 0 {
		state := "in"
		if remove {
			state = "not in"
		}
		fmt.Fprintf(streams.Err, "pollux: nothing to do: Pollux is %s %s\n", state, h.title)
		return nil
	}
	p.before = p.contents()
	fmt.Fprint(streams.Out, p.show)
	question := "Write this?"
	if remove {
		question = "Remove this?"
	}
	if agreed, err := confirm(streams, question, yes); err != nil || !agreed {
		return err
	}
	if err := p.carryOut(); err != nil {
		return err
	}
	if remove {
		fmt.Fprintf(streams.Err, "pollux: it is out of %s\n", h.title)
	} else {
		fmt.Fprintf(streams.Err, "pollux: done; %s\n", h.after)
	}
	return nil
}

// top is the highest directory of a package that is there for nothing else:
// of pack/pollux/start/pollux the first pollux.
func top(dir string) string {
	if pack := filepath.Dir(filepath.Dir(dir)); filepath.Base(pack) == "pollux" {
		return pack
	}
	return dir
}

// onPath reports whether the command is what its name finds on the PATH.
func onPath(command string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if candidate := filepath.Join(dir, filepath.Base(command)); exists(candidate) {
			return candidate == command
		}
	}
	return false
}

// manifestName lists the files of a package that we wrote, with their sums.
const manifestName = ".pollux.json"

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func (h editorHome) planPackage(p *plan, dir, command string, remove bool) error {
	p.dirs = append(p.dirs, dir)
	had := make(map[string]string)
	data, err := sys.ReadFile(filepath.Join(dir, manifestName), maxSettings)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &had); err != nil {
			return fmt.Errorf("%s is damaged: remove %s by hand", filepath.Join(dir, manifestName), dir)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case exists(dir) && !remove:
		return fmt.Errorf("%s was not made by pollux install: move it away first", dir)
	case exists(dir):
		return fmt.Errorf("%s was not made by pollux install: remove it by hand", dir)
	}
	files := make(map[string]string)
	if !remove {
		if files, err = packageFiles(h.name); err != nil {
			return err
		}
		h.extra(files, command)
	}
	sums := make(map[string]string)
	for name, text := range files {
		sums[name] = sum(text)
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(had)) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		now, err := sys.ReadFile(full, maxSettings)
		if err != nil {
			continue
		}
		if sum(string(now)) != had[name] && sum(string(now)) != sums[name] {
			return fmt.Errorf("%s has changes of yours: move it away first, then try again", full)
		}
		if _, stays := files[name]; !stays {
			p.remove = append(p.remove, full)
			lines = append(lines, "remove "+full)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		now, err := sys.ReadFile(full, maxSettings)
		if err == nil && string(now) == files[name] {
			continue
		}
		if _, ours := had[name]; err == nil && !ours {
			return fmt.Errorf("%s is not ours: move it away first", full)
		}
		p.write[full] = files[name]
		lines = append(lines, "write  "+full)
	}
	manifest := filepath.Join(dir, manifestName)
	if remove && len(data) > 0 {
		p.remove = append(p.remove, manifest)
	} else if text, err := json.MarshalIndent(sums, "", "  "); err == nil && !remove && string(text)+"\n" != string(data) {
		p.write[manifest] = string(text) + "\n"
	}
	p.show += strings.Join(lines, "\n")
	if len(lines) > 0 {
		p.show += "\n"
	}
	return nil
}

// packageFiles are the files of an editor's folder, by slash-separated names.
func packageFiles(editor string) (map[string]string, error) {
	files := make(map[string]string)
	err := fs.WalkDir(editors.FS, editor, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			return err
		}
		text, err := editors.FS.ReadFile(name)
		files[strings.TrimPrefix(name, editor+"/")] = string(text)
		return err
	})
	return files, err
}

// The lines between which a block of ours stands in a file of the user's.
const (
	blockBegin = "# pollux: begin (written by pollux install; --remove takes it out)\n"
	blockEnd   = "# pollux: end\n"
)

// A bareWord means itself to a shell, to Kakoune and to Helix.
var bareWord = regexp.MustCompile(`^[A-Za-z0-9_./@+,:=-]+$`)

var ownBlock = regexp.MustCompile(`(?ms)^# pollux: begin.*?^# pollux: end\n?`)

func (h editorHome) planConfig(p *plan, command string, remove bool) error {
	file, err := h.config()
	if err != nil {
		return err
	}
	before, err := readSettings(file)
	if err != nil {
		return err
	}
	after := ownBlock.ReplaceAllString(before, "")
	if !remove {
		if !bareWord.MatchString(command) {
			return fmt.Errorf("%s is a path that %s's settings cannot hold: put pollux on the PATH first", command, h.title)
		}
		block, err := snippet(h.block, command, before)
		if err != nil {
			return err
		}
		block = blockBegin + strings.TrimRight(block, "\n") + "\n" + blockEnd
		if ownBlock.MatchString(before) {
			after = ownBlock.ReplaceAllLiteralString(before, block)
		} else {
			if after != "" && !strings.HasSuffix(after, "\n") {
				after += "\n"
			}
			after += block
		}
	}
	if strings.Count(before, "# pollux: begin") != len(ownBlock.FindAllString(before, -1)) {
		return fmt.Errorf("%s has a block of Pollux's without its end: mend it by hand", file)
	}
	if after == before {
		return nil
	}
	if h.valid != nil {
		if err := h.valid(after); err != nil {
			if h.valid(before) != nil {
				return fmt.Errorf("%s is not valid (%w): correct it first", file, err)
			}
			return fmt.Errorf("%s has keys of its own where Pollux's would go (%w): add them by hand, docs/EDITORS.md has them", file, err)
		}
	}
	if info, err := os.Lstat(file); after == "" && remove && err == nil && info.Mode().IsRegular() {
		p.remove = append(p.remove, file)
	} else {
		p.write[file] = after
	}
	p.show += udiff.Unified(file, file, before, after)
	return nil
}
