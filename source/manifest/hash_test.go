package manifest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	yamllines "go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// TestCFG2AndBUG20TheUIDOfAManifestNeverChanges must never be edited: a difference here restarts the static pods of
// every node that upgrades. A new way to make UIDs needs a new prefix and a test of its own.
func TestCFG2AndBUG20TheUIDOfAManifestNeverChanges(t *testing.T) {
	text := `apiVersion: v1
kind: Pod
metadata:
  name: web
  creationTimestamp: null
spec:
  hostNetwork: yes
  priority: 1_000_000
  terminationGracePeriodSeconds: 1e1
  containers:
  - name: web
    image: registry.example/web:1.25
    env: [{name: ODD, value: "é\t\"<&>\u2028\U0001F600\\"}]
    command: []
    args: [~, "", '010']
    resources: {limits: {cpu: 0.5, memory: 64Mi}}
status: {}
`
	// What is hashed: no blanks, sorted keys, as few escapes as JSON allows.
	canonical := `["h1","node-1","file",{"metadata":{"name":"web"},"spec":{"containers":[{"args":[null,"","010"],"command":[],` +
		`"env":[{"name":"ODD","value":"é\u0009\"<&>` + "\u2028\U0001F600" + `\\"}],"image":"registry.example/web:1.25","name":"web",` +
		`"resources":{"limits":{"cpu":0.5,"memory":"64Mi"}}}],"hostNetwork":true,"priority":1000000,` +
		`"terminationGracePeriodSeconds":10}}]`
	if want, sum := "h1-a3b04eae81a059999dd6aa743dadfd6d", sha256.Sum256([]byte(canonical)); want != fmt.Sprintf("h1-%x", sum[:16]) {
		t.Fatalf("the canonical text has the hash %x", sum[:16])
	}
	tests := map[string]struct {
		origin manifest.Origin
		want   string
	}{
		"file":       {fromFile, "h1-a3b04eae81a059999dd6aa743dadfd6d"},
		"URL":        {fromHTTP, "h1-3a3e827e39fea62b1eb04dc0d8a1081f"},
		"other node": {manifest.Origin{Source: podid.File, NodeName: "node-2"}, "h1-84d5f889f7d78f55fe0a2628460f8acc"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(decodeOne(t, text, test.origin).UID); got != test.want {
				t.Fatalf("the UID is %s, and has always been %s", got, test.want)
			}
		})
	}
}

func TestCFG2TheUIDTellsPodsApart(t *testing.T) {
	base := web + container
	same := map[string]string{
		"comments":                "# a\n" + base + "# b\n",
		"another order":           "spec:\n" + container + "metadata: {name: web}\nkind: Pod\napiVersion: v1\n",
		"a status":                base + "status: {phase: Running}\n",
		"what the server writes":  strings.Replace(base, "name: web", "name: web\n  resourceVersion: '3'", 1),
		"an item of a list":       "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}]\n",
		"a document among others": "apiVersion: v1\nkind: List\nitems: []\n---\n" + base,
		"JSON":                    string(toJSON(t, base)),
	}
	other := map[string]string{
		"another image":    strings.Replace(base, "image: i", "image: j", 1),
		"another name":     strings.Replace(base, "name: web", "name: wet", 1),
		"a default set":    base + "  restartPolicy: Always\n",
		"an empty list":    base + "  volumes: []\n",
		"another type":     strings.Replace(base, "image: i", "image: i, args: ['1']", 1),
		"a null":           base + "  hostname: null\n",
		"a new annotation": strings.Replace(base, "name: web", "name: web\n  annotations: {a: b}", 1),
	}
	want := decodeOne(t, base, fromFile).UID
	seen := map[string]string{string(want): "the base"}
	for name, text := range same {
		if got := decodeOne(t, text, fromFile).UID; got != want {
			t.Errorf("%s changed the UID", name)
		}
	}
	for name, text := range other {
		got := string(decodeOne(t, text, fromFile).UID)
		if first, taken := seen[got]; taken {
			t.Errorf("%s has the UID of %s", name, first)
		}
		seen[got] = name
	}
	renamed := fromFile
	renamed.Location = "elsewhere.yaml"
	if got := decodeOne(t, base, renamed).UID; got != want {
		t.Error("another file name changed the UID")
	}
}

func TestCFG2TheUIDCanStandInAPath(t *testing.T) {
	uid := string(decodeOne(t, web+container, fromFile).UID)
	if !regexp.MustCompile(`^[a-z0-9-]{1,40}$`).MatchString(uid) {
		t.Fatalf("the UID is %q", uid)
	}
}

// TestBUG20HowAManifestIsWrittenDoesNotMatter writes the same pods in ever new ways: other orders of keys, block or flow
// style, other quotes, other indentation, comments everywhere.
func TestBUG20HowAManifestIsWrittenDoesNotMatter(t *testing.T) {
	for _, path := range []string{"testdata/good/everything.yaml", "testdata/good/apiserver.yaml"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		decoder := json.NewDecoder(bytes.NewReader(toJSON(t, string(data))))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		want := decodeOne(t, string(data), fromFile)
		rapid.Check(t, func(rt *rapid.T) {
			var text bytes.Buffer
			encoder := yamllines.NewEncoder(&text)
			encoder.SetIndent(rapid.IntRange(2, 8).Draw(rt, "indent"))
			if err := encoder.Encode(write(rt, value)); err != nil {
				rt.Fatal(err)
			}
			pods, err := manifest.Decode(text.Bytes(), fromFile)
			if err != nil {
				rt.Fatalf("%v in:\n%s", err, &text)
			}
			if diff := cmp.Diff(want, pods[0]); diff != "" {
				rt.Fatalf("(-want +got):\n%s\nin:\n%s", diff, &text)
			}
		})
	}
}

// write is the value in YAML of a random style.
func write(t *rapid.T, value any) *yamllines.Node {
	node := &yamllines.Node{}
	if rapid.IntRange(0, 9).Draw(t, "comment") == 0 {
		node.HeadComment = "# a comment"
	}
	if rapid.IntRange(0, 4).Draw(t, "flow") == 0 {
		node.Style = yamllines.FlowStyle
	}
	switch value := value.(type) {
	case map[string]any:
		node.Kind, node.Tag = yamllines.MappingNode, "!!map"
		var keys []string
		for key := range value {
			keys = append(keys, key)
		}
		for _, key := range rapid.Permutation(sorted(keys)).Draw(t, "order") {
			node.Content = append(node.Content, write(t, key), write(t, value[key]))
		}
	case []any:
		node.Kind, node.Tag = yamllines.SequenceNode, "!!seq"
		for _, element := range value {
			node.Content = append(node.Content, write(t, element))
		}
	case string:
		style := rapid.SampledFrom([]yamllines.Style{yamllines.SingleQuotedStyle, yamllines.DoubleQuotedStyle}).Draw(t, "quotes")
		node.Kind, node.Tag, node.Value, node.Style = yamllines.ScalarNode, "!!str", value, style
	default:
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		node.Kind, node.Value, node.Style = yamllines.ScalarNode, string(text), 0
	}
	return node
}

func sorted(keys []string) []string {
	slices.Sort(keys)
	return keys
}
