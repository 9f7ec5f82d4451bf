package config

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Field is one field of the configuration file.
type Field struct {
	Path    string // logging.format, registerWithTaints[].key
	GoName  string // Logging.Format, by which its comment is found
	Type    string // as people say it
	Default string // "": nothing, or what its comment says
	Flag    string // the flag that says the same, or ""
}

// Fields lists the fields of the file in the order in which they are written down here.
func Fields() []Field {
	defaults := Default()
	defaults.NodeName = "" // of this machine
	var all []Field
	for at := range leaves(reflect.ValueOf(defaults), "") {
		field := Field{Path: at.path, GoName: at.owner.Name() + "." + at.Name, Type: typeName(at.Type), Flag: at.Tag.Get("flag")}
		if is := at.Tag.Get("is"); is != "" {
			field.Type = strings.TrimSuffix(field.Type, "text") + is
		}
		if !at.value.IsZero() {
			field.Default = strings.Replace(fmt.Sprint(at.value.Interface()), "m0s", "m", 1) // as people write 5m
		}
		all = append(all, field)
		if at.Type == reflect.TypeFor[[]Taint]() {
			for inner := range leaves(reflect.Zero(at.Type.Elem()), at.path+"[].") {
				all = append(all, Field{Path: inner.path, GoName: inner.owner.Name() + "." + inner.Name, Type: typeName(inner.Type)})
			}
		}
	}
	return all
}

// leaf is a field that has a value of its own.
type leaf struct {
	reflect.StructField

	path  string
	owner reflect.Type
	value reflect.Value
}

// leaves walks through a struct and the structs in it.
func leaves(of reflect.Value, prefix string) iter.Seq[leaf] {
	return func(yield func(leaf) bool) {
		for i := range of.NumField() {
			at := leaf{of.Type().Field(i), prefix + of.Type().Field(i).Tag.Get("yaml"), of.Type(), of.Field(i)}
			if !isStruct(at.Type) {
				if !yield(at) {
					return
				}
				continue
			}
			for inner := range leaves(at.value, at.path+".") {
				if !yield(inner) {
					return
				}
			}
		}
	}
}

// isStruct reports whether the type has fields of the file.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[netip.Addr]()
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[netip.Addr]():
		return "address"
	case reflect.TypeFor[Taint]():
		return "taint"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "number"
	case reflect.Slice:
		return "list of " + plural(t.Elem())
	case reflect.Map:
		return "map of text to " + typeName(t.Elem())
	default:
		panic("config: no name for the type " + t.String())
	}
}

func plural(t reflect.Type) string {
	switch name := typeName(t); name {
	case "text":
		return name
	case "address":
		return name + "es"
	default:
		return name + "s"
	}
}

// nearest is the field that was probably meant by a name that is none: one that differs in case or a typing error, wherever in
// the file its place is, or one whose flag has that name. "" if there is none.
func nearest(name string) string {
	type guess struct {
		path string
		far  int
	}
	var best []guess
	for _, field := range Fields() {
		if field.Flag == name {
			return field.Path
		}
		last := field.Path[strings.LastIndex(field.Path, ".")+1:]
		far := distance(strings.ToLower(name), strings.ToLower(last))
		if far <= max(1, len(last)/4) {
			best = append(best, guess{field.Path, far})
		}
	}
	if len(best) == 0 {
		return ""
	}
	return slices.MinFunc(best, func(a, b guess) int { return cmp.Compare(a.far, b.far) }).path
}

// distance is how many letters must be put in, taken out, changed or swapped with the next to make one text of the other.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := append(make([]int, 0, len(b)+1), i+1)
		for j := range len(b) {
			far := min(last[j+1]+1, row[j]+1, last[j]+btoi(a[i] != b[j]))
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				far = min(far, before[j-1]+1)
			}
			row = append(row, far)
		}
		before, last = last, row
	}
	return last[len(b)]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
