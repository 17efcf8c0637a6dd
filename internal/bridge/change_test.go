package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent"
	"pollux/internal/bridge/change/changetest"
	"pollux/internal/sys/systest"
)

func changing(t *testing.T, answer string, meanwhile func(dir string), files map[string]string, repository bool) (Answer, error) {
	t.Helper()
	dir := changetest.Project(t, repository, files)
	b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
		if meanwhile != nil {
			meanwhile(r.Dir)
		}
		return say(answer)
	}), nil)
	return b.Ask(t.Context(), QueryInput{Prompt: "x", ChangeMode: true, Common: Common{WorkingDirectory: dir}}, nil)
}

func TestChangeModeReturnsEdits(t *testing.T) {
	a, err := changing(t, "Here.\n"+changetest.Block("a.txt:1-1", "one", "1"), nil, map[string]string{"a.txt": "one\n"}, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%+v", a.Changes.Edits); got != "[{Path:a.txt StartLine:1 EndLine:1 Old:one New:1 Create:false Delete:false}]" {
		t.Errorf("edits %s", got)
	}
	if !strings.Contains(a.Text, "Here.") || !strings.Contains(a.Text, "+1") || a.Changes.AppliedWrites {
		t.Errorf("text %q", a.Text)
	}
}

// The text of an answer lost the blank lines at the end of its diff, and git
// called the patch corrupt. A client that shows models only the text must get
// the same diff as in the structured content.
func TestTextHoldsADiffThatApplies(t *testing.T) {
	for name, test := range map[string]struct{ before, after string }{
		"blank lines after":          {"one\n\n\n\n", "1\n\n\n\n"},
		"blank lines, then text":     {"one\n\n\n\ntwo\n", "1\n\n\n\ntwo\n"},
		"spaces after":               {"one\n  \n\t\n", "1\n  \n\t\n"},
		"no final line ending":       {"one\ntwo", "1\ntwo"},
		"no final line ending, here": {"one\ntwo", "one\n2"},
		"CRLF":                       {"one\r\n\r\n\r\n", "1\r\n\r\n\r\n"},
		"CRLF, no final line ending": {"one\r\n\r\ntwo", "1\r\n\r\ntwo"},
		"blank lines go":             {"one\n\n\n", "one\n"},
		"blank lines come":           {"one\n", "one\n\n\n"},
		"a new file":                 {"", "new\n\n\n"},
		"an empty one":               {"", ""},
	} {
		for _, response := range []string{"", "I did it.\n\n"} {
			t.Run(name+"/"+strings.TrimSpace(response), func(t *testing.T) {
				files := map[string]string{"other.txt": "other\n"}
				if test.before != "" {
					files["a.txt"] = test.before
				}
				dir := changetest.Project(t, true, files)
				b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
					if err := r.Change.Files().Write(filepath.Join(dir, "a.txt"), test.after); err != nil {
						t.Error(err)
					}
					return agent.Result{Answer: response, Model: "gemini-test", Changed: true}, nil
				}), nil)
				args, err := json.Marshal(map[string]any{"prompt": "x", "changeMode": true, "workingDirectory": dir})
				if err != nil {
					t.Fatal(err)
				}
				r, _ := callTool(t, connect(t, b, "test"), "query", string(args))
				text := r.Content[0].(*mcp.TextContent).Text
				patch := filepath.Join(t.TempDir(), "patch")
				systest.WriteFile(t, patch, text[strings.Index(text, "diff --git"):])
				changetest.Git(t, dir, "apply", "--check", patch)
				changetest.Git(t, dir, "apply", patch)
				if got, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(got) != test.after {
					t.Errorf("a.txt is %q, %v; want %q, by\n%s", got, err, test.after, text)
				}
			})
		}
	}
}

// Any write while the agent runs is detected, and no edits are returned.
func TestSnapshotSeesWrites(t *testing.T) {
	files := map[string]string{"a.txt": "one\n", "dirty.txt": "x\n", ".gitignore": "ignored\n"}
	write := func(name, text string) func(string) {
		return func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	for _, repository := range []bool{true, false} {
		for name, meanwhile := range map[string]func(string){
			"changed":       write("a.txt", "two\n"),
			"new":           write("b.txt", "x"),
			"removed":       func(dir string) { os.Remove(filepath.Join(dir, "a.txt")) },
			"mode":          func(dir string) { os.Chmod(filepath.Join(dir, "a.txt"), 0o444) },
			"changed again": func(dir string) { write("dirty.txt", "z\n")(dir) },
		} {
			t.Run(fmt.Sprintf("%s, repository %v", name, repository), func(t *testing.T) {
				a, err := changing(t, changetest.Block("a.txt:1-1", "one", "1"), meanwhile, files, repository)
				wantWords(t, err, "files changed while Gemini CLI ran", "git status")
				if a.Changes == nil || !a.Changes.AppliedWrites || len(a.Changes.Edits) != 0 {
					t.Errorf("changes %+v", a.Changes)
				}
			})
		}
	}
	if _, err := changing(t, changetest.Block("a.txt:1-1", "one", "1"), write("ignored", "x"), files, true); err != nil {
		t.Errorf("a write that git ignores: %v", err)
	}
}

// The answer gives the reason for a failed call even if files changed during it: another
// attempt would fail too.
func TestWrittenAndFailed(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n"})
	b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
		err := os.WriteFile(filepath.Join(dir, "b.txt"), nil, 0o600)
		return agent.Result{}, errors.Join(err, &agent.Error{Kind: agent.Auth, Remedy: agent.Remedy{What: "it is not signed in", Next: "sign in"}})
	}), nil)
	_, err := b.Ask(t.Context(), QueryInput{Prompt: "x", ChangeMode: true, Common: Common{WorkingDirectory: dir}}, nil)
	wantWords(t, err, "files changed while Gemini CLI ran", "it is not signed in")
	var fault *agent.Error
	if !errors.As(err, &fault) || fault.Kind != agent.Auth {
		t.Errorf("the kind is not in %v", err)
	}
}

// The user saves an attached file while its state is recorded. Its edits fit the text that
// the model received.
func TestSavedWhileItBegins(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("it needs a git in a script of sh: ", err)
	}
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n"})
	bin := t.TempDir()
	// The first call of git saves the file.
	wrapper := fmt.Sprintf("#!/bin/sh\nmkdir '%s/saved' 2>/dev/null && printf 'saved\\n' > '%s/a.txt'\nexec '%s' \"$@\"\n", bin, dir, git)
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	prompt := ""
	b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
		prompt = r.Prompt
		return say(changetest.Block("a.txt:1-1", "saved", "1"))
	}), nil)
	a, err := b.Ask(t.Context(), QueryInput{Prompt: "x", Files: []string{"a.txt"}, ChangeMode: true, Common: Common{WorkingDirectory: dir}}, nil)
	if err != nil || len(a.Changes.Edits) != 1 || !strings.Contains(prompt, "saved") {
		t.Errorf("%+v, %v; the prompt is %q", a.Changes, err, prompt)
	}
}

// A dying is a runner whose process still writes after its answer.
type dying struct{ script }

func (dying) Run(ctx context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
	go func() {
		time.Sleep(100 * time.Millisecond)
		os.WriteFile(filepath.Join(r.Dir, "late.txt"), nil, 0o644)
		r.Released()
	}()
	return say(changetest.Block("a.txt:1-1", "one", "1"))
}

// A write while the process exits is also detected.
func TestSnapshotSeesLateWrites(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n"})
	b := newTestBridge(t, dying{}, nil)
	_, err := b.Ask(t.Context(), QueryInput{Prompt: "x", ChangeMode: true, Common: Common{WorkingDirectory: dir}}, nil)
	wantWords(t, err, "files changed while Gemini CLI ran")
}

// If the bridge cannot tell whether files changed, it reports that they did.
func TestSnapshotFailsClosed(t *testing.T) {
	a, err := changing(t, changetest.Block("a.txt:1-1", "one", "1"), func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, ".git", "config"), []byte("broken["), 0o600); err != nil {
			t.Error(err)
		}
	}, map[string]string{"a.txt": "one\n"}, true)
	wantWords(t, err, "cannot tell whether files changed", "git status")
	if a.Changes == nil || !a.Changes.AppliedWrites {
		t.Errorf("changes %+v", a.Changes)
	}
}

// The paths in a diff are relative to the top of the repository, as git expects.
func TestDiffOfASubdirectory(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n", "sub dir/a.txt": "one\n"})
	sub := filepath.Join(dir, "sub dir")
	b := newTestBridge(t, answering(changetest.Block("a.txt:1-1", "one", "1")), nil)
	a, err := b.Ask(t.Context(), QueryInput{Prompt: "x", ChangeMode: true, Common: Common{WorkingDirectory: sub}}, nil)
	if err != nil || a.Changes.Edits[0].Path != "a.txt" {
		t.Fatalf("%+v, %v", a.Changes, err)
	}
	patch := filepath.Join(t.TempDir(), "patch")
	systest.WriteFile(t, patch, a.Changes.Diff)
	changetest.Git(t, sub, "apply", patch)
	for path, want := range map[string]string{filepath.Join(dir, "a.txt"): "one\n", filepath.Join(sub, "a.txt"): "1\n"} {
		systest.WantFile(t, path, want)
	}
}

func TestPartialChangesAreNone(t *testing.T) {
	dir := changetest.Project(t, false, map[string]string{"a.txt": "one\n"})
	b := newTestBridge(t, script(func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
		<-ctx.Done()
		return agent.Result{Answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n1"}, context.Cause(ctx)
	}), nil)
	timeout := Integer(2000)
	_, err := b.Ask(t.Context(), QueryInput{Prompt: "x", ChangeMode: true, Common: Common{WorkingDirectory: dir, Timeout: &timeout}}, nil)
	wantWords(t, err, "timed out")
	var f *Failure
	if !errors.As(err, &f) || f.Partial == "" {
		t.Error("what there was is lost")
	}
}

// An agent creates the directory of a new file on the disk. Afterwards it is
// gone, and does not count as a change.
func TestEmptyDirectoriesAreRemoved(t *testing.T) {
	for _, repository := range []bool{true, false} {
		dir := changetest.Project(t, repository, map[string]string{"a.txt": "one\n"})
		b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
			path := filepath.Join(dir, "new", "deep", "b.txt")
			if err := r.Change.Files().Write(path, "two\n"); err != nil {
				t.Error(err)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Error(err)
			}
			return agent.Result{Model: "gemini-test", Changed: true}, nil
		}), nil)
		a, err := b.Ask(t.Context(), QueryInput{Prompt: "x", ChangeMode: true, Common: Common{WorkingDirectory: dir}}, nil)
		if err != nil || len(a.Changes.Edits) != 1 || a.Changes.AppliedWrites {
			t.Errorf("repository %v: %+v, %v", repository, a.Changes, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("repository %v: the directory is still there: %v", repository, err)
		}
	}
}
