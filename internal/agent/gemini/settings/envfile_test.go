package settings

import (
	"maps"
	"path/filepath"
	"testing"

	"pollux/internal/sys/systest"
)

// Gemini CLI 0.61.0 reads .env files with dotenv 17.2.4, whose answers these are. A key
// with a comment was another key, and a comment alone was one.
func TestEnvFile(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"A=1\nB=2":                    {"A": "1", "B": "2"},
		"A=1\r\nB=2\rC=3":             {"A": "1", "B": "2", "C": "3"},
		"\ufeffA=1":                   {"A": "1"},
		"A=1\nA=2":                    {"A": "2"},
		" export  A = b c ":           {"A": "b c"},
		"A: b":                        {"A": "b"},
		"A:b":                         {},
		"A=\nB=2":                     {"A": "", "B": "2"},
		"A= # c":                      {"A": ""},
		"A=b # c":                     {"A": "b"},
		"A=b#c":                       {"A": "b"},
		"A='b # c' # d":               {"A": "b # c"},
		"A=\"b # c\" # d":             {"A": "b # c"},
		"A=`b'c\"d`":                  {"A": `b'c"d`},
		`A="b\nc"`:                    {"A": "b\nc"},
		`A='b\nc'`:                    {"A": `b\nc`},
		`A=b\nc`:                      {"A": `b\nc`},
		`A="b\tc"`:                    {"A": `b\tc`},
		`A="b\"c"`:                    {"A": `b\"c`},
		"A=\"b\nB=2\nc\"\nD=4":        {"A": "b\nB=2\nc", "D": "4"},
		"A='b\nB=2":                   {"A": "'b", "B": "2"},
		`A="b"c`:                      {"A": `"b"c`},
		`A='a' 'b'`:                   {"A": "a' 'b"},
		"A=it's\nB=it's":              {"A": "it's", "B": "it's"},
		"A=$HOME/${B}$$":              {"A": "$HOME/${B}$$"},
		`A="$HOME"`:                   {"A": "$HOME"},
		"A=b=c":                       {"A": "b=c"},
		`A={"a": "b"}`:                {"A": `{"a": "b"}`},
		"A.b-c=1\nü=2\n\"D\"=4\n=5":   {"A.b-c": "1"},
		"# A=1\nsome text\n!!\nB=2":   {"B": "2"},
		"export A\nexportB=1\nC=\\\"": {"exportB": "1", "C": `\"`},
	} {
		path := filepath.Join(t.TempDir(), ".env")
		systest.WriteFile(t, path, text)
		got, err := Settings{Trust: Trusted}.parseEnvFile(path)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), ".env")
	systest.WriteFile(t, path, "GEMINI_API_KEY='a b$-_./c'\nHTTPS_PROXY=x\n")
	got, err := Settings{}.parseEnvFile(path)
	if want := map[string]string{"GEMINI_API_KEY": "ab-_./c"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("in an untrusted folder: got %q, %v, want %q", got, err, want)
	}
}
