package manifest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
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

// TestCFG2_BUG20_StableUID must never be edited: a different UID restarts the static pods of every node that upgrades. A new
// algorithm needs a new prefix and its own test.
func TestCFG2_BUG20_StableUID(t *testing.T) {
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
	// The hashed text: no whitespace, sorted keys, minimal escapes.
	canonical := `["h1","node-1","file",{"metadata":{"name":"web"},"spec":{"containers":[{"args":[null,"","010"],"command":[],` +
		`"env":[{"name":"ODD","value":"é\u0009\"<&>` + "\u2028\U0001F600" + `\\"}],"image":"registry.example/web:1.25","name":"web",` +
		`"resources":{"limits":{"cpu":0.5,"memory":"64Mi"}}}],"hostNetwork":true,"priority":1000000,` +
		`"terminationGracePeriodSeconds":10}}]`
	if want, sum := "h1-a3b04eae81a059999dd6aa743dadfd6d", sha256.Sum256([]byte(canonical)); want != fmt.Sprintf("h1-%x", sum[:16]) {
		t.Fatalf("hash of the canonical text: got h1-%x, want %s", sum[:16], want)
	}
	tests := map[string]struct {
		origin manifest.Origin
		want   string
	}{
		"file":       {fromFile, "h1-a3b04eae81a059999dd6aa743dadfd6d"},
		"HTTP":       {fromHTTP, "h1-3a3e827e39fea62b1eb04dc0d8a1081f"},
		"other node": {manifest.Origin{Source: podid.File, NodeName: "node-2"}, "h1-84d5f889f7d78f55fe0a2628460f8acc"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(decodeOne(t, text, test.origin).UID); got != test.want {
				t.Fatalf("got UID %s, want %s", got, test.want)
			}
		})
	}
}

func TestCFG2_DistinctUID(t *testing.T) {
	base := web + container
	same := map[string]string{
		"comments":        "# a\n" + base + "# b\n",
		"key order":       "spec:\n" + container + "metadata: {name: web}\nkind: Pod\napiVersion: v1\n",
		"status":          base + "status: {phase: Running}\n",
		"server fields":   strings.Replace(base, "name: web", "name: web\n  resourceVersion: '3'", 1),
		"item of a list":  "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}]\n",
		"second document": "apiVersion: v1\nkind: List\nitems: []\n---\n" + base,
		"JSON":            string(toJSON(t, base)),
	}
	other := map[string]string{
		"image":            strings.Replace(base, "image: i", "image: j", 1),
		"name":             strings.Replace(base, "name: web", "name: wet", 1),
		"explicit default": base + "  restartPolicy: Always\n",
		"empty list":       base + "  volumes: []\n",
		"additional field": strings.Replace(base, "image: i", "image: i, args: ['1']", 1),
		"null":             base + "  hostname: null\n",
		"annotation":       strings.Replace(base, "name: web", "name: web\n  annotations: {a: b}", 1),
	}
	want := decodeOne(t, base, fromFile).UID
	seen := map[string]string{string(want): "base"}
	for name, text := range same {
		if got := decodeOne(t, text, fromFile).UID; got != want {
			t.Errorf("%s: got UID %s, want %s", name, got, want)
		}
	}
	for name, text := range other {
		got := string(decodeOne(t, text, fromFile).UID)
		if first, found := seen[got]; found {
			t.Errorf("%s: got the UID of %s, want another", name, first)
		}
		seen[got] = name
	}
	renamed := fromFile
	renamed.Location = "renamed.yaml"
	if got := decodeOne(t, base, renamed).UID; got != want {
		t.Errorf("renamed file: got UID %s, want %s", got, want)
	}
}

func TestCFG2_UIDIsSafeInPath(t *testing.T) {
	uid := string(decodeOne(t, web+container, fromFile).UID)
	if !regexp.MustCompile(`^[a-z0-9-]{1,40}$`).MatchString(uid) {
		t.Fatalf("got UID %q, want letters, digits and dashes", uid)
	}
}

// TestBUG20_FormattingDoesNotMatter encodes the same pods with random key order, style, quotes, indentation and comments.
func TestBUG20_FormattingDoesNotMatter(t *testing.T) {
	for _, path := range []string{"testdata/valid/everything.yaml", "testdata/valid/apiserver.yaml"} {
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
			if err := encoder.Encode(randomNode(rt, value)); err != nil {
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

// randomNode returns the value as YAML in a random style.
func randomNode(t *rapid.T, value any) *yamllines.Node {
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
		for _, key := range rapid.Permutation(slices.Sorted(maps.Keys(value))).Draw(t, "order") {
			node.Content = append(node.Content, randomNode(t, key), randomNode(t, value[key]))
		}
	case []any:
		node.Kind, node.Tag = yamllines.SequenceNode, "!!seq"
		for _, element := range value {
			node.Content = append(node.Content, randomNode(t, element))
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
