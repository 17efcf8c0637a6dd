package bridge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// StructuredInput is the input of the tool structured.
type StructuredInput struct {
	Common
	Prompt string   `json:"prompt"`
	Schema Schema   `json:"schema"`
	Files  []string `json:"files"`
}

// A Schema is a JSON Schema, as a JSON value or as a string that contains it.
type Schema json.RawMessage

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Schema) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		data = []byte(text)
	}
	*s = append((*s)[:0], data...)
	return nil
}

func (in StructuredInput) question() string { return in.Prompt }

func (in StructuredInput) check(b *Bridge) error {
	if err := b.checkPrompt(b.cfg.Names.Prompt, in.Prompt); err != nil {
		return err
	}
	if err := CheckSchema(in.Schema); err != nil {
		return err
	}
	return checkFiles(in.Files)
}

// fulfill returns an invalid answer to the model once, with a list of the errors.
func (in StructuredInput) fulfill(ctx context.Context, c *call) (Answer, error) {
	schema, err := compile(in.Schema)
	if err != nil {
		return Answer{}, err
	}
	files, err := c.attach(in.Files, in.RequireFiles)
	if err != nil {
		return Answer{}, err
	}
	prompt := c.b.templates.fill("structured", map[string]string{
		"prompt": in.Prompt + files.text, "schema": string(in.Schema),
	})
	conversation := rand.Text()
	defer c.runner.Forget(conversation)
	first := question{prompt: prompt, images: files.images, conversation: conversation, schema: in.Schema}
	result, err := c.request(ctx, first)
	// The model's service may not take the schema.
	if fault, ok := errors.AsType[*agent.Error](err); ok && fault.Kind == agent.BadRequest && c.agent.Agent.Warm.TakesSchema {
		first.schema = nil
		result, err = c.request(ctx, first)
	}
	if err != nil {
		return Answer{}, err
	}
	value, wrong := validate(schema, result.Answer)
	if deadline, _ := ctx.Deadline(); wrong != nil && time.Until(deadline) >= minAttemptTimeout {
		c.progress.now("the answer is not valid: asking once more")
		repair := fmt.Sprintf("Your answer is not valid:\n%s\n\nAnswer with the corrected JSON and nothing else.",
			bulletList(wrong))
		result, err = c.request(ctx, question{
			prompt: repair, images: files.images, conversation: conversation, schema: first.schema,
			replay: fmt.Sprintf("%s\n\nYour earlier answer:\n\n%s\n\n%s",
				prompt, agent.Shorten(result.Answer, 100_000), repair),
		})
		if err != nil {
			return Answer{}, err
		}
		if value, wrong = validate(schema, result.Answer); wrong == nil {
			c.meta.Repaired = true
		}
	}
	if wrong != nil {
		return Answer{}, &Failure{
			Err: fmt.Errorf("the answer is not valid under the schema: try again, simplify the schema, or "+
				"name another model\n%s", bulletList(wrong)),
			Partial: result.Answer,
		}
	}
	return Answer{Text: string(value), IsJSON: true, Notes: c.notes(files.skipped)}, nil
}

// CheckSchema returns an error for a schema that a [StructuredInput] cannot have.
func CheckSchema(schema []byte) error {
	_, err := compile(schema)
	return err
}

// bulletList returns the first items as a bulleted list.
func bulletList(items []string) string {
	const most = 20
	var b strings.Builder
	for i, s := range items {
		if i == most {
			fmt.Fprintf(&b, "- and %d more\n", len(items)-most)
			break
		}
		fmt.Fprintf(&b, "- %s\n", s)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// compile compiles a schema of any current draft. The default is 2020-12. A
// reference to another document is an error, because nothing is fetched. Formats
// are checked.
func compile(s Schema) (*jsonschema.Schema, error) {
	s = bytes.TrimPrefix(s, []byte("\ufeff"))
	if len(bytes.TrimSpace(s)) == 0 {
		return nil, errors.New("the schema is missing: pass a JSON Schema")
	}
	if len(s) > maxSchema {
		return nil, fmt.Errorf("the schema has %d bytes, over the limit of %d: make it smaller", len(s), maxSchema)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(s))
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON (%v): pass a JSON Schema", err)
	}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, errors.New("the schema is neither an object nor true or false: pass a JSON Schema")
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseRegexpEngine(ecmaRegexp)
	c.UseLoader(noLoader{})
	const url = "schema.json"
	if err = c.AddResource(url, doc); err == nil {
		var schema *jsonschema.Schema
		if schema, err = c.Compile(url); err == nil {
			return schema, nil
		}
	}
	return nil, fmt.Errorf("the schema is not valid: %s: correct it", strings.Join(problems(err), "; "))
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s: move that document into $defs", url)
}

// A pattern is a regular expression of ECMA-262 with the flag u, which JSON Schema uses.
type pattern regexp2.Regexp

func (p *pattern) MatchString(s string) bool {
	ok, err := (*regexp2.Regexp)(p).MatchString(s)
	return err == nil && ok
}

func (p *pattern) String() string { return (*regexp2.Regexp)(p).String() }

func ecmaRegexp(s string) (jsonschema.Regexp, error) {
	re, err := regexp2.Compile(s, regexp2.ECMAScript|regexp2.Unicode)
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = 2 * time.Second // some patterns backtrack endlessly
	return (*pattern)(re), nil
}

// validate returns the valid JSON in an answer, or a list of errors if the answer
// contains no valid JSON.
func validate(schema *jsonschema.Schema, answer string) (json.RawMessage, []string) {
	values, err := findJSON(answer)
	if err != nil {
		return nil, []string{err.Error()}
	}
	var wrong []string
	for _, raw := range values {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err == nil {
			err = schema.Validate(value)
		}
		if err == nil {
			return raw, nil
		}
		if wrong == nil {
			wrong = problems(err)
		}
	}
	return nil, wrong
}

var fence = lazy.Regexp("(?s)```[a-zA-Z]*[ \t]*\r?\n(.*?)```")

// findJSON returns candidates for the JSON in an answer, without white space:
// the whole answer, the content of the first fence, and the text between the
// outermost braces or brackets.
func findJSON(answer string) (values []json.RawMessage, problem error) {
	candidates := []string{answer}
	if m := fence().FindStringSubmatch(answer); m != nil {
		candidates = append(candidates, m[1])
	}
	brackets := []string{"{}", "[]"}
	if strings.IndexByte(answer, '[') < strings.IndexByte(answer, '{') {
		slices.Reverse(brackets) // try the outer pair first
	}
	for _, pair := range brackets {
		i, j := strings.IndexByte(answer, pair[0]), strings.LastIndexByte(answer, pair[1])
		if i >= 0 && j > i {
			candidates = append(candidates, answer[i:j+1])
		}
	}
	for _, s := range candidates {
		raw, err := oneValue(s)
		if err == nil {
			values = append(values, raw)
		}
		problem = cmp.Or(problem, err)
	}
	if len(values) > 0 {
		return values, nil
	}
	return nil, fmt.Errorf("the answer contains no JSON (%v)", problem)
}

// oneValue returns the only JSON value in a text, without white space.
func oneValue(s string) (json.RawMessage, error) {
	dec := json.NewDecoder(strings.NewReader(s))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("text follows the JSON")
	}
	var b bytes.Buffer
	err := json.Compact(&b, raw)
	return b.Bytes(), err
}

// problems lists the errors of a validation, each with its location.
func problems(err error) []string {
	var ve *jsonschema.ValidationError
	var se *jsonschema.SchemaValidationError
	if errors.As(err, &se) {
		if !errors.As(se.Err, &ve) {
			return []string{se.Err.Error()}
		}
	} else if !errors.As(err, &ve) {
		return []string{err.Error()}
	}
	var out []string
	var walk func(*jsonschema.OutputUnit)
	walk = func(unit *jsonschema.OutputUnit) {
		if unit.Error != nil {
			out = append(out, fmt.Sprintf("at %s: %s", cmp.Or(unit.InstanceLocation, "/"), unit.Error))
		}
		for i := range unit.Errors {
			walk(&unit.Errors[i])
		}
	}
	walk(ve.DetailedOutput())
	return out
}
