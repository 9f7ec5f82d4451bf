package diff_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shrink makes the case smaller, one thing at a time, for as long as it still fails: it takes elements out of lists and
// maps and empties fields. Cases are copied before they are changed.
func shrink[C any](c C, fails func(C) bool) C {
	for changed := true; changed; {
		changed = false
		for place := 0; ; place++ {
			smaller := deepCopy(reflect.ValueOf(&c).Elem())
			counter := place
			if !emptyOne(smaller, &counter) {
				break
			}
			if candidate := smaller.Interface().(C); fails(candidate) {
				c, changed = candidate, true
				place--
			}
		}
	}
	return c
}

// kept are fields without which a case is no case: its parts, names, and what keeps instances apart. What they point to
// is made smaller all the same.
var kept = []string{
	"Pod", "Status", "Old", "Next", "API", "Ours", "Observed", "Name", "Namespace", "UID", "ID", "ContainerID", "Type", "RestartPolicy",
}

// emptyOne empties the thing at that place, counted in depth-first order, and reports whether there was one.
func emptyOne(v reflect.Value, place *int) bool {
	if v.Kind() == reflect.Struct {
		return emptyField(v, place)
	}
	if v.IsZero() {
		return false
	}
	switch v.Kind() {
	case reflect.Pointer:
		return emptyOne(v.Elem(), place)
	case reflect.Slice:
		return emptyElement(v, place)
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			if *place--; *place < 0 {
				v.SetMapIndex(key, reflect.Value{})
				return true
			}
		}
	}
	return false
}

// sortedKeys are in the same order each time: a place is a place.
func sortedKeys(v reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}

func emptyField(v reflect.Value, place *int) bool {
	for i := range v.NumField() {
		field, of := v.Field(i), v.Type().Field(i)
		if !of.IsExported() || field.IsZero() {
			continue
		}
		if !slices.Contains(kept, of.Name) && !of.Anonymous && field.Kind() != reflect.Struct {
			if *place--; *place < 0 {
				field.SetZero()
				return true
			}
		}
		if emptyOne(field, place) {
			return true
		}
	}
	return false
}

func emptyElement(v reflect.Value, place *int) bool {
	for i := range v.Len() {
		if *place--; *place < 0 {
			v.Set(reflect.AppendSlice(v.Slice(0, i), v.Slice(i+1, v.Len())))
			return true
		}
		if emptyOne(v.Index(i), place) {
			return true
		}
	}
	return false
}

// deepCopy copies what can be changed. Fields that are not exported are shared: nothing changes them.
func deepCopy(v reflect.Value) reflect.Value {
	made := reflect.New(v.Type()).Elem()
	made.Set(v)
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				made.Field(i).Set(deepCopy(v.Field(i)))
			}
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		made.Set(reflect.New(v.Type().Elem()))
		made.Elem().Set(deepCopy(v.Elem()))
	case v.Kind() == reflect.Slice && !v.IsNil():
		made.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			made.Index(i).Set(deepCopy(v.Index(i)))
		}
	case v.Kind() == reflect.Map && !v.IsNil():
		made.Set(reflect.MakeMap(v.Type()))
		for _, key := range v.MapKeys() {
			made.SetMapIndex(key, deepCopy(v.MapIndex(key)))
		}
	}
	return made
}

func TestACaseIsShrunkToWhatMatters(t *testing.T) {
	type part struct {
		Name  string
		Count *int
	}
	type whole struct {
		Parts []part
		By    map[string]int
		Other string
	}
	big := whole{
		Parts: []part{{"a", new(1)}, {"b", new(2)}, {"c", new(3)}}, By: map[string]int{"x": 1, "y": 2}, Other: "text",
	}
	hasB := func(w whole) bool {
		_, y := w.By["y"]
		return y && slices.ContainsFunc(w.Parts, func(p part) bool { return p.Name == "b" })
	}
	want := whole{Parts: []part{{Name: "b"}}, By: map[string]int{"y": 2}}
	if d := cmp.Diff(want, shrink(big, hasB)); d != "" {
		t.Fatal(d)
	}
	if len(big.Parts) != 3 || *big.Parts[1].Count != 2 {
		t.Fatalf("the case itself was changed: %+v", big)
	}
}
