package diff_test

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// mutator changes JSON objects at random, guided by the Go type that they stand for, so that most of what it makes can be
// decoded and much of it is wrong in an interesting way.
type mutator struct {
	*rand.Rand
	texts, quantities []string
	numbers           []int64
}

// texts are good in one field and bad in most others.
var texts = strings.Fields(`a A web main data Always Never OnFailure IfNotPresent TCP UDP SCTP tcp / ../x /abs/path rel/path a/../b
	..data metadata.name metadata.labels metadata.annotations['a'] spec.host status.podIP v1 v2 limits.cpu requests.memory
	http HTTP HTTPS node-1 Exists Equal NoExecute NoSchedule a.b.c a_b _a In NotIn Gt DoNotSchedule Honor Memory HugePages-2Mi
	Directory File Socket None HostToContainer Bidirectional Localhost RuntimeDefault Unconfined Default Unmasked ClusterFirst
	linux windows Restart cpu memory hugepages-2Mi hugepages-x example.com/gpu pods SIGTERM SIGFOO 192.0.2.1 010.0.0.1 ::1
	net.core.somaxconn FallbackToLogsOnError image:latest image:1 Upper/image X_Y 1A a=b é - . a.`)

func newMutator(seed uint64) *mutator {
	return &mutator{
		Rand:       rand.New(rand.NewPCG(seed, 0)),
		texts:      append(texts, "", "x y", " a ", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 254)),
		quantities: []string{"0", "1", "-1", "500m", "1Gi", "2Mi", "3Mi", "0.0001", "1e3", "1.5", "100n"},
		numbers:    []int64{-1, 0, 1, 2, 5, 30, 31, 80, 511, 512, 65535, 65536, 2147483647},
	}
}

func pick[T any](m *mutator, from []T) T { return from[m.IntN(len(from))] }

// mutate returns the value with one thing somewhere below it changed.
func (m *mutator) mutate(value any, of reflect.Type) any {
	of = pointed(of)
	switch now := value.(type) {
	case map[string]any:
		if of.Kind() == reflect.Struct {
			return m.mutateObject(now, of)
		}
	case []any:
		if of.Kind() == reflect.Slice {
			return m.mutateList(now, of.Elem())
		}
	}
	return m.value(of, 0)
}

func (m *mutator) mutateObject(object map[string]any, of reflect.Type) any {
	fields := jsonFields(of)
	if len(fields) == 0 {
		return object
	}
	if present := slices.Sorted(maps.Keys(object)); len(present) > 0 && m.IntN(10) < 7 {
		name := pick(m, present)
		if kind, known := fields[name]; known {
			object[name] = m.mutate(object[name], kind)
			return object
		}
	}
	name := pick(m, slices.Sorted(maps.Keys(fields)))
	if m.IntN(6) == 0 {
		delete(object, name)
	} else if value := m.value(fields[name], 1); value != nil {
		object[name] = value
	}
	return object
}

func (m *mutator) mutateList(list []any, of reflect.Type) any {
	switch {
	case len(list) == 0 || m.IntN(5) == 0:
		return append(list, m.value(of, 1))
	case m.IntN(8) == 0:
		return append(list, pick(m, list))
	}
	i := m.IntN(len(list))
	list[i] = m.mutate(list[i], of)
	return list
}

// value makes something of the type; deep down it makes little.
func (m *mutator) value(of reflect.Type, depth int) any {
	of = pointed(of)
	switch of {
	case reflect.TypeFor[resource.Quantity]():
		return pick(m, m.quantities)
	case reflect.TypeFor[intstr.IntOrString]():
		return pick(m, []any{pick(m, m.numbers), pick(m, m.texts)})
	case reflect.TypeFor[metav1.Time]():
		return "2020-01-01T00:00:00Z"
	}
	switch of.Kind() {
	case reflect.String:
		return pick(m, m.texts)
	case reflect.Bool:
		return m.IntN(2) == 0
	case reflect.Int32, reflect.Int64:
		return pick(m, m.numbers)
	case reflect.Slice:
		return m.list(of, depth)
	case reflect.Map:
		return map[string]any{pick(m, m.texts): m.value(of.Elem(), depth+1)}
	case reflect.Struct:
		return m.object(of, depth)
	default:
		return nil
	}
}

func (m *mutator) list(of reflect.Type, depth int) any {
	if of.Elem().Kind() == reflect.Uint8 {
		return nil
	}
	list := []any{}
	for range m.IntN(3) {
		list = append(list, m.value(of.Elem(), depth+1))
	}
	return list
}

func (m *mutator) object(of reflect.Type, depth int) any {
	object := map[string]any{}
	if depth > 6 {
		return object
	}
	fields := jsonFields(of)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if m.IntN(len(fields)+1) < 3 {
			if value := m.value(fields[name], depth+1); value != nil {
				object[name] = value
			}
		}
	}
	return object
}

func pointed(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	return of
}

// jsonFields are the struct's fields by their JSON names.
func jsonFields(of reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range of.NumField() {
		field := of.Field(i)
		name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (field.Anonymous || rest == "inline"):
			maps.Copy(fields, jsonFields(pointed(field.Type)))
		default:
			fields[name] = field.Type
		}
	}
	return fields
}
