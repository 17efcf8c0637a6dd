package gemini

import (
	"cmp"
	"path/filepath"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/agent/program"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// The variables that identify the account of each sign-in method. A key at another
// address is another account.
var (
	keyVariables    = []string{"GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"}
	vertexVariables = []string{
		"GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT_ID", "GOOGLE_CLOUD_QUOTA_PROJECT", "GOOGLE_CLOUD_LOCATION",
		"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_VERTEX_BASE_URL",
	}
	loginVariables = []string{
		"GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT_ID", "GOOGLE_CLOUD_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
	}
)

// account identifies the account whose quota a CLI uses that is started in dir. If
// no variable holds a key or names a project, the account is the one that is signed
// in at the CLI's home.
func account(env agent.Env, dir string) string {
	s, _ := settings.Load(env, dir)
	_, get, _ := s.Variables(env, dir) // the CLI ignores an unreadable .env file
	selected, _ := s.Auth()
	kind := cmp.Or(selected, settings.AuthFromEnv(get))
	names, signedIn := loginVariables, true
	switch kind {
	case "gemini-api-key", "gateway":
		kind, names = "key", keyVariables
		signedIn = get("GEMINI_API_KEY") == "" // the key is in the keychain
	case "vertex-ai":
		names, signedIn = vertexVariables, get("GOOGLE_API_KEY") == "" && get("GOOGLE_CLOUD_PROJECT") == ""
	}
	id := append([]string{kind}, program.Values(get, names...)...)
	if selected == "" && kind != "key" {
		id = append(id, get("GEMINI_API_KEY")) // a warm process uses it, whatever the other variables say
	}
	if signedIn {
		home := geminiHome(env)
		users, _ := disk.ReadFile(filepath.Join(home, "google_accounts.json"), maxHomeFile)
		id = append(id, paths.Real(home), string(users))
	}
	return program.Identity(id...)
}
