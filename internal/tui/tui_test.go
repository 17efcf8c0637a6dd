package tui

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"pollux/internal/adapter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// show writes rows as a person would.
func show(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.kind == fold {
			b.WriteString("...\n")
			continue
		}
		b.WriteString(signs[r.kind].sign + r.text + "\n")
	}
	return b.String()
}

func TestLayOut(t *testing.T) {
	ten := "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n"
	for _, test := range []struct{ name, original, proposed, text, want string }{
		{"a change", "a\nb\nc\n", "a\nB\nc\n", "a\nB\nc\n", " a\n-b\n+B\n c\n"},
		{"undone", "a\nb\nc\n", "a\nB\nc\n", "a\nb\nc\n", " a\n b\n~B\n c\n"},
		{"an undone line to come in", "a\n", "a\nb\n", "a\n", " a\n~b\n"},
		{"an undone line to go out", "a\nb\nc\n", "a\nc\n", "a\nb\nc\n", " a\n b\n~(to be taken out)\n c\n"},
		{"edited by the user", "a\nb\n", "a\nB\n", "a\nmine\n", " a\n-b\n+mine\n"},
		{"a new file", "", "a\nb\n", "a\nb\n", "+a\n+b\n"},
		{"emptied", "a\n", "", "", "-a\n"},
		{"far away is left out", ten, strings.Replace(ten, "a", "A", 1), strings.Replace(ten, "a", "A", 1), "-a\n+A\n b\n c\n d\n e\n...\n"},
		{"one undone, one not", ten, "A\n" + ten[2:] + "m\n", ten + "m\n", " a\n~A\n b\n c\n d\n e\n...\n i\n j\n k\n l\n+m\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rows, _ := layOut(test.original, test.proposed, test.text)
			if got := show(rows); got != test.want {
				t.Errorf("it shows\n%swant\n%s", got, test.want)
			}
		})
	}
}

// Undoing every change gives the file.
func FuzzUndo(f *testing.F) {
	f.Add("a\nb\nc\n", "A\nb\nC\nd\n")
	f.Add("", "x")
	f.Add("x\n\ny", "\n")
	f.Fuzz(func(t *testing.T, original, proposed string) {
		it := &item{Diff: adapter.Diff{Original: original, Proposed: proposed}, text: proposed}
		it.layOut()
		for range 1000 { // what is left is compared anew after each
			i := 0
			for i < len(it.changes) && it.changes[i].undone {
				i++
			}
			if i == len(it.changes) {
				break
			}
			it.text = it.changes[i].Replace(original, it.text)
			it.layOut()
		}
		if it.text != original {
			t.Fatalf("undoing all of %q to %q gives %q", original, proposed, it.text)
		}
	})
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb": "a   b", "\x1b[31mred": "␛[31mred", "a\r": "a␍", "é中😀": "é中😀", "\u202eevil": "·evil", "\x7f": "␡",
	} {
		if got := visible(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
