package remedy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Type is what an action does.
type Type string

// The types of actions.
const (
	Snapshot         Type = "snapshot"          // saves logs, history and state of the object
	Probe            Type = "probe"             // checks the probes once
	RestartContainer Type = "restart-container" // stops a container gracefully; its restart policy starts it again
	RestartPod       Type = "restart-pod"       // restarts all containers of a static pod, evicts a pod of the API server
	Cordon           Type = "cordon"            // makes the node unschedulable
	Webhook          Type = "webhook"           // tells a program of the operator
	Run              Type = "run"               // runs a program of the operator

	// Uncordon undoes Cordon. No policy has it: it happens when the alert is resolved or its rule is removed.
	Uncordon Type = "uncordon"
)

// Policy is an action of a rule and its limits. Zero fields mean the defaults of the type.
type Policy struct {
	Type Type
	// Enforce carries the action out. Otherwise everything happens but the deed.
	Enforce bool
	// Max is how often the action may be done for one object within Per.
	Max int
	Per time.Duration
	// CoolDown is the time between two of these actions for one object.
	CoolDown time.Duration
	// ResolvedWithin is how long after the action the alert must be resolved. After that, the action did not help.
	ResolvedWithin time.Duration
	// Pods names critical pods for which the action is allowed, as namespace/name.
	Pods []string
	// Target is the name of a webhook or a program of the agent's configuration.
	Target string
}

// MaxPeriod is the longest time that limits look back: older entries of the ledger are removed.
const MaxPeriod = 24 * time.Hour

// kind is what a type has in common for all policies.
type kind struct {
	max                     int
	per, coolDown, resolved time.Duration
	// disruptive actions change something. They are a dry-run by default, and the rules of Decide for the node apply to them.
	disruptive bool
	// repeats says that it is done again while the alert fires. Others are done once for each time that the alert fires.
	repeats bool
	// perPod actions are about the whole pod also if the alert is about a container.
	perPod bool
	// needsPod and needsContainer are what the alert must be about.
	needsPod, needsContainer bool
	hasTarget                bool
}

var kinds = map[Type]kind{
	Snapshot: {max: 1, per: 10 * time.Minute, perPod: true},
	Probe:    {max: 6, per: time.Hour, needsPod: true},
	RestartContainer: {
		max: 3, per: time.Hour, coolDown: 10 * time.Minute, resolved: 5 * time.Minute,
		disruptive: true, repeats: true, needsPod: true, needsContainer: true,
	},
	RestartPod: {
		max: 2, per: time.Hour, coolDown: 30 * time.Minute, resolved: 10 * time.Minute,
		disruptive: true, repeats: true, perPod: true, needsPod: true,
	},
	Cordon:  {max: 1, per: 6 * time.Hour, disruptive: true},
	Webhook: {max: 6, per: time.Hour, hasTarget: true},
	Run:     {max: 3, per: time.Hour, coolDown: 10 * time.Minute, disruptive: true, hasTarget: true},
}

// Types returns the types that a policy may have, in the order of their names.
func Types() []Type {
	types := make([]Type, 0, len(kinds))
	for t := range kinds {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// IsDisruptive reports whether the action changes something, so that it is a dry-run by default.
func (t Type) IsDisruptive() bool { return kinds[t].disruptive }

// Repeats reports whether the action is done again while the alert fires, within its limits. Others are done once for each time that the
// alert fires.
func (t Type) Repeats() bool { return kinds[t].repeats }

// HasTarget reports whether a policy of this type names a webhook or a program.
func (t Type) HasTarget() bool { return kinds[t].hasTarget }

// Default returns the policy of a type without any settings.
func Default(t Type) Policy { return Policy{Type: t, Enforce: !t.IsDisruptive()}.WithDefaults() }

// WithDefaults returns the policy with all limits set. Enforce stays as it is.
func (p Policy) WithDefaults() Policy {
	k := kinds[p.Type]
	if p.Max == 0 {
		p.Max = k.max
	}
	if p.Per == 0 {
		p.Per = k.per
	}
	if p.CoolDown == 0 {
		p.CoolDown = k.coolDown
	}
	if p.ResolvedWithin == 0 {
		p.ResolvedWithin = k.resolved
	}
	return p
}

// Validate returns what is wrong with the policy of a file, or nil. Decide refuses policies that are wrong.
func (p Policy) Validate() error {
	k, known := kinds[p.Type]
	switch {
	case !known:
		return fmt.Errorf("type %q is unknown: want one of %s", p.Type, join(Types()))
	case p.Max < 0 || p.Per < 0 || p.CoolDown < 0 || p.ResolvedWithin < 0:
		return fmt.Errorf("limits of %s must not be negative", p.Type)
	case p.Per > MaxPeriod || p.CoolDown > MaxPeriod || p.ResolvedWithin > MaxPeriod:
		return fmt.Errorf("durations of %s must be at most %s", p.Type, MaxPeriod)
	case p.Max > maxEntries:
		return fmt.Errorf("max of %s must be at most %d", p.Type, maxEntries)
	case k.hasTarget && p.Target == "":
		return fmt.Errorf("%s needs the name of a target in the agent's configuration", p.Type)
	case !k.hasTarget && p.Target != "":
		return fmt.Errorf("%s has no target", p.Type)
	}
	for _, pod := range p.Pods {
		namespace, name, found := strings.Cut(pod, "/")
		if !found || namespace == "" || name == "" || strings.ContainsAny(pod, "*? ") || strings.Contains(name, "/") {
			return fmt.Errorf("pod %q must be namespace/name, without patterns", pod)
		}
	}
	return nil
}

// CanActOn reports whether alerts about the node, about pods, or about containers are enough for the type.
func (t Type) CanActOn(o Object) bool {
	k := kinds[t]
	return (!k.needsPod || o.Pod != "") && (!k.needsContainer || o.Container != "")
}

// String describes the policy: "restart-container, enforce, 3 per 1h, cool-down 10m".
func (p Policy) String() string {
	p = p.WithDefaults()
	mode := "dry-run"
	if p.Enforce {
		mode = "enforce"
	}
	text := fmt.Sprintf("%s, %s, %d per %s", p.Type, mode, p.Max, short(p.Per))
	if p.Target != "" {
		text += ", target " + p.Target
	}
	if p.CoolDown > 0 {
		text += ", cool-down " + short(p.CoolDown)
	}
	if p.ResolvedWithin > 0 {
		text += ", resolved within " + short(p.ResolvedWithin)
	}
	return text
}

// short prints a duration without units that are zero: 1h, 1h30m, 90s as 1m30s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func join(types []Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
