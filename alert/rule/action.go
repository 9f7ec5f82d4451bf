package rule

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/remedy"
)

// actionScopes has the scopes of the rules that can have an action.
var actionScopes = map[remedy.Type][]Scope{
	remedy.Snapshot: {Node, Pod, Container}, remedy.Probe: {Pod, Container}, remedy.RestartContainer: {Container},
	remedy.RestartPod: {Pod, Container}, remedy.Cordon: {Node}, remedy.Webhook: {Node, Pod, Container}, remedy.Run: {Node, Pod, Container},
}

const maxActions = 8

func (p *parser) parseActions(fields map[string]value, r *Rule) {
	at, found := fields["actions"]
	if !found {
		return
	}
	items := p.sequence(at)
	if len(items) > maxActions {
		p.addf(at, "has %d actions; at most %d", len(items), maxActions)
		return
	}
	for _, item := range items {
		action, onlyIf := p.parseAction(item, r.Scope)
		if onlyIf != nil {
			r.MaxCost += onlyIf.MaxCost()
		}
		r.Actions = append(r.Actions, action)
		r.compiled.onlyIf = append(r.compiled.onlyIf, onlyIf)
	}
}

func (p *parser) parseAction(v value, scope Scope) (Action, *expression.RuleExpression) {
	fields := p.mapping(v, "type", "mode", "only_if", "max", "cool_down", "expect", "pods", "target")
	action := Action{Policy: remedy.Policy{Type: p.parseType(v, fields, scope), CoolDown: p.duration(fields, "cool_down")}}
	action.Enforce = p.parseMode(fields, action.Type)
	if at, found := fields["max"]; found {
		action.Max, action.Per = p.parseMax(at)
	}
	if at, found := fields["expect"]; found {
		expect := p.mapping(at, "resolved_within")
		if action.ResolvedWithin = p.duration(expect, "resolved_within"); len(expect) == 0 {
			p.required(at, "resolved_within", "write a duration like 5m")
		}
	}
	for field, duration := range map[string]time.Duration{"cool_down": action.CoolDown, "expect": action.ResolvedWithin} {
		if duration > remedy.MaxPeriod {
			p.addf(fields[field], "%s is too long; at most %s", formatDuration(duration), formatDuration(remedy.MaxPeriod))
		}
	}
	if at, found := fields["pods"]; found {
		action.Pods = p.parsePods(at)
	}
	action.Target = p.parseTarget(v, fields, action.Type)
	at, found := fields["only_if"]
	if !found {
		return action, nil
	}
	onlyIf := p.expression(at, scope, expression.Bool)
	action.OnlyIf = at.node.Value
	return action, onlyIf
}

func (p *parser) parseType(v value, fields map[string]value, scope Scope) remedy.Type {
	at, found := fields["type"]
	if !found {
		p.required(v, "type", "write one of "+strings.Join(actionTypes(), ", "))
		return ""
	}
	text, ok := p.text(at)
	if !ok {
		return ""
	}
	actionType := remedy.Type(text)
	switch scopes, isKnown := actionScopes[actionType]; {
	case text == "condition":
		p.addf(at, "a condition is no action; write condition: {type, reason} beside actions")
	case !isKnown:
		p.addf(at, "unknown action %q; the actions are %s", text, strings.Join(actionTypes(), ", "))
	case !slices.Contains(scopes, scope):
		names := make([]string, len(scopes))
		for i, s := range scopes {
			names[i] = "on: " + string(s)
		}
		p.addf(at, "%s needs a rule with %s, not on: %s", text, strings.Join(names, " or "), scope)
	}
	return actionType
}

func actionTypes() []string {
	names := make([]string, 0, len(actionScopes))
	for name := range actionScopes {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// parseMode reports whether the action is enforced. By default only those are that change nothing.
func (p *parser) parseMode(fields map[string]value, actionType remedy.Type) bool {
	at, found := fields["mode"]
	if !found {
		return !actionType.IsDisruptive()
	}
	text, ok := p.text(at)
	if ok && text != "dry-run" && text != "enforce" {
		p.addf(at, "must be dry-run or enforce, not %q", text)
	}
	return text == "enforce"
}

var limit = regexp.MustCompile(`^([0-9]{1,4}) per ([0-9a-z]+)$`)

// parseMax parses "3 per 1h".
func (p *parser) parseMax(v value) (count int, per time.Duration) {
	text, ok := p.text(v)
	if !ok {
		return 0, 0
	}
	match := limit.FindStringSubmatch(text)
	if match == nil {
		p.addf(v, "%q is no limit; write one like 3 per 1h", text)
		return 0, 0
	}
	count, _ = strconv.Atoi(match[1])
	per, err := expression.ParseDuration(match[2])
	switch {
	case err != nil:
		p.addf(v, "%v", err)
	case count == 0 || per <= 0:
		p.addf(v, "a limit must allow something; remove the action instead")
	case per > remedy.MaxPeriod:
		p.addf(v, "%s is too long; at most %s", match[2], formatDuration(remedy.MaxPeriod))
	}
	return count, per
}

func (p *parser) parsePods(v value) []string {
	var pods []string
	for _, item := range p.sequence(v) {
		text, ok := p.text(item)
		if !ok {
			continue
		}
		if namespace, name, found := strings.Cut(text, "/"); !found || namespace == "" || name == "" || strings.ContainsAny(text, "* ") ||
			strings.Contains(name, "/") {
			p.addf(item, "%q names no pod; write namespace/name, without wildcards", text)
			continue
		}
		pods = append(pods, text)
	}
	return pods
}

func (p *parser) parseTarget(v value, fields map[string]value, actionType remedy.Type) string {
	needsTarget := actionType == remedy.Webhook || actionType == remedy.Run
	at, found := fields["target"]
	switch {
	case !found && needsTarget:
		p.required(v, "target", "write the name of the webhook or program of the agent's configuration")
		return ""
	case !found:
		return ""
	case !needsTarget:
		p.addf(at, "only webhook and run have a target; remove it")
		return ""
	}
	text, ok := p.text(at)
	if ok && text == "" {
		p.addf(at, "write the name of the webhook or program of the agent's configuration")
	}
	return text
}
