package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/fakemodel"
	"pollux/internal/paths"
	"pollux/internal/sys/systest"
)

// The CLI listed the names of files anywhere, and read the transcripts of
// earlier questions and the user's memory in ~/.gemini. It may read only its
// working directory, in whatever form it writes a path. TestBridgeIsReadOnly has the other runner.
// A user who disables "always allow" can still ask the bridge to read files.
func TestBridgeReadsOnlyItsDirectory(t *testing.T) {
	t.Parallel()
	warmOrEach(t, bridgeReadsOnlyItsDirectory)
}

func bridgeReadsOnlyItsDirectory(t *testing.T) {
	type step struct {
		tool, arg, value string
	}
	var steps []step
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if strings.Contains(r.Prompt, "earlier") {
			return fakemodel.Say("Noted.")
		}
		if r.Step < len(steps) {
			s := steps[r.Step]
			args := map[string]any{s.arg: s.value}
			if s.tool == "grep_search" && s.arg != "pattern" {
				args["pattern"] = "SECRET"
			}
			return fakemodel.CallTool(s.tool, args)
		}
		return fakemodel.Say("done")
	})
	w.replaceHome(".gemini/settings.json", `"security": {`, `"security": {"disableAlwaysAllow": true, `)
	outside := filepath.Dir(w.project)
	w.file("src/inside.txt", "PUBLIC\n")
	w.file("src/inside.test.txt", "PUBLIC\n")
	for path, text := range map[string]string{
		filepath.Join(outside, "secretname.txt"):        "SECRET\n",
		filepath.Join(w.home, ".gemini", "GEMINI.md"):   "SECRET memory\n",
		filepath.Join(w.home, ".gemini", "secretname2"): "SECRET\n",
	} {
		systest.WriteFile(t, path, text)
	}
	c := w.bridge("PATH=" + machinePath) // this machine's own Node.js
	c.call("query", map[string]any{"prompt": "an earlier question with SECRET words"}).want(t, false, "Noted.")
	transcripts, err := filepath.Glob(filepath.Join(w.home, ".gemini", "tmp", "*", "chats", "*"))
	if err != nil || len(transcripts) == 0 {
		t.Fatalf("the CLI has no transcripts, so this test proves nothing: %v", err)
	}
	up, err := filepath.Rel(w.project, filepath.Dir(transcripts[0]))
	if err != nil {
		t.Fatal(err)
	}
	chats := filepath.Dir(transcripts[0])
	slash := filepath.ToSlash // patterns have no backslashes
	steps = []step{
		{"glob", "pattern", slash(outside) + "/secretn*"}, {"glob", "pattern", outside + "/secretn*"}, {"glob", "pattern", "../secretn*"}, {"glob", "pattern", ".{.,x}/secretn*"},
		{"glob", "pattern", "{x,}" + slash(outside) + "/secretn*"}, {"glob", "pattern", "[.][.]/secretn*"}, {"glob", "pattern", "{[,]}.]{[,]}.]/secretn*"}, {"glob", "pattern", slash(w.home) + "/.gemini/secretn*"},
		{"glob", "pattern", slash(chats) + "/*"}, {"list_directory", "dir_path", chats}, {"list_directory", "dir_path", up},
		{"read_file", "file_path", transcripts[0]}, {"read_file", "file_path", filepath.Join(up, filepath.Base(transcripts[0]))},
		{"read_file", "file_path", strings.ReplaceAll(filepath.Join(up, filepath.Base(transcripts[0])), "..", "%2e%2e")},
		{"read_file", "file_path", filepath.Join(w.home, ".gemini", "GEMINI.md")}, {"read_file", "file_path", "file://" + transcripts[0]}, {"read_file", "file_path", paths.ToURL(transcripts[0])}, {"read_file", "file_path", slash(transcripts[0])},
		{"grep_search", "dir_path", chats}, {"grep_search", "dir_path", up}, {"grep_search", "include_pattern", "../**"},
		// Inside.
		{"glob", "pattern", "src/*.{txt,md}"}, {"glob", "pattern", "**/*.{test,spec}.txt"}, {"glob", "pattern", slash(w.project) + "/src/*.txt"}, {"read_file", "file_path", "src/inside.txt"},
		{"read_file", "file_path", filepath.Join(w.project, "src", "inside.txt")}, {"list_directory", "dir_path", w.project},
		{"list_directory", "dir_path", "src"}, {"grep_search", "pattern", "PUB"},
	}
	const inside = 8 // the last ones are inside
	c.call("query", map[string]any{"prompt": "go", "timeout": 60000}).want(t, false, "done")
	answers := map[int]string{}
	for _, r := range w.model.Requests() {
		for _, result := range r.Results {
			answers[r.Step-1] = string(result.Response)
		}
	}
	for i, s := range steps {
		text := answers[i]
		if i < len(steps)-inside {
			if !strings.Contains(text, "denied by policy") || strings.Contains(text, "secretname") || strings.Contains(text, "SECRET") {
				t.Errorf("%+v: %q", s, text)
			}
		} else if strings.Contains(text, "denied") || !strings.Contains(text, "inside.txt") && !strings.Contains(text, "PUBLIC") && !strings.Contains(text, "src") {
			t.Errorf("%+v: %q", s, text)
		}
	}
	w.wantNothingLeft(c)
}
