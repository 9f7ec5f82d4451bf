package diff_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

var (
	deriveSeed  = flag.Uint64("derive.seed", 0, "seed of the first case for comparing derive with the kubelet; 0 for a random one")
	deriveCases = flag.Int("derive.cases", 12_000, "number of cases per comparison of derive with the kubelet")
)

// comparison runs cases of one kind on both sides.
type comparison struct {
	// check generates the case of that seed and returns how the results differ, on the smallest case that shows it, or
	// "".
	check func(seed uint64) string
}

// newComparison returns a comparison. compare is called many times with the same case and must not modify it. The statuses of all
// cases are explained, too (E1).
func newComparison[C any](generate func(*generator) C, compare func(C) string) comparison {
	mismatch := func(c C) string {
		if text := compare(c); text != "" {
			return text
		}
		return contradiction(c)
	}
	return comparison{func(seed uint64) string {
		c := generate(newGenerator(seed))
		original := mismatch(c)
		if original == "" {
			return ""
		}
		c = shrink(c, func(smaller C) bool { return mismatch(smaller) != "" })
		text, err := yaml.Marshal(c)
		if err != nil {
			text = fmt.Appendf(nil, "%+v", c)
		}
		// A shrunk case may fail for another reason than the original one.
		_, originalDiff, _ := strings.Cut(original, "kubelet (-), Herald (+):")
		return fmt.Sprintf("%s\n%s\nbefore shrinking, kubelet (-), Herald (+):%s", text, mismatch(c), originalDiff)
	}}
}

// run checks -derive.cases cases. Each has its own seed, so that a mismatch can be reproduced alone.
func (c comparison) run(t *testing.T) {
	first := *deriveSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	for i := range uint64(*deriveCases) {
		if mismatch := c.check(first + i); mismatch != "" {
			t.Fatalf("reproduce with: go test ./diff -run '^%s$' -derive.cases=1 -derive.seed=%d\n%s", t.Name(), first+i, mismatch)
		}
	}
}

// checkSeeded checks the property on that many cases, starting from seed. flagPrefix is the prefix of the flags that
// reproduce a failure.
func checkSeeded(t *testing.T, flagPrefix string, seed uint64, cases int, property func(*rapid.T)) {
	t.Helper()
	for name, value := range map[string]string{
		"rapid.seed": strconv.FormatUint(seed, 10), "rapid.checks": strconv.Itoa(cases),
	} {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set(name, before) }()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("reproduce with: -run %s -%[2]s.seed=%[3]d -%[2]s.cases=%[4]d", t.Name(), flagPrefix, seed, cases)
		}
	})
	rapid.Check(t, property)
}

// FuzzDerive runs all comparisons.
func FuzzDerive(f *testing.F) {
	comparisons := []comparison{
		comparePhase, compareConditions, compareTransition, compareEqual, compareNormal, compareMerge, compareContinue,
		compareTerminate, compareResize, compareStatus,
	}
	for i := range comparisons {
		f.Add(uint8(i), uint64(1))
	}
	f.Fuzz(func(t *testing.T, index uint8, seed uint64) {
		if mismatch := comparisons[int(index)%len(comparisons)].check(seed); mismatch != "" {
			t.Fatal(mismatch)
		}
	})
}

// generator generates random cases. Equal seeds generate equal cases.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) *generator { return &generator{rand.New(rand.NewPCG(seed, 0))} }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func oneOf[T any](g *generator, values ...T) T { return values[g.IntN(len(values))] }

// describeMismatch formats two results that should be equal.
func describeMismatch(kubelet, herald any) string {
	kubeletText, heraldText := formatAnswer(kubelet), formatAnswer(herald)
	return fmt.Sprintf("kubelet: %s\n\nHerald: %s\n\nkubelet (-), Herald (+):\n%s", kubeletText, heraldText, cmp.Diff(kubeletText, heraldText))
}

func formatAnswer(answer any) string {
	switch answer := answer.(type) {
	case error:
		return answer.Error()
	case string, bool:
		return fmt.Sprint(answer)
	}
	text, err := yaml.Marshal(answer)
	if err != nil {
		return fmt.Sprintf("%+v", answer)
	}
	return "\n" + strings.TrimSpace(string(text))
}

// sides holds one value for each side.
type sides[T comparable] struct{ kubelet, herald T }

func pair[T comparable](kubelet, herald T) sides[T] { return sides[T]{kubelet, herald} }

// expect checks both sides. If the kubelet's value is unexpected, the table of differences is out of date.
func expect[T comparable](t *testing.T, what string, got, want sides[T]) {
	t.Helper()
	if got.kubelet != want.kubelet {
		t.Errorf("%s: kubelet: got %v, want %v as the table of differences says", what, got.kubelet, want.kubelet)
	}
	if got.herald != want.herald {
		t.Errorf("%s: Herald: got %v, want %v", what, got.herald, want.herald)
	}
}

// shrink makes a failing case smaller, one change at a time: it removes elements of lists and maps and clears fields.
// Cases are copied before they are changed.
func shrink[C any](c C, fails func(C) bool) C {
	for changed := true; changed; {
		changed = false
		for n := 0; ; n++ {
			smaller := deepCopy(reflect.ValueOf(&c).Elem())
			remaining := n
			if !clearNth(smaller, &remaining) {
				break
			}
			if candidate := smaller.Interface().(C); fails(candidate) {
				c, changed = candidate, true
				n--
			}
		}
	}
	return c
}

// keptFields are never cleared: the parts of a case, names, and what distinguishes instances. What they point to is
// still shrunk.
var keptFields = []string{
	"Pod", "Status", "Old", "Next", "API", "Ours", "Observed", "Name", "Namespace", "UID", "ID", "ContainerID", "Type", "RestartPolicy",
}

// clearNth clears the n-th value, counted in depth-first order, and reports whether there was one.
func clearNth(v reflect.Value, n *int) bool {
	if v.Kind() == reflect.Struct {
		return clearNthField(v, n)
	}
	if v.IsZero() {
		return false
	}
	switch v.Kind() {
	case reflect.Pointer:
		return clearNth(v.Elem(), n)
	case reflect.Slice:
		return clearNthElement(v, n)
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			if *n--; *n < 0 {
				v.SetMapIndex(key, reflect.Value{})
				return true
			}
		}
	}
	return false
}

// sortedKeys returns the keys in a stable order, so that n always denotes the same value.
func sortedKeys(v reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}

func clearNthField(v reflect.Value, n *int) bool {
	for i := range v.NumField() {
		field, fieldType := v.Field(i), v.Type().Field(i)
		if !fieldType.IsExported() || field.IsZero() {
			continue
		}
		if !slices.Contains(keptFields, fieldType.Name) && !fieldType.Anonymous && field.Kind() != reflect.Struct {
			if *n--; *n < 0 {
				field.SetZero()
				return true
			}
		}
		if clearNth(field, n) {
			return true
		}
	}
	return false
}

func clearNthElement(v reflect.Value, n *int) bool {
	for i := range v.Len() {
		if *n--; *n < 0 {
			v.Set(reflect.AppendSlice(v.Slice(0, i), v.Slice(i+1, v.Len())))
			return true
		}
		if clearNth(v.Index(i), n) {
			return true
		}
	}
	return false
}

// deepCopy copies what shrink can change. It shares unexported fields, which are never changed.
func deepCopy(v reflect.Value) reflect.Value {
	copied := reflect.New(v.Type()).Elem()
	copied.Set(v)
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				copied.Field(i).Set(deepCopy(v.Field(i)))
			}
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		copied.Set(reflect.New(v.Type().Elem()))
		copied.Elem().Set(deepCopy(v.Elem()))
	case v.Kind() == reflect.Slice && !v.IsNil():
		copied.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			copied.Index(i).Set(deepCopy(v.Index(i)))
		}
	case v.Kind() == reflect.Map && !v.IsNil():
		copied.Set(reflect.MakeMap(v.Type()))
		for _, key := range v.MapKeys() {
			copied.SetMapIndex(key, deepCopy(v.MapIndex(key)))
		}
	}
	return copied
}

func TestShrink(t *testing.T) {
	type part struct {
		Name  string
		Count *int
	}
	type whole struct {
		Parts []part
		By    map[string]int
		Other string
	}
	original := whole{
		Parts: []part{{"a", new(1)}, {"b", new(2)}, {"c", new(3)}}, By: map[string]int{"x": 1, "y": 2}, Other: "text",
	}
	hasB := func(w whole) bool {
		_, y := w.By["y"]
		return y && slices.ContainsFunc(w.Parts, func(p part) bool { return p.Name == "b" })
	}
	want := whole{Parts: []part{{Name: "b"}}, By: map[string]int{"y": 2}}
	if d := cmp.Diff(want, shrink(original, hasB)); d != "" {
		t.Fatal(d)
	}
	if len(original.Parts) != 3 || *original.Parts[1].Count != 2 {
		t.Fatalf("shrink modified its argument: %+v", original)
	}
}
