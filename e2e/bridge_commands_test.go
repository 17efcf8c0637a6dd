package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// A prompt that began with a byte order mark and "/init" wrote GEMINI.md, and
// one with "/extensions uninstall mine" deleted the user's extension, without a
// request to the model. Whatever a prompt starts with, the model must receive
// it and nothing on the disk may change.
func TestBridgeRunsNoCommand(t *testing.T) {
	t.Parallel()
	eachRunner(t, bridgeRunsNoCommand)
}

func bridgeRunsNoCommand(t *testing.T) {
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply { return fakemodel.Say("asked: " + r.Prompt) })
	extension := filepath.Join(w.home, ".gemini", "extensions", "mine")
	other := filepath.Join(filepath.Dir(w.project), "other")
	commands := filepath.Join(w.project, ".gemini", "commands")
	for path, text := range map[string]string{
		filepath.Join(extension, "gemini-extension.json"): `{"name": "mine", "version": "1.0.0"}`,
		filepath.Join(other, "gemini-extension.json"):     `{"name": "other", "version": "1.0.0"}`,
		filepath.Join(commands, "evil.toml"):              `prompt = "the command's own words: {{args}}"`,
	} {
		systest.WriteFile(t, path, text)
	}
	c := w.bridge()
	before := disk(t, w.project, filepath.Join(w.home, ".gemini", "extensions"))
	ask := func(start, prompt string) {
		t.Helper()
		seen := len(w.model.Requests())
		o := c.call("query", map[string]any{"prompt": start + prompt})
		o.want(t, false, "asked:", prompt)
		if strings.Contains(o.text, "own words") || len(w.model.Requests()) == seen {
			t.Errorf("%q ran a command: %s", start+prompt, o.text)
		}
		if after := disk(t, w.project, filepath.Join(w.home, ".gemini", "extensions")); after != before {
			t.Fatalf("%q changed the disk from\n%s\nto\n%s", start+prompt, before, after)
		}
	}
	all := []string{"init", "evil now"}
	if runner(t) == agent.Spawned { // it starts a process per prompt
		for _, start := range []string{"\ufeff/", "/", " /"} {
			if start == "\ufeff/" || !testing.Short() {
				ask(start, all[0])
			}
			if !testing.Short() {
				ask(start, all[1])
			}
		}
		w.wantNothingLeft(c)
		return
	}
	all = append(all, "extensions uninstall mine", "extensions disable mine --scope user", "extensions link "+other)
	// Nothing depends on the character that comes first: TestNoToolRunsACommand has all of them, with
	// each tool. Here each command comes after one of these, and without -short after each.
	starts := []string{"/", "\ufeff/", "\ufeff$", "/ ", "\u200b/", "\x00/"}
	for i, start := range starts {
		for j, prompt := range all {
			if i%len(all) == j || !testing.Short() {
				ask(start, prompt)
			}
		}
	}
	for i, prompt := range []string{
		"extensions install " + other, "extensions enable mine --scope user", "extensions update --all", "memory refresh", "restore", "help", "about what?",
	} {
		for j, start := range []string{"\ufeff/", "\ufeff$"} {
			if i%2 == j || !testing.Short() {
				ask(start, prompt)
			}
		}
	}
	w.wantNothingLeft(c)
}

// disk returns the files in some directories with their contents.
func disk(t *testing.T, dirs ...string) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			b.WriteString(path + "=" + string(data) + "\n")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
