package codex

import (
	"slices"
	"strings"

	"pollux/internal/agent"
)

// An item is a step in the server's work. Items with a status use a tool.
type item struct {
	Type    string   `json:"type"`
	ID      string   `json:"id"`
	Status  string   `json:"status"`
	Text    string   `json:"text"`
	Command string   `json:"command"`
	Actions []action `json:"commandActions"`
	Output  string   `json:"aggregatedOutput"`
	Query   string   `json:"query"`
	Path    string   `json:"path"`
	Server  string   `json:"server"`
	Tool    string   `json:"tool"`
	Changes []struct {
		Path string `json:"path"`
	} `json:"changes"`
}

// An action is a part of a command, as the CLI understands it.
type action struct {
	Type    string `json:"type"`
	Command string `json:"command"`
	Path    string `json:"path"`
	Query   string `json:"query"`
}

// update returns an item as the use of a tool. It reports false if the item uses none.
func (i item) update(ended bool) (agent.Update, bool) {
	name, title := i.use()
	if name == "" {
		return agent.Update{}, false
	}
	u := agent.Update{Kind: agent.ToolCall, ToolCall: name + separator + i.ID, Title: title, Status: i.Status}
	if ended {
		u.Kind, u.Status = agent.ToolCallUpdate, agent.ToolCompleted
		if i.Status == "failed" || i.Status == "declined" {
			u.Status, u.Text = agent.ToolFailed, i.Output
		}
	}
	return u, true
}

// separator stands between a tool's name and the ID of its use.
const separator = "__"

// tool implements [agent.Process.Tool].
func tool(u agent.Update) (name, summary string) {
	name, _, _ = strings.Cut(u.ToolCall, separator)
	return name, agent.Summary(u.Title)
}

// use returns the tool that an item uses and its most informative argument.
func (i item) use() (name, title string) {
	switch i.Type {
	case "commandExecution":
		return i.command()
	case "fileChange":
		if len(i.Changes) > 0 {
			title = i.Changes[0].Path
		}
		return patchTool, title
	case "webSearch":
		return searchTool, i.Query
	case "imageView":
		return imageTool, i.Path
	case "mcpToolCall":
		return i.Server + "." + i.Tool, ""
	}
	if i.Status == "" {
		return "", ""
	}
	return i.Type, i.Tool
}

// command returns the kind of a command. One that does several things is a shell command.
func (i item) command() (name, title string) {
	kinds := map[string]string{"read": readTool, "search": searchFilesTool, "listFiles": listTool}
	name = shellTool
	if len(i.Actions) > 0 {
		first := i.Actions[0]
		other := func(a action) bool { return a.Type != first.Type }
		if kind := kinds[first.Type]; kind != "" && !slices.ContainsFunc(i.Actions, other) {
			name = kind
		}
	}
	var parts []string
	for _, a := range i.Actions {
		switch {
		case name == searchFilesTool && a.Query != "":
			parts = append(parts, a.Query)
		case name != shellTool && a.Path != "":
			parts = append(parts, a.Path)
		case a.Command != "":
			parts = append(parts, a.Command)
		}
	}
	if len(parts) == 0 {
		return name, i.Command
	}
	return name, strings.Join(parts, ", ")
}
