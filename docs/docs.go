// Package docs contains the manual, which `pollux help` shows.
package docs

import "embed"

// FS contains all pages, as NAME.md.
//
//go:embed *.md
var FS embed.FS

// Topics names the topics whose files have other names: coding agents take AGENTS.md and
// CLAUDE.md for instructions.
var Topics = map[string]string{"coding-agents": "agents", "claude-code": "claude"}

// Project names the pages that are about the project, and not for users.
var Project = []string{"ARCHITECTURE.md", "BENCHMARKS.md", "DEPENDENCIES.md"}
