package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tailscale/hujson"

	"pollux/internal/sys"
)

// Gemini CLI connects to a companion only with IDE mode on, which is a setting
// of the user's. No variable, flag or file of ours can turn it on for one run:
// the CLI takes its system-wide settings from directories of root's only. Its
// own first question, "Do you want to connect ... ?", leads nowhere for an
// editor that it has no extension for. So we ask.

// offerIDEMode asks the user to turn IDE mode on, where it is neither on nor
// turned off, and changes that one setting. Where nobody can be asked it says
// how.
func offerIDEMode(streams IO, interactive bool) error {
	path, err := geminiSettings()
	if err != nil {
		return err
	}
	settings, err := readSettings(path)
	if err != nil {
		fmt.Fprintf(streams.Err, "pollux: %v\n", err)
		return nil
	}
	if _, set := ideEnabled(settings); set {
		return nil
	}
	if !interactive {
		fmt.Fprintln(streams.Err, "pollux: Gemini CLI's IDE mode is off: type /ide enable in it, once")
		return nil
	}
	fmt.Fprintf(streams.Err, "pollux: Gemini CLI connects to editors only in IDE mode, which is not on.\nTurn it on in %s? [Y/n] ", path)
	yes, err := agreed(streams.In)
	if err != nil {
		return err
	}
	if !yes {
		fmt.Fprintln(streams.Err, "pollux: left off; /ide enable in Gemini CLI turns it on")
		return nil
	}
	return enableIDE(path, settings)
}

// agreed reads the answer to a question that [Y/n] ends.
func agreed(in io.Reader) (bool, error) {
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return false, err
	}
	a := strings.ToLower(strings.TrimSpace(answer))
	return a == "" || a == "y" || a == "yes", nil
}

func geminiSettings() (string, error) {
	home := os.Getenv("GEMINI_CLI_HOME")
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(home, ".gemini", "settings.json"), nil
}

// readSettings reads settings, which may hold comments.
func readSettings(path string) (hujson.Value, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(strings.TrimSpace(string(data))) == 0 {
		data, err = []byte("{}\n"), nil
	}
	if err != nil {
		return hujson.Value{}, err
	}
	v, err := hujson.Parse(data)
	if err != nil {
		return v, fmt.Errorf("%s is not valid, so that it is left alone: %w", path, err)
	}
	return v, nil
}

// ideEnabled reports whether IDE mode is on, and whether the user has set it
// at all.
func ideEnabled(v hujson.Value) (on, set bool) {
	v = v.Clone()
	v.Standardize()
	var s struct {
		IDE struct{ Enabled *bool }
	}
	if json.Unmarshal(v.Pack(), &s) != nil || s.IDE.Enabled == nil {
		return false, false
	}
	return *s.IDE.Enabled, true
}

// enableIDE turns IDE mode on and leaves the rest of the file, comments
// included, as it is.
func enableIDE(path string, v hujson.Value) error {
	patch := `[{"op":"add","path":"/ide/enabled","value":true},{"op":"add","path":"/ide/hasSeenNudge","value":true}]`
	if v.Find("/ide") == nil {
		patch = `[{"op":"add","path":"/ide","value":{"enabled":true,"hasSeenNudge":true}}]`
	}
	if err := v.Patch([]byte(patch)); err != nil {
		return fmt.Errorf("%s cannot be changed (%w): type /ide enable in Gemini CLI", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return sys.ReplaceFile(path, string(v.Pack()))
}
