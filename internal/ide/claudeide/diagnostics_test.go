package claudeide

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

func reported(path string) editor.FileDiagnostics {
	return editor.FileDiagnostics{Path: path, Diagnostics: []editor.Diagnostic{{
		Range:    editor.Range{Start: editor.Cursor{Line: 2, Character: 1}, End: editor.Cursor{Line: 2, Character: 5}},
		Severity: editor.SeverityError, Message: "bad <&>", Source: "lint", Code: "E1",
	}, {
		Range:    editor.Range{Start: editor.Cursor{Line: 3, Character: 1}, End: editor.Cursor{Line: 3, Character: 1}},
		Severity: editor.SeverityInformation, Message: "odd",
	}}}
}

// encoded returns the answer for what reported returns.
func encoded(uri string) string {
	return fmt.Sprintf(`{"uri":"%s","diagnostics":[`+
		`{"message":"bad \u003c\u0026\u003e","severity":"Error","range":{"start":{"line":1,"character":0},`+
		`"end":{"line":1,"character":4}},"source":"lint","code":"E1"},`+
		`{"message":"odd","severity":"Info","range":{"start":{"line":2,"character":0},"end":{"line":2,"character":0}}}]}`, uri)
}

func TestGetDiagnostics(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.backend.diagnostics = func(path string) ([]editor.FileDiagnostics, error) {
			switch path {
			case "":
				return []editor.FileDiagnostics{reported(systest.Abs("/project/a b")), {Path: systest.Abs("/project/c%20d")}}, nil
			case systest.Abs("/project/a b"), systest.Abs("/project/c%20d"):
				return []editor.FileDiagnostics{reported(path)}, nil
			case systest.Abs("/project/busy"):
				return nil, errors.New("not now")
			}
			return nil, nil
		}
		a := f.connect("claude-code")
		for args, want := range map[string]string{
			// The agent escapes no character of a path.
			`{}`:                              "[" + encoded("file:///project/a b") + `,{"uri":"file:///project/c%20d","diagnostics":[]}]`,
			`{"uri":"file:///project/a b"}`:   "[" + encoded("file:///project/a b") + "]",
			`{"uri":"file:///project/c%20d"}`: "[" + encoded("file:///project/c%20d") + "]",
			// The model does.
			`{"uri":"file:///project/a%20b"}`: "[" + encoded("file:///project/a%20b") + "]",
			`{"uri":"file:///project/clean"}`: "[]",
			`{"uri":"file:///project/busy"}`:  "isError: not now",
			`{"uri":"a"}`:                     "isError: uri names no file: pass file:// and the file's absolute path",
			`{"uri":"file://a"}`:              "isError: uri names no file: pass file:// and the file's absolute path",
			`{"uri":"https:///a"}`:            "isError: uri names no file: pass file:// and the file's absolute path",
		} {
			a.want(a.call(toolGetDiagnostics, systest.InJSON(args)), systest.InJSON(want))
		}
		if got := a.answer(a.call(toolGetDiagnostics, `{"uri":1}`)); !got.Result.IsError {
			t.Errorf("a number: %s", got)
		}
	})
}

// The answer after a write waits for the editors' checks. Everything else is answered immediately.
func TestGetDiagnosticsAfterWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.backend.diagnostics = func(path string) ([]editor.FileDiagnostics, error) {
			return []editor.FileDiagnostics{reported(systest.Abs("/project/a"))}, nil
		}
		a := f.connect("claude-code")
		ask := func(args string, want time.Duration) {
			t.Helper()
			start := time.Now()
			a.want(a.call(toolGetDiagnostics, systest.InJSON(args)), systest.InJSON("["+encoded("file:///project/a")+"]"))
			if d := time.Since(start); d != want {
				t.Errorf("%s took %v, want %v", args, d, want)
			}
		}
		ask("{}", 0)
		ask(`{"uri":"file:///project/a"}`, 0)
		ask(`{"uri":"file:///project/a"}`, 0)
		ask("{}", time.Second)
		ask("{}", 0)
	})
}
