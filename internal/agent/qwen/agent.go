// Package qwen describes Qwen Code as an agent: how to find and start it, keep it read-only,
// and classify its errors.
//
// It serves the Agent Client Protocol. It writes files without a question, and the project may
// allow it more and bring hooks and servers. This package takes the writing tools away, and
// makes it distrust the project.
package qwen

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/agent/program"
	"pollux/internal/git"
	"pollux/internal/jsontoml"
	"pollux/internal/sys/disk"
)

// release is the first one known to be read-only with the settings of this package.
var release = program.Release{
	Name: "Qwen Code", Command: "qwen", Variable: "QWEN_PATH", Packages: []string{"@qwen-code/qwen-code"},
	Oldest: "0.24.0", Update: "npm install -g @qwen-code/qwen-code@latest", Try: "qwen -p hello", Env: childEnv,
	Remedies: agent.Remedies{
		agent.Auth:     {What: "Qwen Code is not logged in", Next: "run `qwen` once in a terminal and use /auth, or set OPENAI_API_KEY in the environment of Pollux"},
		agent.Settings: {What: "Qwen Code's settings are invalid", Next: "correct the file that it names"},
		agent.BadModel: {What: "Qwen Code has no such model", Next: "run `qwen` and use /model to see the names, or leave the model out"},
		// It ignores the lock of an ended one after 60 seconds.
		agent.Locked: {What: "another Qwen Code, which is running or was killed, holds the lock of the extensions", Next: "wait a minute, then try again"},
	},
}

var readTools = []string{"read_file", "grep_search", "glob", "list_directory"}

// otherTools are all other tools of the release, in the order of its source. The flag for the
// tools above takes only some of them away. Among the others, enter_worktree writes files, and
// runs hooks of git.
var otherTools = []string{
	"exec", "edit", "write_file", "zoom_image", "run_shell_command", "todo_write", "save_memory", "agent", "skill", "exit_plan_mode",
	"enter_plan_mode", "web_fetch", "web_search", "image_gen", "lsp", "ask_user_question", "cron_create", "cron_list", "cron_delete",
	"loop_wakeup", "create_sub_session", "list_agents", "task_stop", "task_create", "task_update", "task_list", "team_create",
	"team_delete", "team_plan_approval", "request_shutdown", "send_message", "structured_output", "monitor", "notebook_edit", "tool_call",
	"tool_search", "read_mcp_resource", "enter_worktree", "exit_worktree", "workflow", "artifact", "record_artifact", "record_source",
	"report_findings", "get_goal", "update_goal", "omni_downsample_image", "omni_downscale_video", "omni_downsample_audio",
	"omni_extract_keyframes", "omni_extract_audio", "omni_clip_video", "omni_convert_image", "omni_transcribe_audio", "omni_clip_image",
	"omni_clip_audio", "omni_caption_image", "omni_caption_audio", "omni_ocr_image", "omni_understand_video_segments",
	"omni_recall_media_memory", "propose_goal", "display_image",
}

// Agent returns Qwen Code's row in the table of agents.
func Agent() *agent.Agent { return row }

var row = acp.Row(agent.Agent{
	Name: "qwen", DisplayName: release.Name, Model: "Qwen",
	Clients:      []string{"qwen"},
	ExampleModel: "qwen3-coder-plus",
	Provider:     "qwen",
	Finder:       release.Finder(variables.Of),
	Driver: agent.Driver{
		ReadTools: readTools, WriteTools: []string{"write_file", "edit", "run_shell_command"},
		Warm: &agent.Process{Command: start, Connect: connect, Inputs: inputs, Tool: tool, Failure: failure, Monitor: newMonitor},
	},
	Explainer: agent.Explainer{
		VarPrefix: "QWEN_", Account: account, Remedies: release.AllRemedies(), KindOf: kindOf,
		ToolVerbs: map[string]string{
			"read_file": "reading", "list_directory": "listing", "glob": "looking for files", "grep_search": "searching the files for",
		},
	},
})

// fault returns an error with this agent's remedy.
var fault = release.Error

// variables are those that Qwen Code needs to find its settings and the services of models.
var variables = program.Variables{
	Names:    []string{"QWEN_HOME", "QWEN_DEFAULT_AUTH_TYPE", "QWEN_TLS_INSECURE", "QWEN_CODE_SYSTEM_DEFAULTS_PATH", "QWEN_MODEL", "QWEN_CODE_MODEL"},
	Prefixes: []string{"OPENAI_", "DASHSCOPE_", "ANTHROPIC_", "GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_", "BAILIAN_"},
}

func childEnv(env agent.Env, tmp string) []string {
	return variables.Env(env, tmp, "QWEN_CODE_NO_RELAUNCH=true")
}

func account(env agent.Env, _ string) string {
	return program.Account(env, home(env), "OPENAI_API_KEY", "OPENAI_BASE_URL", "DASHSCOPE_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY")
}

// tool returns the name of a tool and a summary, from a title such as
// "read_file ReadFile: main.go". See [titles].
func tool(u agent.Update) (name, summary string) {
	name, title, _ := strings.Cut(u.Title, " ")
	if _, detail, ok := strings.Cut(title, ": "); ok {
		title = detail
	} else {
		title = ""
	}
	return name, agent.Summary(title)
}

func kindOf(message string) agent.Kind {
	switch {
	case strings.Contains(message, "Model '") && strings.Contains(message, "not found"):
		return agent.BadModel
	case strings.Contains(message, "Error in: ") || strings.Contains(message, "Please fix the configuration"):
		return agent.Settings
	case strings.Contains(message, "ExtensionStoreBusyError"):
		return agent.Locked
	}
	return acp.KindOf(message)
}

func failure(env agent.Env, code int, message string, _ []string) *agent.Error {
	return fault(acp.Refusal(code, message, kindOf), agent.Line(env, strings.TrimPrefix(message, "Internal error: ")))
}

// home returns Qwen Code's own directory.
func home(env agent.Env) string { return program.Dir(env, "QWEN_HOME", ".qwen") }

// inputs returns the files that Qwen Code reads when it starts.
func inputs(from agent.Source, p agent.Program, dir string) []string {
	own := home(from.Env)
	files := []string{p.Path, systemSettings(from.Env), filepath.Join(dir, "QWEN.md"), filepath.Join(dir, "AGENTS.md")}
	for _, name := range []string{"settings.json", "oauth_creds.json", ".env", "QWEN.md"} {
		files = append(files, filepath.Join(own, name))
	}
	return files
}

// Writable returns the directories that Qwen Code writes to.
func Writable(env agent.Env) []string {
	return []string{home(env)}
}

// systemSettings returns the path of the file with the administrator's settings.
func systemSettings(env agent.Env) string {
	if path := env.Get("QWEN_CODE_SYSTEM_SETTINGS_PATH"); path != "" {
		return path
	}
	switch runtime.GOOS {
	case "darwin":
		return "/Library/Application Support/QwenCode/settings.json"
	case "windows":
		return `C:\ProgramData\qwen-code\settings.json`
	}
	return "/etc/qwen-code/settings.json"
}

// maxSettings limits the administrator's settings, in bytes.
const maxSettings = 1 << 20

// settings returns the administrator's settings, changed for one process. They take
// precedence over the user's and the project's.
func settings(env agent.Env) []byte {
	all := make(map[string]any)
	if text, err := disk.ReadFile(systemSettings(env), maxSettings); err == nil {
		jsontoml.Decode(text, &all) // Qwen Code ignores invalid ones
	}
	set := func(group, name string, value any) {
		members, _ := all[group].(map[string]any)
		if members == nil {
			members = make(map[string]any)
			all[group] = members
		}
		members[name] = value
	}
	set("security", "folderTrust", map[string]any{"enabled": true})
	set("memory", "enableManagedAutoMemory", false) // an agent with tools that write
	set("ui", "enableFollowupSuggestions", false)   // another request after each answer
	set("general", "enableAutoUpdate", false)
	set("general", "preventSystemSleep", false) // it runs a program for each prompt
	set("ide", "enabled", false)                // a companion may say that the project is trusted
	set("general", "checkpointing", map[string]any{"enabled": false})
	text, _ := json.Marshal(all) // from JSON
	return text
}

// start returns the command of a process.
func start(l agent.Launch) (agent.Command, error) {
	system, trusted := filepath.Join(l.TempDir, "settings.json"), filepath.Join(l.TempDir, "trusted.json")
	runtimeDir := filepath.Join(l.TempDir, "runtime") // it writes its logs there, among others
	if err := os.WriteFile(system, settings(l.Env), 0o600); err != nil {
		return agent.Command{}, err
	}
	// The user may have trusted the project.
	if err := os.WriteFile(trusted, []byte("{}"), 0o600); err != nil {
		return agent.Command{}, err
	}
	return agent.Command{
		Args: []string{
			"--acp", "--approval-mode=default", "--chat-recording=false", "--extensions=none",
			"--core-tools=" + strings.Join(readTools, ","), "--exclude-tools=" + strings.Join(otherTools, ","),
			// No server has this name.
			"--allowed-mcp-server-names=" + rand.Text(),
		},
		Env: append(childEnv(l.Env, l.Tmp()), "QWEN_CODE_SYSTEM_SETTINGS_PATH="+system, "QWEN_CODE_TRUSTED_FOLDERS_PATH="+trusted,
			"QWEN_RUNTIME_DIR="+runtimeDir, "QWEN_DEBUG_LOG_FILE=true",
			git.WithoutFilters(l.Dir)), // it runs git
		Writable: program.OwnDirs(Writable(l.Env)...), Logs: filepath.Join(runtimeDir, "debug", "*"+logExt),
	}, nil
}
