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

// Field describes a field of the configuration file.
type Field struct {
	Path    string // logging.format, registerWithTaints[].key
	GoName  string // Logging.Format
	Type    string // as documented: string, duration, []string
	Default string // "" if it is zero or depends on the machine
	Flag    string // "" if there is none
}

// Fields returns the fields of the configuration file in the order of their definition.
func Fields() []Field {
	defaults := Default()
	defaults.NodeName = "" // depends on the machine
	var all []Field
	for l := range leaves(reflect.ValueOf(defaults), "") {
		field := Field{Path: l.path, GoName: l.owner.Name() + "." + l.Name, Type: typeName(l.Type), Flag: l.Tag.Get("flag")}
		if format := l.Tag.Get("format"); format != "" {
			field.Type = strings.TrimSuffix(field.Type, "string") + format
		}
		if !l.value.IsZero() {
			field.Default = strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(fmt.Sprint(l.value.Interface())) // 5m, not 5m0s
		}
		all = append(all, field)
		if l.Type.Kind() == reflect.Slice && isStruct(l.Type.Elem()) {
			for inner := range leaves(reflect.Zero(l.Type.Elem()), l.path+"[].") {
				field := Field{Path: inner.path, GoName: inner.owner.Name() + "." + inner.Name, Type: typeName(inner.Type)}
				if format := inner.Tag.Get("format"); format != "" {
					field.Type = format
				}
				all = append(all, field)
			}
		}
	}
	return all
}

// leaf is a field that is not a struct.
type leaf struct {
	reflect.StructField

	path  string
	owner reflect.Type
	value reflect.Value
}

// leaves yields the leaf fields of a struct and of its nested structs.
func leaves(parent reflect.Value, prefix string) iter.Seq[leaf] {
	return func(yield func(leaf) bool) {
		for i := range parent.NumField() {
			l := leaf{parent.Type().Field(i), prefix + parent.Type().Field(i).Tag.Get("yaml"), parent.Type(), parent.Field(i)}
			if !isStruct(l.Type) {
				if !yield(l) {
					return
				}
				continue
			}
			for inner := range leaves(l.value, l.path+".") {
				if !yield(inner) {
					return
				}
			}
		}
	}
}

// leafValue returns the value of the leaf at path.
func leafValue(parent reflect.Value, path string) reflect.Value {
	for l := range leaves(parent, "") {
		if l.path == path {
			return l.value
		}
	}
	panic("config: no field " + path)
}

// isStruct reports whether values of the type are mappings in the file.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[netip.Addr]()
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[NodeIPs]():
		return "IP"
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int:
		return t.Kind().String()
	case reflect.Struct:
		return t.Name()
	case reflect.Slice:
		return "[]" + typeName(t.Elem())
	case reflect.Map:
		return "map[string]" + typeName(t.Elem())
	default:
		panic("config: no name for type " + t.String())
	}
}

// suggestField returns the path of the field that an unknown name probably means: one that differs in case or by a typo, at any
// level of the file, or one whose flag has that name. It returns "" if there is none.
func suggestField(name string) string {
	type candidate struct {
		path     string
		distance int
	}
	var candidates []candidate
	for _, field := range Fields() {
		if field.Flag == name {
			return field.Path
		}
		last := field.Path[strings.LastIndex(field.Path, ".")+1:]
		distance := editDistance(strings.ToLower(name), strings.ToLower(last))
		if distance <= max(1, len(last)/4) {
			candidates = append(candidates, candidate{field.Path, distance})
		}
	}
	if len(candidates) == 0 {
		return ""
	}
	return slices.MinFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) }).path
}

// editDistance returns the number of insertions, deletions, substitutions and transpositions of adjacent bytes that turn a
// into b (optimal string alignment).
func editDistance(a, b string) int {
	var beforePrevious []int
	previous := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := range len(a) {
		row := append(make([]int, 0, len(b)+1), i+1)
		for j := range len(b) {
			substitution := previous[j]
			if a[i] != b[j] {
				substitution++
			}
			distance := min(previous[j+1]+1, row[j]+1, substitution)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				distance = min(distance, beforePrevious[j-1]+1)
			}
			row = append(row, distance)
		}
		beforePrevious, previous = previous, row
	}
	return previous[len(b)]
}

// NodeIPs are the node's addresses, the primary one first. In files and flags they are separated by a comma, like the kubelet's
// --node-ip.
type NodeIPs []netip.Addr

// String returns the addresses, separated by a comma.
func (n NodeIPs) String() string {
	var texts []string
	for _, ip := range n {
		texts = append(texts, ip.String())
	}
	return strings.Join(texts, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (n NodeIPs) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. Empty text means no addresses.
func (n *NodeIPs) UnmarshalText(text []byte) error {
	*n = nil
	if len(text) == 0 {
		return nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*n = append(*n, ip)
	}
	return nil
}
