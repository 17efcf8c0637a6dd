package gemini

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"pollux/internal/agent"
)

// account identifies the account whose quota the CLI uses in an environment.
func account(env agent.Env) string {
	h := sha256.New()
	for _, name := range []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"} {
		fmt.Fprintf(h, "%q", env.Get(name))
	}
	fmt.Fprintf(h, "%q", geminiHome(env))
	return hex.EncodeToString(h.Sum(nil)[:16])
}
