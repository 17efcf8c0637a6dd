package checks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/sock"
)

const (
	// answerTimeout limits the wait for a companion. Gemini CLI waits for a minute.
	answerTimeout = 3 * time.Second
	// commandTimeout limits the wait for a command, which may connect to another host.
	commandTimeout = 30 * time.Second
	// exitTimeout is how long a command may take to end, and again after SIGTERM.
	exitTimeout = time.Second
)

// checkConnection tries to connect in the order in which Gemini CLI does: the port
// and the command in the companion's file, then the port and the command in the variables.
func (c *checker) checkConnection(ctx context.Context, chosen *candidate) {
	token := tokenFor(chosen)
	host := dialHost(c.launch)
	var tools []string
	err := errors.New("the file names no port")
	if chosen.PortText != "" {
		tools, err = connectPort(ctx, host, chosen.PortText, token)
	}
	if err == nil {
		c.OK("port", "%s answers", name(chosen))
		c.checkTools(tools)
		return
	}
	if s := chosen.File.Stdio; s != nil {
		tools, stdioErr := connectCommand(ctx, s.Command, s.Args)
		if stdioErr == nil {
			why := ""
			if chosen.PortText != "" {
				why = " (its port does not: " + explain(err) + ")"
			}
			c.OK("port", "%s answers through the command in its file, %s%s", name(chosen), doctor.Short(s.Command), why)
			c.checkTools(tools)
			return
		}
		if chosen.PortText == "" {
			err = stdioErr
		}
	}
	if how, tools, viaErr := c.connectByVariables(ctx, token); viaErr == nil {
		c.OK("port", "Gemini CLI will connect with %s", how)
		c.checkTools(tools)
		return
	}
	c.failUnreachable(ctx, chosen, host, token, err)
}

// tokenFor returns the token that Gemini CLI sends: from the file or, if it has none,
// from the variable.
func tokenFor(c *candidate) string {
	return cmp.Or(c.File.AuthToken, env("GEMINI_CLI_IDE_AUTH_TOKEN"))
}

// variablesConnect reports whether Gemini CLI connects with the variables if the
// file that it chooses leads nowhere.
func (c *checker) variablesConnect(ctx context.Context, chosen *candidate) bool {
	if env("GEMINI_CLI_IDE_SERVER_PORT") == chosen.PortText {
		return false
	}
	_, _, err := c.connectByVariables(ctx, tokenFor(chosen))
	return err == nil
}

// connectByVariables tries to connect with the port and the command in this
// terminal's variables.
func (c *checker) connectByVariables(ctx context.Context, token string) (how string, tools []string, err error) {
	err = errors.New("no variable names a companion")
	if port := env("GEMINI_CLI_IDE_SERVER_PORT"); port != "" {
		if tools, err = connectPort(ctx, dialHost(c.launch), port, token); err == nil {
			return "the port in GEMINI_CLI_IDE_SERVER_PORT", tools, nil
		}
	}
	if command := env("GEMINI_CLI_IDE_SERVER_STDIO_COMMAND"); command != "" {
		var args []string
		json.Unmarshal([]byte(env("GEMINI_CLI_IDE_SERVER_STDIO_ARGS")), &args)
		if tools, err = connectCommand(ctx, command, args); err == nil {
			return "the command in GEMINI_CLI_IDE_SERVER_STDIO_COMMAND", tools, nil
		}
	}
	return "", nil, err
}

// connectPort connects as Gemini CLI does, disconnects, and returns the names of the
// companion's tools.
func connectPort(ctx context.Context, host, port, token string) (tools []string, err error) {
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return nil, fmt.Errorf("%q is not a port", port)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := client.Greet(ctx, client.Endpoint{Host: host, Port: n, Token: token, Name: "pollux-doctor"})
	if err != nil {
		return nil, err
	}
	c.Leave(ctx)
	return c.Tools, nil
}

// connectCommand does the same over the stdio transport, with the few variables that
// Gemini CLI passes on.
func connectCommand(ctx context.Context, command string, args []string) (tools []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	for _, key := range []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"} {
		if v := env(key); v != "" {
			cmd.Env = append(cmd.Env, key+"="+v)
		}
	}
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, exitTimeout
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	there, err := client.GreetStream(ctx, pipes{out, in}, "pollux-doctor")
	defer time.AfterFunc(exitTimeout, cancel).Stop()
	cmd.Wait() // the end of its input ends it
	return there.Tools, err
}

// pipes are the output and the input of a command.
type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p pipes) Write(data []byte) (int, error) { return p.in.Write(data) }

func (p pipes) Close() error { return errors.Join(p.in.Close(), p.ReadCloser.Close()) }

func (c *checker) checkTools(tools []string) {
	for _, t := range []string{geminiide.ToolOpenDiff, geminiide.ToolCloseDiff} {
		if !slices.Contains(tools, t) {
			c.Warn("tools", "update that companion",
				"the companion has no tool %s: Gemini CLI will show its changes in the terminal only", t)
			return
		}
	}
}

// explain returns the reason of a connection's error in a few words.
func explain(err error) string {
	var dns *net.DNSError
	var status *client.StatusError
	switch {
	case errors.As(err, &dns):
		return "there is no host " + dns.Name
	case sock.Refused(err):
		return "nothing listens"
	case errors.As(err, &status):
		return fmt.Sprintf("it answers HTTP %d", status.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	}
	return doctor.Short(err.Error())
}

// failUnreachable reports why Gemini CLI cannot connect to the companion at all.
func (c *checker) failUnreachable(ctx context.Context, chosen *candidate, host, token string, err error) {
	const local = "127.0.0.1"
	if chosen.PortText == "" {
		c.Fail("port", "restart the companion where it runs",
			"the command that leads to the companion of %s does not connect (%s): the companion may have ended; "+
				"when it is running again, /ide enable reconnects",
			name(chosen), explain(err))
		return
	}
	if host != local {
		if _, here := connectPort(ctx, local, chosen.PortText, token); here == nil {
			c.Fail("container", "export REMOTE_CONTAINERS=true",
				"this is a container, where Gemini CLI dials %s (%s), but %s is in the same container",
				host, explain(err), name(chosen))
			return
		}
		c.Fail("container", "read `pollux help remote`: pollux run --attach --socket, or --listen on the host",
			"this is a container, where Gemini CLI dials %s (%s)", host, explain(err))
		return
	}
	doctor.First(c.Checker, doctor.Answers, &doctor.Lock{
		Agent: "Gemini CLI", Program: name(chosen), Path: chosen.Path, Process: chosen.File.Pollux,
		Address: net.JoinHostPort(host, chosen.PortText), Answer: answer(err),
	})
}

// answer returns the error of an attempt to connect as a companion's answer.
func answer(err error) error {
	var status *client.StatusError
	switch {
	case !errors.As(err, &status):
		return err
	case status.Code == http.StatusUnauthorized, status.Code == http.StatusForbidden:
		return doctor.ErrToken
	}
	return fmt.Errorf("HTTP %d (%w)", status.Code, doctor.ErrNotCompanion)
}
