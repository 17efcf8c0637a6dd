package claudeide

import "testing"

func TestTextRules(t *testing.T) {
	const lf, crlf, mixed = "a\nb\n", "a\r\nb\r\n", "a\r\nb\n"
	var rules textRules
	for name, tt := range map[string]struct{ got, want string }{
		"shown: LF":                        {rules.Shown(lf, "x\n"), lf},
		"shown: CRLF":                      {rules.Shown(crlf, "x\n"), lf},
		"shown: CRLF and CRLF":             {rules.Shown(crlf, "x\r\n"), crlf},
		"shown: mixed":                     {rules.Shown(mixed, "x\n"), mixed},
		"shown: BOM":                       {rules.Shown(bom+lf, "x\n"), lf},
		"shown: BOM and BOM":               {rules.Shown(bom+lf, bom+"x\n"), bom + lf},
		"shown: new file":                  {rules.Shown("", "x\n"), ""},
		"answer: as proposed":              {rules.Answer("x\n", crlf, "x\n"), "x\n"},
		"answer: edited":                   {rules.Answer("y\n", lf, "x\n"), "y\n"},
		"answer: edited, CRLF":             {rules.Answer("y\n", crlf, "x\n"), "y\r\n"},
		"answer: edited, with CRLF":        {rules.Answer("y\r\n", crlf, "x\n"), "y\r\n"},
		"answer: edited, mixed":            {rules.Answer("y\n", mixed, "x\n"), "y\n"},
		"answer: edited, BOM":              {rules.Answer("y\n", bom+lf, bom+"x\n"), bom + "y\n"},
		"answer: edited, BOM stays":        {rules.Answer(bom+"y\n", bom+lf, bom+"x\n"), bom + "y\n"},
		"answer: edited, BOM not proposed": {rules.Answer("y\n", bom+lf, "x\n"), "y\n"},
		"answer: new file":                 {rules.Answer("y\n", "", "x\n"), "y\n"},
		"answer: empty":                    {rules.Answer("", lf, "x\n"), ""},
		"written: LF":                      {rules.Written("y\n", lf), "y\n"},
		"written: CRLF":                    {rules.Written("y\n", crlf), "y\r\n"},
		"written: CRLF answer":             {rules.Written("y\r\n", lf), "y\r\n"},
		"written: BOM":                     {rules.Written("y\n", bom+crlf), bom + "y\r\n"},
		"written: new file":                {rules.Written("y\n", ""), "y\n"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", name, tt.got, tt.want)
		}
	}
	for _, tt := range []struct {
		text, original, proposed string
		refused                  bool
	}{
		{lf, lf, "x\n", true}, {"y\n", lf, "x\n", false}, {"x\n", lf, "x\n", false}, {lf, lf, lf, false},
		{"", "", "x\n", true}, {"", lf, "x\n", false},
	} {
		if got := rules.Refuses(tt.text, tt.original, tt.proposed); (got != "") != tt.refused {
			t.Errorf("Refuses(%q, %q, %q) = %q", tt.text, tt.original, tt.proposed, got)
		}
	}
	for _, tt := range []struct {
		onDisk, answer string
		holds          bool
	}{
		{lf, lf, true}, {crlf, lf, true}, {lf, crlf, true}, {bom + crlf, lf, true}, {lf, bom + lf, true},
		{"a\nb", lf, false}, {"", lf, false}, {"a\rb\n", lf, false},
	} {
		if got := rules.Holds(tt.onDisk, tt.answer); got != tt.holds {
			t.Errorf("Holds(%q, %q) = %v", tt.onDisk, tt.answer, got)
		}
	}
}
