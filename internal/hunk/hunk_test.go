package hunk

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestBetween(t *testing.T) {
	for _, test := range []struct {
		name, old, new string
		want           []Hunk
	}{
		{"nothing", "a\n", "a\n", nil},
		{"a line changed", "a\nb\nc\n", "a\nX\nc\n", []Hunk{{2, 1, 2, 1}}},
		{"a line added at the end", "a\n", "a\nb\n", []Hunk{{2, 0, 2, 1}}},
		{"the first line taken out", "a\nb\n", "b\n", []Hunk{{1, 1, 1, 0}}},
		{"a new file", "", "a\nb\n", []Hunk{{1, 0, 1, 2}}},
		{"an emptied file", "a\nb\n", "", []Hunk{{1, 2, 1, 0}}},
		{"the final line feed", "a\nb", "a\nb\n", []Hunk{{2, 1, 2, 1}}},
		{"several", "a\nb\nc\nd\n", "b\nc\nE\nd\nf\n", []Hunk{{1, 1, 1, 0}, {4, 0, 3, 1}, {5, 0, 5, 1}}},
		{"line endings", "a\r\nb\r\n", "a\nb\r\n", []Hunk{{1, 1, 1, 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Between(test.old, test.new); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// A text with many changes was one hunk between the first and the last few of them.
func TestBetweenManyChanges(t *testing.T) {
	for _, test := range []struct {
		name string
		line func(i int) string
	}{
		{"lines that occur once", func(i int) string { return fmt.Sprintf("line %d\n", i) }},
		{"lines that repeat", func(i int) string { return fmt.Sprintf("line %d\n", i%7) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			var oldText, newText strings.Builder
			var want []Hunk
			for i := range 10_000 {
				oldText.WriteString(test.line(i))
				if i%20 == 7 {
					want = append(want, Hunk{i + 1, 1, i + 1, 1})
					newText.WriteString("changed " + test.line(i))
				} else {
					newText.WriteString(test.line(i))
				}
			}
			if got := Between(oldText.String(), newText.String()); !reflect.DeepEqual(got, want) {
				t.Errorf("got %d hunks, want %d", len(got), len(want))
			}
		})
	}
}

// Lines that cannot be paired with few edits become one hunk between two anchors.
func TestBetweenTooManyEdits(t *testing.T) {
	same := "an anchor\n"
	oldText := strings.Repeat("a\nb\n", maxEdits) + same + "c\n"
	newText := strings.Repeat("b\nb\nd\n", maxEdits) + same + "C\n"
	n := 2 * maxEdits
	want := []Hunk{{1, n, 1, 3 * maxEdits}, {n + 2, 1, 3*maxEdits + 2, 1}}
	if got := Between(oldText, newText); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAt(t *testing.T) {
	hunks := Between("a\nb\nc\nd\n", "b\nc\nE\nd\nf\n")
	for line, want := range map[int]int{0: 1, 1: 1, 2: 0, 3: 3, 4: 0, 5: 5, 6: 0} {
		h, ok := At(hunks, line)
		if ok != (want != 0) || ok && h.New != want {
			t.Errorf("line %d is at %v, %v; want the hunk at %d", line, h, ok, want)
		}
	}
}

// Putting every hunk back, the last one first, gives the old text.
func FuzzReplace(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nX\nc")
	f.Add("", "x\ny")
	f.Add("a\r\nb", "")
	f.Add("\n\n\n", "\n")
	f.Fuzz(func(t *testing.T, oldText, newText string) {
		hunks := Between(oldText, newText)
		got := newText
		for i := len(hunks) - 1; i >= 0; i-- {
			got = hunks[i].Replace(oldText, got)
		}
		if got != oldText {
			t.Errorf("%q became %q, want %q", newText, got, oldText)
		}
		for i, h := range hunks {
			if h.OldText(oldText) == Text(newText, h.New, h.NewLines) || i > 0 && h.New <= hunks[i-1].New+hunks[i-1].NewLines {
				t.Errorf("hunk %d of %v says nothing, or touches the one before", i, hunks)
			}
		}
	})
}
