package companion

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// An excluder decides which open files agents do not receive: those that the
// project's ignore files exclude and those that look like secrets. It also
// excludes a file if it cannot read all ignore rules that may apply to it, or if there
// are too many.
//
// A repository may have any number of ignore files of any size, and each cursor
// movement needs new decisions. So the excluder limits its memory, and keeps a
// decision until one of its ignore files changes. Until then, the same question
// costs only a few stats, and in a linked work tree or a submodule two small reads.
type excluder struct {
	names []string // of ignore files, in addition to .gitignore
	// style and stat, if set, replace the system's own in tests.
	style func(string) string
	stat  func(string) (fs.FileInfo, error)

	mu sync.Mutex // not held while a file is read
	// files holds parsed ignore files by path; cost is the sum of their costs.
	files map[string]*ignoreFile
	cost  int
	// decisions holds each file's decision by the file's path.
	decisions map[string]decision
}

// Bounds of an excluder. Costs are estimates of memory in bytes.
const (
	// maxIgnoreFile is the size of an ignore file in bytes.
	maxIgnoreFile = 1 << 20
	// maxDecisionCost bounds the ignore files of one decision: some 20,000 rules.
	maxDecisionCost = 4 << 20
	// maxKeptCost and maxKeptFiles bound all ignore files that are kept. Beyond them, and
	// beyond maxDecisions, the excluder starts again with an empty memory.
	maxKeptCost  = 4 * maxDecisionCost
	maxKeptFiles = 4096
	maxDecisions = 4096
)

// An ignoreSource is an ignore file as it is on disk now.
type ignoreSource struct {
	path string
	// depth is how many directories below the top of the project its rules begin.
	depth int
	state fileState
}

type ignoreFile struct {
	state fileState
	rules []rule
	cost  int
	// incomplete is set if the file has too many rules; rules is then empty.
	incomplete bool
}

type decision struct {
	sources  uint64 // a hash
	excluded bool
}

// excluded reports whether to hide a file from agents, because of its absolute
// path or of the path that its symbolic links lead to. The project of a file is
// the nearest directory above it that has .git, or its workspace root without
// one.
func (x *excluder) excluded(path string, roots []string) bool {
	actual := paths.Real(path)
	return x.match(path, roots) || actual != path && x.match(actual, roots)
}

func (x *excluder) match(path string, roots []string) bool {
	if secret(path) {
		return true
	}
	top := project(path, roots)
	if top == "" {
		return false
	}
	rel, err := filepath.Rel(top, path)
	if err != nil {
		return false
	}
	parts := strings.Split(rel, string(filepath.Separator))
	sources, err := x.sources(top, parts)
	if err != nil {
		return true
	}
	hash := maphash.Comparable(hashSeed, top)
	for _, s := range sources {
		hash = hash*31 + maphash.Comparable(hashSeed, s)
	}
	x.mu.Lock()
	d, ok := x.decisions[path]
	x.mu.Unlock()
	if ok && d.sources == hash {
		return d.excluded
	}
	for i := range parts {
		parts[i] = x.key(parts[i])
	}
	excluded, err := x.decide(sources, parts)
	if err != nil {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.decisions == nil || len(x.decisions) == maxDecisions {
		x.decisions = make(map[string]decision)
	}
	x.decisions[path] = decision{hash, excluded}
	return excluded
}

var hashSeed = maphash.MakeSeed()

// decide applies the sources' rules, the least specific first, to a path, given the keys of
// its parts. For each directory above the file and then for the file itself, the last match wins.
// As for git, nothing in an excluded directory is included again.
func (x *excluder) decide(sources []ignoreSource, parts []string) (excluded bool, err error) {
	left := maxDecisionCost
	files := make([]*ignoreFile, len(sources))
	for i, s := range sources {
		if files[i], err = x.read(s); err != nil {
			return true, err
		}
		left -= files[i].cost
		if files[i].incomplete || left < 0 {
			return true, nil
		}
	}
	for n := 1; n <= len(parts); n++ {
		if ruled(sources, files, parts[:n], n < len(parts)) {
			return true, nil
		}
	}
	return false, nil
}

// ruled reports whether the rules exclude a file or a directory itself.
func ruled(sources []ignoreSource, files []*ignoreFile, parts []string, dir bool) bool {
	for i, f := range slices.Backward(files) {
		if sources[i].depth >= len(parts) {
			continue
		}
		for _, r := range slices.Backward(f.rules) {
			if r.matches(parts[sources[i].depth:], dir) {
				return !r.include
			}
		}
	}
	return false
}

// sources returns the ignore files that exist for a file, the least specific
// first. It is an error if one may exist that cannot be read.
func (x *excluder) sources(top string, parts []string) (sources []ignoreSource, err error) {
	add := func(path string, depth int) error {
		info, err := x.regular(path)
		if err != nil || info == nil {
			return err
		}
		sources = append(sources, ignoreSource{path, depth, newFileState(info)})
		return nil
	}
	if config := gitConfigDir(); config != "" {
		add(filepath.Join(config, "ignore"), 0) // git, too, works without it if it cannot be read
	}
	git, err := x.gitDir(top)
	if err != nil {
		return nil, err
	}
	errs := []error{add(filepath.Join(git, "info", "exclude"), 0)}
	dir := top
	for i := range parts {
		errs = append(errs, add(filepath.Join(dir, ".gitignore"), i))
		for _, name := range x.names {
			errs = append(errs, add(filepath.Join(dir, name), i))
		}
		dir = filepath.Join(dir, parts[i])
	}
	return sources, errors.Join(errs...)
}

// regular returns the state of a regular file, or nil if the path has none. It fails if there
// may be a file that cannot be read.
func (x *excluder) regular(path string) (fs.FileInfo, error) {
	stat := os.Stat
	if x.stat != nil {
		stat = x.stat
	}
	info, err := stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode().Type() == fs.ModeIrregular: // a file on Windows whose content is elsewhere
		return nil, disk.ErrNotRegular
	case !info.Mode().IsRegular():
		return nil, nil
	}
	return info, nil
}

// gitDir returns the directory that a repository shares with its other work trees. In a
// linked work tree and in a submodule, .git is a file that names another directory.
func (x *excluder) gitDir(top string) (string, error) {
	dir := filepath.Join(top, ".git")
	if info, err := x.regular(dir); err != nil || info == nil {
		return dir, err
	}
	data, err := disk.ReadFile(dir, maxGitFile)
	if err != nil {
		return "", err
	}
	in := func(base, name string) (string, error) {
		if name = strings.TrimSpace(name); !filepath.IsAbs(name) {
			name = filepath.Join(base, name)
		}
		if paths.OnOtherServer([]string{top}, name) {
			return "", fmt.Errorf("git's directory %s is on another server", name)
		}
		return name, nil
	}
	name, _ := strings.CutPrefix(string(data), "gitdir:")
	if dir, err = in(top, name); err != nil {
		return "", err
	}
	common, err := disk.ReadFile(filepath.Join(dir, "commondir"), maxGitFile)
	switch {
	case err == nil:
		return in(dir, string(common))
	case errors.Is(err, fs.ErrNotExist): // a submodule
		return dir, nil
	}
	return "", err
}

// maxGitFile limits a file that contains a path, in bytes.
const maxGitFile = 16 << 10

// gitConfigDir returns the directory of git's user settings, on every system.
func gitConfigDir() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "git")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "git")
}

func project(path string, roots []string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, r := range roots {
		if paths.Contains(r, path) {
			return rootAsSpelled(r, path)
		}
	}
	return ""
}

// read returns an ignore file, from memory if it has not changed.
func (x *excluder) read(s ignoreSource) (*ignoreFile, error) {
	x.mu.Lock()
	f := x.files[s.path]
	x.mu.Unlock()
	if f != nil && f.state == s.state {
		return f, nil
	}
	data, err := disk.ReadFile(s.path, maxIgnoreFile)
	if err != nil && !errors.Is(err, disk.ErrTooLarge) {
		return nil, err
	}
	f = &ignoreFile{state: s.state, incomplete: err != nil}
	if err == nil {
		f.parse(data, x.key)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.files[s.path]; old != nil {
		x.cost -= old.cost
		delete(x.files, s.path)
	}
	if x.files == nil || x.cost+f.cost > maxKeptCost || len(x.files) == maxKeptFiles {
		x.files, x.cost = make(map[string]*ignoreFile), 0
	}
	x.files[s.path] = f
	x.cost += f.cost
	return f, nil
}

// key returns a form of a name or a rule that is equal for all spellings that the system
// takes for the same.
func (x *excluder) key(text string) string {
	if x.style != nil {
		return x.style(text)
	}
	return paths.Key(text)
}

// ruleCost and partCost estimate the memory of a rule, without its text, and of
// each of its parts.
const (
	ruleCost = 160
	partCost = 16
)

// parse reads the rules. Like git and Gemini CLI, it ignores case where the system does.
// Like git, it skips a byte order mark.
func (f *ignoreFile) parse(data []byte, key func(string) string) {
	data = bytes.TrimPrefix(data, []byte(bom))
	rules := bytes.Count(data, []byte("\n")) + 1
	cost := len(data) + rules*ruleCost + bytes.Count(data, []byte("/"))*partCost
	if cost > maxDecisionCost {
		f.incomplete = true
		return
	}
	f.cost = cost
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f.rules = append(f.rules, newRule(key(line)))
	}
	f.rules = slices.Clip(f.rules)
}

// secretNames are patterns of base names; secretDirs are directories whose
// files all count.
var (
	secretNames = []string{
		".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc",
		".git-credentials", ".htpasswd",
		"*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.asc", "*.gpg",
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials", "credentials.json", "client_secret*.json",
		"secrets.y*ml", "*.tfvars",
	}
	secretDirs = []string{".ssh", ".gnupg", ".aws", ".kube", ".docker"}
	templates  = []string{"example", "sample", "template", "dist"}
)

// secret reports whether a file's name says that it holds secrets. A template,
// such as .env.example, does not.
func secret(path string) bool {
	dir, name := filepath.Split(strings.ToLower(path))
	for _, t := range templates {
		if strings.HasSuffix(name, "."+t) {
			return false
		}
	}
	for _, d := range secretDirs {
		if strings.Contains(dir, string(filepath.Separator)+d+string(filepath.Separator)) {
			return true
		}
	}
	for _, p := range secretNames {
		if ok, _ := filepath.Match(p, name); ok {
			return true
		}
	}
	return false
}
