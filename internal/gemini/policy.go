package gemini

import (
	_ "embed"
	"os"
	"path/filepath"
	"regexp"

	"pollux/internal/settings"
)

// readOnlyPolicy lets the CLI read and search and nothing else, in every
// approval mode. Tools that it denies are not even offered to the model.
//
//go:embed readonly.toml
var readOnlyPolicy []byte

// changePolicy lets it call the tools that write, too, in a process whose
// files we serve.
//
//go:embed changes.toml
var changePolicy []byte

// writeTools are the tools that changePolicy allows besides.
var writeTools = []string{"write_file", "replace"}

// ReadTools are the tools that the policy allows.
var ReadTools = []string{"read_file", "list_directory", "glob", "grep_search", "google_web_search"}

// readAliases are older names that the CLI takes for one of [ReadTools].
var readAliases = []string{"search_file_content"}

// systemPolicies is where an administrator's policies are. The CLI ignores
// --admin-policy when there are any.
func systemPolicies() string {
	return filepath.Join(settings.SystemDir(), "policies")
}

var permissive = regexp.MustCompile(`(?i)["'](allow|ask_user)["']`)

// checkSystemPolicies reports an error when policies in dir stand above ours
// and allow something. Ours is then passed as the user's too, which holds
// against all but the administrator's own.
func checkSystemPolicies(dir string) error {
	files, _ := filepath.Glob(filepath.Join(dir, "*.toml"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil || permissive.Match(data) {
			return &Error{Kind: Unenforceable, Message: "the policies in " + dir + " make Gemini CLI ignore Pollux's read-only policy"}
		}
	}
	return nil
}
