package doctor

import (
	"fmt"
	"strings"
)

// A Cause is a row in a table of causes: a rule of an agent, when it is broken, and what to
// do. The rules of a table examine a T.
type Cause[T any] struct {
	// Check is the rule's name in docs/DOCTOR.md.
	Check  string
	Status Status
	// Broken reports whether the rule is broken. In a row with the status OK, it reports
	// that all is well.
	Broken func(T) bool
	// Text and Next become the fields of the [Finding]. They may name words in braces, if T has
	// a method Words: the word "file" replaces {file}.
	Text, Next string
}

// Words are parts of a text, by name.
type Words map[string]string

// Fails returns a row for a cause that fails.
func Fails[T any](check string, broken func(T) bool, text, next string) Cause[T] {
	return Cause[T]{check, Failed, broken, text, next}
}

// Warns returns a row for a cause that warns.
func Warns[T any](check string, broken func(T) bool, text, next string) Cause[T] {
	return Cause[T]{check, Warning, broken, text, next}
}

// Passes returns a row for when all is well.
func Passes[T any](check string, well func(T) bool, text string) Cause[T] {
	return Cause[T]{check, OK, well, text, ""}
}

// Otherwise is the rule of a last row, which applies if no other row does.
func Otherwise[T any](T) bool { return true }

// First adds a finding for the first row that applies to a subject, and reports whether there
// is one. An earlier row comes before an earlier subject.
func First[T any](c *Checker, causes []Cause[T], subjects ...T) bool {
	for _, cause := range causes {
		for _, subject := range subjects {
			if !cause.Broken(subject) {
				continue
			}
			var pairs []string
			if s, ok := any(subject).(interface{ Words() Words }); ok {
				for name, text := range s.Words() {
					pairs = append(pairs, "{"+name+"}", text)
				}
			}
			words := strings.NewReplacer(pairs...) // it does not look into the texts that it inserts
			c.Add(Finding{
				Check: cause.Check, Status: cause.Status, Rule: cause.Text,
				Text: words.Replace(cause.Text), Next: words.Replace(cause.Next),
			})
			return true
		}
	}
	return false
}

// A hidden value prints as "…" with every verb.
type hidden struct{}

func (hidden) Format(f fmt.State, _ rune) { f.Write([]byte("…")) }

// rule returns a format with its numbers, and without the texts that it would quote.
func rule(format string, args []any) string {
	shown := make([]any, len(args))
	for i, arg := range args {
		switch arg.(type) {
		case int, int64, uint64, float64:
			shown[i] = arg
		default:
			shown[i] = hidden{}
		}
	}
	return fmt.Sprintf(format, shown...)
}
