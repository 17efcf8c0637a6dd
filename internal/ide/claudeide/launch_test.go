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

func TestClaudeHint(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"--model", "opus", "fix it"}, true},
		{[]string{"--permission-mode", "auto"}, false},
		{[]string{"--permission-mode=default"}, false},
		{[]string{"--dangerously-skip-permissions"}, false},
		{[]string{"-p", "hello"}, false},
		{[]string{"--print", "hello"}, false},
	} {
		if got := ClaudeHint(tt.args) != ""; got != tt.want {
			t.Errorf("%q: a hint is %v, want %v", tt.args, got, tt.want)
		}
	}
}
