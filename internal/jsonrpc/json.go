package jsonrpc

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"pollux/internal/sys/disk"
)

// Decode decodes a message into the struct that v points to, whose fields are zero. It
// differs from [stdjson.Unmarshal] in speed and memory, and in two points: a
// [stdjson.RawMessage] shares the memory of the message, and the case of names counts, so
// every field that is to receive a value needs a json tag.
func Decode(data []byte, v any) error {
	share := json.UnmarshalFromFunc(func(d *jsontext.Decoder, raw *stdjson.RawMessage) error {
		value, err := d.ReadValue()
		end := d.InputOffset()
		*raw = data[end-int64(len(value)) : end : end]
		return err
	})
	err := json.Unmarshal(data, v, jsonv1.DefaultOptionsV1(), jsonv1.ReportErrorsWithLegacySemantics(false),
		json.MatchCaseInsensitiveNames(false), json.WithUnmarshalers(json.JoinUnmarshalers(share, json.UnmarshalFromFunc(decodeText))))
	if err != nil {
		// The error texts come from encoding/json.
		reflect.ValueOf(v).Elem().SetZero()
		err = stdjson.Unmarshal(data, v)
	}
	return err
}

// decodeText decodes a string directly into newly allocated memory. The library decodes it
// into a buffer first, and copies it.
func decodeText(d *jsontext.Decoder, text *string) error {
	value, err := d.ReadValue()
	switch {
	case err != nil:
		return err
	case value.Kind() == 'n':
		return nil
	case value.Kind() != '"':
		return errors.New("not a string")
	}
	*text = disk.Text(unquote(value))
	return nil
}

// unquote decodes a valid string. It takes a third of the library's time for a text whose only
// escapes have two characters.
func unquote(quoted []byte) []byte {
	text := make([]byte, 0, len(quoted))
	if rest := quoted[1 : len(quoted)-1]; utf8.Valid(rest) {
		for {
			i := bytes.IndexByte(rest, '\\')
			if i < 0 {
				return append(text, rest...)
			}
			text = append(text, rest[:i]...)
			escape := strings.IndexByte(`"\/bfnrt`, rest[i+1])
			if escape < 0 { // it has a code point
				break
			}
			text = append(text, "\"\\/\b\f\n\r\t"[escape])
			rest = rest[i+2:]
		}
	}
	// An error is about invalid UTF-8 and half surrogate pairs, which are replaced.
	text, _ = jsontext.AppendUnquote(text[:0], quoted)
	return text
}

// largeText is the minimum length, in bytes, of a text that [Encode] handles separately.
const largeText = 16 << 10

// A gap is where a large text belongs in a message.
type gap struct {
	at   int64
	text string
}

// Encode encodes a message. It differs from [stdjson.Marshal] in speed and memory, and in
// two points: HTML stays as it is, and so does a [stdjson.RawMessage].
func Encode(v any) ([]byte, error) {
	if raw, ok := v.(stdjson.RawMessage); ok && raw != nil {
		return raw, nil
	}
	// The library would copy large texts several times, since it does not know the size of
	// the message.
	var gaps []gap
	leaveOut := json.MarshalToFunc(func(e *jsontext.Encoder, text string) error {
		if len(text) < largeText {
			return errors.ErrUnsupported // encode it in place
		}
		err := e.WriteToken(jsontext.String(""))
		gaps = append(gaps, gap{e.OutputOffset() - int64(len(`""`)), text})
		return err
	})
	data, err := json.Marshal(v, jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsontext.EscapeForJS(false),
		json.WithMarshalers(leaveOut))
	if err != nil || gaps == nil {
		return data, err
	}
	size := len(data)
	for _, g := range gaps {
		size += sizeInQuotes(g.text)
	}
	message, end := make([]byte, 0, size), int64(0)
	for _, g := range gaps {
		message = append(message, data[end:g.at]...)
		message, _ = jsontext.AppendQuote(message, g.text) // replaces invalid UTF-8
		end = g.at + int64(len(`""`))
	}
	return append(message, data[end:]...), nil
}

// sizeInQuotes returns the size of a text in the quotes of JSON. It is too small for a
// text with other control characters.
func sizeInQuotes(text string) int {
	size := len(text)
	for _, escaped := range []string{`"`, `\`, "\n", "\r", "\t"} {
		size += strings.Count(text, escaped)
	}
	return size
}
