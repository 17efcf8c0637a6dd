package copilotide

import (
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/ide/asking"
	"pollux/internal/paths"
)

// allowing are the options that make Copilot CLI write each change without a review.
var allowing = []string{"--allow-all-tools", "--allow-all", "--yolo"}

// Manual is how a running Copilot CLI is made to ask.
const Manual = "choose Manual Approval in the /permissions of Copilot CLI"

// Asking returns whether Copilot CLI asks before it changes a file. It does, unless its
// user has allowed all changes, for this start or for the repository.
func Asking(s asking.Start) asking.Mode {
	for _, flag := range allowing {
		if _, set := s.Flag(flag); set {
			return asking.Mode{Silent: "the option " + flag, Ask: "start Copilot CLI without " + flag}
		}
	}
	if rules := s.AllowedByFlag("--allow-tool", "write"); len(rules) > 0 {
		return s.Overrule(asking.Mode{}, rules, asking.Mode{})
	}
	if allowed(s.Getenv("COPILOT_ALLOW_ALL")) {
		return asking.Mode{Silent: "COPILOT_ALLOW_ALL", Ask: "unset COPILOT_ALLOW_ALL, and start Copilot CLI again"}
	}
	// The answer "Yes, and don't ask again for file operations" is kept here.
	path := filepath.Join(s.Home("COPILOT_HOME", ".copilot"), "permissions-config.json")
	var file struct {
		Locations map[string]struct {
			Approvals []struct{ Kind string } `json:"tool_approvals"`
		}
	}
	if asking.Read(path, &file) != nil {
		return asking.Mode{}
	}
	for folder, kept := range file.Locations {
		if paths.Contains(paths.Real(folder), paths.Real(s.Dir)) && slices.ContainsFunc(kept.Approvals,
			func(a struct{ Kind string }) bool { return a.Kind == "write" }) {
			return asking.Mode{
				Silent: `an earlier answer, "don't ask again" (` + path + ")",
				Ask:    `remove {"kind": "write"} of ` + folder + " from " + path + ", and start Copilot CLI again",
			}
		}
	}
	return asking.Mode{}
}

// allowed reads a variable as Copilot CLI does.
func allowed(value string) bool {
	return slices.Contains([]string{"true", "1", "yes", "on", "y"}, strings.ToLower(strings.TrimSpace(value)))
}
