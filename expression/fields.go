package expression

import (
	"slices"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/view"
)

// pod is the variable pod.
type pod struct {
	view *view.PodView
	now  time.Time
}

// container is an element of pod.containers. status is empty if the container has none.
type container struct {
	pod    *view.PodView
	spec   *view.Container
	status *v1.ContainerStatus
}

// field is a field of a type of the environment. get returns a Go value of its type, or unknown; never nil.
type field[T any] struct {
	Name string
	Type *cel.Type
	get  func(T) any
}

// criticalPriority is the lowest priority of the classes system-node-critical and system-cluster-critical.
const criticalPriority = 2_000_000_000

var podFields = []field[*pod]{
	{"name", cel.StringType, func(p *pod) any { return p.view.Metadata.Name }},
	{"namespace", cel.StringType, func(p *pod) any { return p.view.Metadata.Namespace }},
	{"uid", cel.StringType, func(p *pod) any { return p.view.Metadata.UID }},
	{"static", cel.BoolType, func(p *pod) any { return p.view.Spec.Static }},
	{"source", cel.StringType, func(p *pod) any { return p.view.Source }},
	{"owner_kind", cel.StringType, func(p *pod) any { return p.view.Metadata.OwnerKind }},
	{"priority", cel.IntType, func(p *pod) any { return int64(p.view.Spec.Priority) }},
	{"critical", cel.BoolType, func(p *pod) any { return p.view.Spec.Priority >= criticalPriority }},
	{"host_network", cel.BoolType, func(p *pod) any { return p.view.Spec.HostNetwork }},
	{"phase", cel.StringType, func(p *pod) any { return string(p.view.Local.Status.Phase) }},
	{"reason", cel.StringType, func(p *pod) any { return cut(p.view.Local.Status.Reason) }},
	{"ready", cel.BoolType, func(p *pod) any { return p.view.IsReady() }},
	{"ip", cel.StringType, func(p *pod) any { return p.view.Local.Status.PodIP }},
	{"restarts", cel.IntType, func(p *pod) any { return p.restarts() }},
	{"deleting", cel.BoolType, func(p *pod) any { return p.view.Metadata.DeletionTimestamp != nil }},
	{"overdue", cel.BoolType, func(p *pod) any {
		deleted := p.view.Metadata.DeletionTimestamp
		return deleted != nil && deleted.Before(p.now)
	}},
	{"stage", cel.StringType, func(p *pod) any { return p.view.Worker.Stage }},
	{"trouble", cel.StringType, func(p *pod) any { return cut(p.view.Worker.Trouble) }},
	{"sync", cel.StringType, func(p *pod) any { return string(p.view.Lag.State) }},
	{"behind", cel.IntType, func(p *pod) any { return int64(p.view.Lag.Behind) }},
	{"refused", cel.BoolType, func(p *pod) any { return p.view.Lag.State == explain.SyncRefused }},
	{"ok", cel.BoolType, func(p *pod) any { return p.view.Why.OK }},
	{"why", cel.StringType, func(p *pod) any { return p.view.Why.Code }},
	{"containers", cel.ListType(containerType), func(p *pod) any { return p.containers() }},
	{"load", usageType, func(p *pod) any { return newPodUsage(p.view.Load) }},
}

var containerFields = []field[*container]{
	{"name", cel.StringType, func(c *container) any { return c.spec.Name }},
	{"kind", cel.StringType, func(c *container) any { return c.spec.Kind }},
	{"image", cel.StringType, func(c *container) any { return cut(c.spec.Image) }},
	{"state", cel.StringType, func(c *container) any { return c.state().name }},
	{"reason", cel.StringType, func(c *container) any { return cut(c.state().reason) }},
	{"message", cel.StringType, func(c *container) any { return cut(c.state().message) }},
	{"exit_code", cel.IntType, func(c *container) any { return c.state().exitCode }},
	{"ready", cel.BoolType, func(c *container) any { return c.status.Ready }},
	{"started", cel.BoolType, func(c *container) any { return c.status.Started != nil && *c.status.Started }},
	{"restarts", cel.IntType, func(c *container) any { return int64(c.status.RestartCount) }},
	{"last_reason", cel.StringType, func(c *container) any { return cut(c.lastState().reason) }},
	{"last_exit_code", cel.IntType, func(c *container) any { return c.lastState().exitCode }},
	{"probe_failing", cel.BoolType, func(c *container) any {
		return c.anyProbe(func(p *view.Probe) bool { return p.Verdict == explain.Failing })
	}},
	{"probe_erroring", cel.BoolType, func(c *container) any {
		return c.anyProbe(func(p *view.Probe) bool { return p.Errors > 0 })
	}},
	{"probe_streak", cel.IntType, func(c *container) any { return c.failureStreak() }},
	{"load", usageType, func(c *container) any { return newContainerUsage(c.pod.Load, c.spec.Name) }},
}

var nodeFields = []field[*view.NodeView]{
	{"name", cel.StringType, func(n *view.NodeView) any { return n.Metadata.Name }},
	{"ready", cel.BoolType, func(n *view.NodeView) any { return nodeCondition(n, v1.NodeReady) }},
	{"unschedulable", cel.BoolType, func(n *view.NodeView) any { return n.Spec.Unschedulable }},
	{"runtime_ready", cel.BoolType, func(n *view.NodeView) any { return n.Runtime.Problem == "" }},
	{"network_ready", cel.BoolType, func(n *view.NodeView) any { return n.Runtime.Network == "" }},
	{"pods", cel.IntType, func(n *view.NodeView) any { return int64(n.Pods.Total) }},
	{"max_pods", cel.IntType, func(n *view.NodeView) any { return n.Pods.Max }},
	{"api_reachable", cel.BoolType, func(n *view.NodeView) any {
		return n.Cluster != "" && n.Lag.State != explain.SyncWaiting && n.Lag.State != explain.SyncRefused
	}},
	{"history_ok", cel.BoolType, func(n *view.NodeView) any { return n.History.Problem == "" }},
	{"sources_bad", cel.IntType, func(n *view.NodeView) any {
		bad := int64(0)
		for i := range n.Sources {
			if len(n.Sources[i].Problems) > 0 {
				bad++
			}
		}
		return bad
	}},
	{"load", nodeLoadType, func(n *view.NodeView) any { return newNodeLoad(n) }},
}

func (p *pod) containers() []*container {
	specs := p.view.Spec.Containers[:min(len(p.view.Spec.Containers), maxContainers)]
	all := make([]*container, len(specs))
	for i := range specs {
		all[i] = &container{pod: p.view, spec: &specs[i], status: findStatus(&p.view.Local.Status, specs[i].Name)}
	}
	return all
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

func names[T any](fields []field[T]) []string {
	all := make([]string, len(fields))
	for i := range fields {
		all[i] = fields[i].Name
	}
	return all
}
