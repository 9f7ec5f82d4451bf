package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

var start = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// fataler is a testing.TB or a rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// parseRules compiles the rules of a file, given as the list below groups.rules, and its inhibitions.
func parseRules(t fataler, rules string, inhibit ...string) *rule.Set {
	t.Helper()
	text := "apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: test\n  rules:\n" + indent(rules)
	if strings.TrimSpace(rules) == "" {
		text = "apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups: []\n"
	}
	if len(inhibit) > 0 {
		text += "inhibit:\n- " + strings.Join(inhibit, "\n- ") + "\n"
	}
	file, err := rule.Parse([]byte(text), "test.yaml")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	set, err := rule.Merge(nil, file)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return set
}

func indent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return "  " + strings.Join(lines, "\n  ") + "\n"
}

// simulation is a node with pods, as an engine sees it. Its pods have one container, c.
type simulation struct {
	t      fataler
	engine *engine.Engine
	set    *rule.Set
	pods   map[string]*simulatedPod // by UID
	node   view.NodeView
	edges  []engine.Edge
	log    []string
}

// simulatedPod is a pod. Its UID is its name and a generation.
type simulatedPod struct {
	uid, name string
	status    v1.PodStatus
	memory    *float64 // share of the limit
}

func newSimulation(t fataler, set *rule.Set, config engine.Config) *simulation {
	t.Helper()
	return newSimulationAt(t, set, config, start)
}

func newSimulationAt(t fataler, set *rule.Set, config engine.Config, at time.Time) *simulation {
	t.Helper()
	if config.NodeName == "" {
		config.NodeName, config.Instance = "n1", "n1:1"
	}
	s := &simulation{t: t, engine: engine.New(config), set: set, pods: map[string]*simulatedPod{}}
	s.engine.SetRules(set, at)
	s.changeNode(at, rule.OnNode, func(*view.NodeView) {})
	return s
}

func (s *simulation) changeNode(at time.Time, trigger rule.Trigger, change func(*view.NodeView)) {
	change(&s.node)
	s.node.Metadata.Name = "n1"
	node := s.node
	s.engine.NodeChanged(&node, trigger, at)
	s.take()
}

func (p *simulatedPod) view() *view.PodView {
	v := &view.PodView{
		Metadata: view.Metadata{Namespace: "shop", Name: p.name, UID: p.uid, CreationTimestamp: view.NewTime(start)},
		Spec:     view.Spec{Containers: []view.Container{{Name: "c", Kind: "regular"}}},
		Local:    view.Status{Status: *p.status.DeepCopy()},
	}
	if p.memory != nil {
		usage := view.UsageLoad{Memory: view.MemoryLoad{OfLimit: p.memory}}
		v.Load = &view.PodLoad{UsageLoad: usage, Containers: []view.ContainerLoad{{Name: "c", UsageLoad: usage}}}
	}
	return v
}

// running returns a status with one container.
func running() v1.PodStatus {
	return v1.PodStatus{
		Phase:      v1.PodRunning,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
		ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", Ready: true, ContainerID: "c0", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		},
	}
}

// status reports a status of a pod, which may be new.
func (s *simulation) status(at time.Time, uid string, change func(*v1.PodStatus)) {
	p := s.pods[uid]
	var before *v1.PodStatus
	if p == nil {
		name, _, _ := strings.Cut(uid, "#")
		p = &simulatedPod{uid: uid, name: name, status: running()}
		s.pods[uid] = p
	} else {
		before = p.status.DeepCopy()
	}
	if change != nil {
		change(&p.status)
	}
	s.engine.PodChanged(engine.PodChange{
		UID: podid.UID(uid), View: p.view(), Changes: transition.AppendPod(nil, before, &p.status), Trigger: rule.OnStatus, At: at,
	})
	s.take()
}

// end ends the container and starts it again a moment later, in one status.
func end(reason string) func(*v1.PodStatus) {
	return func(status *v1.PodStatus) {
		c := &status.ContainerStatuses[0]
		c.LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ExitCode: 137, ContainerID: c.ContainerID}}
		c.RestartCount++
		c.ContainerID = fmt.Sprint("c", c.RestartCount)
	}
}

func ready(isReady bool) func(*v1.PodStatus) {
	return func(status *v1.PodStatus) {
		status.Conditions[0].Status = v1.ConditionFalse
		if isReady {
			status.Conditions[0].Status = v1.ConditionTrue
		}
	}
}

// load reports the use of memory of a pod; nil if it is not known.
func (s *simulation) load(at time.Time, uid string, memory *float64) {
	p := s.pods[uid]
	p.memory = memory
	s.engine.PodChanged(engine.PodChange{UID: podid.UID(uid), View: p.view(), Trigger: rule.OnLoad, At: at})
	s.take()
}

func (s *simulation) remove(at time.Time, uid string) {
	delete(s.pods, uid)
	s.engine.PodRemoved(podid.UID(uid), at)
	s.take()
}

func (s *simulation) advance(at time.Time) {
	s.engine.Advance(at)
	s.take()
}

// restart saves, encodes and restores the state in a new engine, which then sees the node and all pods again.
func (s *simulation) restart(at time.Time, config engine.Config) {
	s.t.Helper()
	s.restore(at, config, s.engine.Save())
	s.changeNode(at, rule.OnNode, func(*view.NodeView) {})
	for _, uid := range s.uids() {
		s.resume(at, uid)
	}
	s.engine.EndStartup(at)
	s.take()
}

func (s *simulation) restore(at time.Time, config engine.Config, saved ...engine.Saved) {
	s.t.Helper()
	config.NodeName, config.Instance = "n1", "n1:1"
	var loaded []engine.Saved
	for _, value := range saved {
		data, err := json.Marshal(value)
		if err != nil {
			s.t.Fatalf("%v", err)
		}
		var again engine.Saved
		if err := json.Unmarshal(data, &again); err != nil {
			s.t.Fatalf("%v", err)
		}
		loaded = append(loaded, again)
	}
	s.engine = engine.New(config)
	s.engine.Restore(engine.Join(loaded...), at)
	s.engine.SetRules(s.set, at)
	s.take()
}

// resume reports a pod as the first status of a run does.
func (s *simulation) resume(at time.Time, uid string) {
	p := s.pods[uid]
	s.engine.PodChanged(engine.PodChange{
		UID: podid.UID(uid), View: p.view(), Changes: transition.AppendPod(nil, nil, &p.status), Trigger: rule.OnStatus, At: at,
	})
	if p.memory != nil {
		s.engine.PodChanged(engine.PodChange{UID: podid.UID(uid), View: p.view(), Trigger: rule.OnLoad, At: at})
	}
	s.take()
}

func (s *simulation) uids() []string {
	var uids []string
	for uid := range s.pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// take notes the edges.
func (s *simulation) take() {
	for _, edge := range s.engine.Take() {
		s.edges = append(s.edges, edge)
		s.log = append(s.log, describe(edge))
	}
}

// describe returns an edge in a line: the instant, the alert and its object, and what changed.
func describe(edge engine.Edge) string {
	a := &edge.Alert
	text := fmt.Sprintf("%s %s", edge.At.Sub(start), a.Labels[alert.LabelName])
	if pod := a.Labels[alert.LabelPod]; pod != "" {
		text += " " + pod
	}
	if edge.Before != a.State {
		text += " " + word(edge.Before) + ">" + word(a.State)
	} else {
		text += " " + word(a.State)
	}
	if a.Flaps > 0 {
		text += fmt.Sprintf(" flaps=%d", a.Flaps)
	}
	if a.Reason != "" {
		text += " (" + a.Reason + ")"
	}
	if a.Freeze != nil {
		text += " frozen"
	}
	if a.Mute.IsMuted() {
		text += " muted"
	}
	return text
}

func word(s alert.State) string {
	if s == "" {
		return "-"
	}
	return string(s)
}

// expect compares what happened since the last call.
func (s *simulation) expect(want ...string) {
	s.t.Helper()
	got := s.log
	s.log = nil
	if !slices.Equal(got, want) {
		s.t.Fatalf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// find returns the alert of a rule and a pod.
func (s *simulation) find(name, pod string) alert.Alert {
	s.t.Helper()
	for _, a := range s.engine.Alerts() {
		if a.Labels[alert.LabelName] == name && a.Labels[alert.LabelPod] == pod {
			return a
		}
	}
	s.t.Fatalf("no alert %s %s", name, pod)
	return alert.Alert{}
}

func after(d time.Duration) time.Time { return start.Add(d) }
