package jsontoml

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// DecodeTOML is [toml.Decode], but a text that nests too deeply is [ErrNesting].
func DecodeTOML(text string, to any) (toml.MetaData, error) {
	if err := checkNesting([]byte(text), true); err != nil {
		return toml.MetaData{}, err
	}
	return toml.Decode(text, to)
}

// Literal returns a value as TOML, on one line.
func Literal(v any) string {
	text, _ := toml.Marshal(map[string]any{"v": v})
	return strings.TrimSuffix(strings.TrimPrefix(string(text), "v = "), "\n")
}
