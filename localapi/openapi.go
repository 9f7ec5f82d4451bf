package localapi

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// serveOpenAPI serves the schema of the objects, for kubectl explain, and so that kubectl create gets as far as the answer that
// this node is read-only (KCT-31).
func serveOpenAPI(w http.ResponseWriter, path string) {
	switch path {
	case "openapi/v3":
		writeJSON(w, http.StatusOK, map[string]any{"paths": map[string]any{
			"api/v1": map[string]string{"serverRelativeURL": "/openapi/v3/api/v1"},
		}})
	case "openapi/v3/api/v1":
		writeJSON(w, http.StatusOK, coreDocument())
	default:
		writeError(w, apierrors.NewNotFound(schema.GroupResource{Resource: path}, ""))
	}
}

// document is an OpenAPI document or a part of it.
type document map[string]any

// coreDocument describes the API group v1. It is computed once, from the documentation that the types themselves carry.
var coreDocument = sync.OnceValue(func() document {
	schemas, paths := schemas{}, document{}
	for _, k := range orderedKinds {
		gvk := document{"group": "", "version": "v1", "kind": k.name}
		name := schemas.add(reflect.TypeOf(k.newObject()).Elem())
		schemas[name]["x-kubernetes-group-version-kind"] = []document{gvk}
		path := "/api/v1/" + k.resource
		if k.namespaced {
			path = "/api/v1/namespaces/{namespace}/" + k.resource
		}
		fieldValidation := document{"name": "fieldValidation", "in": "query", "schema": document{"type": "string"}}
		operation := func(parameters ...document) document {
			return document{
				"x-kubernetes-group-version-kind": gvk, "parameters": parameters,
				"responses": document{"200": document{"description": "OK"}},
			}
		}
		paths[path] = document{"get": operation()}
		paths[path+"/{name}"] = document{"get": operation(), "patch": operation(fieldValidation)}
	}
	return document{
		"openapi": "3.0.0", "info": document{"title": "Kubernetes", "version": "v1"},
		"paths": paths, "components": document{"schemas": schemas},
	}
})

// schemas holds the schema of each type by its name.
type schemas map[string]document

// opaque lists types whose JSON does not follow from their fields.
var opaque = map[reflect.Type]document{
	reflect.TypeFor[metav1.Time]():        {"type": "string", "format": "date-time"},
	reflect.TypeFor[metav1.MicroTime]():   {"type": "string", "format": "date-time"},
	reflect.TypeFor[metav1.FieldsV1]():    {"type": "object"},
	reflect.TypeFor[resource.Quantity]():  {"type": "string"},
	reflect.TypeFor[intstr.IntOrString](): {"type": "string", "format": "int-or-string"},
	reflect.TypeFor[v1.ResourceName]():    {"type": "string"},
}

// add adds the schema of a struct and of the types it refers to, and returns its name.
func (s schemas) add(t reflect.Type) string {
	name := schemaName(t)
	if s[name] != nil {
		return name
	}
	definition := document{"type": "object"}
	s[name] = definition // before its fields, which may refer to it
	documentation := documentationOf(t)
	if text := documentation[""]; text != "" {
		definition["description"] = text
	}
	properties, required := document{}, []string{}
	s.addFields(t, properties, &required)
	definition["properties"] = properties
	if len(required) > 0 {
		definition["required"] = required
	}
	return name
}

// addFields adds the fields of a struct, including those of inlined structs.
func (s schemas) addFields(t reflect.Type, properties document, required *[]string) {
	documentation := documentationOf(t)
	for field := range fieldsOf(t) {
		name, tagOptions, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && field.Anonymous:
			s.addFields(field.Type, properties, required)
		case name != "":
			property := s.property(field.Type)
			if text := documentation[name]; text != "" {
				property["description"] = text
			}
			properties[name] = property
			if !strings.Contains(tagOptions, "omitempty") {
				*required = append(*required, name)
			}
		}
	}
}

func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// property returns the schema of a field.
func (s schemas) property(t reflect.Type) document {
	if opaqueSchema, found := opaque[t]; found {
		return maps.Clone(opaqueSchema)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.property(t.Elem())
	case reflect.Struct:
		return document{"allOf": []document{{"$ref": "#/components/schemas/" + s.add(t)}}}
	case reflect.Map:
		return document{"type": "object", "additionalProperties": s.property(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return document{"type": "string", "format": "byte"}
		}
		return document{"type": "array", "items": s.property(t.Elem())}
	case reflect.Bool:
		return document{"type": "boolean"}
	case reflect.Int32, reflect.Int64, reflect.Int:
		return document{"type": "integer", "format": t.Kind().String()}
	case reflect.Float64:
		return document{"type": "number", "format": "double"}
	}
	return document{"type": "string"}
}

// schemaName returns the name of a type in Kubernetes' documents, like io.k8s.api.core.v1.Pod.
func schemaName(t reflect.Type) string {
	domain, path, _ := strings.Cut(t.PkgPath(), "/")
	labels := strings.Split(domain, ".")
	return fmt.Sprintf("%s.%s.%s.%s", labels[1], labels[0], strings.ReplaceAll(path, "/", "."), t.Name())
}

// documentationOf returns the descriptions of a type and its fields.
func documentationOf(t reflect.Type) map[string]string {
	if documented, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return documented.SwaggerDoc()
	}
	return nil
}
