package jsonrpc

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

type sample struct {
	Text  string            `json:"text"`
	Empty *string           `json:"empty,omitempty"`
	On    bool              `json:"on,omitempty"`
	N     int               `json:"n,omitempty"`
	Raw   json.RawMessage   `json:"raw,omitempty"`
	Any   any               `json:"any,omitempty"`
	List  []string          `json:"list"`
	Map   map[string]string `json:"map"`
}

// Decode accepts and refuses what encoding/json does, with the same errors.
func TestDecode(t *testing.T) {
	for _, message := range []string{
		`{}`, `null`, ` { "text" : "a\n\"\u00e4\ud83d\ude00" } `, `{"text":null,"empty":null,"raw":null,"list":null}`,
		`{"text":"\"\\\/\b\f\n\r\t, \u0041"}`, `{"text":"\/\"\\\/\b\f\n\r\t"}`, `{"text":"a","text":"b"}`, `{"unknown":[{}],"text":"a"}`, `{"empty":"","on":false,"n":0,"list":[]}`,
		`{"raw": {"a":[1, "]}"]} ,"text":"a"}`, `{"any":[1.5e3,12345678901234567890,-0,{"a":null}]}`,
		"{\"text\":\"\xff\"}", `{"text":"\ud83d x \ude00"}`, `{"raw":"` + "\xff" + `"}`, `{"n":1.5}`, `{"n":1e99}`, `{"n":"1"}`,
		``, `{`, `[]`, `"x"`, `{"text":1}`, `{"text":"a"}}`, `{"text":"a"} x`, `{"text":"\x"}`, `{"text":"a`, "{\"text\":\"\n\"}", `{"on":1}`,
		`{"raw":}`, `{"raw":[1,]}`, `{"raw":01}`, `{"list":[1]}`, "{}\x00", strings.Repeat("[", 20_000),
	} {
		var got, want sample
		err, wantErr := Decode([]byte(message), &got), json.Unmarshal([]byte(message), &want)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%.100q: error %v, want %v", message, err, wantErr)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%.100q: %+v, want %+v", message, got, want)
		}
	}
}

func TestDecodeMatchesTheCaseOfNames(t *testing.T) {
	var v sample
	if err := Decode([]byte(`{"text":"a","TEXT":"b","Text":"c"}`), &v); err != nil || v.Text != "a" {
		t.Errorf("%q, %v", v.Text, err)
	}
}

// A large text is not copied before it is decoded.
func TestDecodeSharesMemory(t *testing.T) {
	message := []byte(`{"raw": {"a":1},"text":"x"}`)
	var v sample
	if err := Decode(message, &v); err != nil {
		t.Fatal(err)
	}
	if string(v.Raw) != `{"a":1}` || &v.Raw[0] != &message[8] || cap(v.Raw) != len(v.Raw) {
		t.Errorf("%q of %d", v.Raw, cap(v.Raw))
	}
	if same, err := Encode(v.Raw); err != nil || &same[0] != &message[8] {
		t.Errorf("%q, %v", same, err)
	}
}

func TestEncode(t *testing.T) {
	empty := ""
	for want, v := range map[string]any{
		`null`:                               nil,
		`{"text":"","list":null,"map":null}`: sample{},
		`{"text":"<&>` + "\u2028" + `\n\"\\\u0001","empty":"","on":true,"n":5,"raw":{"a":"<"},"any":[1.5],"list":[],"map":{"a":"","b":""}}`: sample{
			Text: "<&>\u2028\n\"\\\x01", Empty: &empty, On: true, N: 5, Raw: json.RawMessage(`{"a": "<"}`), Any: []any{1.5},
			List: []string{}, Map: map[string]string{"b": "", "a": ""},
		},
		`{"text":"` + "\uFFFD" + `","list":null,"map":null}`: &sample{Text: "\xff"},
	} {
		if got, err := Encode(v); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	if _, err := Encode(func() {}); err == nil {
		t.Error("a function is encoded")
	}
}

// A large text is encoded and decoded as a small one is, with one copy.
func TestLargeTexts(t *testing.T) {
	type large struct {
		Text  string            `json:"text,omitempty"`
		Other *string           `json:"other,omitempty"`
		Any   any               `json:"any"`
		List  []string          `json:"list"`
		Map   map[string]string `json:"map"`
		Last  int               `json:"last"`
	}
	for _, part := range []string{"plain ", "\"quoted\"\\\n\r\t\b\f\x00\x1b\x7f", "ä\u2028😀\uFFFD<&>", "\xff\xc3"} {
		text := strings.Repeat(part, largeText/len(part)+1)
		v := large{Text: text, Other: &text, Any: text, List: []string{text, "small", text}, Map: map[string]string{"a": text, text: ""}, Last: 1}
		got, err := Encode(v)
		if err != nil {
			t.Fatalf("%q: %v", part, err)
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		var decoded, want large
		if err := json.Unmarshal(b.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		if err := Decode(got, &decoded); err != nil || !reflect.DeepEqual(decoded, want) {
			t.Errorf("%q differs after %v", part, err)
		}
		if part == "plain " && cap(got) != len(got) {
			t.Errorf("%d bytes in memory of %d", len(got), cap(got))
		}
		if !json.Valid(got) || strings.Contains(string(got), "\n") {
			t.Errorf("%q makes the message invalid", part)
		}
	}
}
