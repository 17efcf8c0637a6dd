// Package settings reads the settings of Gemini CLI as the CLI does: their layers
// and precedence, and whether the CLI trusts a folder. It also turns on IDE mode,
// the only setting that Pollux changes.
package settings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tailscale/hujson"

	"pollux/internal/agent"
	"pollux/internal/jsontoml"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// Home returns the directory with the user's settings, credentials and memory.
// It may not exist.
func Home(env agent.Env) (string, error) {
	home := env.Get("GEMINI_CLI_HOME")
	if home == "" {
		var err error
		if home, err = env.HomeDir(); err != nil {
			u, userErr := osuser.Current() // as Node does
			if userErr != nil || u.HomeDir == "" {
				return "", err
			}
			home = u.HomeDir
		}
	}
	return filepath.Join(home, ".gemini"), nil
}

// UserFile returns the path of the file with the user's settings, in this process's
// environment. The file may not exist.
func UserFile() (string, error) {
	home, err := Home(nil)
	return filepath.Join(home, "settings.json"), err
}

// SystemDir returns the directory with the administrator's settings and policies.
func SystemDir() string {
	switch runtime.GOOS {
	case "darwin":
		return "/Library/Application Support/GeminiCli"
	case "windows":
		return `C:\ProgramData\gemini-cli`
	}
	return "/etc/gemini-cli"
}

// SystemFiles returns the paths of two files: the administrator's settings, and the
// defaults. The files may not exist.
func SystemFiles(env agent.Env) (system, defaults string) {
	system = cmp.Or(env.Get("GEMINI_CLI_SYSTEM_SETTINGS_PATH"), filepath.Join(SystemDir(), "settings.json"))
	defaults = env.Get("GEMINI_CLI_SYSTEM_DEFAULTS_PATH")
	return system, cmp.Or(defaults, filepath.Join(filepath.Dir(system), "system-defaults.json"))
}

// TrustFile returns the path of the list of trusted folders. The file may not exist.
func TrustFile(env agent.Env, home string) string {
	return cmp.Or(env.Get("GEMINI_CLI_TRUSTED_FOLDERS_PATH"), filepath.Join(home, "trustedFolders.json"))
}

// maxFile limits a settings file, in bytes.
const maxFile = 16 << 20

// A Layer is one file of settings.
type Layer struct {
	// Name is "defaults of the system", "user", "workspace" or "system".
	Name, Path string
	// Err explains why the CLI does not start with this file.
	Err error
	// Skipped explains why the CLI ignores the file.
	Skipped string
	values  values
}

// values are a file's settings as JSON. Names are case-sensitive: the CLI
// ignores "IDE". If a name occurs twice, the last one counts.
type values map[string]json.RawMessage

// get reads the setting at a path of names. It returns false if the setting is
// missing or has another type.
func (v values) get(to any, names ...string) bool {
	raw, ok := v[names[0]]
	if !ok || string(raw) == "null" {
		return false
	}
	if len(names) == 1 {
		return json.Unmarshal(raw, to) == nil
	}
	var next values
	return json.Unmarshal(raw, &next) == nil && next.get(to, names[1:]...)
}

// Settings are the settings that apply in a directory.
type Settings struct {
	// Layers are the existing files. Later ones take precedence.
	Layers []Layer
	// Trust is whether the CLI trusts the directory. TrustFrom says what decides
	// it.
	Trust     Trust
	TrustFrom string
	// TrustErr explains why the CLI does not start with the list of trusted folders.
	TrustErr error
}

// Trust is whether the CLI trusts a folder.
type Trust int

// In an unknown folder, the CLI asks if it was started in a terminal, and
// refuses otherwise.
const (
	Unknown Trust = iota
	Trusted
	Untrusted
)

// Load reads the settings that apply to a CLI started in dir with an environment.
func Load(env agent.Env, dir string) (Settings, error) {
	home, err := Home(env)
	if err != nil {
		return Settings{}, err
	}
	var s Settings
	system, defaults := SystemFiles(env)
	add := func(l *Layer) {
		if l != nil {
			s.Layers = append(s.Layers, *l)
		}
	}
	add(read("defaults of the system", defaults, true))
	add(read("user", filepath.Join(home, "settings.json"), false))
	top := read("system", system, true)
	workspace := filepath.Join(dir, ".gemini")
	var ws *Layer
	if paths.Real(workspace) != paths.Real(home) {
		ws = read("workspace", filepath.Join(workspace, "settings.json"), false)
	}
	without := s
	if top != nil {
		without.Layers = append(without.Layers[:len(without.Layers):len(without.Layers)], *top)
	}
	s.Trust, s.TrustFrom, s.TrustErr = without.trust(env, home, dir)
	if ws != nil && s.Trust != Trusted && ws.Err == nil {
		ws.Skipped, ws.values = "the folder is not trusted", nil
	}
	add(ws)
	add(top)
	return s, nil
}

// read returns one layer, or nil if the file does not exist.
func read(name, path string, system bool) *Layer {
	if !disk.Exists(path) {
		return nil
	}
	l := &Layer{Name: name, Path: path}
	if system && !administered(path) {
		l.Skipped = "it and all directories above it must belong to root and be writable by nobody else"
		if runtime.GOOS == "windows" {
			l.Skipped = "it and all directories above it on the drive must belong to the Administrators or the system and be writable by nobody else"
		}
		return l
	}
	data, err := disk.ReadFile(path, maxFile)
	if err == nil {
		err = parse(data, &l.values)
	}
	l.Err = disk.Cause(err)
	return l
}

// administered reports whether only root can change the file at the path.
func administered(path string) bool {
	for _, p := range guards(paths.Real(path)) {
		if info, err := os.Stat(p); err != nil || !disk.Administered(p, info) {
			return false
		}
	}
	return true
}

// guards returns the file and the directories above it whose owner and permissions the CLI
// checks. On Windows it leaves out the root of the drive, where all users may create
// directories.
func guards(path string) (all []string) {
	for p := path; ; p = filepath.Dir(p) {
		root := p == filepath.Dir(p)
		if !root || runtime.GOOS != "windows" {
			all = append(all, p)
		}
		if root {
			return all
		}
	}
}

// parse reads JSON with comments but, like the CLI, without trailing commas.
func parse(data []byte, to any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("it is empty; write {} instead")
	}
	v, err := jsontoml.Parse(data)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
	}
	if trailing(v) {
		return errors.New("there is a comma after the last element, which Gemini CLI does not accept")
	}
	if _, ok := v.Value.(*hujson.Object); !ok {
		return errors.New("it is not a JSON object")
	}
	var wrong *json.UnmarshalTypeError
	if err := jsontoml.DecodeValue(v, to); err != nil && !errors.As(err, &wrong) {
		return err
	}
	return nil // the CLI only warns about a value of the wrong type
}

// trailing reports whether a comma follows the last element of an array or object.
func trailing(v hujson.Value) bool {
	for w := range v.All() {
		switch c := w.Value.(type) {
		case *hujson.Object:
			if n := len(c.Members); n > 0 && c.Members[n-1].Value.AfterExtra != nil {
				return true
			}
		case *hujson.Array:
			if n := len(c.Elements); n > 0 && c.Elements[n-1].AfterExtra != nil {
				return true
			}
		}
	}
	return false
}

// IDEMode reports whether IDE mode is on, and returns the layer that decides it.
// Without such a layer, which means off, by is nil.
func (s Settings) IDEMode() (on bool, by *Layer) {
	for i := range s.Layers {
		if s.Layers[i].values.get(&on, "ide", "enabled") {
			by = &s.Layers[i]
		}
	}
	return on, by
}

// Auth returns the selected sign-in method, by the CLI's name for it
// ("oauth-personal", "gemini-api-key", "vertex-ai"), and the one that the
// administrator enforces. Either may be empty.
func (s Settings) Auth() (kind, enforced string) {
	for _, l := range s.Layers {
		l.values.get(&kind, "security", "auth", "selectedType")
		l.values.get(&enforced, "security", "auth", "enforcedType")
	}
	return kind, enforced
}

// AuthFromEnv returns the sign-in method that the CLI chooses if none is selected,
// or "". A warm process knows only API keys and gateways.
func AuthFromEnv(get func(name string) string) string {
	switch {
	case get("GOOGLE_GENAI_USE_GCA") == "true":
		return "oauth-personal"
	case get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
		return "vertex-ai"
	case get("GOOGLE_GEMINI_BASE_URL") != "":
		return "gateway"
	case get("GEMINI_API_KEY") != "":
		return "gemini-api-key"
	case get("CLOUD_SHELL") == "true", get("GEMINI_CLI_USE_COMPUTE_ADC") == "true":
		return "compute-default-credentials"
	}
	return ""
}

func (s Settings) trustsFolders() bool {
	on := true
	for _, l := range s.Layers {
		l.values.get(&on, "security", "folderTrust", "enabled")
	}
	return on
}

func (s Settings) trust(env agent.Env, home, dir string) (Trust, string, error) {
	switch workspace := env.Get("GEMINI_CLI_TRUST_WORKSPACE"); {
	case env.Get("GEMINI_RESTRICTED_MODE") == "true":
		return Untrusted, "GEMINI_RESTRICTED_MODE", nil
	case workspace == "false":
		return Untrusted, "GEMINI_CLI_TRUST_WORKSPACE", nil
	case workspace == "true":
		return Trusted, "GEMINI_CLI_TRUST_WORKSPACE", nil
	case !s.trustsFolders():
		return Trusted, "security.folderTrust.enabled", nil
	}
	path := TrustFile(env, home)
	data, err := disk.ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Unknown, path, nil
	}
	var rules map[string]string
	if err == nil {
		err = parse(data, &rules)
	}
	if err != nil {
		return Unknown, path, fmt.Errorf("%s: %w", path, disk.Cause(err))
	}
	dir = paths.Real(dir)
	longest, trust := -1, Unknown
	for rule, level := range rules {
		root := rule
		switch level {
		case "TRUST_PARENT":
			root = filepath.Dir(rule)
		case "TRUST_FOLDER", "DO_NOT_TRUST":
		default:
			return Unknown, path, fmt.Errorf("%s: %q is not a trust level: use TRUST_FOLDER, TRUST_PARENT or DO_NOT_TRUST", path, level)
		}
		if !paths.Contains(paths.Real(root), dir) || len(rule) <= longest {
			continue
		}
		longest, trust = len(rule), Trusted
		if level == "DO_NOT_TRUST" {
			trust = Untrusted
		}
	}
	return trust, path, nil
}

// IDEModeSet reports whether a user's settings file turns IDE mode on or off. An
// invalid file is an error.
func IDEModeSet(path string) (bool, error) {
	v, _, err := readUser(path)
	if err != nil {
		return false, err
	}
	var s values
	var on bool
	return jsontoml.DecodeValue(v, &s) == nil && s.get(&on, "ide", "enabled"), nil
}

// EnableIDE turns IDE mode on in a user's settings file. It leaves the rest of
// the file, including comments, unchanged, and writes in the file's own style.
func EnableIDE(path string) error {
	v, before, err := readUser(path)
	if err != nil {
		return err
	}
	if !enableIDE(&v, jsontoml.Indent(before)) {
		return fmt.Errorf("%s cannot be changed, because ide is not an object: correct it first", path)
	}
	after := string(v.Pack())
	if n := strings.Count(before, "\n"); n > 0 && n == strings.Count(before, "\r\n") {
		after = strings.ReplaceAll(strings.ReplaceAll(after, "\r\n", "\n"), "\n", "\r\n")
	}
	// In another user's home, root would leave a file that belongs to root.
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err == nil && !disk.Own(p, info) {
			return fmt.Errorf("%s belongs to another user: run this as that user, without sudo", p)
		}
		if err == nil || p == filepath.Dir(p) {
			break
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return disk.EditFile(path, before, after, 0o600)
}

// RemoveIDE removes a settings file that holds only what EnableIDE writes into a new one,
// and its directory if that is empty then. It reports whether it did.
func RemoveIDE(path string) (bool, error) {
	v, err := jsontoml.Parse([]byte("{}\n"))
	if err != nil || !enableIDE(&v, jsontoml.Indent("")) {
		return false, err
	}
	data, err := disk.ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(data) != string(v.Pack()) {
		return false, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return false, err
	}
	os.Remove(filepath.Dir(path)) // fails if it is not empty
	return true, nil
}

// enableIDE turns IDE mode on. It returns false if the settings or their member ide
// are not objects.
func enableIDE(v *hujson.Value, indent string) bool {
	top := jsontoml.Object(v)
	if top == nil {
		return false
	}
	ide := jsontoml.Member(top, "ide")
	if ide == nil {
		jsontoml.SetInStyle(top, "ide", struct {
			Enabled      bool `json:"enabled"`
			HasSeenNudge bool `json:"hasSeenNudge"`
		}{true, true}, indent, 0)
		return true
	}
	o := jsontoml.Object(ide)
	if o == nil {
		return false
	}
	jsontoml.SetInStyle(o, "enabled", true, indent, 1)
	jsontoml.SetInStyle(o, "hasSeenNudge", true, indent, 1)
	return true
}

// readUser reads a file that will be changed, and returns it parsed and as text.
// A missing file is empty.
func readUser(path string) (v hujson.Value, text string, err error) {
	data, err := disk.ReadFile(path, maxFile)
	switch {
	case errors.Is(err, disk.ErrNotRegular) || errors.Is(err, disk.ErrTooLarge):
		return v, "", fmt.Errorf("%w: move it away, or type /ide enable in Gemini CLI and restart it", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return v, "", err
	}
	text = string(data)
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}\n")
	}
	if v, err = jsontoml.Parse(data); err != nil {
		return v, "", fmt.Errorf("%s is not valid and was left unchanged (%w): correct it first", path, err)
	}
	return v, text, nil
}
