package manifest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

var (
	fromFile = manifest.Origin{Source: podid.File, Location: "x.yaml", NodeName: "node-1"}
	fromHTTP = manifest.Origin{Source: podid.HTTP, Location: "https://pods.example/", NodeName: "node-1"}
)

// web is a minimal pod; spec lines of a test go below its last line, which is line 5.
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
		t.Fatalf("%d pods, %v; want one", len(pods), err)
	}
	return pods[0]
}

func names(pods []*v1.Pod) (all []string) {
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return all
}

func TestCFG1EveryDocumentIsRead(t *testing.T) {
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: i}]}\n"
	}
	tests := map[string]struct {
		text string
		want []string
	}{
		"one":                          {pod("a"), []string{"a-node-1"}},
		"two":                          {pod("a") + "---\n" + pod("b"), []string{"a-node-1", "b-node-1"}},
		"after a marker":               {"---\n" + pod("a"), []string{"a-node-1"}},
		"empty ones are skipped":       {"---\n---\n" + pod("a") + "---\n# no\n---\n\n---\nnull\n---\n" + pod("b"), []string{"a-node-1", "b-node-1"}},
		"with a comment on the marker": {"--- # first\n" + pod("a") + "--- # second\n" + pod("b"), []string{"a-node-1", "b-node-1"}},
		"with end markers":             {pod("a") + "...\n" + pod("b") + "...\n", []string{"a-node-1", "b-node-1"}},
		"with a directive":             {"%YAML 1.1\n---\n" + pod("a") + "...\n%YAML 1.1\n---\n" + pod("b"), []string{"a-node-1", "b-node-1"}},
		"with a byte order mark":       {"\ufeff" + pod("a"), []string{"a-node-1"}},
		"with carriage returns":        {strings.ReplaceAll(pod("a")+"---\n"+pod("b"), "\n", "\r\n"), []string{"a-node-1", "b-node-1"}},
		"on the marker's line":         {"--- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\n", []string{"a-node-1"}},
		"in JSON":                      {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, []string{"a-node-1"}},
		"a marker inside a text":       {strings.Replace(pod("a"), "{name: a}", "\n  name: a\n  annotations:\n    x: |\n      a\n      ---\n      b", 1), []string{"a-node-1"}},
		"a list":                       {"apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n", []string{"a-node-1"}},
		"a generic list":               {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\n", []string{"a-node-1"}},
		"an empty list":                {"apiVersion: v1\nkind: PodList\nitems: []\n", nil},
		"an empty list and a pod":      {"apiVersion: v1\nkind: List\nitems: []\n---\n" + pod("a"), []string{"a-node-1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods, err := manifest.Decode([]byte(test.text), fromFile)
			if diff := cmp.Diff(test.want, names(pods)); err != nil || diff != "" {
				t.Fatalf("error %v, pods (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestAnInputWithoutADocumentIsErrEmpty(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "blanks": " \n\t\n", "comments": "# a\n  # b\n", "markers": "---\n---\n...\n", "null": "null\n",
		"a byte order mark": "\ufeff", "a directive": "%YAML 1.1\n", "an odd line break": "\u2028",
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := manifest.Decode([]byte(text), fromHTTP)
			if !errors.Is(err, manifest.ErrEmpty) || pods != nil {
				t.Fatalf("%d pods, %v; want ErrEmpty", len(pods), err)
			}
			if want := "https://pods.example/: " + manifest.ErrEmpty.Error(); err.Error() != want {
				t.Fatalf("says %q, want %q", err, want)
			}
		})
	}
}

func TestBUG18OneBadDocumentRejectsTheWholeInput(t *testing.T) {
	pods, err := manifest.Decode([]byte(web+container+"---\n"+web), fromFile)
	if err == nil || pods != nil {
		t.Fatalf("%d pods, %v; want none and an error", len(pods), err)
	}
	if errors.Is(err, manifest.ErrEmpty) {
		t.Fatal("a broken document is taken for an empty input")
	}
}

func TestCFG3AGivenUIDIsKeptAndIsTheHash(t *testing.T) {
	pod := decodeOne(t, strings.Replace(web, "name: web", "name: web\n  uid: 0000-AA", 1)+container, fromFile)
	if pod.UID != "0000-AA" || podid.HashOf(pod) != "0000-AA" {
		t.Fatalf("UID %q, hash %q", pod.UID, podid.HashOf(pod))
	}
}

func TestCFG4AndCFG5NameNamespaceAndNodeAreThoseOfTheNode(t *testing.T) {
	pod := decodeOne(t, web+"  nodeName: elsewhere\n"+container, fromFile)
	got := []string{pod.Name, pod.Namespace, pod.Spec.NodeName}
	if diff := cmp.Diff([]string{"web-node-1", "default", "node-1"}, got); diff != "" {
		t.Fatal(diff)
	}
	given := decodeOne(t, strings.Replace(web, "name: web", "name: web\n  namespace: shop", 1)+container, fromFile)
	if given.Namespace != "shop" {
		t.Fatalf("the namespace became %q", given.Namespace)
	}
}

func TestCFG6AnnotationsTellHashAndSource(t *testing.T) {
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

func TestCFG7OnlyFilePodsTolerateEveryNoExecuteTaint(t *testing.T) {
	everything := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	other := v1.Toleration{Key: "a", Operator: v1.TolerationOpExists}
	limited := everything
	limited.TolerationSeconds = new(int64(5))
	tests := map[string]struct {
		tolerations string
		origin      manifest.Origin
		want        []v1.Toleration
	}{
		"added":                          {"[]", fromFile, []v1.Toleration{everything}},
		"added behind others":            {"[{key: a, operator: Exists}]", fromFile, []v1.Toleration{other, everything}},
		"updated where it has a limit":   {"[{operator: Exists, effect: NoExecute, tolerationSeconds: 5}, {key: a, operator: Exists}]", fromFile, []v1.Toleration{everything, other}},
		"not added for a URL":            {"[]", fromHTTP, []v1.Toleration{}},
		"not updated for a URL's either": {"[{operator: Exists, effect: NoExecute, tolerationSeconds: 5}]", fromHTTP, []v1.Toleration{limited}},
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

func TestCFG8TheManifestsStatusIsDiscardedUnread(t *testing.T) {
	pod := decodeOne(t, web+container+"status: {phase: Running, podIP: 192.0.2.1, conditions: wrong, inTheFuture: {}}\n", fromFile)
	if diff := cmp.Diff(v1.PodStatus{Phase: v1.PodPending}, pod.Status); diff != "" {
		t.Fatal(diff)
	}
}

func TestWhatTheAPIServerWritesIsDiscarded(t *testing.T) {
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

func TestCFG9ABadNodeNameIsTheNodesFaultAndNotTheManifests(t *testing.T) {
	for node, want := range map[string]string{
		"Node-1": `x.yaml: node name "Node-1": a lowercase RFC 1123 subdomain must consist of`,
		"":       `x.yaml: node name "": a lowercase RFC 1123 subdomain must consist of`,
		"a b":    `x.yaml: node name "a b": a lowercase RFC 1123 subdomain must consist of`,
	} {
		origin := fromFile
		origin.NodeName = node
		_, err := manifest.Decode([]byte(web+container), origin)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "; set another node name") {
			t.Errorf("node %q: %v", node, err)
		}
	}
	origin := fromFile
	origin.Source = podid.API
	if _, err := manifest.Decode([]byte(web+container), origin); err == nil {
		t.Error("a static pod from the API server")
	}
}

func TestCFG11InconsistentPrioritiesAreWarnedOf(t *testing.T) {
	tests := map[string]struct{ spec, want string }{
		"neither":              {"", ""},
		"class and priority":   {"  priority: 2000001000\n  priorityClassName: system-node-critical\n", ""},
		"an unknown class":     {"  priority: 5\n  priorityClassName: mine\n", ""},
		"priority only":        {"  priority: 5\n", "spec.priority: 5 is set without a priorityClassName; the API server refuses the mirror pod unless that is its default priority"},
		"class only":           {"  priorityClassName: mine\n", "spec.priorityClassName: mine is set without a priority, which nobody looks up for a static pod; on this node it has none"},
		"the wrong priority":   {"  priority: 5\n  priorityClassName: system-cluster-critical\n", "spec.priority: 5 is not the priority of system-cluster-critical, which is 2000000000; the API server refuses the mirror pod"},
		"the other's critical": {"  priority: 2000000000\n  priorityClassName: system-node-critical\n", "spec.priority: 2000000000 is not the priority of system-node-critical, which is 2000001000; the API server refuses the mirror pod"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(manifest.Warnings(decodeOne(t, web+container+test.spec, fromFile)), "|")
			if got != test.want {
				t.Fatalf("warned %q, want %q", got, test.want)
			}
		})
	}
}

func TestEqualInputsGiveEqualPodsThatShareNothing(t *testing.T) {
	text := web + container
	first, second := decodeOne(t, text, fromFile), decodeOne(t, text, fromFile)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Fatal(diff)
	}
	first.Annotations["x"] = "y"
	first.Spec.Containers[0].Name = "changed"
	if second.Annotations["x"] != "" || second.Spec.Containers[0].Name != "c" {
		t.Fatal("a change to one pod shows in the other")
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
