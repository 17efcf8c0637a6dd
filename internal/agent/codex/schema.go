package codex

import (
	"encoding/json"
	"maps"
	"slices"
)

// keywords are the keywords of JSON Schema that the service accepts in its strict mode, except
// for those whose values are schemas.
var keywords = []string{
	"type", "description", "title", "enum", "const", "required", "additionalProperties", "$ref",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
}

// strict returns a schema as the service takes it, or nil if it does not: the CLI asks for the
// strict mode, in which the answer is an object, and each object has exactly the listed
// properties. The service refuses most of the other keywords.
func strict(text string) map[string]any {
	var schema map[string]any
	json.Unmarshal([]byte(text), &schema)
	delete(schema, "$schema") // the draft
	if schema["type"] != "object" || !isStrict(schema) {
		return nil
	}
	return schema
}

func isStrict(value any) bool {
	schema, ok := value.(map[string]any)
	properties, hasProperties := schema["properties"].(map[string]any)
	if schema["type"] == "object" || hasProperties {
		ok = hasProperties && schema["additionalProperties"] == false
	}
	required, _ := schema["required"].([]any)
	for name := range properties {
		ok = ok && slices.Contains(required, any(name))
	}
	for key, value := range schema {
		nested := []any{value} // schemas
		switch key {
		case "items":
		case "anyOf":
			nested, _ = value.([]any)
		case "properties", "$defs":
			members, _ := value.(map[string]any)
			nested = slices.Collect(maps.Values(members))
		default:
			nested, ok = nil, ok && slices.Contains(keywords, key)
		}
		ok = ok && !slices.ContainsFunc(nested, func(v any) bool { return !isStrict(v) })
	}
	return ok
}
