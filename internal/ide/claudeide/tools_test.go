package claudeide

import (
	"strings"
	"testing"
)

func FuzzParseOpenDiff(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, ``, `{"new_file_path":"/a","new_file_contents":"x","tab_name":"t"}`,
		`{"new_file_path":"/a","new_file_contents":"\ud800\u0000"}`, `{"new_file_path":5,"new_file_contents":{}}`,
		`{"NEW_FILE_PATH":"/a","new_file_contents":""}`, `{"new_file_path":"/a` + "\xff" + `","new_file_contents":"\ufffd"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, _, err := parseOpenDiff(data)
		if err != nil {
			return
		}
		if p.Path == "" || strings.ContainsRune(p.Path, 0) {
			t.Errorf("the path %q", p.Path)
		}
		if p.Binary == "" && (strings.ContainsRune(p.Text, 0) || strings.ToValidUTF8(p.Text, "") != p.Text) {
			t.Errorf("the text %q may go through an editor", p.Text)
		}
	})
}
