package manifest_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/source/manifest"
)

// invalidInput is an input and its errors.
type invalidInput struct {
	text string
	want []string
}

func expectErrors(t *testing.T, tests map[string]invalidInput) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods, err := manifest.Decode([]byte(test.text), fromFile)
			if err == nil {
				t.Fatalf("got %d pods, want an error:\n%s", len(pods), test.text)
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Fatalf("errors (-want +got):\n%s\ninput:\n%s", diff, test.text)
			}
		})
	}
}

func TestCFG1_BUG32_StrictDecoding(t *testing.T) {
	meta := func(lines string) string {
		return strings.Replace(web, "  name: web\n", "  name: web\n"+lines, 1) + container
	}
	expectErrors(t, map[string]invalidInput{
		"unknown field": {
			web + "  containers:\n  - name: c\n    imagee: i\n    image: i\n",
			[]string{"x.yaml:8: spec.containers[0].imagee: unknown field"},
		},
		"different case": {
			web + container + "  hostnetwork: true\n",
			[]string{"x.yaml:7: spec.hostnetwork: unknown field; did you mean hostNetwork?"},
		},
		"unknown field at the top": {web + container + "extra: 1\n", []string{"x.yaml:7: extra: unknown field"}},
		"unknown volume type": {
			web + container + "  volumes:\n  - name: v\n    floppy: {}\n",
			[]string{"x.yaml:9: spec.volumes[0].floppy: unknown field"},
		},
		"duplicate key": {
			web + "  containers:\n  - name: c\n    image: i\n    image: j\n",
			[]string{"x.yaml:9: spec.containers[0].image: duplicate key, first set on line 8"},
		},
		"duplicate key in other quotes": {
			meta("  labels:\n    a: x\n    \"a\": z\n"), []string{"x.yaml:7: metadata.labels[a]: duplicate key, first set on line 6"},
		},
		"key that is read as a boolean": {
			meta("  labels:\n    on: x\n"),
			[]string{"x.yaml:6: metadata.labels[on]: YAML reads this key as a number or a boolean; put it in quotes"},
		},
		"two keys read as one": {
			meta("  labels:\n    true: x\n    yes: z\n"),
			[]string{"x.yaml:7: metadata.labels[yes]: YAML reads this key as a number or a boolean; put it in quotes"},
		},
		"key that is read as another number": {
			meta("  labels:\n    1.10: x\n"),
			[]string{"x.yaml:6: metadata.labels[1.10]: YAML reads this key as a number or a boolean; put it in quotes"},
		},
		"ambiguous merge": {
			meta("  labels: &l {a: x}\n  annotations:\n    a: y\n    <<: *l\n"),
			[]string{"x.yaml:7: metadata.annotations[a]: also set by the << below it; put << first"},
		},
		"duplicate key in a merge": {
			meta("  labels:\n    <<: {a: x, a: z}\n"), []string{"x.yaml:6: metadata.labels[a]: duplicate key, first set on line 6"},
		},
		"merge of several": {
			meta("  labels:\n    <<: [{a: x}, {b: 5}]\n"), []string{
				"x.yaml:6: metadata.labels[b]: must be a string, but YAML reads it as the number 5; put it in quotes",
			},
		},
		"value from a merge": {
			meta("  labels:\n    <<: [{a: x}, {b: x y}]\n"), []string{
				"x.yaml:6: metadata.labels[b]: Invalid value: \"x y\": " + validation.IsValidLabelValue("x y")[0],
			},
		},
		"all problems at once": {
			web + "  hostPID: maybe\n  containers:\n  - nam: c\n    image: 5\n  volumes: {}\n",
			[]string{
				"x.yaml:6: spec.hostPID: must be true or false, not the string \"maybe\"",
				"x.yaml:8: spec.containers[0].nam: unknown field",
				"x.yaml:9: spec.containers[0].image: must be a string, but YAML reads it as the number 5; put it in quotes",
				"x.yaml:10: spec.volumes: must be a list, not a mapping",
			},
		},
		"in an alias": {
			web + "  containers:\n  - &c\n    name: c\n    image: i\n    args: [1]\n  initContainers:\n  - *c\n",
			[]string{
				"x.yaml:10: spec.containers[0].args[0]: must be a string, but YAML reads it as the number 1; put it in quotes",
				"x.yaml:10: spec.initContainers[0].args[0]: must be a string, but YAML reads it as the number 1; put it in quotes",
			},
		},
		"in the second document": {
			web + container + "---\n# comment\n" + web + container + "  os: linux\n",
			[]string{"x.yaml:15: spec.os: must be a mapping, not the string \"linux\""},
		},
		"in an item of a list": {
			"apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n- metadata: {name: b}\n  spec:\n    tainers: []\n",
			[]string{"x.yaml:8: items[1].spec.tainers: unknown field"},
		},
	})
}

func TestCFG1_WrongType(t *testing.T) {
	one := func(line, want string) invalidInput {
		return invalidInput{web + container + "  " + line + "\n", []string{"x.yaml:7: spec." + want}}
	}
	quoted := "must be a string, but YAML reads it as the "
	expectErrors(t, map[string]invalidInput{
		"boolean for a string":       one("hostname: yes", "hostname: "+quoted+"boolean true; put it in quotes"),
		"number for a string":        one("hostname: 0x1F", "hostname: "+quoted+"number 31; put it in quotes"),
		"list for a string":          one("hostname: [a]", "hostname: must be a string, not a list"),
		"mapping for a string":       one("hostname: {a: b}", "hostname: must be a string, not a mapping"),
		"string for a boolean":       one("hostPID: 'true'", `hostPID: must be true or false, not the string "true"`),
		"number for a boolean":       one("hostPID: 1", "hostPID: must be true or false, not the number 1"),
		"string for a number":        one("priority: '5'", `priority: must be a whole number, not the string "5"`),
		"fraction for a number":      one("priority: 1.5", "priority: must be a whole number, not 1.5"),
		"huge number":                one("priority: 2147483648", "priority: 2147483648 is out of range"),
		"huge number of 64 bits":     one("activeDeadlineSeconds: 9223372036854775808", "activeDeadlineSeconds: 9223372036854775808 is out of range"),
		"number out of all ranges":   one("activeDeadlineSeconds: 1"+strings.Repeat("0", 30), "activeDeadlineSeconds: must be a whole number, not 1e+30"),
		"string for a list":          one("volumes: v", `volumes: must be a list, not the string "v"`),
		"number for a mapping":       one("nodeSelector: 1", "nodeSelector: must be a mapping, not the number 1"),
		"number in a mapping":        one("nodeSelector: {a: 1}", "nodeSelector[a]: "+quoted+"number 1; put it in quotes"),
		"string for a struct":        one("securityContext: root", `securityContext: must be a mapping, not the string "root"`),
		"list for a struct":          one("securityContext: []", "securityContext: must be a mapping, not a list"),
		"string for a quantity":      one("overhead: {cpu: much}", `overhead[cpu]: "much" is not a quantity; write 500m, 2 or 64Mi, for example`),
		"boolean for a quantity":     one("overhead: {cpu: yes}", "overhead[cpu]: must be a quantity, not the boolean true"),
		"quantity with an exponent":  one("overhead: {cpu: 1e-999m}", "overhead[cpu]: 1e-999m is not a quantity; write 500m, 2 or 64Mi, for example"),
		"boolean for a port":         one("initContainers: [{name: i, image: i, readinessProbe: {tcpSocket: {port: on}}}]", "initContainers[0].readinessProbe.tcpSocket.port: must be a number or a string, not the boolean true"),
		"huge number for a port":     one("initContainers: [{name: i, image: i, readinessProbe: {tcpSocket: {port: 99999999999}}}]", "initContainers[0].readinessProbe.tcpSocket.port: 99999999999 is out of range"),
		"string for a timestamp":     {strings.Replace(web, "name: web", "name: web\n  deletionTimestamp: now", 1) + container, []string{`x.yaml:5: metadata.deletionTimestamp: the string "now" is not a valid Time`}},
		"control characters in keys": one(`nodeSelector: {"\e[31m": 1}`, "nodeSelector[\ufffd[31m]: "+quoted+"number 1; put it in quotes"),
	})
}

func TestCFG1_OnlyPods(t *testing.T) {
	expectErrors(t, map[string]invalidInput{
		"other kind":           {"apiVersion: v1\nkind: Deployment\n", []string{`x.yaml:2: kind: must be Pod, PodList or List, not the string "Deployment"`}},
		"no kind":              {"apiVersion: v1\nmetadata: {name: a}\n", []string{"x.yaml:1: kind: required; must be Pod, PodList or List"}},
		"other version":        {strings.Replace(web, "v1", "v2", 1) + container, []string{`x.yaml:1: apiVersion: must be v1, not the string "v2"`}},
		"no version":           {"kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n", []string{"x.yaml:1: apiVersion: required; write apiVersion: v1"}},
		"number":               {"5\n", []string{"x.yaml:1: must be a Pod, not the number 5"}},
		"list":                 {"# a\n- a\n", []string{"x.yaml:2: must be a Pod, not a list"}},
		"text":                 {"#!/bin/sh\necho hello\n", []string{`x.yaml:2: must be a Pod, not the string "echo hello"`}},
		"list of another kind": {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service}\n", []string{`x.yaml:4: items[0].kind: must be Pod, not the string "Service"`}},
		"list without kinds":   {"apiVersion: v1\nkind: List\nitems:\n- metadata: {}\n", []string{"x.yaml:4: items[0].apiVersion: required; write apiVersion: v1", "x.yaml:4: items[0].kind: required; must be Pod"}},
		"list of nulls":        {"apiVersion: v1\nkind: PodList\nitems:\n-\n", []string{"x.yaml:4: items[0]: must be a Pod"}},
		"list with null items": {"apiVersion: v1\nkind: PodList\nitems:\n", []string{"x.yaml:3: items: required; write items: [] for no pods"}},
		"list without items":   {"apiVersion: v1\nkind: PodList\n", []string{"x.yaml:1: items: required; write items: [] for no pods"}},
		"list as a pod":        {"apiVersion: v1\nkind: Pod\nitems: []\n", []string{"x.yaml:3: items: unknown field"}},
	})
}

func TestCFG36_CFG20_DuplicatePod(t *testing.T) {
	withUID := strings.Replace(web, "name: web", "name: web\n  uid: u1", 1) + container
	expectErrors(t, map[string]invalidInput{
		"same name": {
			web + container + "---\n" + web + container + "  restartPolicy: Never\n",
			[]string{"x.yaml:11: metadata.name: the pod on line 1 has the same name"},
		},
		"same UID": {
			withUID + "---\n" + strings.Replace(withUID, "name: web", "name: wet", 1),
			[]string{"x.yaml:13: metadata.uid: the pod on line 1 has the same UID"},
		},
		"in a list": {
			"apiVersion: v1\nkind: PodList\nitems:\n- &p\n  metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n- *p\n",
			[]string{"x.yaml:5: items[1].metadata.name: the pod on line 4 has the same name"},
		},
	})
}

// scalars are texts that YAML versions interpret differently.
var scalars = []string{
	"yes", "no", "on", "off", "y", "n", "Yes", "NO", "true", "True", "null", "~", "Null", "010", "0o10", "0x10", "0b10",
	"1_000", "1e3", "1E3", ".5", "1.", "+1", "-0", "1:30", "190:20:30", "2020-01-01", "2020-01-01T00:00:00Z", "=", "<<",
	"0777", "08", "1e400", "9223372036854775808", "18446744073709551616", "0.1", "1.0", "-1", "0", "1000000", "!!str 5",
	"!!int '5'", "'5'", "\"5\"", "a b", "a#b", "5 # five", "", "{}", "[]", "|\n    x", ">-\n    x\n    y",
}

// TestDecode_ScalarsMatchKubelet compares the value of a scalar in a string, number, boolean or quantity field with the value
// that sigs.k8s.io/yaml, the kubelet's library, decodes.
func TestDecode_ScalarsMatchKubelet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.SampledFrom(scalars),
			rapid.StringMatching(`[-+]?[0-9_.:eExobinfaNyY]{1,8}`),
			rapid.StringMatching(`[a-zA-Z~=.]{1,5}`),
		).Draw(t, "text")
		field := rapid.SampledFrom([]string{"hostname", "priority", "hostPID", "cpu"}).Draw(t, "field")
		input := web + container + "  " + field + ": " + text + "\n"
		if field == "cpu" {
			input = web + container + "  overhead:\n    cpu: " + text + "\n"
		}
		want, valid := decodeLikeKubelet(input)
		pods, err := manifest.Decode([]byte(input), fromFile)
		if !valid {
			if err == nil {
				t.Fatalf("%s: got no error, want one", text)
			}
			return
		}
		if err != nil {
			if strings.Contains(err.Error(), "Invalid value") || strings.Contains(err.Error(), "is not a quantity") {
				return
			}
			t.Fatalf("%s: got error %v, want %+v", text, err, want)
		}
		got, cpu := pods[0].Spec, want.Overhead.Cpu().DeepCopy()
		cpu.RoundUp(resource.Milli) // like setDefaults
		if got.Hostname != want.Hostname || got.HostPID != want.HostPID || number(got.Priority) != number(want.Priority) ||
			got.Overhead.Cpu().Cmp(cpu) != 0 {
			t.Fatalf("%s: got %+v, want %+v", text, got, want)
		}
	})
}

// decodeLikeKubelet returns the spec as the kubelet decodes it, and false if it cannot.
func decodeLikeKubelet(input string) (v1.PodSpec, bool) {
	var pod v1.Pod
	text, err := yaml.YAMLToJSON([]byte(input))
	if err != nil || json.Unmarshal(text, &pod) != nil {
		return v1.PodSpec{}, false
	}
	return pod.Spec, true
}

func number(n *int32) string {
	if n == nil {
		return "none"
	}
	return strconv.Itoa(int(*n))
}
