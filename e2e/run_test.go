package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/internal/editor"
)

// withCLI adds the current release to the PATH.
func (w *world) withCLI() []string {
	bin := installed(w.t, "gemini-"+current, "node_modules", ".bin")
	return []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
}

var pageLink = regexp.MustCompile(`http://127\.0\.0\.1:\d+/review/#[A-Z0-9]{26}`)

func (t *terminal) link() (link string) {
	t.t.Helper()
	t.expect("review changes at this link")
	t.await("the link", func(rest string) (int, bool) {
		link = pageLink.FindString(rest)
		return 0, link != ""
	})
	return link
}

// left returns what a run left in the temporary directory.
func (w *world) left() (names []string) {
	w.t.Helper()
	tmp := filepath.Join(filepath.Dir(w.project), "tmp")
	for _, pattern := range []string{"gemini/ide/*", "pollux-demo-*", "pollux/*.sock"} {
		found, err := filepath.Glob(filepath.Join(tmp, pattern))
		if err != nil {
			w.t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// A newcomer's first steps: type a request, see that the context arrives,
// decide on the page.
func TestDemo(t *testing.T) {
	w := newWorld(t, silent)
	env := w.withCLI()
	ctx := browser(t)
	cli := w.run(w.project, env, polluxBinary, "demo", "--no-browser")
	link := cli.link()
	onPage(t, ctx, chromedp.Navigate(link))
	cli.expect(ready)
	cli.prompt("make it nicer")
	cli.expect(`I see greet.py open in the simulated editor, the cursor in line 4, and "def greet(name):" selected`)
	onPage(t, ctx, shows(".cm-merge-b", "everybody"), shows("#path", "greet.py"), settled)
	picture(t, ctx, "demo.png")
	onPage(t, ctx, settled, chromedp.Click(chromedp.CSS("#accept")), shows("#none", "No pending changes"))
	cli.expect("Done: the file contains what you accepted")
	cli.prompt("/quit")
	<-cli.done
	if code := cli.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// The journal is deleted, so the page must not recommend it.
	onPage(t, ctx, isTrue(`document.querySelector("#none").textContent === "Pollux has ended or cannot be reached."`))
}

// pollux run offers to turn IDE mode on, and the CLI connects.
func TestRunTurnsIDEModeOn(t *testing.T) {
	var path string
	w := newWorld(t, write(&path, "two\n"))
	path = w.file("f.txt", "one\n")
	settings := filepath.Join(w.home, ".gemini", "settings.json")
	data, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	off := regexp.MustCompile(`\s*"ide":.*\n`).ReplaceAllString(string(data), "\n// a comment of the user's\n")
	w.writeHome(".gemini/settings.json", off)
	cli := w.run(w.project, w.withCLI(), polluxBinary, "run", "--no-browser")
	cli.expect("[Y/n]")
	cli.keys("\r")
	cli.expect(ready)
	cli.prompt("/ide status")
	cli.expect("Connected to Pollux")
	cli.prompt("change it")
	cli.expect(asks)
	// The CLI may ask before the companion has opened the change.
	waitFor(t, "the change in the status", func() bool {
		var status []editor.Status
		err := json.Unmarshal([]byte(w.pollux("status", "--json")), &status)
		return err == nil && len(status) == 1 && len(status[0].Clients) == 1 && len(status[0].Diffs) == 1
	})
	cli.keys("1")
	cli.expect(after)
	w.wantFile(path, "two\n")
	if data, _ := os.ReadFile(settings); !strings.Contains(string(data), "a comment of the user's") {
		t.Errorf("the settings are now %s", data)
	}
}

// kill -9 of pollux run ends the CLI too, and the next start removes the files
// that are left.
func TestRunKilled(t *testing.T) {
	w := newWorld(t, silent)
	cli := w.run(w.project, w.withCLI(), polluxBinary, "run", "--no-browser")
	cli.expect(ready)
	inside := children(t, cli.cmd.Process.Pid)
	if len(inside) == 0 {
		t.Fatal("no CLI below pollux")
	}
	cli.cmd.Process.Kill()
	<-cli.done
	for _, pid := range inside {
		waitGone(t, pid)
	}
	if len(w.left()) == 0 {
		t.Error("the killed companion left nothing, so this test proves nothing")
	}
	w.edit(nil).Client.Close()
	w.pollux("status") // removes the sockets
	if left := w.left(); slices.ContainsFunc(left, func(p string) bool { return !strings.Contains(p, "-") }) || len(left) > 3 {
		t.Errorf("still there: %v", left)
	}
}

// kill -9 of the companion, and of the editor with it, while a diff is open:
// the journal has the proposal and the edits, and restore writes them.
func TestCompanionKilledWithADiffOpen(t *testing.T) {
	w, path, e, _, d := propose(t, "one\n", "two\n")
	if err := e.Edit(w.context(), d.ID, "two, edited\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Status(w.context()); err != nil {
		t.Fatal(err)
	}
	e.cmd.Process.Signal(syscall.SIGKILL)
	<-e.Done()
	e.cmd.Wait()
	if out := w.pollux("journal"); !strings.Contains(out, d.ID) || !strings.Contains(out, "orphaned, edited") {
		t.Errorf("the journal lists %q", out)
	}
	if out := w.pollux("journal", "show", d.ID); out != "two, edited\n" {
		t.Errorf("the journal shows %q", out)
	}
	w.pollux("journal", "restore", d.ID)
	w.wantFile(path, "two, edited\n")
	// Removes the files that the killed one left.
	again := w.edit(nil)
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(w.project), "tmp", "gemini", "ide", "*"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Port int }
		if json.Unmarshal(data, &got); got.Port != again.info.Port {
			t.Errorf("%s of the killed companion is left", filepath.Base(f))
		}
	}
}

// An editor dies with requests in flight. The companion still cleans up.
func TestEditorDiesWhileTalking(t *testing.T) {
	w := newWorld(t, silent)
	cmd := exec.Command("bash", "-c", `for i in $(seq 400); do echo '{"jsonrpc":"2.0","id":'$i',"method":"status"}'; done | sed '1i {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocol":1,"editor":{"name":"x","displayName":"X"}}}' | "$0" ide | true`, polluxBinary)
	cmd.Env, cmd.Dir = w.env, w.project
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
