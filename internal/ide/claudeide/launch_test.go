package claudeide

import (
	"slices"
	"testing"
)

func TestClaudeEnv(t *testing.T) {
	for _, tt := range []struct {
		name      string
		companion map[string]string
		want      []string
	}{
		{"a companion", map[string]string{envServerPort: "4711"},
			[]string{"CLAUDE_CODE_AUTO_CONNECT_IDE=true", "CLAUDE_CODE_SSE_PORT=4711"}},
		{"one without the port", nil, []string{"CLAUDE_CODE_AUTO_CONNECT_IDE=true"}},
	} {
		if got := ClaudeEnv(tt.companion); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
