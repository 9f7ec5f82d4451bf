package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// Names of output formats.
const (
	formatJSON     = "json"
	formatYAML     = "yaml"
	formatJSONPath = "jsonpath"
	formatName     = "name"
	formatWide     = "wide"
	formatWhy      = "why"
)

// outputFormat is a value of --output.
type outputFormat struct {
	name     string // empty for the default
	template *jsonpath.JSONPath
}

// parseOutput parses a value of --output. The template of a JSONPath follows its name, as in jsonpath={.metadata.name}.
func parseOutput(value string, allowed []string) (outputFormat, error) {
	name, template, hasTemplate := strings.Cut(value, "=")
	switch {
	case value == "":
		return outputFormat{}, nil
	case !slices.Contains(allowed, name) || hasTemplate != (name == formatJSONPath):
		return outputFormat{}, usageErrorf("--output %s: must be %s", value, oneOf(allowed))
	case !hasTemplate:
		return outputFormat{name: name}, nil
	}
	parsed := jsonpath.New("output").AllowMissingKeys(true)
	if err := parsed.Parse(template); err != nil {
		return outputFormat{}, usageErrorf("--output %s: %w", value, err)
	}
	return outputFormat{name: name, template: parsed}, nil
}

// oneOf lists the formats in a sentence.
func oneOf(formats []string) string {
	formats = slices.Clone(formats)
	if i := slices.Index(formats, formatJSONPath); i >= 0 {
		formats[i] += "=TEMPLATE"
	}
	if len(formats) == 1 {
		return formats[0]
	}
	last := len(formats) - 1
	return strings.Join(formats[:last], ", ") + " or " + formats[last]
}

// isObject reports whether whole objects are printed.
func (f outputFormat) isObject() bool {
	return f.name == formatJSON || f.name == formatYAML || f.name == formatJSONPath
}

// objectPrinter prints objects as JSON, YAML or by a JSONPath template. It may print several.
type objectPrinter struct {
	out        io.Writer
	format     outputFormat
	hasPrinted bool // separates YAML documents
}

func (p *objectPrinter) print(object any) error {
	text, err := p.encode(object)
	if err != nil {
		return fmt.Errorf("encode as %s: %w", p.format.name, err)
	}
	p.hasPrinted = true
	_, err = p.out.Write(text)
	return err
}

func (p *objectPrinter) encode(object any) ([]byte, error) {
	switch p.format.name {
	case formatJSONPath:
		value, err := toMap(object)
		if err != nil {
			return nil, err
		}
		var text strings.Builder
		err = p.format.template.Execute(&text, value)
		return []byte(text.String()), err
	case formatYAML:
		text, err := yaml.Marshal(object)
		if p.hasPrinted {
			text = append([]byte("---\n"), text...)
		}
		return text, err
	default:
		text, err := json.MarshalIndent(object, "", "    ")
		return append(text, '\n'), err
	}
}

// toMap converts an object to a map of its JSON fields, with integers as int64. Encoders sort the keys of a map.
func toMap(object any) (map[string]any, error) {
	if m, isMap := object.(map[string]any); isMap {
		return m, nil
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, utiljson.Unmarshal(text, &m)
}
