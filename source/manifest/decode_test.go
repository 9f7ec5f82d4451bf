package manifest_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

var (
	fromFile = manifest.Origin{Source: podid.File, Location: "x.yaml", NodeName: "node-1"}
	fromHTTP = manifest.Origin{Source: podid.HTTP, Location: "https://pods.example/", NodeName: "node-1"}
)

// web is the start of a pod. Tests append the lines of its spec after line 5.
const web = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
`

const container = "  containers: [{name: c, image: i}]\n"

func decodeOne(t *testing.T, text string, origin manifest.Origin) *v1.Pod {
	t.Helper()
	pods, err := manifest.Decode([]byte(text), origin)
	if err != nil || len(pods) != 1 {
		t.Fatalf("got %d pods, error %v; want 1", len(pods), err)
	}
	return pods[0]
}

func names(pods []*v1.Pod) (all []string) {
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return all
}

func TestCFG1_Documents(t *testing.T) {
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: i}]}\n"
	}
	tests := map[string]struct {
		text string
		want []string
	}{
		"one":                       {pod("a"), []string{"a-node-1"}},
		"two":                       {pod("a") + "---\n" + pod("b"), []string{"a-node-1", "b-node-1"}},
		"after a marker":            {"---\n" + pod("a"), []string{"a-node-1"}},
		"empty documents":           {"---\n---\n" + pod("a") + "---\n# no\n---\n\n---\nnull\n---\n" + pod("b"), []string{"a-node-1", "b-node-1"}},
		"comment on the marker":     {"--- # first\n" + pod("a") + "--- # second\n" + pod("b"), []string{"a-node-1", "b-node-1"}},
		"end markers":               {pod("a") + "...\n" + pod("b") + "...\n", []string{"a-node-1", "b-node-1"}},
		"directive":                 {"%YAML 1.1\n---\n" + pod("a") + "...\n%YAML 1.1\n---\n" + pod("b"), []string{"a-node-1", "b-node-1"}},
		"byte order mark":           {"\ufeff" + pod("a"), []string{"a-node-1"}},
		"carriage returns":          {strings.ReplaceAll(pod("a")+"---\n"+pod("b"), "\n", "\r\n"), []string{"a-node-1", "b-node-1"}},
		"on the line of the marker": {"--- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\n", []string{"a-node-1"}},
		"JSON":                      {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, []string{"a-node-1"}},
		"marker inside a scalar":    {strings.Replace(pod("a"), "{name: a}", "\n  name: a\n  annotations:\n    x: |\n      a\n      ---\n      b", 1), []string{"a-node-1"}},
		"list":                      {"apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n", []string{"a-node-1"}},
		"generic list":              {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\n", []string{"a-node-1"}},
		"empty list":                {"apiVersion: v1\nkind: PodList\nitems: []\n", nil},
		"empty list and a pod":      {"apiVersion: v1\nkind: List\nitems: []\n---\n" + pod("a"), []string{"a-node-1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods, err := manifest.Decode([]byte(test.text), fromFile)
			if diff := cmp.Diff(test.want, names(pods)); err != nil || diff != "" {
				t.Fatalf("got error %v, pods (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestDecode_Empty(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "blanks": " \n\t\n", "comments": "# a\n  # b\n", "markers": "---\n---\n...\n", "null": "null\n",
		"byte order mark": "\ufeff", "directive": "%YAML 1.1\n", "Unicode line separator": "\u2028",
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := manifest.Decode([]byte(text), fromHTTP)
			if !errors.Is(err, manifest.ErrEmpty) || pods != nil {
				t.Fatalf("got %d pods, error %v; want ErrEmpty", len(pods), err)
			}
			if want := "https://pods.example/: " + manifest.ErrEmpty.Error(); err.Error() != want {
				t.Fatalf("got %q, want %q", err, want)
			}
		})
	}
}

func TestBUG18_OneInvalidDocument(t *testing.T) {
	pods, err := manifest.Decode([]byte(web+container+"---\n"+web), fromFile)
	if err == nil || pods != nil {
		t.Fatalf("got %d pods, error %v; want none and an error", len(pods), err)
	}
	if errors.Is(err, manifest.ErrEmpty) {
		t.Fatal("got ErrEmpty, want another error")
	}
}

func TestCFG3_GivenUID(t *testing.T) {
	pod := decodeOne(t, strings.Replace(web, "name: web", "name: web\n  uid: 0000-AA", 1)+container, fromFile)
	if pod.UID != "0000-AA" || podid.HashOf(pod) != "0000-AA" {
		t.Fatalf("got UID %q, hash %q; want 0000-AA", pod.UID, podid.HashOf(pod))
	}
}

func TestCFG4_CFG5_NameAndNamespace(t *testing.T) {
	pod := decodeOne(t, web+"  nodeName: elsewhere\n"+container, fromFile)
	got := []string{pod.Name, pod.Namespace, pod.Spec.NodeName}
	if diff := cmp.Diff([]string{"web-node-1", "default", "node-1"}, got); diff != "" {
		t.Fatal(diff)
	}
	given := decodeOne(t, strings.Replace(web, "name: web", "name: web\n  namespace: shop", 1)+container, fromFile)
	if given.Namespace != "shop" {
		t.Fatalf("got namespace %q, want shop", given.Namespace)
	}
}

func TestCFG6_Annotations(t *testing.T) {
	text := strings.Replace(web, "name: web", "name: web\n  annotations: {a: b, kubernetes.io/config.hash: x, "+
		"kubernetes.io/config.source: api, kubernetes.io/config.seen: z}", 1) + container
	for _, origin := range []manifest.Origin{fromFile, fromHTTP} {
		pod := decodeOne(t, text, origin)
		want := map[string]string{
			"a": "b", podid.HashAnnotation: string(pod.UID), podid.SourceAnnotation: string(origin.Source),
		}
		if diff := cmp.Diff(want, pod.Annotations); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestCFG7_NoExecuteToleration(t *testing.T) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	other := v1.Toleration{Key: "a", Operator: v1.TolerationOpExists}
	limited := all
	limited.TolerationSeconds = new(int64(5))
	tests := map[string]struct {
		tolerations string
		origin      manifest.Origin
		want        []v1.Toleration
	}{
		"added":                {"[]", fromFile, []v1.Toleration{all}},
		"added after others":   {"[{key: a, operator: Exists}]", fromFile, []v1.Toleration{other, all}},
		"time limit removed":   {"[{operator: Exists, effect: NoExecute, tolerationSeconds: 5}, {key: a, operator: Exists}]", fromFile, []v1.Toleration{all, other}},
		"not added for HTTP":   {"[]", fromHTTP, []v1.Toleration{}},
		"not updated for HTTP": {"[{operator: Exists, effect: NoExecute, tolerationSeconds: 5}]", fromHTTP, []v1.Toleration{limited}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := decodeOne(t, web+container+"  tolerations: "+test.tolerations+"\n", test.origin)
			if diff := cmp.Diff(test.want, pod.Spec.Tolerations); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestCFG8_StatusDiscarded(t *testing.T) {
	pod := decodeOne(t, web+container+"status: {phase: Running, podIP: 192.0.2.1, conditions: wrong, inTheFuture: {}}\n", fromFile)
	if diff := cmp.Diff(v1.PodStatus{Phase: v1.PodPending}, pod.Status); diff != "" {
		t.Fatal(diff)
	}
}

func TestDecode_ServerFieldsDiscarded(t *testing.T) {
	text := strings.Replace(web, "name: web", "name: web\n  creationTimestamp: 2020-01-01T00:00:00Z\n"+
		"  resourceVersion: '5'\n  generation: 3\n  selfLink: /x\n"+
		"  managedFields: [{manager: kubectl, fieldsType: FieldsV1, fieldsV1: {'f:spec': {}}}]", 1) + container
	pod, plain := decodeOne(t, text, fromFile), decodeOne(t, web+container, fromFile)
	if diff := cmp.Diff(plain, pod); diff != "" {
		t.Fatalf("(-without +with):\n%s", diff)
	}
	want := metav1.ObjectMeta{Name: "web-node-1", Namespace: "default", UID: pod.UID, Annotations: pod.Annotations}
	if diff := cmp.Diff(want, pod.ObjectMeta); diff != "" {
		t.Fatal(diff)
	}
}

func TestCFG9_InvalidOrigin(t *testing.T) {
	for node, want := range map[string]string{
		"Node-1": `x.yaml: node name "Node-1": a lowercase RFC 1123 subdomain must consist of`,
		"":       `x.yaml: node name "": a lowercase RFC 1123 subdomain must consist of`,
		"a b":    `x.yaml: node name "a b": a lowercase RFC 1123 subdomain must consist of`,
	} {
		origin := fromFile
		origin.NodeName = node
		_, err := manifest.Decode([]byte(web+container), origin)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "; change the node name") {
			t.Errorf("node %q: got error %v, want %s", node, err, want)
		}
	}
	origin := fromFile
	origin.Source = podid.API
	if _, err := manifest.Decode([]byte(web+container), origin); err == nil {
		t.Error("source api: got no error, want one")
	}
}

func TestCFG11_PriorityWarnings(t *testing.T) {
	tests := map[string]struct{ spec, want string }{
		"neither":                   {"", ""},
		"class and priority":        {"  priority: 2000001000\n  priorityClassName: system-node-critical\n", ""},
		"unknown class":             {"  priority: 5\n  priorityClassName: mine\n", ""},
		"priority only":             {"  priority: 5\n", "spec.priority: 5 is set without a priorityClassName; the API server rejects the mirror pod unless that is its default priority"},
		"class only":                {"  priorityClassName: mine\n", "spec.priorityClassName: mine is set without a priority; classes are not resolved for static pods, so the pod has no priority on this node"},
		"wrong priority":            {"  priority: 5\n  priorityClassName: system-cluster-critical\n", "spec.priority: 5 is not the priority of system-cluster-critical, which is 2000000000; the API server rejects the mirror pod"},
		"priority of another class": {"  priority: 2000000000\n  priorityClassName: system-node-critical\n", "spec.priority: 2000000000 is not the priority of system-node-critical, which is 2000001000; the API server rejects the mirror pod"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(manifest.Warnings(decodeOne(t, web+container+test.spec, fromFile)), "|")
			if got != test.want {
				t.Fatalf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWarnings_EmptyDirSizeLimit(t *testing.T) {
	tests := map[string]struct{ emptyDir, want string }{
		"no limit": {"{}", ""},
		"disk": {
			"{sizeLimit: 1Gi}", "spec.volumes[0].emptyDir.sizeLimit: 1Gi is enforced only with medium Memory, because static pods are not evicted; the volume may fill the disk",
		},
		"memory": {"{sizeLimit: 1Gi, medium: Memory}", ""},
		"zero":   {"{sizeLimit: 0}", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := decodeOne(t, web+container+"  volumes: [{name: data, emptyDir: "+test.emptyDir+"}]\n", fromFile)
			if got := strings.Join(manifest.Warnings(pod), "|"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWarnings_StorageLimit(t *testing.T) {
	pod := decodeOne(t, web+container, fromFile)
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
	want := []string{"spec.containers[0].resources.limits[ephemeral-storage]: 1Gi is not enforced, because static pods are not evicted; " +
		"the container may fill the disk"}
	if diff := cmp.Diff(want, manifest.Warnings(pod)); diff != "" {
		t.Error(diff)
	}
}

func TestDecode_SharesNothing(t *testing.T) {
	text := web + container
	first, second := decodeOne(t, text, fromFile), decodeOne(t, text, fromFile)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Fatal(diff)
	}
	first.Annotations["x"] = "y"
	first.Spec.Containers[0].Name = "changed"
	if second.Annotations["x"] != "" || second.Spec.Containers[0].Name != "c" {
		t.Fatal("got a change of one pod in the other, want none")
	}
}

func toJSON(t *testing.T, text string) []byte {
	t.Helper()
	converted, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return converted
}

func TestDecode_DefaultPullPolicy(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	tests := map[string]v1.PullPolicy{
		"web":                                       v1.PullAlways,
		"web:latest":                                v1.PullAlways,
		"team/web":                                  v1.PullAlways,
		"localhost/web":                             v1.PullAlways,
		"registry.example:5000/team/web":            v1.PullAlways,
		"[2001:db8::1]:5000/web":                    v1.PullAlways,
		"Registry/web":                              v1.PullAlways,
		"team_a.b/web":                              v1.PullAlways,
		"web:latest" + digest:                       v1.PullAlways,
		"web:1.25":                                  v1.PullIfNotPresent,
		"web:LATEST":                                v1.PullIfNotPresent,
		"registry.example:5000/web:v1":              v1.PullIfNotPresent,
		"web" + digest:                              v1.PullIfNotPresent,
		"web:1" + digest:                            v1.PullIfNotPresent,
		"not an image":                              v1.PullIfNotPresent,
		"Web":                                       v1.PullIfNotPresent,
		"web@sha256:short":                          v1.PullIfNotPresent,
		strings.Repeat("0123456789abcdef", 4):       v1.PullIfNotPresent,
		"a.example/" + strings.Repeat("x", 256):     v1.PullIfNotPresent,
		"web:" + strings.Repeat("x", 129):           v1.PullIfNotPresent,
		"a.example/x--y__z.a/b:latest":              v1.PullAlways,
		"a.example/x___y":                           v1.PullIfNotPresent,
		"web@md5:" + strings.Repeat("0", 32):        v1.PullIfNotPresent,
		"web@sha512:" + strings.Repeat("0", 128):    v1.PullIfNotPresent,
		"web:latest@md5:" + strings.Repeat("0", 32): v1.PullIfNotPresent,
	}
	for image, want := range tests {
		pod := decodeOne(t, web+"  containers: [{name: c, image: '"+image+"'}]\n", fromFile)
		if got := pod.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
	given := decodeOne(t, web+"  containers: [{name: c, image: web, imagePullPolicy: Never}]\n", fromFile)
	if got := given.Spec.Containers[0].ImagePullPolicy; got != v1.PullNever {
		t.Errorf("explicit policy: got %s, want Never", got)
	}
}

var update = flag.Bool("update", false, "rewrite testdata/golden and testdata/invalid")

// TestDecode_Golden compares complete pods: every default, and above all every UID.
func TestDecode_Golden(t *testing.T) {
	manifests, err := filepath.Glob("testdata/valid/*")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("got %d manifests, error %v", len(manifests), err)
	}
	for _, path := range manifests {
		base := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		t.Run(base, func(t *testing.T) {
			golden := filepath.Join("testdata", "golden", base+".yaml")
			got := render(t, path)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func render(t *testing.T, path string) (text []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	origin := fromFile
	origin.Location = path
	pods, err := manifest.Decode(data, origin)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		one, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "---\n"...), one...)
	}
	return text
}

func TestErrors_Position(t *testing.T) {
	_, err := manifest.Decode([]byte(web+container+"---\n"+web), fromFile)
	var all manifest.Errors
	if !errors.As(err, &all) || len(all) != 1 {
		t.Fatalf("got %T %v, want one Errors", err, err)
	}
	var cause *field.Error
	if !errors.As(err, &cause) || cause.Type != field.ErrorTypeRequired {
		t.Fatalf("got cause %v, want Required", all[0].Err)
	}
	want := manifest.Error{Location: "x.yaml", Document: 2, Line: 12, Field: "spec.containers", Err: cause}
	if diff := cmp.Diff(want, *all[0], cmp.Comparer(func(a, b *field.Error) bool { return a == b })); diff != "" {
		t.Fatal(diff)
	}
}

func TestErrors_WithoutLocation(t *testing.T) {
	origin := fromFile
	origin.Location = ""
	for text, want := range map[string]string{
		web: "line 5: spec.containers: Required value",
		"":  manifest.ErrEmpty.Error(),
	} {
		if _, err := manifest.Decode([]byte(text), origin); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

func TestErrors_Limit(t *testing.T) {
	var spec strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&spec, "  unknown%d: 1\n", i)
	}
	_, err := manifest.Decode([]byte(web+spec.String()), fromFile)
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[0] != "x.yaml:6: spec.unknown0: unknown field" || lines[20] != "x.yaml: and 4980 more errors" {
		t.Fatalf("got %d lines, want 21:\n%s", len(lines), err)
	}
}
