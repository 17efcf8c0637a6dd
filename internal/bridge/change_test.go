package bridge

import (
	"context"
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

// propose asks a runner for changes in a directory.
func propose(t *testing.T, dir string, r agent.Runner) (Answer, error) {
	t.Helper()
	return newTestBridge(t, r, nil).Ask(t.Context(), QueryInput{Prompt: "x", ChangeMode: true, Common: Common{WorkingDirectory: dir}}, nil)
}

// The text of an answer lost the blank lines at the end of its diff, and git
// called the patch corrupt. A client that shows models only the text must get
// the same diff as in the structured content.
func TestTextHoldsTheDiff(t *testing.T) {
	for _, after := range []string{"1\n\n\n\n", "1\n  \n\t\n", "1\ntwo"} {
		for _, response := range []string{"", "I did it.\n\n"} {
			dir := changetest.Project(t, false, map[string]string{"a.txt": "one" + after[1:]})
			b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
				err := r.Change.Files().Write(filepath.Join(dir, "a.txt"), after)
				return agent.Result{Answer: response, Model: "gemini-test", Changed: true}, err
			}), nil)
			r, _ := callTool(t, connect(t, b, "test", fileURI(dir)), "query", `{"prompt":"x","changeMode":true}`)
			content, _ := r.StructuredContent.(map[string]any)
			diff, _ := content["diff"].(string)
			if text := r.Content[0].(*mcp.TextContent).Text; diff == "" || text != response+diff {
				t.Errorf("the text is %q, the diff %q", text, diff)
			}
		}
	}
}

// A write while the agent runs is detected, and no edits are returned. If the bridge cannot
// tell whether files changed, it reports that they did. A file that git ignores may change.
func TestSnapshotSeesWrites(t *testing.T) {
	for name, want := range map[string]string{
		"a.txt": "files changed while Gemini CLI ran", ".git/config": "cannot tell whether files changed", "ignored": "",
	} {
		dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n", ".gitignore": "ignored\n"})
		a, err := propose(t, dir, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
			systest.WriteFile(t, filepath.Join(dir, name), "broken[")
			return say(changetest.Block("a.txt:1-1", "one", "1"))
		}))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		systest.WantError(t, err, want, "git status")
		if a.Changes == nil || !a.Changes.AppliedWrites || len(a.Changes.Edits) != 0 {
			t.Errorf("%s: changes %+v", name, a.Changes)
		}
	}
}

// The answer gives the reason for a failed call even if files changed during it: another
// attempt would fail too.
func TestWrittenAndFailed(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n"})
	_, err := propose(t, dir, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
		err := os.WriteFile(filepath.Join(dir, "b.txt"), nil, 0o600)
		return agent.Result{}, errors.Join(err, &agent.Error{Kind: agent.Auth, Remedy: agent.Remedy{What: "it is not signed in", Next: "sign in"}})
	}))
	systest.WantError(t, err, "files changed while Gemini CLI ran", "it is not signed in")
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
	_, err := propose(t, dir, dying{})
	systest.WantError(t, err, "files changed while Gemini CLI ran")
}

// The paths in a diff are relative to the top of the repository, as git expects.
func TestDiffOfASubdirectory(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n", "sub dir/a.txt": "one\n"})
	sub := filepath.Join(dir, "sub dir")
	a, err := propose(t, sub, answering(changetest.Block("a.txt:1-1", "one", "1")))
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
	_, err := propose(t, dir, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
		return agent.Result{Answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n1"}, errTimeout
	}))
	systest.WantError(t, err, "timed out")
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
		a, err := propose(t, dir, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
			path := filepath.Join(dir, "new", "deep", "b.txt")
			if err := r.Change.Files().Write(path, "two\n"); err != nil {
				t.Error(err)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Error(err)
			}
			return agent.Result{Model: "gemini-test", Changed: true}, nil
		}))
		if err != nil || len(a.Changes.Edits) != 1 || a.Changes.AppliedWrites {
			t.Errorf("repository %v: %+v, %v", repository, a.Changes, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("repository %v: the directory is still there: %v", repository, err)
		}
	}
}
