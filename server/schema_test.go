package server_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/view"
)

var update = flag.Bool("update", false, "rewrite schema.json")

// roots are the objects of the query API.
var roots = []any{
	view.PodView{}, view.PodViewList{}, view.NodeView{}, view.SourceList{}, view.Explanation{}, view.WatchEvent{}, view.Restart{},
	view.ProbeCheckList{}, server.HistoryList{}, view.LoadHistory{}, view.Loads{}, view.AlertList{}, view.RuleList{}, view.SilenceList{}, view.ActionList{},
}

// schemaOf generates a JSON Schema from Go types, by the rules of encoding/json.
type schemaOf struct{ defs map[string]any }

func generateSchema() map[string]any {
	g := schemaOf{map[string]any{}}
	var kinds []any
	for _, root := range roots {
		kinds = append(kinds, g.typeOf(reflect.TypeOf(root)))
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Herald query API, " + view.APIVersion,
		"description": "Fields are only added. Readers must ignore fields and tolerate values of enumerations that they do not know.",
		"anyOf":       kinds, "$defs": g.defs,
	}
}

// textTypes are encoded as a string with this format.
var textTypes = map[reflect.Type]string{
	reflect.TypeFor[view.Time](): "date-time", reflect.TypeFor[time.Time](): "date-time", reflect.TypeFor[metav1.Time](): "date-time",
	reflect.TypeFor[metav1.MicroTime](): "date-time", reflect.TypeFor[resource.Quantity](): "", reflect.TypeFor[alert.Matcher](): "",
}

func (g *schemaOf) typeOf(t reflect.Type) map[string]any {
	if format, isText := textTypes[t]; isText {
		// Kubernetes encodes the zero time as null.
		if t == reflect.TypeFor[metav1.Time]() {
			return map[string]any{"type": []any{"string", "null"}, "format": format}
		}
		if format == "" {
			return map[string]any{"type": "string"}
		}
		return map[string]any{"type": "string", "format": format}
	}
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	case reflect.TypeFor[view.Points]():
		return map[string]any{"type": "array", "items": map[string]any{"type": []any{"number", "null"}}}
	case reflect.TypeFor[intstr.IntOrString]():
		return map[string]any{"type": []any{"string", "integer"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.typeOf(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": g.typeOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": g.typeOf(t.Elem())}
	case reflect.Struct:
		return g.structOf(t)
	default:
		return map[string]any{"type": "integer"}
	}
}

// structOf defines the type once and returns a reference to it.
func (g *schemaOf) structOf(t reflect.Type) map[string]any {
	name := t.Name()
	if path := t.PkgPath(); !strings.Contains(path, "heraldnode") || strings.HasSuffix(path, "/history") || strings.HasSuffix(path, "/transition") {
		name = filepath.Base(path) + "." + name
	}
	if _, known := g.defs[name]; !known {
		properties, required := map[string]any{}, []any{}
		g.defs[name] = nil // of a recursive type
		g.addFields(t, properties, &required)
		definition := map[string]any{"type": "object", "properties": properties}
		if len(required) > 0 {
			definition["required"] = required
		}
		g.defs[name] = definition
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (g *schemaOf) addFields(t reflect.Type, properties map[string]any, required *[]any) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case field.Anonymous && name == "":
			g.addFields(field.Type, properties, required)
		default:
			properties[name] = g.typeOf(field.Type)
			isNullable := field.Type.Kind() == reflect.Pointer || field.Type.Kind() == reflect.Slice || field.Type.Kind() == reflect.Map
			if !strings.Contains(options, "omit") && !isNullable {
				*required = append(*required, name)
			}
		}
	}
}

// TestQ4_Schema checks that schema.json describes the Go types, and that no field of it has gone unless CHANGELOG.md names it, as
// Type.field.
func TestQ4_Schema(t *testing.T) {
	const file = "schema.json"
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	generated, err := json.MarshalIndent(generateSchema(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	generated = append(generated, '\n')
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	now := fieldsOf(t, generated)
	for _, field := range fieldsOf(t, committed) {
		if !slices.Contains(now, field) && !bytes.Contains(changelog, []byte(field)) {
			t.Errorf("%s was removed or renamed: fields are only added; if it must be, CHANGELOG.md has to name it", field)
		}
	}
	if bytes.Equal(committed, generated) || t.Failed() {
		return
	}
	if !*update {
		t.Fatal("schema.json is out of date: run go test ./server -run Q4 -update")
	}
	if err := os.WriteFile(file, generated, 0o600); err != nil {
		t.Fatal(err)
	}
}

// fieldsOf returns the fields of a schema as Type.field.
func fieldsOf(t *testing.T, schema []byte) (fields []string) {
	t.Helper()
	var parsed struct {
		Defs map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &parsed); err != nil {
		t.Fatal(err)
	}
	for name, definition := range parsed.Defs {
		for field := range definition.Properties {
			fields = append(fields, name+"."+field)
		}
	}
	slices.Sort(fields)
	return fields
}

// validator checks a value against the part of JSON Schema that generateSchema uses, and that every field is described.
type validator struct{ defs map[string]any }

func (v *validator) check(path string, schema map[string]any, value any) error {
	if ref, isRef := schema["$ref"].(string); isRef {
		schema, _ = v.defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	var types []any
	switch declared := schema["type"].(type) {
	case nil:
		return nil
	case string:
		types = []any{declared}
	case []any:
		types = declared
	}
	if !slices.Contains(types, any(typeName(value, types))) {
		return fmt.Errorf("%s is %T, want %v", path, value, types)
	}
	switch value := value.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339Nano, value); err != nil && schema["format"] == "date-time" {
			return fmt.Errorf("%s: %w", path, err)
		}
	case []any:
		for i := range value {
			if err := v.check(fmt.Sprintf("%s[%d]", path, i), schema["items"].(map[string]any), value[i]); err != nil {
				return err
			}
		}
	case map[string]any:
		return v.checkObject(path, schema, value)
	}
	return nil
}

func (v *validator) checkObject(path string, schema, object map[string]any) error {
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, found := object[name.(string)]; !found {
			return fmt.Errorf("%s.%s is missing", path, name)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		property, found := properties[name].(map[string]any)
		if !found {
			if property, found = schema["additionalProperties"].(map[string]any); !found {
				return fmt.Errorf("%s.%s is not described", path, name)
			}
		}
		if err := v.check(path+"."+name, property, object[name]); err != nil {
			return err
		}
	}
	return nil
}

func typeName(value any, types []any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if value == float64(int64(value)) && slices.Contains(types, any("integer")) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// validate checks that JSON is described by the definition.
func validate(t *testing.T, definition string, encoded []byte) {
	t.Helper()
	var v validator
	roundTrip(t, generateSchema()["$defs"], &v.defs)
	var value any
	if err := json.Unmarshal(encoded, &value); err != nil {
		t.Fatal(err)
	}
	if err := v.check(definition, map[string]any{"$ref": "#/$defs/" + definition}, value); err != nil {
		t.Error(err)
	}
}

func roundTrip(t *testing.T, from, to any) {
	t.Helper()
	encoded, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, to); err != nil {
		t.Fatal(err)
	}
}

// TestQ4_ResponsesMatchSchema validates what the server sends.
func TestQ4_ResponsesMatchSchema(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", false))
	s := n.newServer(t)
	for path, definition := range map[string]string{
		"pods": "PodViewList", "pods/default/web": "PodView", "node": "NodeView", "explain/default/web": "Explanation",
		"load": "LoadHistory", "load?namespace=default&pod=web&since=6h": "LoadHistory", "sources": "SourceList", "history": "HistoryList", "events": "HistoryList",
		"alerts": "AlertList", "rules": "RuleList", "silences": "SilenceList", "actions": "ActionList",
	} {
		response := request(s, "GET", api+path)
		if response.Code != http.StatusOK {
			t.Fatalf("%s: %d", path, response.Code)
		}
		validate(t, definition, response.Body.Bytes())
	}
}

// TestQ4_GoldenFiles checks the JSON of one object of each kind, which users may have stored or parse.
func TestQ4_GoldenFiles(t *testing.T) {
	for name, object := range goldenObjects(t) {
		t.Run(name, func(t *testing.T) {
			encoded, err := json.MarshalIndent(object, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			encoded = append(encoded, '\n')
			file := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(file, encoded, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(golden, encoded) {
				t.Errorf("%s differs: if only fields were added, run go test ./server -run Q4 -update\ngot %s", file, encoded)
			}
			validate(t, name, golden)
		})
	}
}
