package editor

// A Cursor is a position in a file, line and character both counted from 1,
// characters in UTF-16 code units as the official extension counts them.
type Cursor struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// Info names the editor to the user (companion-spec I.2, ideInfo).
type Info struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
}
