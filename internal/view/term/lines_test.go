package term

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"pollux/internal/editor"
)

// marked writes the changed rows of a diff, with the marks in brackets.
func marked(original, text string) string {
	rows, _ := layOut(original, text, text)
	var b strings.Builder
	for _, r := range rows {
		if r.kind != removed && r.kind != added {
			continue
		}
		b.WriteString(r.sign().text)
		at := 0
		for _, m := range r.marks {
			b.WriteString(r.shown[at:m.From] + "[" + r.shown[m.From:m.To] + "]")
			at = m.To
		}
		b.WriteString(r.shown[at:] + "\n")
	}
	return b.String()
}

func TestWordMarks(t *testing.T) {
	for _, test := range []struct{ name, original, text, want string }{
		{"a word", "return a + b\n", "return a + c\n", "-return a + [b]\n+return a + [c]\n"},
		{"a part that grows", "f(a)\n", "f(a, b)\n", "-f(a)\n+f(a[, b])\n"},
		{"neighbours are one mark", "if not x then y end\n", "if one two then y end\n",
			"-if [not x] then y end\n+if [one two] then y end\n"},
		{"another line", "alpha beta\n", "gamma delta\n", "-alpha beta\n+gamma delta\n"},
		{"a line is inserted before", "keep(a)\n", "new()\nkeep(b)\n", "-keep([a])\n+new()\n+keep([b])\n"},
		{"a line is split", "f(a, b)\n", "f(a,\n  b)\n", "-f(a,[ ]b)\n+f(a,\n+[  ]b)\n"},
		{"letters with marks", "na\u0308me é x\n", "na\u0308me é y\n", "-na\u0308me é [x]\n+na\u0308me é [y]\n"},
		{"tabs and controls", "\tx = 1\x1b[2J\n", "\tx = 2\x1b[2J\n", "-    x = [1]␛[2J\n+    x = [2]␛[2J\n"},
		{"a space at the end", "x = 1\n", "x = 1 \n", "-x = 1\n+x = 1[ ]\n"},
		{"nothing is removed", "", "x\n", "+x\n"},
		{"the last line feed", "x", "x\n", "-x\n+x\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := marked(test.original, test.text); got != test.want {
				t.Errorf("it marks\n%swant\n%s", got, test.want)
			}
		})
	}
}

// A huge hunk is not compared word by word.
func TestWordMarksOfAHugeHunk(t *testing.T) {
	if got := marked(strings.Repeat("a b\n", maxWords), strings.Repeat("a c\n", maxWords)); strings.Contains(got, "[") {
		t.Error("it has marks")
	}
}

// The marks are in the line, in order, and apart; what the rows show is unchanged.
func FuzzWordMarks(f *testing.F) {
	f.Add("a b\nc d\n", "a x\n")
	f.Add("\t\xff\n", "é \u200b\n")
	f.Fuzz(func(t *testing.T, original, text string) {
		rows, _ := layOut(original, text, text)
		for i := range rows {
			r := &rows[i]
			at := 0
			for n, m := range r.marks {
				if m.From < at || n > 0 && m.From == at || m.To <= m.From || m.To > len(r.shown) {
					t.Fatalf("%q has the marks %v", r.shown, r.marks)
				}
				at = m.To
			}
			if got := ansi.Strip(theme{}.paint(r, 0, len(r.shown))); got != r.shown {
				t.Fatalf("%q is painted as %q", r.shown, got)
			}
		}
	})
}

// The footer has the most important keys, however narrow the terminal is.
func TestFooterFits(t *testing.T) {
	it := &item{Diff: editor.Diff{Path: "/p/f"}}
	for _, test := range []struct {
		width int
		want  string
	}{
		{120, "y accept  r reject  n/p hunk  u undo  a redo  V range  e edit  w wrap  tab next  ? help  q leave"},
		{79, "y accept  r reject  n/p hunk  u undo  a redo  e edit  ? help  q leave"},
		{60, "y accept  r reject  n/p hunk  u undo  ? help  q leave"},
		{40, "y accept  r reject  ? help  q leave"},
		{30, "y accept  r reject  ? help"},
		{20, "y accept  r reject"},
		{19, "y r ? q"}, // it was "y accept", and nothing said how to reject
		{10, "y r ? q"},
	} {
		m := &model{width: test.width, items: []*item{it, {}}, settled: true}
		if got := m.footer(it); got != test.want {
			t.Errorf("%d columns: %q, want %q", test.width, got, test.want)
		}
	}
	for width, want := range map[int]string{
		80: "o overwrite the file  d compare  Esc cancel", 40: "o overwrite the file  d compare",
		19: "o d Esc", // it was "o overwrite the fi"
	} {
		other := &item{conflict: &editor.DiffAcceptResult{}}
		m := &model{width: width, items: []*item{other}, settled: true}
		if got := m.footer(other); got != want {
			t.Errorf("a conflict in %d columns: %q, want %q", width, got, want)
		}
	}
	for width := 14; width < 140; width++ {
		for _, other := range []*item{
			{ranging: true}, {conflict: &editor.DiffAcceptResult{}},
			{Diff: editor.Diff{ReadOnly: "why"}}, {Diff: editor.Diff{State: editor.StateAccepted}},
		} {
			m := &model{width: width, items: []*item{other}, settled: true}
			if got := m.footer(other); len(got) >= width || got == "" {
				t.Errorf("%d columns: %q", width, got)
			}
		}
	}
	if got := (&model{width: 79}).footer(it); got != appeared {
		t.Errorf("before the user can decide: %q", got)
	}
}

func TestBreaks(t *testing.T) {
	for _, test := range []struct {
		text    string
		columns int
		want    string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc|d"},
		{"世界人", 5, "世界|人"},
		{"世界", 1, "世|界"},
		{"ae\u0301ae\u0301", 2, "ae\u0301|ae\u0301"},
	} {
		starts := append(breaks(test.text, test.columns), len(test.text))
		var parts []string
		for i := range len(starts) - 1 {
			parts = append(parts, test.text[starts[i]:starts[i+1]])
		}
		if got := strings.Join(parts, "|"); got != test.want {
			t.Errorf("%q in %d columns: %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

// With w, all of a long line is on the screen, in both layouts, and the hunk stays in
// view.
func TestWrap(t *testing.T) {
	long := strings.Repeat("0123456789", 30)
	for _, layout := range []string{"", "v"} {
		onBench(t, Config{}, func(t *testing.T, b *bench) {
			b.open("1", long+"end\n")
			time.Sleep(time.Second)
			if got := b.shows(); strings.Contains(got, "end") {
				t.Errorf("cut, it shows\n%s", got)
			}
			b.press(layout + "w")
			b.sees(t, "end")
			for _, l := range strings.Split(b.shows(), "\n") {
				if ansi.StringWidth(l) > 80 {
					t.Errorf("too wide: %q", l)
				}
			}
			if !strings.Contains(b.shows(), "+0123") || strings.Count(b.shows(), "0123456789") < 20 {
				t.Errorf("wrapped, it shows\n%s", b.shows())
			}
			b.press("w")
			if got := b.shows(); strings.Contains(got, "end") {
				t.Errorf("cut again, it shows\n%s", got)
			}
		})
	}
}

// u and a change all hunks of a range, and only those.
func TestRange(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		original := "a\n1\nb\n2\nc\n3\nd\n4\n"
		b.texts.set("1", "")
		b.send(opened{ID: "1", Path: "/p/f", Original: original, Proposed: "A\n1\nB\n2\nC\n3\nD\n4\n", State: editor.StateOpen})
		time.Sleep(time.Second)
		text := func(want string) {
			t.Helper()
			b.loop.Lock()
			defer b.loop.Unlock()
			if got := b.item().text; got != want {
				t.Errorf("the text is %q, want %q", got, want)
			}
		}
		b.press("nVn")
		b.sees(t, "hunks 2-3 of 4")
		b.sees(t, "u undo the range")
		b.press("u")
		text("A\n1\nb\n2\nc\n3\nD\n4\n")
		b.sees(t, "hunk 2 of 4")
		b.press("VnnnuVppp") // backwards too
		text("A\n1\nb\n2\nc\n3\nd\n4\n")
		b.sees(t, "hunks 1-2 of 4")
		b.press("a")
		text("A\n1\nB\n2\nc\n3\nd\n4\n")
		b.press("V")
		b.send(tea.KeyPressMsg{Code: tea.KeyEscape})
		b.sees(t, "hunk 1 of 4")
		b.press("u")
		text("a\n1\nB\n2\nc\n3\nd\n4\n")
		b.press("Vu")
		b.sees(t, "already undone")
		b.wants(t, "no decision")
	})
}

// A long message is wrapped, and the diff keeps its place.
func TestLongMessage(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		b.open("1", "new\n")
		b.send(message{text: strings.Repeat("word ", 30) + "end"})
		b.sees(t, "word end")
		b.sees(t, "+new")
		if n := strings.Count(b.shows(), "\n") + 1; n != 24 {
			t.Errorf("it has %d lines", n)
		}
		b.close("1", editor.ReasonRejected)
		b.send(message{text: strings.Repeat("word ", 30) + "end"})
		b.sees(t, "No pending changes")
		b.sees(t, "word end")
		if n := strings.Count(b.shows(), "\n") + 1; n != 24 {
			t.Errorf("without changes it has %d lines", n)
		}
	})
}
