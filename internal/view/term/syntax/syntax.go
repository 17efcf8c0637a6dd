// Package syntax finds the keywords, strings, numbers and comments of a source text.
//
// It uses the lexers of Chroma. Chroma's own package parses all 279 definitions when a
// program starts, which takes longer than everything else that Pollux does until its first
// answer. So definitions.zip holds 40 definitions, which `go test . -update` takes from that
// package, and they are read with the first text.
package syntax

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/chroma/v2"
)

// A Class is the kind of a part of a text.
type Class int

// The classes that have a colour.
const (
	Keyword Class = iota + 1 // also tags and keys of markup and data
	String
	Number
	Comment
)

// A Span is a range of bytes of a line.
type Span struct {
	From, To int
	Class    Class
}

const (
	// MaxText limits the size of a text, in bytes.
	MaxText = 256 << 10
	// textTimeout limits the time for a text. The rest of it has no spans.
	textTimeout = time.Minute
)

//go:embed definitions.zip
var definitions []byte

var registry = sync.OnceValue(func() *chroma.LexerRegistry {
	all := chroma.NewLexerRegistry()
	archive, err := zip.NewReader(bytes.NewReader(definitions), int64(len(definitions)))
	if err != nil {
		return all
	}
	for _, f := range archive.File {
		if l, err := chroma.NewXMLLexer(archive, f.Name); err == nil {
			all.Register(l)
		}
	}
	return all
})

// Lines returns the spans of each line of a text, by the name of its file. It returns
// nil for an unknown language, for a text over [MaxText], and for one that is not UTF-8.
// The text must have no control characters other than line feeds.
func Lines(ctx context.Context, path, text string) (lines [][]Span) {
	if len(text) > MaxText || !utf8.ValidString(text) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, textTimeout)
	defer cancel()
	// A lexer panics if its definition is wrong for a text.
	defer func() {
		if recover() != nil {
			lines = nil
		}
	}()
	lexer := registry().Match(filepath.Base(path))
	if lexer == nil {
		return nil
	}
	next, err := lexer.Tokenise(nil, text)
	if err != nil {
		return nil
	}
	lines = make([][]Span, strings.Count(text, "\n")+1)
	line, column := 0, 0
	for token := next(); token != chroma.EOF && ctx.Err() == nil; token = next() {
		class := classOf(token.Type)
		if class == Keyword && strings.HasPrefix(token.Value, "//") {
			class = Comment // Chroma takes a comment of Go without a space for a directive
		}
		for part := range strings.Lines(token.Value) {
			shown := strings.TrimSuffix(part, "\n")
			if class != 0 && shown != "" {
				lines[line] = append(lines[line], Span{column, column + len(shown), class})
			}
			column += len(shown)
			if shown != part && line < len(lines)-1 {
				line, column = line+1, 0
			}
		}
	}
	return lines
}

func classOf(t chroma.TokenType) Class {
	switch {
	case t == chroma.CommentPreproc, t == chroma.CommentPreprocFile:
		return Keyword
	case t.InCategory(chroma.Comment):
		return Comment
	case t.InCategory(chroma.Keyword), t == chroma.OperatorWord, t == chroma.NameTag, t == chroma.NameDecorator,
		t == chroma.GenericHeading:
		return Keyword
	case t.InSubCategory(chroma.LiteralString):
		return String
	case t.InSubCategory(chroma.LiteralNumber):
		return Number
	}
	return 0
}
