package codex

import (
	"encoding/json"
	"maps"
	"slices"
)

// Keywords of JSON Schema that the service takes in its strict mode. See strict.
var (
	plainKeywords = []string{
		"type", "description", "title", "enum", "const", "required", "additionalProperties", "$ref",
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
	}
	mapKeywords = []string{"properties", "$defs", "definitions"} // of schemas
)

// strict returns a schema as the service takes it, or nil if it does not: the CLI asks for the
// strict mode, in which the answer is an object, and each object has exactly the listed
// properties. The service refuses most of the other keywords.
func strict(text string) map[string]any {
	var schema map[string]any
	if json.Unmarshal([]byte(text), &schema) != nil || schema["type"] != "object" {
		return nil
	}
	delete(schema, "$schema") // says which draft it is of
	if !isStrict(schema) {
		return nil
	}
	return schema
}

func isStrict(value any) bool {
	schema, ok := value.(map[string]any)
	if !ok {
		return false
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for name := range properties {
		ok = ok && slices.Contains(required, any(name))
	}
	if schema["type"] == "object" || properties != nil {
		ok = ok && properties != nil && schema["additionalProperties"] == false
	}
	for key, value := range schema {
		var nested []any // schemas
		switch {
		case slices.Contains(plainKeywords, key):
		case key == "items":
			nested = []any{value}
		case key == "anyOf":
			nested, _ = value.([]any)
		case slices.Contains(mapKeywords, key):
			members, _ := value.(map[string]any)
			nested = slices.Collect(maps.Values(members))
		default:
			return false
		}
		ok = ok && !slices.ContainsFunc(nested, func(v any) bool { return !isStrict(v) })
	}
	return ok
}
