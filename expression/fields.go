package expression

import (
	"slices"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// field is a field of a type of the environment. get returns a value of its type, or unknown; never nil.
type field[T target] struct {
	Name string
	Type *cel.Type
	get  func(T) ref.Val
}

// criticalPriority is the lowest priority of the classes system-node-critical and system-cluster-critical.
const criticalPriority = 2_000_000_000

var podFields = []field[*pod]{
	{"name", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Metadata.Name) }},
	{"namespace", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Metadata.Namespace) }},
	{"uid", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Metadata.UID) }},
	{"static", cel.BoolType, func(p *pod) ref.Val { return types.Bool(p.view.Spec.Static) }},
	{"source", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Source) }},
	{"owner_kind", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Metadata.OwnerKind) }},
	{"priority", cel.IntType, func(p *pod) ref.Val { return types.Int(p.view.Spec.Priority) }},
	{"critical", cel.BoolType, func(p *pod) ref.Val { return types.Bool(p.view.Spec.Priority >= criticalPriority) }},
	{"host_network", cel.BoolType, func(p *pod) ref.Val { return types.Bool(p.view.Spec.HostNetwork) }},
	{"phase", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Local.Status.Phase) }},
	{"reason", cel.StringType, func(p *pod) ref.Val { return types.String(cut(p.view.Local.Status.Reason)) }},
	{"ready", cel.BoolType, func(p *pod) ref.Val { return types.Bool(p.view.IsReady()) }},
	{"ip", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Local.Status.PodIP) }},
	{"restarts", cel.IntType, func(p *pod) ref.Val { return types.Int(p.restarts()) }},
	{"deleting", cel.BoolType, func(p *pod) ref.Val { return types.Bool(p.view.Metadata.DeletionTimestamp != nil) }},
	{"overdue", cel.BoolType, (*pod).overdue},
	{"stage", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Worker.Stage) }},
	{"trouble", cel.StringType, func(p *pod) ref.Val { return types.String(cut(p.view.Worker.Trouble)) }},
	{"sync", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Lag.State) }},
	{"behind", cel.IntType, func(p *pod) ref.Val { return types.Int(p.view.Lag.Behind) }},
	{"refused", cel.BoolType, func(p *pod) ref.Val { return types.Bool(p.view.Lag.State == explain.SyncRefused) }},
	{"ok", cel.BoolType, func(p *pod) ref.Val { return types.Bool(p.view.Why.OK) }},
	{"why", cel.StringType, func(p *pod) ref.Val { return types.String(p.view.Why.Code) }},
	{"containers", cel.ListType(containerType), (*pod).containers},
	{"load", usageType, (*pod).load},
}

var containerFields = []field[*container]{
	{"name", cel.StringType, func(c *container) ref.Val { return types.String(c.spec.Name) }},
	{"kind", cel.StringType, func(c *container) ref.Val { return types.String(c.spec.Kind) }},
	{"image", cel.StringType, func(c *container) ref.Val { return types.String(cut(c.spec.Image)) }},
	{"state", cel.StringType, func(c *container) ref.Val { return types.String(c.state().name) }},
	{"reason", cel.StringType, func(c *container) ref.Val { return types.String(cut(c.state().reason)) }},
	{"message", cel.StringType, func(c *container) ref.Val { return types.String(cut(c.state().message)) }},
	{"exit_code", cel.IntType, func(c *container) ref.Val { return types.Int(c.state().exitCode) }},
	{"ready", cel.BoolType, func(c *container) ref.Val { return types.Bool(c.status.Ready) }},
	{"started", cel.BoolType, func(c *container) ref.Val { return types.Bool(c.status.Started != nil && *c.status.Started) }},
	{"restarts", cel.IntType, func(c *container) ref.Val { return types.Int(c.status.RestartCount) }},
	{"last_reason", cel.StringType, func(c *container) ref.Val { return types.String(cut(c.lastState().reason)) }},
	{"last_exit_code", cel.IntType, func(c *container) ref.Val { return types.Int(c.lastState().exitCode) }},
	{"probe_failing", cel.BoolType, func(c *container) ref.Val {
		return types.Bool(c.anyProbe(func(p *view.Probe) bool { return p.Verdict == explain.Failing }))
	}},
	{"probe_erroring", cel.BoolType, func(c *container) ref.Val {
		return types.Bool(c.anyProbe(func(p *view.Probe) bool { return p.Errors > 0 }))
	}},
	{"probe_streak", cel.IntType, func(c *container) ref.Val { return types.Int(c.failureStreak()) }},
	{"load", usageType, (*container).load},
}

var nodeFields = []field[*node]{
	{"name", cel.StringType, func(n *node) ref.Val { return types.String(n.view.Metadata.Name) }},
	{"ready", cel.BoolType, func(n *node) ref.Val { return types.Bool(nodeCondition(n.view, v1.NodeReady)) }},
	{"unschedulable", cel.BoolType, func(n *node) ref.Val { return types.Bool(n.view.Spec.Unschedulable) }},
	{"runtime_ready", cel.BoolType, func(n *node) ref.Val { return types.Bool(n.view.Runtime.Problem == "") }},
	{"network_ready", cel.BoolType, func(n *node) ref.Val { return types.Bool(n.view.Runtime.Network == "") }},
	{"pods", cel.IntType, func(n *node) ref.Val { return types.Int(n.view.Pods.Total) }},
	{"max_pods", cel.IntType, func(n *node) ref.Val { return types.Int(n.view.Pods.Max) }},
	{"cluster", cel.StringType, func(n *node) ref.Val { return types.String(cut(n.view.Cluster)) }},
	{"api_reachable", cel.BoolType, func(n *node) ref.Val { return types.Bool(n.isAPIReachable()) }},
	{"cert_days", cel.IntType, (*node).certificateDays},
	{"history_ok", cel.BoolType, func(n *node) ref.Val { return types.Bool(n.view.History.Problem == "") }},
	{"sources_bad", cel.IntType, (*node).badSources},
	{"rules_unknown", cel.IntType, func(n *node) ref.Val { return types.Int(n.alerting().RulesUnknown) }},
	{"rules_broken", cel.IntType, func(n *node) ref.Val { return types.Int(n.alerting().RulesBroken) }},
	{"rule_files_broken", cel.IntType, func(n *node) ref.Val { return types.Int(n.alerting().FilesBroken) }},
	{"sinks_failing", cel.IntType, func(n *node) ref.Val { return types.Int(n.alerting().SinksFailing) }},
	{"alerts_suppressed", cel.IntType, func(n *node) ref.Val { return types.Int(n.alerting().Suppressed) }},
	{"remedies_exhausted", cel.IntType, func(n *node) ref.Val { return types.Int(n.alerting().RemediesExhausted) }},
	{"actions_suspended", cel.BoolType, func(n *node) ref.Val { return types.Bool(n.alerting().ActionsSuspended) }},
	{"load", nodeLoadType, (*node).load},
}

// overdue reports whether the pod should be gone: its deletion timestamp is when its grace period ends.
func (p *pod) overdue() ref.Val {
	deleted := p.view.Metadata.DeletionTimestamp
	if deleted == nil {
		return types.False
	}
	p.at.changesAt(deleted.Time)
	return types.Bool(!p.at.now.Before(deleted.Time))
}

// isAPIReachable reports whether the last status and the last renewal of the lease were accepted. Without an API server it is false.
func (n *node) isAPIReachable() bool {
	v := n.view
	return v.Cluster != "" && v.Lag.State != explain.SyncWaiting && v.Lag.State != explain.SyncRefused &&
		(v.Lease == nil || v.Lease.Problem == "")
}

const day = 24 * time.Hour

// certificateDays returns the days that are left of the certificate: 0 in the last day and after it, -1 without one.
func (n *node) certificateDays() ref.Val {
	if n.view.CertificateExpires == nil {
		return types.Int(-1)
	}
	left := n.view.CertificateExpires.Sub(n.at.now)
	if left <= 0 {
		return types.Int(0)
	}
	days := (left - 1) / day
	if days > 0 {
		n.at.changesAt(n.view.CertificateExpires.Add(-days * day))
	}
	return types.Int(days)
}

// badSources counts the sources with problems. Rules ask for that of the API server with api_reachable.
func (n *node) badSources() ref.Val {
	bad := 0
	for i := range n.view.Sources {
		if source := &n.view.Sources[i]; len(source.Problems) > 0 && (!n.at.isRule || source.Name != string(podid.API)) {
			bad++
		}
	}
	return types.Int(bad)
}

// alerting returns the state of alerting, which is empty if the agent evaluates no rules.
func (n *node) alerting() *view.Alerting {
	if n.view.Alerting == nil {
		return &noAlerting
	}
	return n.view.Alerting
}

var noAlerting view.Alerting // is never modified

func (p *pod) containers() ref.Val {
	specs := p.view.Spec.Containers[:min(len(p.view.Spec.Containers), maxContainers)]
	all := make([]container, len(specs))
	values := make([]ref.Val, len(specs))
	for i := range specs {
		all[i].set(p.view, &specs[i], p.at)
		values[i] = &all[i].object
	}
	return types.NewRefValList(adapter{}, values)
}

func (p *pod) restarts() int64 {
	total := int64(0)
	status := &p.view.Local.Status
	for _, statuses := range [...][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range statuses {
			total += int64(statuses[i].RestartCount)
		}
	}
	return total
}

func findStatus(status *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, statuses := range [...][]v1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		if i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
			return &statuses[i]
		}
	}
	return &v1.ContainerStatus{}
}

// state is a v1.ContainerState with values for all fields.
type state struct {
	name, reason, message string
	exitCode              int64
}

func (c *container) state() state     { return newState(&c.status.State) }
func (c *container) lastState() state { return newState(&c.status.LastTerminationState) }

func newState(s *v1.ContainerState) state {
	switch {
	case s.Running != nil:
		return state{name: "running"}
	case s.Terminated != nil:
		return state{"terminated", s.Terminated.Reason, s.Terminated.Message, int64(s.Terminated.ExitCode)}
	case s.Waiting != nil:
		return state{name: "waiting", reason: s.Waiting.Reason, message: s.Waiting.Message}
	default:
		return state{name: "waiting"}
	}
}

func (c *container) anyProbe(matches func(*view.Probe) bool) bool {
	for i := range c.pod.Probes {
		if probe := &c.pod.Probes[i]; probe.Container == c.spec.Name && matches(probe) {
			return true
		}
	}
	return false
}

// failureStreak returns the longest streak of failures of a probe.
func (c *container) failureStreak() int64 {
	longest := 0
	for i := range c.pod.Probes {
		if probe := &c.pod.Probes[i]; probe.Container == c.spec.Name && probe.StreakFailed {
			longest = max(longest, probe.Streak)
		}
	}
	return int64(longest)
}

func nodeCondition(n *view.NodeView, conditionType v1.NodeConditionType) bool {
	for i := range n.Local.Status.Conditions {
		if condition := &n.Local.Status.Conditions[i]; condition.Type == conditionType {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}

// cut bounds a text, between two characters.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Fields returns the names of the fields of pod, container and node, and of their loads.
func Fields() map[string][]string {
	return map[string][]string{
		"pod": names(podFields), "container": names(containerFields), "node": names(nodeFields),
		"pod.load": names(usageFields), "container.load": names(usageFields), "node.load": names(nodeLoadFields),
	}
}

func names[T target](fields []field[T]) []string {
	all := make([]string, len(fields))
	for i := range fields {
		all[i] = fields[i].Name
	}
	return all
}

// isQueryOnly reports whether rules have no such field: its value changes without a change that evaluates rules again.
func isQueryOnly(typeName, fieldName string) bool {
	return typeName == podType.TypeName() && (fieldName == "ok" || fieldName == "why" || fieldName == "trouble")
}

// RuleFields is like Fields, of rules.
func RuleFields() map[string][]string {
	fields := Fields()
	fields["pod"] = slices.DeleteFunc(fields["pod"], func(name string) bool { return isQueryOnly(podType.TypeName(), name) })
	return fields
}
