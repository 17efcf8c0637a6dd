// Package jsontoml reads and changes settings in JSON with comments and in TOML, which
// users write and other programs read. The libraries parse, but neither adds a value in the
// style of the file, and hujson's patches remove users' comments.
package jsontoml

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// Parse parses JSON with comments and trailing commas. The last comment may end with the
// text. A text that nests too deeply is [ErrNesting].
func Parse(text []byte) (hujson.Value, error) {
	if err := checkNesting(text, false); err != nil {
		return hujson.Value{}, err
	}
	v, err := hujson.Parse(text)
	if err == nil {
		return v, nil
	}
	if w, lineErr := hujson.Parse(append(bytes.Clone(text), '\n')); lineErr == nil {
		return w, nil
	}
	return v, err
}

// Decode is [Parse] and [json.Unmarshal].
func Decode(text []byte, to any) error {
	v, err := Parse(text)
	if err != nil {
		return err
	}
	return DecodeValue(v, to)
}

// DecodeValue is [json.Unmarshal] for a parsed value.
func DecodeValue(v hujson.Value, to any) error {
	v = v.Clone()
	v.Standardize()
	return json.Unmarshal(v.Pack(), to)
}

// Object returns a value as an object, or nil if it is not one.
func Object(v *hujson.Value) *hujson.Object {
	if v == nil {
		return nil
	}
	o, _ := v.Value.(*hujson.Object)
	return o
}

// Member returns the value of a member of an object, or nil. If a name occurs twice,
// the last one counts.
func Member(o *hujson.Object, name string) *hujson.Value {
	for i := len(o.Members) - 1; i >= 0; i-- {
		if nameOf(o.Members[i]) == name {
			return &o.Members[i].Value
		}
	}
	return nil
}

// nameOf returns the name of a member.
func nameOf(m hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

// Indent returns the indentation of the first level of a JSON text.
func Indent(text string) string {
	for line := range strings.Lines(text) {
		if rest := strings.TrimLeft(line, " \t"); len(rest) < len(line) && strings.HasPrefix(rest, `"`) {
			return line[:len(line)-len(rest)]
		}
	}
	return "  "
}

// SetMember sets a member of an object at the given depth to a value that has a form in
// JSON. A new member gets its own line, after the comments that follow the last member.
func SetMember(o *hujson.Object, name string, v any, indent string, depth int) {
	value := valueOf(v, indent, depth+1)
	if old := Member(o, name); old != nil {
		old.Value = value.Value
		return
	}
	behind, closing := string(o.AfterExtra), "\n"+strings.Repeat(indent, depth)
	if i := strings.LastIndexByte(behind, '\n'); i >= 0 {
		behind, closing = behind[:i], behind[i:]
	}
	line := strings.TrimRight(behind, " \t") + "\n" + strings.Repeat(indent, depth+1)
	m := hujson.ObjectMember{Name: hujson.Value{BeforeExtra: hujson.Extra(line), Value: hujson.String(name)}, Value: value}
	m.Value.BeforeExtra = hujson.Extra(" ")
	if n := len(o.Members); n > 0 && o.Members[n-1].Value.AfterExtra != nil {
		m.Value.AfterExtra = hujson.Extra{} // keep a trailing comma
	}
	o.AfterExtra = hujson.Extra(closing)
	o.Members = append(o.Members, m)
}

// valueOf returns a value formatted for a depth of indentation.
func valueOf(v any, indent string, depth int) hujson.Value {
	text, err := json.MarshalIndent(v, strings.Repeat(indent, depth), indent)
	if err != nil {
		panic(err)
	}
	value, _ := hujson.Parse(text)
	return value
}

// SetInStyle is [SetMember], but in an object that is written on one line it adds a member to
// the end of that line.
func SetInStyle(o *hujson.Object, name string, v any, indent string, depth int) {
	if !onOneLine(o) || Member(o, name) != nil {
		SetMember(o, name, v, indent, depth)
		return
	}
	last := o.Members[len(o.Members)-1]
	space := o.Members[0].Value.BeforeExtra
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(name)}, Value: valueOf(v, "", 0)}
	m.Value.Minimize()
	for inner := range m.Value.All() {
		if inner, ok := inner.Value.(*hujson.Object); ok {
			for i := range inner.Members {
				inner.Members[i].Value.BeforeExtra = bytes.Clone(space)
				if i > 0 {
					inner.Members[i].Name.BeforeExtra = bytes.Clone(space)
				}
			}
		}
	}
	m.Value.BeforeExtra = bytes.Clone(last.Value.BeforeExtra)
	m.Name.BeforeExtra = bytes.Clone(last.Name.BeforeExtra)
	if len(o.Members) == 1 { // the space before the first name is not the one between members
		m.Name.BeforeExtra = bytes.Clone(last.Value.BeforeExtra)
	}
	o.Members = append(o.Members, m)
}

// onOneLine reports whether an object with members contains neither a line ending nor a
// comment outside of its values.
func onOneLine(o *hujson.Object) bool {
	blank := func(e hujson.Extra) bool { return len(bytes.Trim(e, " \t")) == 0 }
	for _, m := range o.Members {
		if !blank(m.Name.BeforeExtra) || !blank(m.Name.AfterExtra) || !blank(m.Value.BeforeExtra) || !blank(m.Value.AfterExtra) {
			return false
		}
	}
	return len(o.Members) > 0 && blank(o.AfterExtra)
}

// RemoveMember removes a member. It keeps comments before it, and the text after
// the last member.
func RemoveMember(o *hujson.Object, name string) {
	i := slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool { return nameOf(m) == name })
	gone := o.Members[i]
	comment := strings.TrimRight(string(gone.Name.BeforeExtra), " \t\n")
	o.Members = slices.Delete(o.Members, i, i+1)
	if i < len(o.Members) {
		next := &o.Members[i].Name.BeforeExtra
		*next = before(comment, *next)
		return
	}
	if n := len(o.Members); n > 0 {
		// The new last member gets a comma only if the old one had one.
		last := &o.Members[n-1].Value.AfterExtra
		if gone.Value.AfterExtra == nil {
			comment = strings.TrimRight(string(*last), " \t\n") + comment
			*last = nil
		} else if *last == nil {
			*last = hujson.Extra{}
		}
	}
	o.AfterExtra = before(comment, o.AfterExtra)
}

// before joins a comment, which may need a line ending, to the text after it.
func before(comment string, rest hujson.Extra) hujson.Extra {
	if strings.Contains(comment, "//") && !strings.HasPrefix(string(rest), "\n") {
		comment += "\n"
	}
	return append(hujson.Extra(comment), rest...)
}
