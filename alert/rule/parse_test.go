package rule_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/remedy"
)

func TestParse(t *testing.T) {
	r := parse(t, `
alert: PodCrashLooping
on: container
expr: container.reason == 'CrashLoopBackOff' && container.restarted('30m') >= 3
value: container.restarts
for: 1h30m
keep_firing_for: 1d
labels: {severity: warning, team: shop}
annotations:
  summary: '{{ $labels.pod }} {{ $labels.container }}: exit {{ $facts.container.last_exit_code }} ({{ $value }})'
actions:
- type: restart-container
  mode: enforce
  only_if: container.restarts < 20 && !pod.critical
  max: 3 per 1h
  cool_down: 10m
  expect: {resolved_within: 5m}
  pods: [kube-system/etcd]
- {type: webhook, target: pager}
`)
	if r.Name != "PodCrashLooping" || r.Group != "g" || r.File != "x.yaml" || r.Text.Line != 6 || r.Scope != rule.Container ||
		r.For != 90*time.Minute || r.KeepFiring != 24*time.Hour || r.ID() != `PodCrashLooping{severity="warning",team="shop"}` {
		t.Errorf("got %+v", r)
	}
	want := []rule.Action{
		{Policy: remedy.Policy{
			Type: remedy.RestartContainer, Enforce: true, Max: 3, Per: time.Hour, CoolDown: 10 * time.Minute, ResolvedWithin: 5 * time.Minute,
			Pods: []string{"kube-system/etcd"},
		}, OnlyIf: "container.restarts < 20 && !pod.critical"},
		{Policy: remedy.Policy{Type: remedy.Webhook, Enforce: true, Target: "pager"}},
	}
	if diff := cmp.Diff(want, r.Actions); diff != "" {
		t.Error(diff)
	}
}

func TestCostliest(t *testing.T) {
	r := parse(t, "alert: X\non: pod\nexpr: pod.ready && (pod.containers.exists(c, c.ready) || pod.name == 'x')")
	if text, cost := r.Costliest(); text != "pod.containers.exists(c, c.ready)" || cost >= r.MaxCost || cost < r.MaxCost/2 {
		t.Errorf("got %s, %d of %d", text, cost, r.MaxCost)
	}
}

func TestParse_NodeRule(t *testing.T) {
	r := parse(t, `
alert: X
on: node
expr: "!node.runtime_ready"
condition: {type: ContainerRuntimeUnhealthy, reason: Down}
actions: [{type: cordon}]
`)
	if *r.Condition != (alert.Condition{Type: "ContainerRuntimeUnhealthy", Reason: "Down"}) || r.Actions[0].Enforce {
		t.Errorf("got %+v", r)
	}
}

func TestParse_Triggers(t *testing.T) {
	tests := map[string]rule.Trigger{
		"container|container.reason == 'Error'":                   rule.OnStatus,
		"container|container.restarted('1h') > 1":                 rule.OnStatus | rule.OnTime,
		"container|container.probe_streak > 1":                    rule.OnStatus | rule.OnProbe,
		"container|container.load.memory > 1.0":                   rule.OnStatus | rule.OnLoad,
		"container|true":                                          rule.OnStatus,
		"pod|pod.phase == 'Failed'":                               rule.OnStatus,
		"pod|pod.behind > 0":                                      rule.OnStatus | rule.OnSync,
		"pod|pod.overdue":                                         rule.OnStatus | rule.OnTime,
		"pod|older(pod, '2d')":                                    rule.OnStatus | rule.OnTime,
		"pod|pod.label('x') == '' && node.ready":                  rule.OnStatus | rule.OnNode,
		"pod|pod.containers.exists(c, c.probe_failing)":           rule.OnStatus | rule.OnProbe,
		"pod|pod.containers.exists(c, c.ended('Error','1h') > 2)": rule.OnStatus | rule.OnTime,
		"pod|pod.ready && node.load.cpu > 0.5":                    rule.OnStatus | rule.OnNode | rule.OnLoad,
		"node|node.sources_bad > 0":                               rule.OnNode | rule.OnSource,
		"node|node.load.cpu > 0.5":                                rule.OnNode | rule.OnLoad,
		"node|node.cert_days < 7":                                 rule.OnNode | rule.OnTime,
		"node|node.count('boot', '1h') > 2":                       rule.OnNode | rule.OnTime,
		"node|node.pressure('Disk')":                              rule.OnNode,
	}
	for text, want := range tests {
		scope, expr, _ := strings.Cut(text, "|")
		if got := parse(t, "alert: X\non: "+scope+"\nexpr: "+expr).Triggers; got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

const valid = "alert: X\non: container\nexpr: container.ready\n"

// TestParse_Errors checks the place, the field and the text of errors. The rule starts at line 6 and column 5.
func TestParse_Errors(t *testing.T) {
	tests := map[string][]string{
		// Fields.
		"alert: X":                            {`6:5: groups[0].rules[0].on: required; write on: node, on: pod or on: container`},
		"on: pod\nexpr: pod.ready":            {`6:5: groups[0].rules[0].alert: required; give the alert a name`},
		"alert: X\non: pod":                   {`6:5: groups[0].rules[0].expr: required; write a CEL expression`},
		"alert: a b\non: pod\nexpr: 'true'":   {`6:12: groups[0].rules[0].alert: "a b" is no name`},
		valid + "exprr: x":                    {`9:5: groups[0].rules[0].exprr: unknown field; did you mean expr?`},
		valid + "keepFiringFor: 5m":           {`9:5: groups[0].rules[0].keepFiringFor: unknown field; did you mean keep_firing_for?`},
		valid + "runbook: x":                  {`9:5: groups[0].rules[0].runbook: unknown field; the fields are alert, on, expr, value`},
		valid + "on: pod":                     {`9:5: groups[0].rules[0].on: is there twice; the first is on line 7`},
		"alert: X\non: service\nexpr: 'true'": {`7:9: groups[0].rules[0].on: must be node, pod or container, not "service"`},
		valid + "for: 5":                      {`9:10: groups[0].rules[0].for: "5" is not a duration; write one like 30s, 5m, 1h30m or 1d`},
		valid + "for: 31d":                    {`9:10: groups[0].rules[0].for: 31d is too long; at most 30d`},
		valid + "for: 5m1h":                   {`9:10: groups[0].rules[0].for: "5m1h" is not a duration`},
		valid + "for: [5m]":                   {`9:10: groups[0].rules[0].for: must be a text, not a list`},
		"- x":                                 {`6:5: groups[0].rules[0]: must be a mapping, not a list`},
		// Expressions.
		"alert: X\non: container\nexpr: container.redy":                                                                {`8:20: groups[0].rules[0].expr: undefined field 'redy'; did you mean ready?`},
		"alert: X\non: pod\nexpr: container.ready":                                                                     {`8:11: groups[0].rules[0].expr: undeclared reference to 'container'`, "; only a rule with on: container has it"},
		"alert: X\non: node\nexpr: pod.ready":                                                                          {`8:11: groups[0].rules[0].expr: undeclared reference to 'pod'`, "; only a rule with on: pod or on: container has it"},
		"alert: X\non: pod\nexpr: pod.why == 'x'":                                                                      {`8:14: groups[0].rules[0].expr: undefined field 'why'; only queries have it, because it can change`},
		"alert: X\non: pod\nexpr: now > now":                                                                           {`8:11: `, `undeclared reference to 'now'`, `; write for:, older(pod, '1h')`},
		"alert: X\non: pod\nexpr: \"pod.redy\"":                                                                        {`8:15: groups[0].rules[0].expr: undefined field`},
		"alert: X\non: pod\nexpr: 'pod.name == ''x'' && pod.redy'":                                                     {`8:36: groups[0].rules[0].expr: undefined field`},
		"alert: X\non: pod\nexpr: \"pod.name == \\\"x\\\" && pod.redy\"":                                               {`8:36: groups[0].rules[0].expr: undefined field`},
		"alert: X\non: pod\nexpr: |\n  pod.ready &&\n\n    pod.redy\n":                                                 {`11:12: groups[0].rules[0].expr: undefined field`},
		"alert: X\non: pod\nexpr: >-\n  pod.ready &&\n  pod.redy\n":                                                    {`10:10: groups[0].rules[0].expr: undefined field`},
		"alert: X\non: pod\nexpr: pod.ready &&\n  pod.redy ||\n  pod.stat":                                             {`9:10: groups[0].rules[0].expr: undefined field 'redy'`, `10:10: groups[0].rules[0].expr: undefined field 'stat'`},
		"alert: X\non: pod\nexpr: 'pod.ready &&\n  pod.redy'":                                                          {`9:10: groups[0].rules[0].expr: undefined field`},
		"alert: X\non: pod\nexpr: pod.name == 3":                                                                       {`8:20: groups[0].rules[0].expr: found no matching overload`},
		"alert: X\non: pod\nexpr: pod.restarts":                                                                        {`8:11: groups[0].rules[0].expr: the expression is of type int, it must be bool`},
		"alert: X\non: pod\nexpr: pod.ready\nvalue: pod.name":                                                          {`9:12: groups[0].rules[0].value: the expression is of type string, it must be a number`},
		"alert: X\non: pod\nexpr: pod.name.matches('(')":                                                               {`groups[0].rules[0].expr: error parsing regexp`},
		"alert: X\non: pod\nexpr: pod.ready && (":                                                                      {`8:25: groups[0].rules[0].expr: Syntax error`},
		"alert: X\non: pod\nexpr: pod.containers.all(a, pod.containers.all(b, a.image.matches(b.image)))":              {`8:11: groups[0].rules[0].expr: the expression costs up to`},
		"alert: X\non: container\nexpr: container.restarted('25h') > 1":                                                {`8:31: groups[0].rules[0].expr: 25h is too long; at most 24h`},
		"alert: X\non: container\nexpr: container.restarted('0s') > 1":                                                 {`8:31: groups[0].rules[0].expr: the duration must be positive`},
		"alert: X\non: container\nexpr: container.restarted('soon') > 1":                                               {`8:31: groups[0].rules[0].expr: "soon" is not a duration`},
		"alert: X\non: container\nexpr: container.restarted(pod.name) > 1":                                             {`groups[0].rules[0].expr: the duration must be a literal like '10m'`},
		"alert: X\non: container\nexpr: container.restarted('1h') >= 65":                                               {`8:40: groups[0].rules[0].expr: counts end at 64`},
		"alert: X\non: container\nexpr: container.restarted('1h') > 64":                                                {`8:39: groups[0].rules[0].expr: counts end at 64`},
		"alert: X\non: container\nexpr: 100 < container.ended('Error', '1h')":                                          {`8:11: groups[0].rules[0].expr: counts end at 64`},
		"alert: X\non: pod\nexpr: pod.flipped('Ready', '1h') > 64.5":                                                   {`8:40: groups[0].rules[0].expr: counts end at 64`},
		"alert: X\non: pod\nexpr: double(pod.flipped('Ready', '1h')) > 99.0":                                           {`groups[0].rules[0].expr: counts end at 64`},
		"alert: X\non: node\nexpr: node.count('reboot', '1h') > 1":                                                     {`8:22: groups[0].rules[0].expr: node.count counts one of boot, clock, lease, load, runtime`},
		"alert: X\non: pod\nexpr: older(pod, '366d')":                                                                  {`8:22: groups[0].rules[0].expr: 366d is too long; at most 365d`},
		"alert: X\non: container\nexpr: container.restartd('1h') > 1":                                                  {`8:29: groups[0].rules[0].expr: undeclared reference to 'restartd'; did you mean restarted?`},
		"alert: X\non: container\nexpr: foo > 1":                                                                       {`8:11: groups[0].rules[0].expr: undeclared reference to 'foo'; the variables are node, pod, container`},
		"alert: X\non: pod\nexpr: container.ready && x":                                                                {`8:11: groups[0].rules[0].expr: undeclared reference to 'container'; only a rule with on: container has it`, `8:30: `},
		"alert: X\non: pod\nexpr: pod.ready && pod.containers.all(a, pod.containers.all(b, a.image.matches(b.image)))": {`8:24: `, `and this part 1691843`, `: pod.containers.all(a, pod.containers`},
		// Labels.
		valid + "labels: {pod: x}":            {`9:19: groups[0].rules[0].labels.pod: the agent sets this label; use another name`},
		valid + "labels: {alertname: x}":      {`groups[0].rules[0].labels.alertname: the agent sets this label`},
		valid + "labels: {a-b: x}":            {`9:19: groups[0].rules[0].labels.a-b: "a-b" is no label name`},
		valid + "labels: {__x: x}":            {`groups[0].rules[0].labels.__x: "__x" is no label name`},
		valid + "labels: {x: ''}":             {`groups[0].rules[0].labels.x: a label has 1 to 1024 bytes`},
		valid + "labels: {x: '{{ $value }}'}": {`groups[0].rules[0].labels.x: labels are no templates`},
		valid + "labels: {x: [1]}":            {`groups[0].rules[0].labels.x: must be a text, not a list`},
		// Annotations.
		valid + "annotations: {summary: '{{ $labels.team }}'}":                                  {`9:28: groups[0].rules[0].annotations.summary: <$labels.team>: map has no entry for key "team"; the labels are alertname, container, instance`},
		valid + "annotations: {summary: '{{ $facts.container.exit }}'}":                         {`map has no entry for key "exit"; $facts has the variables and fields`},
		valid + "annotations: {summary: '{{ $facts.pod.labels.app }}'}":                         {`map has no entry for key "app"; write {{ index $facts.pod.labels "name" }}`},
		valid + "annotations: {summary: '{{ $value }}'}":                                        {`$value is not known, because the rule has no value; add one`},
		valid + "annotations: {summary: '{{ if $value }}x{{ end }}'}":                           {`$value is not known`},
		valid + "annotations: {summary: '{{ $x }}'}":                                            {`groups[0].rules[0].annotations.summary: undefined variable "$x"`},
		valid + "annotations: {summary: '{{ humanise 1 }}'}":                                    {`function "humanise" not defined`},
		valid + "annotations: {summary: '{{ range 5 }}x{{ end }}'}":                             {`is not possible in an annotation; use if, with and functions`},
		valid + "annotations: {summary: '{{ define \"x\" }}{{ end }}'}":                         {`an annotation cannot define templates`},
		valid + "annotations: {summary: '{{ if gt $facts.container.load.cpu 1.0 }}x{{ end }}'}": {`incompatible types for comparison: string and float64; a fact that is not known is the text "unknown"`},
		valid + "annotations: {last_log: x}":                                                    {`the agent sets this annotation; use another name`},
		// Conditions.
		valid + "condition: {type: X, reason: Y}":                                          {`9:16: groups[0].rules[0].condition: a condition is one of the Node: only a rule with on: node can have one`},
		"alert: X\non: node\nexpr: node.ready\ncondition: {type: Ready, reason: Y}":        {`9:23: groups[0].rules[0].condition.type: the agent itself reports the condition Ready; use another type`},
		"alert: X\non: node\nexpr: node.ready\ncondition: {type: DiskPressure, reason: Y}": {`the agent itself reports the condition DiskPressure`},
		"alert: X\non: node\nexpr: node.ready\ncondition: {type: X}":                       {`9:16: groups[0].rules[0].condition.reason: required`},
		"alert: X\non: node\nexpr: node.ready\ncondition: {type: 'a b', reason: Y}":        {`"a b" is no name`},
		// Actions.
		valid + "actions: [{type: reboot}]":                                        {`9:22: groups[0].rules[0].actions[0].type: unknown action "reboot"; the actions are cordon, probe, restart-container`},
		valid + "actions: [{mode: enforce}]":                                       {`9:15: groups[0].rules[0].actions[0].type: required`},
		valid + "actions: [{type: cordon}]":                                        {`cordon needs a rule with on: node, not on: container`},
		valid + "actions: [{type: condition}]":                                     {`a condition is no action; write condition: {type, reason} beside actions`},
		"alert: X\non: node\nexpr: node.ready\nactions: [{type: restart-pod}]":     {`restart-pod needs a rule with on: pod or on: container, not on: node`},
		"alert: X\non: pod\nexpr: pod.ready\nactions: [{type: restart-container}]": {`restart-container needs a rule with on: container, not on: pod`},
		valid + "actions: [{type: snapshot, mode: on}]":                            {`actions[0].mode: must be dry-run or enforce, not "on"`},
		valid + "actions: [{type: snapshot, max: 3/h}]":                            {`actions[0].max: "3/h" is no limit; write one like 3 per 1h`},
		valid + "actions: [{type: snapshot, max: 0 per 1h}]":                       {`actions[0].max: a limit must allow something`},
		valid + "actions: [{type: snapshot, max: 3 per 40d}]":                      {`actions[0].max: 40d is too long`},
		valid + "actions: [{type: snapshot, cool_down: 2d}]":                       {`actions[0].cool_down: 2d is too long; at most 1d`},
		valid + "actions: [{type: snapshot, only_if: container.redy}]":             {`actions[0].only_if: undefined field 'redy'`},
		valid + "actions: [{type: snapshot, expect: {}}]":                          {`actions[0].expect.resolved_within: required; write a duration like 5m`},
		valid + "actions: [{type: snapshot, pods: ['*/x']}]":                       {`actions[0].pods[0]: "*/x" names no pod; write namespace/name, without wildcards`},
		valid + "actions: [{type: snapshot, target: x}]":                           {`actions[0].target: only webhook and run have a target`},
		valid + "actions: [{type: run}]":                                           {`actions[0].target: required; write the name of the webhook or program`},
		// Several at once.
		"alert: a b\non: pod\nexpr: pod.redy\nfor: x": {`6:12: `, `8:14: `, `9:10: `},
	}
	for fields, want := range tests {
		t.Run(fields, func(t *testing.T) { wantErrors(t, inFile(fields), want) })
	}
}

// wantErrors checks that a file has errors with some texts. Those that start with a number are at the start of an error.
func wantErrors(t *testing.T, text string, want []string) {
	t.Helper()
	file, err := rule.Parse([]byte(text), "x.yaml")
	var errs rule.Errors
	if !errors.As(err, &errs) || file != nil {
		t.Fatalf("got %v, %v", file, err)
	}
	for _, part := range want {
		if part[0] >= '0' && part[0] <= '9' {
			part = "x.yaml:" + part
		}
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got\n%v\nwant %s", err, part)
		}
	}
}

func TestParse_FileErrors(t *testing.T) {
	const head = "apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\n"
	rules := "groups:\n- name: g\n  rules:\n  - {alert: X, on: pod, expr: pod.ready}\n"
	tests := map[string][]string{
		"":                                      {"x.yaml: is empty; write groups: [] for no rules"},
		"# nothing\n":                           {"x.yaml: is empty"},
		"a: b: c":                               {"1:1: invalid YAML: mapping values are not allowed"},
		"\t- x":                                 {"invalid YAML"},
		"[]":                                    {"1:1: must be a mapping, not a list"},
		"groups: []":                            {"1:1: apiVersion: required; write apiVersion: heraldnode.github.io/v1alpha1", "1:1: kind: required; write kind: AlertRules"},
		head:                                    {"1:1: groups: required; write groups: [] for no rules"},
		"apiVersion: v1\nkind: Pod\ngroups: []": {`1:13: apiVersion: must be heraldnode.github.io/v1alpha1, not "v1"`, `2:7: kind: must be AlertRules, not "Pod"`},
		head + "groups: {}":                     {"3:9: groups: must be a list, not a mapping"},
		head + "group: []":                      {"3:1: group: unknown field; did you mean groups?"},
		head + "groups: [{rules: []}]":          {"3:10: groups[0].name: required"},
		head + "groups: [{name: a}, {name: a}]": {"3:28: groups[1].name: the group on line 3 has the same name"},
		head + "groups: []\n---\n" + head:       {"a rule file has one document"},
		head + rules + "  - {alert: X, on: pod, expr: pod.deleting}":               {"7:1: alert X has the name and labels of the rule on line 6"},
		head + "groups: []\ninhibit: [{source: ['x'], target: [a=b]}]":             {`4:21: inhibit[0].source[0]: matcher "x": want name, operator and value`},
		head + "groups: []\ninhibit: [{source: [a=b]}]":                            {"4:11: inhibit[0].target: required; write matchers"},
		head + "groups: []\ninhibit: [{source: [], target: [a=b]}]":                {"4:20: inhibit[0].source: needs at least one matcher"},
		head + "groups: []\ninhibit: [{source: [a=b], target: [a=b], equal: [x]}]": {"inhibit[0].equal: unknown field"},
		head + "groups: [<<: {}]":                                                  {"unknown field"},
		strings.Repeat("#", 1<<20+1):                                               {"x.yaml: has 1048577 bytes; at most 1048576 are allowed"},
	}
	for text, want := range tests {
		t.Run(text[:min(len(text), 200)], func(t *testing.T) { wantErrors(t, text, want) })
	}
}

// TestParse_AllErrors checks that errors are sorted, and that there is a limit.
func TestParse_AllErrors(t *testing.T) {
	_, err := rule.Parse([]byte("x: [\n"+strings.Repeat("a,\n", 3)+"]\n"), "")
	if err == nil || !strings.HasPrefix(err.Error(), "line 1, column 1: x: unknown field; the fields are apiVersion, kind, groups, inhibit\nline 1, column 1: apiVersion: required") {
		t.Errorf("got %v", err)
	}
	fields := valid
	for range 300 {
		fields += "a" + strings.Repeat("b", len(fields)%7) + ": x\n"
	}
	var errs rule.Errors
	if _, err := rule.Parse([]byte(inFile(fields)), "x.yaml"); !errors.As(err, &errs) || len(errs) != 101 {
		t.Fatalf("got %d errors", len(errs))
	}
	for i, e := range errs[:99] {
		if e.Line > errs[i+1].Line && i < 98 {
			t.Errorf("error %d is on line %d, the next on line %d", i, e.Line, errs[i+1].Line)
		}
	}
	var one *rule.Error
	if !errors.As(errs, &one) || one.Path != "x.yaml" {
		t.Errorf("got %v", one)
	}
}

func TestParse_Anchors(t *testing.T) {
	file, err := rule.Parse([]byte(`
apiVersion: heraldnode.github.io/v1alpha1
kind: AlertRules
groups:
- name: g
  rules:
  - {alert: A, on: pod, expr: pod.ready, labels: &labels {team: shop}}
  - {alert: B, on: pod, expr: pod.ready, labels: *labels}
`), "x.yaml")
	if err != nil || file.Rules[1].Labels["team"] != "shop" {
		t.Errorf("got %v, %v", file, err)
	}
}

func TestMerge(t *testing.T) {
	file := func(path string, rules ...string) *rule.File {
		t.Helper()
		parsed, err := rule.Parse([]byte("apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: g\n  rules:\n  - "+
			strings.Join(rules, "\n  - ")+"\ninhibit: [{source: [a=b], target: [c=d]}]\n"), path)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	own := file("a.yaml", "{alert: PodFailed, on: pod, expr: pod.ready}", "{alert: PodFailed, on: pod, expr: pod.ready, labels: {team: x}}",
		"{alert: Mine, on: pod, expr: pod.ready}")
	set, err := rule.Merge([]string{"NodePressure", "NoSuchRule"}, rule.Default(), own)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, r := range set.Rules {
		if names[r.Name]++; r.Name == "PodFailed" && r.File != "a.yaml" {
			t.Errorf("a default rule was not replaced")
		}
	}
	if names["PodFailed"] != 2 || names["Mine"] != 1 || names["NodePressure"] != 0 || names["PodNotReady"] != 1 {
		t.Errorf("got %v", names)
	}
	if want := len(rule.Default().Inhibit) + 1; len(set.Inhibit) != want {
		t.Errorf("got %d inhibitions, want %d", len(set.Inhibit), want)
	}
	if diff := cmp.Diff([]string{"NoSuchRule"}, set.UnusedDisable); diff != "" {
		t.Error(diff)
	}
	_, err = rule.Merge(nil, rule.Default(), own, file("b.yaml", "{alert: Mine, on: node, expr: node.ready}"))
	if err == nil || !strings.Contains(err.Error(), "b.yaml:6: alert Mine has the name and labels of the rule at a.yaml:8") {
		t.Errorf("got %v", err)
	}
}
