package editor

// A Cursor is a position in a file. Lines and characters count from 1,
// characters in UTF-16 code units.
type Cursor struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// A Range is a part of a file. End is the position after its last character.
type Range struct {
	Start Cursor `json:"start"`
	End   Cursor `json:"end"`
}

// Info is the name of an editor, for programs and for users.
type Info struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
}

// NoEditor is the name of a companion without an editor: its user opens the review page, or
// the review in a terminal.
var NoEditor = Info{Name: "pollux", DisplayName: "Pollux"}
