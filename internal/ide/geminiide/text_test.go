package geminiide

import (
	"strings"
	"testing"
)

const bom = "\uFEFF"

func TestTextComesBackAsItWas(t *testing.T) {
	for _, tt := range []struct{ disk, proposal, shown string }{
		{"a\r\nb\r\n", "a\nc\n", "a\nb\n"},
		{"a\r\nb\r\n", "a\r\nc\r\n", "a\r\nb\r\n"},
		{"a\r\nb\n", "a\nc\n", "a\r\nb\n"},
		{bom + "a\n", "b\n", "a\n"},
		{bom + "a\n", bom + "b\n", bom + "a\n"},
	} {
		if got := (textRules{}).Shown(tt.disk, tt.proposal); got != tt.shown {
			t.Errorf("Shown(%q, %q) = %q, want %q", tt.disk, tt.proposal, got, tt.shown)
		}
	}
	if got := (textRules{}).Answer("x", "plain", bom+"y"); !strings.HasPrefix(got, bom) {
		t.Errorf("Answer lost the mark: %q", got)
	}
}
