package rule

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/view"
)

// Kind is the kind of a rule file. Its apiVersion is view.APIVersion.
const Kind = "AlertRules"

// Bounds of a rule file.
const (
	maxRules    = 1000
	maxDuration = 30 * 24 * time.Hour
	maxLabel    = 1024 // bytes of a label's value
	maxTemplate = 4096 // bytes of an annotation
)

// Parse parses a rule file. The path appears in errors; it is empty for the default rules. The error is an Errors with all that is wrong.
func Parse(data []byte, path string) (*File, error) {
	d, root := newDecoder(data, path)
	file := &File{Path: path}
	if root.node != nil {
		(&parser{decoder: d, file: file}).parseFile(root)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return file, nil
}

// parser fills a file.
type parser struct {
	*decoder
	file  *File
	rules int
}

func (p *parser) parseFile(root value) {
	fields := p.mapping(root, "apiVersion", "kind", "groups", "inhibit")
	p.constant(root, fields, "apiVersion", view.APIVersion)
	p.constant(root, fields, "kind", Kind)
	groups, hasGroups := fields["groups"]
	inhibit, hasInhibit := fields["inhibit"]
	if !hasGroups && !hasInhibit {
		p.required(root, "groups", "write groups: [] for no rules")
	}
	names := map[string]int{}
	if hasGroups {
		for _, group := range p.sequence(groups) {
			p.parseGroup(group, names)
		}
	}
	if hasInhibit {
		for _, item := range p.sequence(inhibit) {
			p.parseInhibition(item)
		}
	}
	seen := map[string]*Rule{}
	for _, r := range p.file.Rules {
		if other := seen[r.ID()]; other != nil {
			p.add(r.Text.Line, 1, "", fmt.Sprintf("alert %s has the name and labels of the rule on line %d; rename one of them or change a label",
				r.Name, other.Text.Line))
			continue
		}
		seen[r.ID()] = r
	}
}

// constant checks a field that has only one possible value.
func (p *parser) constant(v value, fields map[string]value, name, want string) {
	at, found := fields[name]
	if !found {
		p.required(v, name, fmt.Sprintf("write %s: %s", name, want))
		return
	}
	if text, ok := p.text(at); ok && text != want {
		p.addf(at, "must be %s, not %q", want, text)
	}
}

// required adds an error about a field that is absent.
func (p *parser) required(v value, name, remedy string) {
	p.addf(value{v.node, strings.TrimPrefix(v.field+"."+name, ".")}, "required; %s", remedy)
}

func (p *parser) parseGroup(v value, names map[string]int) {
	fields := p.mapping(v, "name", "rules")
	name := ""
	if at, found := fields["name"]; found {
		name, _ = p.text(at)
		if line, isTwice := names[name]; isTwice {
			p.addf(at, "the group on line %d has the same name; rename one of them", line)
		}
		names[name] = at.node.Line
	} else if v.node.Kind != 0 && len(fields) > 0 {
		p.required(v, "name", "give the group a name")
	}
	rules, found := fields["rules"]
	if !found {
		return
	}
	for _, item := range p.sequence(rules) {
		if p.rules++; p.rules > maxRules {
			if p.rules == maxRules+1 {
				p.addf(item, "a file has at most %d rules; split it", maxRules)
			}
			return
		}
		if r := p.parseRule(item, name); r != nil {
			p.file.Rules = append(p.file.Rules, r)
		}
	}
}

func (p *parser) parseInhibition(v value) {
	fields := p.mapping(v, "source", "target")
	read := func(name string) []alert.Matcher {
		at, found := fields[name]
		if !found {
			p.required(v, name, `write matchers like [alertname="NodeRuntimeDown"]`)
			return nil
		}
		var matchers []alert.Matcher
		for _, item := range p.sequence(at) {
			text, ok := p.text(item)
			if !ok {
				continue
			}
			matcher, err := alert.ParseMatcher(text)
			if err != nil {
				p.addf(item, "%v", err)
			}
			matchers = append(matchers, matcher)
		}
		if len(matchers) == 0 && at.node.Kind != 0 {
			p.addf(at, `needs at least one matcher, like alertname="NodeRuntimeDown"`)
		}
		return matchers
	}
	p.file.Inhibit = append(p.file.Inhibit, Inhibition{Source: read("source"), Target: read("target")})
}

// parseRule returns a rule, or nil if something is wrong with it.
func (p *parser) parseRule(v value, group string) *Rule {
	before := len(p.errs) + p.dropped
	fields := p.mapping(v, "alert", "on", "expr", "value", "for", "keep_firing_for", "labels", "annotations", "condition", "actions")
	if v.node.Kind == 0 || len(p.errs)+p.dropped > before && len(fields) == 0 {
		return nil
	}
	r := &Rule{Group: group, File: p.file.Path, Text: Text{Line: v.node.Line}}
	r.Name = p.parseName(v, fields)
	r.Scope = p.parseScope(v, fields)
	r.For, r.KeepFiring = p.duration(fields, "for"), p.duration(fields, "keep_firing_for")
	r.Labels = p.parseLabels(fields)
	if r.Scope != "" {
		p.parseExpressions(v, fields, r)
		r.Condition = p.parseCondition(fields, r.Scope)
		p.parseActions(fields, r)
	}
	if len(p.errs)+p.dropped > before {
		return nil
	}
	p.parseAnnotations(fields, r) // they are executed with the facts of the rule
	if len(p.errs)+p.dropped > before {
		return nil
	}
	return r
}

var (
	alertName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

func (p *parser) parseName(v value, fields map[string]value) string {
	at, found := fields["alert"]
	if !found {
		p.required(v, "alert", "give the alert a name, like PodNotReady")
		return ""
	}
	name, ok := p.text(at)
	if ok && (!alertName.MatchString(name) || len(name) > 128) {
		p.addf(at, "%q is no name; use up to 128 letters, digits and _, and start with a letter", name)
	}
	return name
}

func (p *parser) parseScope(v value, fields map[string]value) Scope {
	at, found := fields["on"]
	if !found {
		p.required(v, "on", "write on: node, on: pod or on: container; the rule has one alert for each of them")
		return ""
	}
	text, ok := p.text(at)
	if !ok {
		return ""
	}
	if scope := Scope(text); scope == Node || scope == Pod || scope == Container {
		return scope
	}
	p.addf(at, "must be node, pod or container, not %q", text)
	return ""
}

func (p *parser) duration(fields map[string]value, name string) time.Duration {
	at, found := fields[name]
	if !found {
		return 0
	}
	text, ok := p.text(at)
	if !ok {
		return 0
	}
	duration, err := expression.ParseDuration(text)
	switch {
	case err != nil:
		p.addf(at, "%v", err)
	case duration > maxDuration:
		p.addf(at, "%s is too long; at most %s", text, formatDuration(maxDuration))
	}
	return duration
}

// formatDuration returns a duration as Prometheus writes it, with at most two units.
func formatDuration(d time.Duration) string {
	text := ""
	for _, unit := range [...]struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := d / unit.length; n > 0 {
			text += fmt.Sprintf("%d%s", n, unit.name)
			d -= n * unit.length
		}
	}
	return text
}

// reserved are the labels that the agent adds.
var reserved = []string{
	alert.LabelName, alert.LabelJob, alert.LabelInstance, alert.LabelNode, alert.LabelNamespace, alert.LabelPod, alert.LabelContainer,
	alert.LabelScope,
}

func (p *parser) parseLabels(fields map[string]value) alert.Labels {
	at, found := fields["labels"]
	if !found {
		return nil
	}
	labels := alert.Labels{}
	for _, entry := range p.entries(at) {
		text, ok := p.text(entry.value)
		switch {
		case !ok:
		case slices.Contains(reserved, entry.key):
			p.addf(entry.value, "the agent sets this label; use another name")
		case !labelName.MatchString(entry.key) || strings.HasPrefix(entry.key, "__"):
			p.addf(entry.value, "%q is no label name; use letters, digits and _, and start with a letter", entry.key)
		case text == "" || len(text) > maxLabel:
			p.addf(entry.value, "a label has 1 to %d bytes; remove it or shorten it", maxLabel)
		case strings.Contains(text, "{{"):
			p.addf(entry.value, "labels are no templates, because they identify the alert; write it as an annotation")
		default:
			labels[entry.key] = text
		}
	}
	return labels
}

var environments = map[Scope]func() *expression.RuleEnvironment{
	Node:      sync.OnceValue(func() *expression.RuleEnvironment { return newEnvironment(expression.NodeScope) }),
	Pod:       sync.OnceValue(func() *expression.RuleEnvironment { return newEnvironment(expression.PodScope) }),
	Container: sync.OnceValue(func() *expression.RuleEnvironment { return newEnvironment(expression.ContainerScope) }),
}

func newEnvironment(scope expression.Scope) *expression.RuleEnvironment {
	environment, err := expression.NewRuleEnvironment(scope)
	if err != nil {
		panic(err) // it does not depend on any input
	}
	return environment
}

// parseExpressions compiles the expression and the value of a rule.
func (p *parser) parseExpressions(v value, fields map[string]value, r *Rule) {
	at, found := fields["expr"]
	if !found {
		p.required(v, "expr", "write a CEL expression that is true while the alert is active")
	} else if r.compiled.expr = p.expression(at, r.Scope, expression.Bool); r.compiled.expr != nil {
		reads := r.compiled.expr.Reads()
		r.Text.Expr, r.MaxCost, r.Triggers = at.node.Value, r.compiled.expr.MaxCost(), triggersOf(reads, r.Scope)
		r.compiled.readsContainers = r.Scope == Container || reads&expression.ReadsContainer != 0
	}
	if at, found := fields["value"]; found {
		if r.compiled.value = p.expression(at, r.Scope, expression.Number); r.compiled.value != nil {
			r.Text.Value = at.node.Value
			r.MaxCost += r.compiled.value.MaxCost()
		}
	}
}

// expression compiles an expression. It returns nil if there is an error.
func (p *parser) expression(at value, scope Scope, result expression.Result) *expression.RuleExpression {
	text, ok := p.text(at)
	if !ok {
		return nil
	}
	compiled, problems := environments[scope]().Compile(text, result)
	for _, problem := range problems {
		line, column := p.locate(at.node, problem.Line, problem.Column)
		p.add(line, column, at.field, problem.Message)
	}
	if len(problems) > 0 {
		return nil
	}
	return compiled
}

// ownConditions are the conditions that the agent itself reports.
var ownConditions = []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}

var conditionName = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9])?$`)

func (p *parser) parseCondition(fields map[string]value, scope Scope) *alert.Condition {
	at, found := fields["condition"]
	if !found {
		return nil
	}
	if scope != Node {
		p.addf(at, "a condition is one of the Node: only a rule with on: node can have one; remove it")
		return nil
	}
	condition := p.mapping(at, "type", "reason")
	read := func(name string) string {
		field, found := condition[name]
		if !found {
			p.required(at, name, "write a name like ReadonlyFilesystem")
			return ""
		}
		text, ok := p.text(field)
		switch {
		case !ok:
		case name == "type" && slices.Contains(ownConditions, text):
			p.addf(field, "the agent itself reports the condition %s; use another type", text)
		case !conditionName.MatchString(text):
			p.addf(field, "%q is no name; write one like ReadonlyFilesystem", text)
		}
		return text
	}
	return &alert.Condition{Type: read("type"), Reason: read("reason")}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
