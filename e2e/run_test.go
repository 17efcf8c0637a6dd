package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/editors/editortest"
	"pollux/internal/agent/agenttest"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/systest"
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
	w := newWorld(t, silent)
	data := systest.ReadFile(t, filepath.Join(w.home, ".gemini", "settings.json"))
	w.writeHome(".gemini/settings.json", regexp.MustCompile(`\s*"ide":.*\n`).ReplaceAllString(data, "\n"))
	cli := w.run(w.project, w.withCLI(), polluxBinary, "run", "--no-browser")
	cli.expect("[Y/n]")
	cli.keys("\r")
	cli.expect(ready)
	cli.ideStatus("Connected to Pollux")
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

// runs starts a fake agent in `pollux run`, and connects to the companion as that agent would. end
// ends both.
func (w *world) runs() (end func(), c *client.CLI) {
	w.t.Helper()
	file := filepath.Join(systest.ShortDir(w.t), "endpoint")
	cmd := exec.Command(polluxBinary, "run", "--no-browser", "--", "sh", "-c",
		`echo $GEMINI_CLI_IDE_SERVER_PORT $GEMINI_CLI_IDE_AUTH_TOKEN >"$0.new"; mv "$0.new" "$0"; cat`, file)
	cmd.Env, cmd.Dir = w.env, w.project
	in, _ := w.start(cmd)
	waitFor(w.t, "the agent", func() bool { _, err := os.Stat(file); return err == nil })
	var port int
	var token string
	if _, err := fmt.Sscan(systest.ReadFile(w.t, file), &port, &token); err != nil {
		w.t.Fatal(err)
	}
	c, err := client.Dial(w.context(), port, token)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return func() { c.Close(); in.Close(); cmd.Wait() }, c
}

// Two agents in one folder use one companion. The first one leaves, and the changes of the
// second one still reach Pollux.
func TestFirstRunLeaves(t *testing.T) {
	w := newWorld(t, silent)
	w.useClaude()
	path := w.file("a.txt", "old\n")
	endFirst, _ := w.runs()
	endSecond, second := w.runs()
	if all := w.running(); len(all) != 1 || len(all[0].Clients) != 2 {
		t.Errorf("running: %+v", all)
	}
	endFirst()
	if err := second.OpenDiff(w.context(), path, "new\n"); err != nil {
		t.Fatal(err)
	}
	w.acceptDiff()
	wantAccepted(t, second, "new\n")
	endSecond()
	waitFor(t, "the end of the companion", func() bool { return len(append(w.left(), w.claudeLocks()...)) == 0 })
}

// An agent that starts beside an editor is not connected to it: `pollux run` says so, and how
// to connect the two.
func TestRunBesideAnEditor(t *testing.T) {
	w := newWorld(t, nil)
	alone := w.pollux("run", "--no-browser", "--", "true")
	w.edit(nil)
	beside := w.pollux("run", "--no-browser", "--", "true")
	const says = "Test Editor is open in this folder, but does not see this agent: " +
		"to connect the agent to it, start the agent with `pollux run --attach -- "
	if strings.Contains(alone, "--attach") || !strings.Contains(beside, says) {
		t.Errorf("without an editor: %s\nbeside one: %s", alone, beside)
	}
}

// Codex CLI is not connected before the user types /ide. A change that it makes is listed.
func TestRunListsChangesOfAnUnconnectedAgent(t *testing.T) {
	w := newWorld(t, nil)
	w.file("a.txt", "old\n")
	w.repository()
	agent := `i=0; until ` + polluxBinary + ` status | grep "changed outside Pollux"; do
		i=$((i+1)); [ $i -lt 300 ] || exit 1; [ $((i%40)) != 1 ] || echo $i > a.txt; sleep 0.1; done`
	if out := w.pollux("run", "--no-browser", "--", "sh", "-c", agent); !strings.Contains(out, "1 file changed outside Pollux") {
		t.Error(out)
	}
}

// In a container, `pollux run` or the editor can be process 1: agents did not connect there.
func TestProcess1(t *testing.T) {
	if !isolated(t) {
		return
	}
	alone := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	// connected waits until the agent is connected to the only companion.
	connected := func(w *world, a agentKind) {
		w.t.Helper()
		var all []running
		waitFor(w.t, "the agent", func() bool {
			all = w.running()
			return len(all) == 1 && len(all[0].Clients) == 1
		})
		if len(all[0].Notes) > 0 || all[0].Clients[0].Name != a.title {
			w.t.Errorf("the companion is %+v", all[0])
		}
	}
	for i, a := range agentKinds[:2] {
		t.Run("run "+a.name, func(t *testing.T) {
			w := newClaudeWorld(t, silent)
			w.addPath(filepath.Dir(geminiCLI(t)))
			a.install(w)
			path := strings.Join(append(w.path, os.Getenv("PATH")), ":")
			cli := w.screen([]string{"PATH=" + path}, append(slices.Clone(alone), polluxBinary, "run", "--no-browser", "--", a.name)...)
			connected(w, a)
			// Nothing has a default action for process 1.
			syscall.Kill(children(t, cli.PID)[0], syscall.SIGTERM)
			waitGone(t, cli.PID)
			if left := append(w.left(), w.claudeLocks()...); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
		for j, kind := range editortest.Kinds {
			t.Run(kind.Name+" "+a.name, func(t *testing.T) {
				if testing.Short() && i != j {
					t.Skip("the agent runs in another editor")
				}
				w := newClaudeWorld(t, silent)
				editor, err := exec.LookPath(kind.Binary)
				if err != nil {
					t.Fatal(err)
				}
				bin := t.TempDir()
				agenttest.WriteProgram(t, bin, kind.Binary, "exec "+strings.Join(alone, " ")+" "+editor+` "$@"`, "")
				w.addPath(bin)
				a.install(w)
				w.writeHome(filepath.Join(".local", "state", "pollux", "agent"), a.name+"\n")
				d := w.sit(kind, w.file("a.txt", "one\n"))
				d.command("open")
				connected(w, a)
			})
		}
	}
}
