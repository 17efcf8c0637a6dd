package install

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"pollux/editors"
	"pollux/internal/lazy"
	"pollux/internal/sys/disk"
)

// Plan returns the change that adds Pollux to the editor, or removes it.
func (e Editor) Plan(remove bool) (*Plan, error) {
	m := here()
	if m.goos == "windows" && e.posix != "" && !remove {
		return nil, fmt.Errorf("Pollux's settings for %s need the shell sh, which Windows does not have: %s", e.Title, e.posix)
	}
	command, err := ownCommand()
	if err != nil {
		return nil, err
	}
	if found, err := exec.LookPath("pollux"); err == nil && found == command && !e.desktop {
		command = "pollux"
	}
	p := &Plan{fileMode: 0o666, dirMode: 0o755}
	if e.dir != nil {
		dir, err := e.dir(m)
		if err != nil {
			return nil, err
		}
		if err := e.planPackage(p, dir, command, remove); err != nil {
			return nil, err
		}
		others, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), e.versions, manifestName))
		for _, manifest := range others {
			if other := filepath.Dir(manifest); other != dir {
				if err := e.planPackage(p, other, command, true); err != nil {
					return nil, err
				}
			}
		}
	}
	if e.config != nil {
		if err := e.planConfig(m, p, command, remove); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// top returns the highest directory that contains only the package: the first
// pollux in pack/pollux/start/pollux.
func top(dir string) string {
	if pack := filepath.Dir(filepath.Dir(dir)); filepath.Base(pack) == "pollux" {
		return pack
	}
	return dir
}

// manifestName is the file that lists a package's files with their checksums.
const manifestName = ".pollux.json"

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func (e Editor) planPackage(p *Plan, dir, command string, remove bool) error {
	p.dirs = append(p.dirs, dir)
	had := make(map[string]string)
	data, err := disk.ReadFile(filepath.Join(dir, manifestName), maxFile)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &had); err != nil {
			return fmt.Errorf("%s is damaged: remove %s by hand", filepath.Join(dir, manifestName), dir)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case disk.Exists(dir) && !remove:
		return fmt.Errorf("%s was not made by pollux install: move it away first", dir)
	case disk.Exists(dir):
		return fmt.Errorf("%s was not made by pollux install: remove it by hand", dir)
	}
	files, err := packageFiles(cmp.Or(e.folder, e.Name))
	if err != nil {
		return err
	}
	e.extra(files, command)
	sums := make(map[string]string)
	for name, text := range files {
		sums[name] = sum(text)
		// An update that failed may have written it.
		if now, err := disk.ReadFile(filepath.Join(dir, filepath.FromSlash(name)), maxFile); err == nil && string(now) == text {
			had[name] = sums[name]
		}
	}
	if remove {
		clear(files)
	}
	var written, removed []fileChange
	for _, name := range slices.Sorted(maps.Keys(had)) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		now, err := disk.ReadFile(full, maxFile)
		if err != nil {
			continue
		}
		if sum(string(now)) != had[name] && sum(string(now)) != sums[name] {
			return fmt.Errorf("%s has your changes: move it away first, then try again", full)
		}
		if _, stays := files[name]; !stays {
			removed = append(removed, fileChange{path: full, before: string(now), remove: true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		now, err := disk.ReadFile(full, maxFile)
		if err == nil && string(now) == files[name] {
			continue
		}
		if _, ours := had[name]; err == nil && !ours {
			return fmt.Errorf("%s was not written by pollux install: move it away first", full)
		}
		written = append(written, fileChange{path: full, before: string(now), after: files[name]})
	}
	p.shows("remove", dir, removed)
	p.shows("write ", dir, written)
	text, err := json.MarshalIndent(sums, "", "  ")
	if err != nil {
		return err
	}
	manifest := fileChange{path: filepath.Join(dir, manifestName), before: string(data), after: string(text) + "\n", remove: remove}
	if remove && len(data) == 0 || !remove && manifest.after == manifest.before {
		p.changes = slices.Concat(p.changes, written, removed)
	} else if len(data) == 0 {
		p.changes = slices.Concat(p.changes, []fileChange{manifest}, written, removed)
	} else { // until then, the old one is right
		p.changes = slices.Concat(p.changes, written, removed, []fileChange{manifest})
	}
	return nil
}

// shows adds files of a directory to the text for the user: the path if there is one, and
// otherwise the directory, which belongs to Pollux.
func (p *Plan) shows(verb, dir string, files []fileChange) {
	switch len(files) {
	case 0:
	case 1:
		p.Text += fmt.Sprintf("%s %s\n", verb, files[0].path)
	default:
		p.Text += fmt.Sprintf("%s %s (%d files)\n", verb, dir, len(files))
	}
}

// packageFiles returns the files of a folder in [editors.FS], by slash-separated name.
func packageFiles(folder string) (map[string]string, error) {
	files := make(map[string]string)
	err := fs.WalkDir(editors.FS, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			return err
		}
		text, err := editors.FS.ReadFile(name)
		files[strings.TrimPrefix(name, folder+"/")] = string(text)
		return err
	})
	return files, err
}

// The lines that surround Pollux's block in a user's file.
const (
	blockBegin = "# pollux: begin (written by pollux install; --remove removes it)\n"
	blockEnd   = "# pollux: end\n"
)

// bareWord matches a word that needs no quotes in a shell, Kakoune or Helix.
var bareWord = lazy.Regexp(`^[A-Za-z0-9_./@+,:=-]+$`)

var ownBlock = lazy.Regexp(`(?ms)^# pollux: begin.*?^# pollux: end\n?`)

func (e Editor) planConfig(m machine, p *Plan, command string, remove bool) error {
	file, err := e.config(m)
	if err != nil {
		return err
	}
	before, err := readSettings(file)
	if err != nil {
		return err
	}
	after := ownBlock().ReplaceAllString(before, "")
	if !remove {
		if !bareWord().MatchString(command) {
			return fmt.Errorf("%s is a path that %s's settings cannot contain: put pollux on the PATH first", command, e.Title)
		}
		block, err := snippet(e.block, command, before)
		if err != nil {
			return err
		}
		block = blockBegin + strings.TrimRight(block, "\n") + "\n" + blockEnd
		if ownBlock().MatchString(before) {
			after = ownBlock().ReplaceAllLiteralString(before, block)
		} else {
			if after != "" && !strings.HasSuffix(after, "\n") {
				after += "\n"
			}
			after += block
		}
	}
	if strings.Count(before, "# pollux: begin") != len(ownBlock().FindAllString(before, -1)) {
		return fmt.Errorf("%s has a Pollux block without its end line: fix it by hand", file)
	}
	if after == before {
		return nil
	}
	if e.valid != nil {
		if err := e.valid(after); err != nil {
			if e.valid(before) != nil {
				return fmt.Errorf("%s is not valid (%w): correct it first", file, err)
			}
			return fmt.Errorf("%s already has keys where Pollux's would go (%w): add Pollux's by hand, see `pollux help editors`",
				file, err)
		}
	}
	info, err := os.Lstat(file)
	whole := after == "" && remove && err == nil && info.Mode().IsRegular()
	p.changes = append(p.changes, fileChange{path: file, before: before, after: after, remove: whole})
	p.Text += udiff.Unified(file, file, before, after)
	return nil
}
