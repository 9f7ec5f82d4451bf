package manifest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/source/manifest"
)

// bad is a manifest and all that is said of it.
type bad struct {
	text string
	want []string
}

func check(t *testing.T, tests map[string]bad) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods, err := manifest.Decode([]byte(test.text), fromFile)
			if err == nil {
				t.Fatalf("%d pods were accepted:\n%s", len(pods), test.text)
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Fatalf("(-want +got):\n%s\nof:\n%s", diff, test.text)
			}
		})
	}
}

func TestCFG1AndBUG32WhatTheKubeletDropsInSilenceIsAnError(t *testing.T) {
	meta := func(lines string) string {
		return strings.Replace(web, "  name: web\n", "  name: web\n"+lines, 1) + container
	}
	check(t, map[string]bad{
		"an unknown field": {
			web + "  containers:\n  - name: c\n    imagee: i\n    image: i\n",
			[]string{"x.yaml:8: spec.containers[0].imagee: unknown field"},
		},
		"another case": {
			web + container + "  hostnetwork: true\n",
			[]string{"x.yaml:7: spec.hostnetwork: unknown field; did you mean hostNetwork?"},
		},
		"an unknown field at the top": {web + container + "extra: 1\n", []string{"x.yaml:7: extra: unknown field"}},
		"an unknown volume type": {
			web + container + "  volumes:\n  - name: v\n    floppy: {}\n",
			[]string{"x.yaml:9: spec.volumes[0].floppy: unknown field"},
		},
		"a duplicate key": {
			web + "  containers:\n  - name: c\n    image: i\n    image: j\n",
			[]string{"x.yaml:9: spec.containers[0].image: duplicate key, first set on line 8"},
		},
		"a duplicate key in other quotes": {
			meta("  labels:\n    a: x\n    \"a\": z\n"), []string{"x.yaml:7: metadata.labels[a]: duplicate key, first set on line 6"},
		},
		"a key that is read as a boolean": {
			meta("  labels:\n    on: x\n"),
			[]string{"x.yaml:6: metadata.labels[on]: YAML reads this key as a number or a boolean; put it in quotes"},
		},
		"two keys that are read as one": {
			meta("  labels:\n    true: x\n    yes: z\n"),
			[]string{"x.yaml:7: metadata.labels[yes]: YAML reads this key as a number or a boolean; put it in quotes"},
		},
		"a key that is read as another number": {
			meta("  labels:\n    1.10: x\n"),
			[]string{"x.yaml:6: metadata.labels[1.10]: YAML reads this key as a number or a boolean; put it in quotes"},
		},
		"an ambiguous merge": {
			meta("  labels: &l {a: x}\n  annotations:\n    a: y\n    <<: *l\n"),
			[]string{"x.yaml:7: metadata.annotations[a]: also set by the << below it; put << first"},
		},
		"a duplicate key in a merge": {
			meta("  labels:\n    <<: {a: x, a: z}\n"), []string{"x.yaml:6: metadata.labels[a]: duplicate key, first set on line 6"},
		},
		"a merge of several": {
			meta("  labels:\n    <<: [{a: x}, {b: 5}]\n"), []string{
				"x.yaml:6: metadata.labels[b]: must be a string, but YAML reads it as the number 5; put it in quotes",
			},
		},
		"a value from a merge": {
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

func TestCFG1ValuesOfTheWrongTypeAreNamed(t *testing.T) {
	one := func(line, want string) bad {
		return bad{web + container + "  " + line + "\n", []string{"x.yaml:7: spec." + want}}
	}
	quoted := "must be a string, but YAML reads it as the "
	check(t, map[string]bad{
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
		"number beyond all":          one("activeDeadlineSeconds: 1"+strings.Repeat("0", 30), "activeDeadlineSeconds: must be a whole number, not 1e+30"),
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
		"a string for a timestamp":   {strings.Replace(web, "name: web", "name: web\n  deletionTimestamp: now", 1) + container, []string{`x.yaml:5: metadata.deletionTimestamp: the string "now" is not a valid Time`}},
		"control characters in keys": one(`nodeSelector: {"\e[31m": 1}`, "nodeSelector[\ufffd[31m]: "+quoted+"number 1; put it in quotes"),
	})
}

func TestCFG1OnlyPodsAreTaken(t *testing.T) {
	check(t, map[string]bad{
		"another kind":       {"apiVersion: v1\nkind: Deployment\n", []string{`x.yaml:2: kind: must be Pod, PodList or List, not the string "Deployment"`}},
		"no kind":            {"apiVersion: v1\nmetadata: {name: a}\n", []string{"x.yaml:1: kind: required; must be Pod, PodList or List"}},
		"another version":    {strings.Replace(web, "v1", "v2", 1) + container, []string{`x.yaml:1: apiVersion: must be v1, not the string "v2"`}},
		"no version":         {"kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n", []string{"x.yaml:1: apiVersion: required; write apiVersion: v1"}},
		"a number":           {"5\n", []string{"x.yaml:1: must be a Pod, not the number 5"}},
		"a list":             {"# a\n- a\n", []string{"x.yaml:2: must be a Pod, not a list"}},
		"a text":             {"#!/bin/sh\necho hello\n", []string{`x.yaml:2: must be a Pod, not the string "echo hello"`}},
		"a list of others":   {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service}\n", []string{`x.yaml:4: items[0].kind: must be Pod, not the string "Service"`}},
		"a list of unknowns": {"apiVersion: v1\nkind: List\nitems:\n- metadata: {}\n", []string{"x.yaml:4: items[0].apiVersion: required; write apiVersion: v1", "x.yaml:4: items[0].kind: required; must be Pod"}},
		"a list of nulls":    {"apiVersion: v1\nkind: PodList\nitems:\n-\n", []string{"x.yaml:4: items[0]: must be a Pod"}},
		"a half list":        {"apiVersion: v1\nkind: PodList\nitems:\n", []string{"x.yaml:3: items: required; write items: [] for no pods"}},
		"a quarter of one":   {"apiVersion: v1\nkind: PodList\n", []string{"x.yaml:1: items: required; write items: [] for no pods"}},
		"a list as a pod":    {"apiVersion: v1\nkind: Pod\nitems: []\n", []string{"x.yaml:3: items: unknown field"}},
	})
}

func TestSyntaxErrorsHaveTheirLine(t *testing.T) {
	check(t, map[string]bad{
		"a tab":                     {web + "\tcontainers: []\n", []string{"x.yaml:6: not valid YAML: found character that cannot start any token"}},
		"a missing bracket":         {web + "  containers: [{name: c\n", []string{"x.yaml:7: not valid YAML: did not find expected ',' or '}'"}},
		"on the first line":         {"a: b: c\n", []string{"x.yaml:1: not valid YAML: mapping values are not allowed in this context"}},
		"in the second document":    {web + container + "---\n" + web + "  a: b: c\n", []string{"x.yaml:13: not valid YAML: mapping values are not allowed in this context"}},
		"an unknown alias":          {web + "  containers: *c\n", []string{"x.yaml:1: not valid YAML: unknown anchor 'c' referenced"}},
		"a wrong indentation":       {web + "  containers:\n  - name: c\n   image: i\n  restartPolicy: Never\n", []string{"x.yaml:8: not valid YAML: did not find expected key"}},
		"a wrong indentation later": {web + "  containers:\n    - name: c\n      image: i\n   volumes: []\n", []string{"x.yaml:9: not valid YAML: did not find expected key"}},
		"a bracket too many":        {web + container + "  volumes: []]\n  hostPID: true\n", []string{"x.yaml:7: not valid YAML: did not find expected key"}},
		"a missing comma":           {web + container + "  volumes: [{name: a} {name: b}]\n  hostPID: true\n", []string{"x.yaml:7: not valid YAML: did not find expected ',' or ']'"}},
		"two JSON documents":        {"{}\n{}\n", []string{"x.yaml:2: not valid YAML: did not find expected <document start>"}},
		"a document after a return": {"a: 1\r---\rb: 2\n", []string{"x.yaml:2: another document begins here: put --- on a line of its own before it"}},
		"a merge of a string":       {web + "  <<: a\n", []string{"x.yaml:6: << takes a mapping or a list of mappings"}},
		"a merge of strings":        {web + "  <<: [{}, a]\n", []string{"x.yaml:6: << takes a mapping or a list of mappings"}},
		"too many aliases":          {"a: &a [" + strings.Repeat("1,", 1000) + "]\nb: [" + strings.Repeat("*a,", 150) + "]\n", []string{"x.yaml:1: not valid YAML: document contains excessive aliasing"}},
		"a list as a key":           {"? [a]\n: b\n", []string{"x.yaml:1: a key must be a string"}},
		"null as a key":             {web + "  ~: b\n", []string{"x.yaml:6: a key must be a string"}},
		"a tag":                     {web + "  hostname: !!binary aGk=\n", []string{"x.yaml:6: the tag !!binary cannot be used in a manifest"}},
		"a tag of its own":          {web + "  hostname: !mine a\n", []string{"x.yaml:6: the tag !mine cannot be used in a manifest"}},
		"infinity":                  {web + "  priority: -.inf\n", []string{"x.yaml:6: -.inf is not a number that a manifest can hold"}},
		"not a number":              {web + "  priority: .NaN\n", []string{"x.yaml:6: .NaN is not a number that a manifest can hold"}},
	})
}

func TestErrorsTellWhereInTheInput(t *testing.T) {
	_, err := manifest.Decode([]byte(web+container+"---\n"+web), fromFile)
	var all manifest.Errors
	if !errors.As(err, &all) || len(all) != 1 {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	var cause *field.Error
	if !errors.As(err, &cause) || cause.Type != field.ErrorTypeRequired {
		t.Fatalf("the cause is %v", all[0].Err)
	}
	want := manifest.Error{Location: "x.yaml", Document: 2, Line: 12, Field: "spec.containers", Err: cause}
	if diff := cmp.Diff(want, *all[0], cmp.Comparer(func(a, b *field.Error) bool { return a == b })); diff != "" {
		t.Fatal(diff)
	}
}

func TestErrorsReadWellWithoutALocation(t *testing.T) {
	origin := fromFile
	origin.Location = ""
	for text, want := range map[string]string{
		web: "line 5: spec.containers: Required value",
		"":  manifest.ErrEmpty.Error(),
	} {
		if _, err := manifest.Decode([]byte(text), origin); err == nil || err.Error() != want {
			t.Errorf("says %v, want %s", err, want)
		}
	}
}

func TestOnlySoManyProblemsAreListed(t *testing.T) {
	var spec strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&spec, "  unknown%d: 1\n", i)
	}
	_, err := manifest.Decode([]byte(web+spec.String()), fromFile)
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[0] != "x.yaml:6: spec.unknown0: unknown field" || lines[20] != "x.yaml: and 4980 more problems" {
		t.Fatalf("%d lines:\n%s", len(lines), err)
	}
}

func TestCFG36AndCFG20OnePodStandsInAnInputOnce(t *testing.T) {
	withUID := strings.Replace(web, "name: web", "name: web\n  uid: u1", 1) + container
	check(t, map[string]bad{
		"same name": {
			web + container + "---\n" + web + container + "  restartPolicy: Never\n",
			[]string{"x.yaml:11: metadata.name: the pod on line 1 has the same name"},
		},
		"same UID": {
			withUID + "---\n" + strings.Replace(withUID, "name: web", "name: wet", 1),
			[]string{"x.yaml:13: metadata.uid: the pod on line 1 has the same uid"},
		},
		"in a list": {
			"apiVersion: v1\nkind: PodList\nitems:\n- &p\n  metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n- *p\n",
			[]string{"x.yaml:5: items[1].metadata.name: the pod on line 4 has the same name"},
		},
	})
}
