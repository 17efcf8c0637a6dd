package agent

import "regexp"

// maxPending limits the part of a text that may be the start of a match, in bytes.
const maxPending = 16 << 10

// A Scanner finds what matches a pattern in a text that arrives in pieces.
type Scanner struct {
	Pattern func() *regexp.Regexp

	pending []byte
}

// Read adds a piece. It returns the matches that are complete now, with their submatches.
func (s *Scanner) Read(b []byte) (found [][]string) {
	s.pending = append(s.pending, b...)
	for {
		at := s.Pattern().FindSubmatchIndex(s.pending)
		if at == nil {
			break
		}
		var texts []string
		for i := 0; i < len(at); i += 2 {
			text := ""
			if at[i] >= 0 {
				text = string(s.pending[at[i]:at[i+1]])
			}
			texts = append(texts, text)
		}
		found = append(found, texts)
		s.pending = s.pending[at[1]:]
	}
	if over := len(s.pending) - maxPending; over > 0 {
		s.pending = append(s.pending[:0], s.pending[over:]...)
	}
	return found
}
