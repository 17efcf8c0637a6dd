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

// placeholders lists the placeholders that each template must contain.
var placeholders = map[string][]string{
	"search":            {"query"},
	"structured":        {"prompt", "schema"},
	"change-mode":       {"prompt"},
	"change-mode-tools": {"prompt"},
}

// templates maps names to the prompts around the user's question.
type templates map[string]string

// loadTemplates returns the built-in templates, or those in dir that replace
// them. It returns an error if a template lacks a placeholder. setting is the
// name of the environment variable for dir.
func loadTemplates(dir, setting string) (templates, error) {
	t := make(templates)
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%s is %q, which is not a directory: set it to a directory with prompt templates",
				setting, dir)
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
				return nil, fmt.Errorf("cannot read a prompt template (%w): check %s", err, setting)
			}
			for _, p := range needs {
				if !strings.Contains(string(data), "{{"+p+"}}") {
					return nil, fmt.Errorf("%s lacks {{%s}}: add it where the text belongs", path, p)
				}
			}
		}
		t[name] = string(data)
	}
	return t, nil
}

// fill replaces the placeholders of a template in one pass, so that placeholders
// in values are not replaced.
func (t templates) fill(name string, values map[string]string) string {
	var pairs []string
	for k, v := range values {
		pairs = append(pairs, "{{"+k+"}}", v)
	}
	return strings.TrimSpace(strings.NewReplacer(pairs...).Replace(t[name]))
}
