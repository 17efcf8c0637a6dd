package codex

import (
	"context"
	"os"

	"pollux/internal/agent"
	"pollux/internal/agent/program"
)

// The oldest release whose app server is known to apply the permissions that
// [serverCommand] defines.
const minMajor, minMinor = 0, 169

func locate(from agent.Source) (agent.Program, error) {
	p, err := program.Locate(from, command, pkg)
	if err != nil {
		return agent.Program{}, fault(agent.NotInstalled, tidy(from.Env, err.Error()))
	}
	return p, nil
}

func version(ctx context.Context, from agent.Source, p agent.Program) (agent.Program, error) {
	return program.AskVersion(ctx, p, childEnv(from.Env, os.TempDir()))
}

func readOnly(_ agent.Source, p agent.Program) error {
	if kind, message := program.CheckVersion(p, minMajor, minMinor); kind != "" {
		return fault(kind, message)
	}
	return nil
}
