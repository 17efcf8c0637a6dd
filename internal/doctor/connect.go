package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/ide/geminiide"

	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys"
)

// answerWithin is how long a companion may take to answer. The CLI waits for a
// minute.
const answerWithin = 3 * time.Second

// commandWithin is the same for a command, which may lead far away.
const commandWithin = 30 * time.Second

// checkConnection tries, in the CLI's order, the ways to the companion: the
// port and then the command of its file, then those of the variables.
func (e *exam) checkConnection(ctx context.Context, c *geminiide.Candidate) {
	token := tokenFor(c)
	host := geminiide.DialHost(e.place)
	var tools []string
	err := errNoPort
	if c.PortText != "" {
		tools, err = greet(ctx, host, c.PortText, token)
	}
	if err == nil {
		e.ok("port", "%s answers", name(c))
		e.checkTools(tools)
		return
	}
	if s := c.File.Stdio; s != nil {
		tools, stdioErr := talk(ctx, s.Command, s.Args)
		if stdioErr == nil {
			way := ""
			if c.PortText != "" {
				way = " (its port does not: " + explain(err) + ")"
			}
			e.ok("port", "%s answers by the command in its file, %s%s", name(c), oneLine(s.Command), way)
			e.checkTools(tools)
			return
		}
		if c.PortText == "" {
			err = stdioErr
		}
	}
	if how, tools, viaErr := e.connectByVariables(ctx, token); viaErr == nil {
		e.ok("port", "Gemini CLI will connect by %s", how)
		e.checkTools(tools)
		return
	}
	e.unreachable(ctx, c, host, token, err)
}

// tokenFor is what the CLI sends: the file's token, else that of the variables.
func tokenFor(c *geminiide.Candidate) string {
	return cmp.Or(c.File.AuthToken, env("GEMINI_CLI_IDE_AUTH_TOKEN"))
}

// variablesLead reports whether the CLI connects by the variables where the file
// that it takes leads nowhere.
func (e *exam) variablesLead(ctx context.Context, c *geminiide.Candidate) bool {
	if env("GEMINI_CLI_IDE_SERVER_PORT") == c.PortText {
		return false
	}
	_, _, err := e.connectByVariables(ctx, tokenFor(c))
	return err == nil
}

// connectByVariables tries what this terminal's variables name.
func (e *exam) connectByVariables(ctx context.Context, token string) (how string, tools []string, err error) {
	err = errors.New("no variable names a companion")
	if port := env("GEMINI_CLI_IDE_SERVER_PORT"); port != "" {
		if tools, err = greet(ctx, geminiide.DialHost(e.place), port, token); err == nil {
			return "the port in GEMINI_CLI_IDE_SERVER_PORT", tools, nil
		}
	}
	if command := env("GEMINI_CLI_IDE_SERVER_STDIO_COMMAND"); command != "" {
		var args []string
		json.Unmarshal([]byte(env("GEMINI_CLI_IDE_SERVER_STDIO_ARGS")), &args)
		if tools, err = talk(ctx, command, args); err == nil {
			return "the command in GEMINI_CLI_IDE_SERVER_STDIO_COMMAND", tools, nil
		}
	}
	return "", nil, err
}

var errNoPort = errors.New("none is named")

// greet connects as the CLI does, and leaves again.
func greet(ctx context.Context, host, port, token string) (tools []string, err error) {
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return nil, fmt.Errorf("%q is no port", port)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	c, err := client.Greet(ctx, client.Endpoint{Host: host, Port: n, Token: token, Name: "pollux-doctor"})
	if err != nil {
		return nil, err
	}
	c.Leave(ctx)
	return c.Tools, nil
}

// talk does it over the stdio transport, with the little of the environment
// that the CLI hands on.
func talk(ctx context.Context, command string, args []string) (tools []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	for _, key := range []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"} {
		if v := env(key); v != "" {
			cmd.Env = append(cmd.Env, key+"="+v)
		}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "pollux-doctor", Version: "0"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Second}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, t := range list.Tools {
		tools = append(tools, t.Name)
	}
	return tools, nil
}

func (e *exam) checkTools(tools []string) {
	for _, t := range []string{geminiide.ToolOpenDiff, geminiide.ToolCloseDiff} {
		if !slices.Contains(tools, t) {
			e.warn("tools", "update that companion", "the companion has no tool %s: Gemini CLI will show its changes in the terminal only", t)
			return
		}
	}
}

// explain is an error of a connection in a few words.
func explain(err error) string {
	var dns *net.DNSError
	var status *client.StatusError
	switch {
	case errors.As(err, &dns):
		return "there is no host " + dns.Name
	case sys.Refused(err):
		return "nobody listens"
	case errors.As(err, &status):
		return fmt.Sprintf("it answers HTTP %d", status.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	}
	return oneLine(err.Error())
}

// unreachable says why the companion cannot be reached in any way.
func (e *exam) unreachable(ctx context.Context, c *geminiide.Candidate, host, token string, err error) {
	var status *client.StatusError
	const local = "127.0.0.1"
	if c.PortText == "" {
		e.fail("port", "start the companion again, where it runs", "the command that leads to the companion of %s does not connect (%s): the companion may have ended; once it is back, /ide enable connects again", name(c), explain(err))
		return
	}
	if host != local {
		if _, here := greet(ctx, local, c.PortText, token); here == nil {
			e.fail("container", "export REMOTE_CONTAINERS=true", "this is a container, in which Gemini CLI dials %s (%s); but %s is here, in the same container", host, explain(err), name(c))
			return
		}
		e.fail("container", "read docs/REMOTE.md: pollux run --attach --socket, or --listen on the host", "this is a container, in which Gemini CLI dials %s (%s)", host, explain(err))
		return
	}
	switch {
	case errors.As(err, &status) && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden):
		e.fail("token", "restart that companion", "%s refuses the token in %s (HTTP %d)", name(c), c.Path, status.Code)
	case errors.As(err, &status):
		e.fail("port", "rm "+word(c.Path)+", then restart the companion", "what listens on port %s is no companion (HTTP %d); the file that names it is %s", oneLine(c.PortText), status.Code, c.Path)
	case errors.Is(err, context.DeadlineExceeded):
		next := "go on with it (fg), or end it"
		if c.File.Pollux > 0 {
			next = fmt.Sprintf("kill -CONT %d, or fg in its terminal", c.File.Pollux)
		}
		e.fail("port", next, "%s takes connections but does not answer: is it stopped (Ctrl-Z)?", name(c))
	case sys.Refused(err):
		e.fail("port", "restart that companion", "nobody listens on port %s, which %s names: its companion, process %d, lives elsewhere or hangs", oneLine(c.PortText), c.Path, c.PID)
	default:
		e.fail("port", "restart that companion", "%s gives no answer that a companion gives: %s", name(c), strings.TrimSpace(explain(err)))
	}
}
