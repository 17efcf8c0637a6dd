package settings

import (
	"bytes"
	"strings"

	"github.com/tailscale/hujson"

	"pollux/internal/lazy"
)

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
		if NameOf(o.Members[i]) == name {
			return &o.Members[i].Value
		}
	}
	return nil
}

// NameOf returns the name of a member.
func NameOf(m hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

var indented = lazy.Regexp(`(?m)^([ \t]+)"`)

// Indent returns the indentation of the first level of a JSON text.
func Indent(text string) string {
	if m := indented().FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "  "
}

// SetMember sets a member of an object at the given depth. A new member gets its
// own line, after the comments that follow the last member.
func SetMember(o *hujson.Object, name string, value hujson.Value, indent string, depth int) {
	if v := Member(o, name); v != nil {
		v.Value = value.Value
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

// setInStyle is [SetMember], but it adds to the end of the line in an object that is
// written on one line.
func setInStyle(o *hujson.Object, name string, value hujson.Value, indent string, depth int) {
	if !onOneLine(o) || Member(o, name) != nil {
		SetMember(o, name, value, indent, depth)
		return
	}
	last := o.Members[len(o.Members)-1]
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(name)}, Value: value}
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
