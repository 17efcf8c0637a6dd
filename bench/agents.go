package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// agentCalls is the number of questions of each kind that follow the first.
const agentCalls = 7

// An askable is an agent that the bridge can ask. command is its own way to ask one question.
type askable struct {
	displayName string
	command     []string
}

var askables = []askable{
	{"Gemini CLI", []string{"gemini", "-p"}},
	{"Codex CLI", []string{"codex", "exec", "--skip-git-repo-check"}},
	{"Claude Code", []string{"claude", "-p"}},
	{"Copilot CLI", []string{"copilot", "-p"}},
	{"Qwen Code", []string{"qwen", "-p"}},
	{"opencode", []string{"opencode", "run"}},
}

// measureAgents compares the bridge with each agent's own command.
func measureAgents(t *table, s setup) error {
	ours, end, err := newSubject(s, hello)
	if err != nil {
		return err
	}
	defer end()
	for _, a := range askables {
		program, env, err := ours.install(a.command[0])
		if err != nil {
			return err
		}
		if err := os.Symlink(program, filepath.Join(ours.bin, a.command[0])); err != nil {
			return err
		}
		ours.real = withEnv(ours.real, env...)
	}
	col := t.ours()
	for range t.runs {
		for _, a := range askables {
			if err := ours.agent(col, a); err != nil {
				return fmt.Errorf("%s: %w", a.displayName, err)
			}
		}
	}
	return nil
}

// agent measures one agent, without the bridge and with it.
func (s *subject) agent(col column, a askable) error {
	row := func(what string) string { return a.displayName + ": " + what }
	own := fmt.Sprintf(" [%s %s]", a.command[0], a.command[1])
	first, later := row("the first question"+own), row("a later question"+own)
	alone, err := s.oneShot(a.command...)
	if err != nil {
		return err
	}
	return s.serve(s.real, func(c *mcp.ClientSession, cmd *exec.Cmd) error {
		args := s.asking("hi")
		args["agent"] = a.command[0]
		if _, err := askTimes(col, first, c, 1, 0, args); err != nil {
			return err
		}
		col.compare(first, "ms", ms(alone))
		time.Sleep(settleTime)
		mb, err := memoryOf(family(cmd.Process.Pid)[1:], proportional) // without the bridge
		if err != nil {
			return err
		}
		last, err := askTimes(col, later, c, agentCalls, callPause, args)
		if err != nil {
			return err
		}
		col.compare(later, "ms", ms(alone))
		args["sessionId"] = last.Meta["sessionId"]
		_, err = askTimes(col, row("the same conversation"), c, agentCalls, callPause, args)
		col.add(row("memory, after a question"), "MB", mb)
		return err
	})
}
