package remedy

import (
	"fmt"
	"time"
)

// Verdict is an answer of Decide.
type Verdict string

// The answers.
const (
	Do     Verdict = "do"
	DryRun Verdict = "dry-run" // write it down, but do nothing
	Refuse Verdict = "refuse"
)

// Reason is why an action is refused.
type Reason string

// The reasons.
const (
	ReasonPolicy     Reason = "Policy"        // the policy is not valid
	ReasonObject     Reason = "Object"        // the alert is about an object that the action is not for
	ReasonMuted      Reason = "Muted"         // a silence or another alert mutes the alert
	ReasonCondition  Reason = "OnlyIf"        // the policy's own expression is not true
	ReasonGone       Reason = "Gone"          // the node does not have the pod or container
	ReasonOptedOut   Reason = "OptedOut"      // the annotation of the pod
	ReasonProtected  Reason = "Protected"     // a critical pod that is not named
	ReasonState      Reason = "State"         // the state of the pod or container forbids it, or makes it useless
	ReasonYoung      Reason = "Young"         // the pod or container was started a moment ago
	ReasonStarting   Reason = "AgentStarting" // the agent was started a moment ago
	ReasonUnknown    Reason = "Unknown"       // a fact is not known
	ReasonSuspended  Reason = "Suspended"     // too many pods fail at once
	ReasonExhausted  Reason = "Exhausted"     // it did not help twice in a row
	ReasonSettling   Reason = "Settling"      // the alert fired a moment ago
	ReasonLimit      Reason = "Limit"         // it was done too often
	ReasonCoolDown   Reason = "CoolDown"      // it was done a short time ago
	ReasonBusy       Reason = "Busy"          // another disruptive action is under way
	ReasonNodeLimit  Reason = "NodeLimit"     // too many pods of the node were acted upon, or too many snapshots taken
	ReasonLedgerFull Reason = "LedgerFull"    // there is no room to write it down
)

// Decision is what Decide answers.
type Decision struct {
	Verdict Verdict
	// Reason and Message say why it is refused.
	Reason  Reason
	Message string
	// Until is when the answer may be another one by time alone; zero if that is not known.
	Until time.Time
}

const (
	// settle is the time between the alert and a disruptive action, so that what fails together is seen.
	settle = 30 * time.Second
	// startup is the time at the beginning of a run without disruptive actions.
	startup = 2 * time.Minute
	// nodePeriod is the time in which at most a tenth of the node's pods is acted upon.
	nodePeriod = 10 * time.Minute
	nodeShare  = 10
	// nodeSnapshots is how many snapshots of pods, or of the node, are taken in nodePeriod: pods that fail together fail alike.
	nodeSnapshots = 10
)

// Decide decides about an action. The ledger has what was done before.
//
// No policy can lift these rules:
//   - A pod with the annotation OptOutAnnotation is not acted upon. Neither is an object whose alert is muted.
//   - A critical pod and a static pod of kube-system is acted upon disruptively only if Policy.Pods names it.
//   - Disruptive actions happen one at a time, at least 30 s after the alert fired and 2 min after the start of the agent, to at most a
//     tenth of the node's pods (at least one) in 10 min, not while the runtime is not observed, and not while the breaker suspends them.
//   - At most 10 snapshots of pods are taken in 10 min, and as many of the node.
//   - An action that did not help an object twice in a row is off for it for 24 h.
//   - Each type has states of the object in which it is refused.
//
// Limits of a dry-run count dry-runs and deeds, those of a deed count only deeds: a dry-run never prevents a deed.
func Decide(p Policy, l *Ledger, f Facts, now time.Time) Decision {
	if err := p.Validate(); err != nil {
		return refuse(ReasonPolicy, time.Time{}, "%v", err)
	}
	p = p.WithDefaults()
	for _, check := range []func(*Policy, *Ledger, *Facts, time.Time) *Decision{
		checkObject, checkProtection, checkKnowledge, checkState, checkSuspension, checkTime, checkLimits, checkNode,
	} {
		if refusal := check(&p, l, &f, now); refusal != nil {
			return *refusal
		}
	}
	if !p.Enforce {
		return Decision{Verdict: DryRun}
	}
	return Decision{Verdict: Do}
}

func refuse(reason Reason, until time.Time, format string, args ...any) Decision {
	return Decision{Verdict: Refuse, Reason: reason, Message: fmt.Sprintf(format, args...), Until: until}
}

// never returns a refusal that time does not change.
func never(reason Reason, format string, args ...any) *Decision {
	decision := refuse(reason, time.Time{}, format, args...)
	return &decision
}

// later returns a refusal that may change at an instant.
func later(reason Reason, until time.Time, format string, args ...any) *Decision {
	decision := refuse(reason, until, format, args...)
	return &decision
}

func checkObject(p *Policy, _ *Ledger, f *Facts, _ time.Time) *Decision {
	switch {
	case !p.Type.CanActOn(f.Object):
		return never(ReasonObject, "%s is not possible for an alert about %s", p.Type, f.Object)
	case f.Muted:
		return never(ReasonMuted, "the alert is muted")
	case f.Object.Pod != "" && f.Pod == nil:
		return never(ReasonGone, "the node does not have pod %s/%s", f.Object.Namespace, f.Object.Pod)
	case f.Object.Container != "" && f.Pod.Container == nil:
		return never(ReasonGone, "pod %s/%s has no container %s", f.Object.Namespace, f.Object.Pod, f.Object.Container)
	case !f.OnlyIf:
		return never(ReasonCondition, "%s", f.NotAllowed)
	default:
		return nil
	}
}

func checkProtection(p *Policy, _ *Ledger, f *Facts, _ time.Time) *Decision {
	switch {
	case f.Pod == nil:
		return nil
	case f.Pod.OptedOut:
		return never(ReasonOptedOut, "the pod has the annotation %s: %s", OptOutAnnotation, OptOutNever)
	case p.Type.IsDisruptive() && f.isProtected() && !f.isNamed(p):
		return never(ReasonProtected, "critical pods and static pods of %s must be named in pods: [%s/%s]",
			systemNamespace, f.Object.Namespace, f.Object.Pod)
	default:
		return nil
	}
}

func checkKnowledge(p *Policy, _ *Ledger, f *Facts, now time.Time) *Decision {
	switch {
	case !p.Type.IsDisruptive():
		return nil
	case f.Node.RuntimeUnknown:
		return never(ReasonUnknown, "the container runtime is not observed")
	case f.Node.StartedAt.IsZero() || f.FiredAt.IsZero():
		return never(ReasonUnknown, "when the agent was started, or the alert fired, is not known")
	case now.Before(f.Node.StartedAt.Add(startup)):
		return later(ReasonStarting, f.Node.StartedAt.Add(startup), "the agent was started less than %s ago", short(startup))
	case f.Pod != nil && f.Pod.StartedAt.IsZero():
		return never(ReasonUnknown, "when the pod was started is not known")
	default:
		return nil
	}
}

// checkState applies the rules of each type.
func checkState(p *Policy, _ *Ledger, f *Facts, now time.Time) *Decision {
	switch p.Type {
	case Probe:
		if f.Pod.Terminating || f.Pod.Container != nil && !f.Pod.Container.Running {
			return never(ReasonState, "it is not running")
		}
	case RestartContainer:
		return checkRestartContainer(f, now)
	case RestartPod:
		return checkRestartPod(f, now)
	}
	return nil
}

func checkRestartContainer(f *Facts, now time.Time) *Decision {
	pod, container := f.Pod, f.Pod.Container
	switch {
	case pod.RestartPolicy == "" || pod.RestartPolicy == "Never":
		return never(ReasonState, "restartPolicy is Never: it would not start again")
	case pod.OwnerKind == "Job":
		return never(ReasonState, "the pod belongs to a Job, which counts its failures itself")
	case container.Kind == "init" || container.Kind == "ephemeral" || container.Kind == "":
		return never(ReasonState, "%s containers run once", container.Kind)
	case pod.Terminating:
		return never(ReasonState, "the pod is terminating or has ended")
	case !container.Running:
		return never(ReasonState, "the container is not running: its restart policy starts it")
	case container.StartedAt.IsZero():
		return never(ReasonUnknown, "when the container was started is not known")
	default:
		return checkAge(f, now, pod.StartedAt, container.StartedAt)
	}
}

func checkRestartPod(f *Facts, now time.Time) *Decision {
	pod := f.Pod
	switch {
	case pod.OwnerKind == "Job":
		return never(ReasonState, "the pod belongs to a Job, which counts its failures itself")
	case !pod.Static && pod.OwnerKind == "":
		return never(ReasonState, "the pod has no controller: nobody would create it again")
	case pod.Static && (pod.RestartPolicy == "" || pod.RestartPolicy == "Never"):
		return never(ReasonState, "restartPolicy is Never: its containers would not start again")
	case pod.Terminating:
		return never(ReasonState, "the pod is terminating or has ended")
	default:
		return checkAge(f, now, pod.StartedAt)
	}
}

// checkAge refuses what was started a moment ago.
func checkAge(f *Facts, now time.Time, starts ...time.Time) *Decision {
	for _, start := range starts {
		if until := start.Add(minAge); now.Before(until) {
			return later(ReasonYoung, until, "%s was started less than %s ago", f.Object, short(minAge))
		}
	}
	return nil
}

func checkSuspension(p *Policy, l *Ledger, f *Facts, now time.Time) *Decision {
	if p.Type.IsDisruptive() && f.Breaker != "" {
		return later(ReasonSuspended, f.SuspendedUntil, "%s", f.Breaker)
	}
	if until := l.exhausted(p.Type, p.Target, p.Type.Subject(f.Object), now); !until.IsZero() {
		return later(ReasonExhausted, until, "it did not help twice in a row")
	}
	return nil
}

func checkTime(p *Policy, _ *Ledger, f *Facts, now time.Time) *Decision {
	if until := f.FiredAt.Add(settle); p.Type.IsDisruptive() && now.Before(until) {
		return later(ReasonSettling, until, "the alert fired less than %s ago", short(settle))
	}
	return nil
}

func checkLimits(p *Policy, l *Ledger, f *Facts, now time.Time) *Decision {
	done := l.times(!p.Enforce, p.Type, p.Target, p.Type.Subject(f.Object), now)
	if len(done) > 0 {
		if until := done[len(done)-1].Add(p.CoolDown); now.Before(until) {
			return later(ReasonCoolDown, until, "it was done less than %s ago", short(p.CoolDown))
		}
	}
	if len(done) >= p.Max {
		if until := done[len(done)-p.Max].Add(p.Per); now.Before(until) {
			return later(ReasonLimit, until, "it was done %d times within %s", p.Max, short(p.Per))
		}
	}
	return nil
}

// checkNode applies the limits of all actions together.
func checkNode(p *Policy, l *Ledger, f *Facts, now time.Time) *Decision {
	if until := l.fullUntil(p.Type.IsDisruptive(), now); !until.IsZero() {
		return later(ReasonLedgerFull, until, "%d actions were written down within %s", maxEntries, short(MaxPeriod))
	}
	if p.Type == Snapshot {
		return checkSnapshots(p, l, f, now)
	}
	if !p.Type.IsDisruptive() {
		return nil
	}
	if running := l.running(!p.Enforce); running != nil {
		return never(ReasonBusy, "%s of %s is under way", running.Type, running.Object)
	}
	if f.Object.Pod == "" {
		return nil
	}
	share := max(1, f.Node.Pods/nodeShare)
	if acted := l.podTimes(!p.Enforce, now, nodePeriod); len(acted) >= share {
		return later(ReasonNodeLimit, acted[len(acted)-share].Add(nodePeriod),
			"%d of %d pods were acted upon within %s", len(acted), f.Node.Pods, short(nodePeriod))
	}
	return nil
}

// checkSnapshots limits the snapshots of all pods together.
func checkSnapshots(p *Policy, l *Ledger, f *Facts, now time.Time) *Decision {
	taken := l.snapshotTimes(!p.Enforce, f.Object.Pod != "", now, nodePeriod)
	if len(taken) < nodeSnapshots {
		return nil
	}
	return later(ReasonNodeLimit, taken[len(taken)-nodeSnapshots].Add(nodePeriod),
		"%d snapshots were taken within %s", len(taken), short(nodePeriod))
}
