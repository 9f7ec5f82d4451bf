package diff_test

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/parity/diff"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

var (
	manifestSeed  = flag.Uint64("manifest.seed", 1, "seed of the mutated manifests; 0 for a random one")
	manifestCases = flag.Int("manifest.cases", 5_000, "number of mutated manifests")
)

const nodeName = "node-1"

// decodeResult holds the results of both sides for one manifest.
type decodeResult struct {
	kubelet, herald       *v1.Pod
	kubeletErr, heraldErr error
}

func decodeBoth(data []byte) decodeResult {
	var result decodeResult
	result.kubelet, result.kubeletErr = kubelet.DecodePod(data, "/manifests/x.yaml", nodeName)
	pods, err := manifest.Decode(data, manifest.Origin{Source: podid.File, Location: "/manifests/x.yaml", NodeName: nodeName})
	if result.heraldErr = err; err == nil {
		result.herald = pods[0]
	}
	return result
}

// mismatch returns an unintended difference, or "".
func (r decodeResult) mismatch() string {
	switch {
	case r.kubeletErr != nil && r.heraldErr == nil:
		return "only the kubelet rejects it: " + r.kubeletErr.Error()
	case r.kubeletErr == nil && r.heraldErr != nil:
		if diff.IsStricter(problemsOf(r.heraldErr)) {
			return ""
		}
		return "only Herald rejects it: " + r.heraldErr.Error()
	case r.kubeletErr != nil:
		return ""
	case !equality.Semantic.DeepEqual(r.kubelet.Spec, r.herald.Spec):
		return "specs differ, kubelet (-), Herald (+):\n" + cmp.Diff(r.kubelet.Spec, r.herald.Spec)
	case r.kubelet.Name != r.herald.Name || r.kubelet.Namespace != r.herald.Namespace:
		return "names differ: " + r.kubelet.Name + " and " + r.herald.Name
	case !equality.Semantic.DeepEqual(r.kubelet.Labels, r.herald.Labels):
		return "labels differ"
	}
	return ""
}

func problemsOf(err error) []error {
	var all manifest.Errors
	if !errors.As(err, &all) {
		return []error{err}
	}
	return all.Unwrap()
}

// goodManifests returns the examples of the manifest package as JSON.
func goodManifests(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../source/manifest/testdata/valid/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("got no examples (%v)", err)
	}
	good := map[string][]byte{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "\n---") {
			continue // the kubelet reads only the first document (CFG-1)
		}
		if good[filepath.Base(file)], err = yaml.YAMLToJSON(data); err != nil {
			t.Fatal(err)
		}
	}
	return good
}

func TestCFG1_SamePods(t *testing.T) {
	for name, data := range goodManifests(t) {
		result := decodeBoth(data)
		if result.kubeletErr != nil || result.heraldErr != nil {
			t.Errorf("%s: kubelet: %v, Herald: %v", name, result.kubeletErr, result.heraldErr)
		} else if mismatch := result.mismatch(); mismatch != "" {
			t.Errorf("%s: %s", name, mismatch)
		}
	}
}

// TestCFG9_MutatedManifests mutates valid manifests at random. Both sides must reject a mutant or decode the same pod.
func TestCFG9_MutatedManifests(t *testing.T) {
	if *manifestSeed == 0 {
		*manifestSeed = uint64(time.Now().UnixNano())
	}
	m := newMutator(*manifestSeed)
	var bases [][]byte
	for _, data := range goodManifests(t) {
		bases = append(bases, data)
	}
	accepted, rejected, failures := 0, 0, 0
	for range *manifestCases {
		data := mutateManifest(t, m, pickFrom(m, bases))
		result := decodeBoth(data)
		if result.heraldErr == nil {
			accepted++
		} else {
			rejected++
		}
		if mismatch := result.mismatch(); mismatch != "" {
			t.Errorf("-manifest.seed=%d: %s\n%s", *manifestSeed, mismatch, data)
			if failures++; failures == 5 {
				break
			}
		}
	}
	t.Logf("%d accepted by both, %d rejected", accepted, rejected)
	if accepted == 0 || rejected == 0 {
		t.Errorf("got %d accepted and %d rejected mutants, want both kinds", accepted, rejected)
	}
}

func mutateManifest(t *testing.T, m *mutator, base []byte) []byte {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(base, &object); err != nil {
		t.Fatal(err)
	}
	delete(object, "status")
	for range 1 + m.IntN(3) {
		object["spec"] = m.mutate(object["spec"], reflect.TypeFor[v1.PodSpec]())
	}
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestCFG9_StricterValidation(t *testing.T) {
	pod := func(spec string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":` + spec + `}`)
	}
	tests := map[string][]byte{
		"relative host path":    pod(`{"containers":[{"name":"a","image":"a"}],"volumes":[{"name":"v","hostPath":{"path":"data"}}]}`),
		"unknown medium":        pod(`{"containers":[{"name":"a","image":"a"}],"volumes":[{"name":"v","emptyDir":{"medium":"Tape"}}]}`),
		"negative grace period": pod(`{"containers":[{"name":"a","image":"a"}],"terminationGracePeriodSeconds":-1}`),
		"invalid host IP":       pod(`{"containers":[{"name":"a","image":"a","ports":[{"containerPort":80,"hostIP":"here"}]}]}`),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			result := decodeBoth(data)
			if result.kubeletErr != nil {
				t.Errorf("the kubelet rejects it too: %v", result.kubeletErr)
			}
			if result.heraldErr == nil || !diff.IsStricter(problemsOf(result.heraldErr)) {
				t.Errorf("Herald: got error %v, want one that IsStricter accepts", result.heraldErr)
			}
		})
	}
}

func TestCFG9_SeccompAnnotation(t *testing.T) {
	result := decodeBoth([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{` +
		`"seccomp.security.alpha.kubernetes.io/pod":"runtime/default"}},"spec":{"containers":[{"name":"a","image":"a"}]}}`))
	expect(t, "accepted", pair(result.kubeletErr == nil, result.heraldErr == nil), pair(true, false))
}

func TestBUG20_UIDIndependentOfPath(t *testing.T) {
	good := goodManifests(t)["minimal.yaml"]
	read := func(path string) (kubeletUID, heraldUID string) {
		theirs, err := kubelet.DecodePod(good, path, nodeName)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := manifest.Decode(good, manifest.Origin{Source: podid.File, Location: path, NodeName: nodeName})
		if err != nil {
			t.Fatal(err)
		}
		return string(theirs.UID), string(ours[0].UID)
	}
	theirsA, oursA := read("/manifests/a.yaml")
	theirsB, oursB := read("/manifests/b.yaml")
	if theirsA == theirsB {
		t.Error("the kubelet no longer has this fault")
	}
	if oursA != oursB {
		t.Errorf("Herald: UID changed from %s to %s", oursA, oursB)
	}
}

func TestCFG1_TyposAndDocuments(t *testing.T) {
	const typo = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"a","image":"a","imagePullPolice":"Never"}]}}`
	if v := decodeBoth([]byte(typo)); v.kubeletErr != nil || v.heraldErr == nil {
		t.Errorf("kubelet: %v, Herald: %v", v.kubeletErr, v.heraldErr)
	}
	const two = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a}]}\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: [{name: b, image: b}]}\n"
	theirs, err := kubelet.DecodePod([]byte(two), "/manifests/x.yaml", nodeName)
	if err != nil || theirs.Name != "a-node-1" {
		t.Errorf("kubelet: got %v, %v; want the first pod", theirs, err)
	}
	ours, err := manifest.Decode([]byte(two), manifest.Origin{Source: podid.File, Location: "x.yaml", NodeName: nodeName})
	if err != nil || len(ours) != 2 {
		t.Errorf("Herald: got %d pods, %v; want 2", len(ours), err)
	}
}

// mutator changes JSON objects at random, guided by the Go type, so that most results can be decoded and many are
// invalid in interesting ways.
type mutator struct {
	*rand.Rand
	texts, quantities []string
	numbers           []int64
}

// manifestTexts are valid in one field and invalid in most others.
var manifestTexts = strings.Fields(`a A web main data Always Never OnFailure IfNotPresent TCP UDP SCTP tcp / ../x /abs/path rel/path a/../b
	..data metadata.name metadata.labels metadata.annotations['a'] spec.host status.podIP v1 v2 limits.cpu requests.memory
	http HTTP HTTPS node-1 Exists Equal NoExecute NoSchedule a.b.c a_b _a In NotIn Gt DoNotSchedule Honor Memory HugePages-2Mi
	Directory File Socket None HostToContainer Bidirectional Localhost RuntimeDefault Unconfined Default Unmasked ClusterFirst
	linux windows Restart cpu memory hugepages-2Mi hugepages-x example.com/gpu pods SIGTERM SIGFOO 192.0.2.1 010.0.0.1 ::1
	net.core.somaxconn FallbackToLogsOnError image:latest image:1 Upper/image X_Y 1A a=b é - . a.`)

func newMutator(seed uint64) *mutator {
	return &mutator{
		Rand:       rand.New(rand.NewPCG(seed, 0)),
		texts:      append(manifestTexts, "", "x y", " a ", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 254)),
		quantities: []string{"0", "1", "-1", "500m", "1Gi", "2Mi", "3Mi", "0.0001", "1e3", "1.5", "100n"},
		numbers:    []int64{-1, 0, 1, 2, 5, 30, 31, 80, 511, 512, 65535, 65536, 2147483647},
	}
}

func pickFrom[T any](m *mutator, from []T) T { return from[m.IntN(len(from))] }

// mutate returns the value with one change somewhere below it.
func (m *mutator) mutate(value any, of reflect.Type) any {
	of = dereference(of)
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
		name := pickFrom(m, present)
		if kind, known := fields[name]; known {
			object[name] = m.mutate(object[name], kind)
			return object
		}
	}
	name := pickFrom(m, slices.Sorted(maps.Keys(fields)))
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
		return append(list, pickFrom(m, list))
	}
	i := m.IntN(len(list))
	list[i] = m.mutate(list[i], of)
	return list
}

// value generates a value of the type. Deeply nested values stay small.
func (m *mutator) value(of reflect.Type, depth int) any {
	of = dereference(of)
	switch of {
	case reflect.TypeFor[resource.Quantity]():
		return pickFrom(m, m.quantities)
	case reflect.TypeFor[intstr.IntOrString]():
		return pickFrom(m, []any{pickFrom(m, m.numbers), pickFrom(m, m.texts)})
	case reflect.TypeFor[metav1.Time]():
		return "2020-01-01T00:00:00Z"
	}
	switch of.Kind() {
	case reflect.String:
		return pickFrom(m, m.texts)
	case reflect.Bool:
		return m.IntN(2) == 0
	case reflect.Int32, reflect.Int64:
		return pickFrom(m, m.numbers)
	case reflect.Slice:
		return m.list(of, depth)
	case reflect.Map:
		return map[string]any{pickFrom(m, m.texts): m.value(of.Elem(), depth+1)}
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

func dereference(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	return of
}

// jsonFields returns the struct's fields by JSON name.
func jsonFields(of reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range of.NumField() {
		field := of.Field(i)
		name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (field.Anonymous || rest == "inline"):
			maps.Copy(fields, jsonFields(dereference(field.Type)))
		default:
			fields[name] = field.Type
		}
	}
	return fields
}
