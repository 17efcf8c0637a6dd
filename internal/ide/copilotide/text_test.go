package copilotide

import "testing"

func TestTextRules(t *testing.T) {
	const bom = "\uFEFF"
	var rules textRules
	for _, tt := range []struct {
		text, proposed string
		refused        bool
	}{
		{"new\n", "new\n", false}, {"new\n", "new\r\n", false}, {"new\n", bom + "new\n", false},
		{"mine\n", "new\n", true}, {"new", "new\n", true}, {"", "new\n", true},
	} {
		if got := rules.Refuses(tt.text, "old\n", tt.proposed); (got != "") != tt.refused {
			t.Errorf("Refuses(%q, %q) = %q", tt.text, tt.proposed, got)
		}
	}
	for _, text := range []string{"new\r\n", bom + "new\n", "new", ""} {
		if got := rules.Answer("new\n", "old\n", text); got != text {
			t.Errorf("Answer: %q, want %q", got, text)
		}
		if got := rules.Written(text, "old\r\n"); got != text {
			t.Errorf("Written: %q, want %q", got, text)
		}
		if got := rules.Shown(text, "x\n"); got != text {
			t.Errorf("Shown: %q, want %q", got, text)
		}
		if !rules.Holds(text, text) || rules.Holds(text, text+"\n") {
			t.Errorf("Holds(%q)", text)
		}
	}
	// On Windows, every new file was said to hold something else than what was accepted.
	if !rules.Holds("a\r\nb\r\n", "a\nb\n") {
		t.Error("Holds: a new file of Windows has CRLF")
	}
}
