package bridge

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed prompts
var builtin embed.FS

// placeholders are what each template must hold.
var placeholders = map[string][]string{
	"search":            {"query"},
	"structured":        {"prompt", "schema"},
	"change-mode":       {"prompt"},
	"change-mode-tools": {"prompt"},
}

// templates are the prompts around what the user asks, by name.
type templates map[string]string

// loadTemplates reads the built-in templates, and those of dir, if given, in
// place of them. One that lacks a placeholder it needs is an error.
func loadTemplates(dir string) (templates, error) {
	t := make(templates)
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("GEMINI_PROMPTS_DIR is %q, which is no directory: set it to one with prompt templates", dir)
		}
	}
	for name, needs := range placeholders {
		data, err := builtin.ReadFile("prompts/" + name + ".md")
		if err != nil {
			return nil, err
		}
		if dir != "" {
			path := filepath.Join(dir, name+".md")
			own, err := os.ReadFile(path)
			switch {
			case err == nil:
				data = own
			case !errors.Is(err, fs.ErrNotExist):
				return nil, fmt.Errorf("the prompt template cannot be read (%w): check GEMINI_PROMPTS_DIR", err)
			}
			for _, p := range needs {
				if !strings.Contains(string(data), "{{"+p+"}}") {
					return nil, fmt.Errorf("%s has no {{%s}}: put it where the text shall stand", path, p)
				}
			}
		}
		t[name] = string(data)
	}
	return t, nil
}

// fill puts values into a template, in one pass: nothing in a value is a
// placeholder or a pattern.
func (t templates) fill(name string, values map[string]string) string {
	var pairs []string
	for k, v := range values {
		pairs = append(pairs, "{{"+k+"}}", v)
	}
	return strings.TrimSpace(strings.NewReplacer(pairs...).Replace(t[name]))
}
