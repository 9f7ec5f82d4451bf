package ruletest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/view"
)

// nodeModel is the node of a test.
type nodeModel struct {
	name        string
	isAlone     bool
	apiDown     bool
	runtimeDown bool
	networkDown bool
	historyDown bool
	stale       bool
	loadUnknown bool
	load        NodeLoad
	sourcesBad  int
	expires     time.Time
	pressure    map[string]bool
	alerting    map[string]int
}

func (n *nodeModel) apply(step *Step, now time.Time) {
	setDown := func(target *bool, value string) {
		if value != "" {
			*target = value == "down"
		}
	}
	setDown(&n.apiDown, step.API)
	setDown(&n.runtimeDown, step.Runtime)
	setDown(&n.networkDown, step.Network)
	setDown(&n.historyDown, step.History)
	n.setUnknown(step.Unknown, true)
	n.setUnknown(step.Known, false)
	if step.NodeLoad != nil {
		n.load = *step.NodeLoad
	}
	if step.SourcesBad != nil {
		n.sourcesBad = *step.SourcesBad
	}
	if step.CertificateExpires != nil {
		n.expires = now.Add(*step.CertificateExpires)
	}
	maps.Copy(n.pressure, step.Pressure)
	maps.Copy(n.alerting, step.Alerting)
}

func (n *nodeModel) setUnknown(names []string, unknown bool) {
	for _, name := range names {
		if name == "runtime" {
			n.stale = unknown
		} else {
			n.loadUnknown = unknown
		}
	}
}

// view returns the node as the agent would show it.
func (n *nodeModel) view(pods []view.PodView, alerting view.Alerting, now time.Time) *view.NodeView {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	node.Status.Allocatable = v1.ResourceList{v1.ResourcePods: resource.MustParse("110")}
	ready := v1.ConditionTrue
	if n.runtimeDown || n.networkDown {
		ready = v1.ConditionFalse
	}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}
	for _, kind := range slices.Sorted(maps.Keys(n.pressure)) {
		condition := v1.NodeCondition{Type: v1.NodeConditionType(kind + "Pressure"), Status: v1.ConditionFalse}
		if n.pressure[kind] {
			condition.Status = v1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, condition)
	}
	facts := view.NodeFacts{Node: node, At: now, Pods: pods, Lag: view.Lag{State: explain.SyncNoServer}, Load: n.loadView()}
	if !n.isAlone {
		facts.Cluster, facts.Lag.State = "https://api.example.test", explain.SyncSynced
		if n.apiDown {
			facts.Lag.State = explain.SyncWaiting
		}
	}
	facts.Runtime = view.Runtime{Name: runtimeName, Stale: n.stale, RelistedAt: view.NewTime(now)}
	if n.runtimeDown {
		facts.Runtime.Problem = "does not answer"
	}
	if n.networkDown {
		facts.Runtime.Network = "is not ready"
	}
	if n.historyDown {
		facts.History.Problem = "no space left on device"
	}
	for i := range n.sourcesBad {
		facts.Sources = append(facts.Sources, view.Source{
			Name: "file", State: "error", Problems: []view.Problem{{Message: fmt.Sprintf("pod%d.yaml: cannot be used", i)}},
		})
	}
	if l := &n.load; !n.loadUnknown {
		facts.Agent.Latencies = view.Latencies{
			StatusLagP99Ms: milliseconds(l.LagP99), RelistP99Ms: milliseconds(l.RelistP99), RuntimeP99Ms: milliseconds(l.CRIP99),
		}
	}
	v := view.NewNode(facts)
	v.CertificateExpires = view.NewTime(n.expires)
	n.addAlerting(&alerting)
	v.Alerting = &alerting
	return &v
}

// addAlerting adds what steps say about the agent itself.
func (n *nodeModel) addAlerting(alerting *view.Alerting) {
	for name, value := range n.alerting {
		switch name {
		case "rules_unknown":
			alerting.RulesUnknown = value
		case "rules_broken":
			alerting.RulesBroken = value
		case "sinks_failing":
			alerting.SinksFailing = value
		case "alerts_suppressed":
			alerting.Suppressed = value
		case "files_broken":
			alerting.FilesBroken = value
		case "remedies_exhausted":
			alerting.RemediesExhausted = value
		}
	}
}

func (n *nodeModel) loadView() *view.NodeLoad {
	l := &n.load
	if n.loadUnknown {
		return nil
	}
	return &view.NodeLoad{
		Saturation: &l.Saturation, Culprit: l.Culprit, Level: cmp.Or(l.Level, "normal"),
		CPU:    view.NodeCPULoad{Use: newWindows(l.CPU)},
		Memory: view.NodeMemoryLoad{Use: newWindows(l.Memory), Pressure: &view.Pressure{Some: &l.PSIMemory}},
		IO:     view.IOLoad{Pressure: &view.Pressure{Some: &l.PSIIO}},
		PIDs:   newWindows(l.PIDs),
		FileSystems: []view.FileSystemLoad{{
			Name: "data", Use: &l.Disk, InodeUse: &l.Inodes, HoursToFull: l.HoursToFull, ReadOnly: l.ReadOnly,
		}},
	}
}

func milliseconds(seconds float64) *int64 { return new(int64(seconds * 1000)) }

func podUID(index int) types.UID { return types.UID(fmt.Sprintf("uid-%d", index)) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
