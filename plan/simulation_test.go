package plan_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// simulator is a small runtime and the sync loop that drives it. Its clock advances only on request.
type simulator struct {
	t          *rapid.T
	pod        *v1.Pod
	now        time.Time
	runtimePod observed.Pod
	backoff    plan.Backoff
	started    map[observed.ContainerID]bool
	unhealthy  map[observed.ContainerID]string
	created    int
	replaced   map[string]bool // names whose last instance was stopped in order to restart: no back-off
}

// step computes the actions and executes them. It reports whether the pod is done.
func (m *simulator) step() bool {
	m.advance(time.Millisecond)
	runtimePod := m.snapshot()
	in := plan.Input{
		Pod: m.pod, Observed: runtimePod, Started: m.started, Unhealthy: m.unhealthy, Backoff: m.backoff, Now: m.now,
	}
	actions := plan.ComputeActions(in)
	if again := plan.ComputeActions(in); !reflect.DeepEqual(actions, again) {
		m.t.Fatalf("got %q, then %q for the same input", describe(actions), describe(again))
	}
	m.backoff = actions.Backoff
	if actions.Done {
		m.requireDone()
		return true
	}
	m.stop(runtimePod, actions)
	if actions.Sandbox != nil {
		m.createSandbox(actions.Sandbox.Attempt)
	}
	for _, s := range actions.Start {
		if !m.start(s) && s.Kind == derive.InitContainer {
			break
		}
	}
	m.requireSingleInstances()
	return false
}

func (m *simulator) advance(d time.Duration) { m.now = m.now.Add(d) }

func (m *simulator) snapshot() *observed.Pod {
	copied := m.runtimePod
	copied.Sandboxes, copied.Containers = slices.Clone(m.runtimePod.Sandboxes), slices.Clone(m.runtimePod.Containers)
	copied.Sort()
	return &copied
}

func (m *simulator) stop(runtimePod *observed.Pod, actions plan.Actions) {
	if actions.KillPod {
		for _, ending := range plan.TerminationOrder(m.pod, runtimePod, time.Second) {
			m.exit(ending.Stop.ID, 137)
			m.replaced[ending.Stop.Container.Name] = true
		}
		for i := range m.runtimePod.Sandboxes {
			m.runtimePod.Sandboxes[i].Ready = false
		}
	}
	for _, s := range actions.Stop {
		m.exit(s.ID, rapid.SampledFrom([]int{0, 137, 143}).Draw(m.t, "code of a stopped instance"))
		m.replaced[s.Container.Name] = true
	}
}

func (m *simulator) createSandbox(attempt uint32) {
	for _, s := range m.runtimePod.Sandboxes {
		if s.Attempt >= attempt || s.Ready {
			m.t.Fatalf("got sandbox %d next to %+v", attempt, s)
		}
	}
	m.advance(time.Millisecond)
	m.runtimePod.Sandboxes = append(m.runtimePod.Sandboxes, observed.Sandbox{
		ID: fmt.Sprintf("s%d", attempt), Attempt: attempt, Ready: true, CreatedAt: m.now,
		Network: &observed.Network{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
	})
}

// start creates an instance and sometimes fails before or after that.
func (m *simulator) start(s plan.Start) bool {
	m.requireAllowed(s)
	if rapid.IntRange(0, 9).Draw(m.t, "start") == 0 {
		return false
	}
	m.advance(time.Millisecond)
	m.created++
	sandbox, _ := m.snapshot().NewestSandbox()
	c := observed.Container{
		ID: containerID(fmt.Sprintf("%s-%d", s.Container.Name, m.created)), Name: s.Container.Name, SandboxID: sandbox.ID,
		RestartCount: s.RestartCount, CreatedAt: m.now, State: observed.Created, SpecHash: plan.HashContainer(s.Container),
	}
	delete(m.replaced, c.Name)
	m.runtimePod.Containers = slices.DeleteFunc(m.runtimePod.Containers, func(old observed.Container) bool {
		return old.Name == c.Name && old.SandboxID == c.SandboxID && old.RestartCount == c.RestartCount // never started
	})
	isStarted := rapid.IntRange(0, 9).Draw(m.t, "created only") != 0
	if isStarted {
		c.State, c.StartedAt = observed.Running, m.now
	}
	m.runtimePod.Containers = append(m.runtimePod.Containers, c)
	return isStarted
}

func (m *simulator) exit(which observed.ContainerID, code int) {
	for i := range m.runtimePod.Containers {
		if c := &m.runtimePod.Containers[i]; c.ID == which && c.State != observed.Exited {
			c.State, c.Exit = observed.Exited, &observed.Exit{Code: code, FinishedAt: m.now}
		}
	}
}

// disturb applies random events to the pod.
func (m *simulator) disturb() {
	m.advance(time.Duration(rapid.IntRange(0, 400).Draw(m.t, "seconds")) * time.Second)
	if rapid.IntRange(0, 15).Draw(m.t, "sandbox dies") == 0 && len(m.runtimePod.Sandboxes) > 0 {
		m.runtimePod.Sandboxes[len(m.runtimePod.Sandboxes)-1].Ready = false
	}
	if rapid.IntRange(0, 7).Draw(m.t, "agent restarts") == 0 {
		m.backoff = nil
	}
	for i := range m.runtimePod.Containers {
		c := &m.runtimePod.Containers[i]
		if c.State != observed.Running {
			continue
		}
		switch rapid.IntRange(0, 5).Draw(m.t, "fate of "+c.ID.ID) {
		case 0, 1:
			m.exit(c.ID, rapid.SampledFrom([]int{0, 1, 42}).Draw(m.t, "code"))
		case 2:
			m.started[c.ID] = true
		case 3:
			m.unhealthy[c.ID] = ""
		}
	}
}

func (m *simulator) newest(name string) *observed.Container {
	if instances := m.snapshot().Instances(name); len(instances) > 0 {
		return &instances[0]
	}
	return nil
}

// requireAllowed checks that no instance starts next to a running one, during back-off or out of init order.
func (m *simulator) requireAllowed(s plan.Start) {
	sandbox, ok := m.snapshot().NewestSandbox()
	if !ok || !sandbox.Ready {
		m.t.Fatalf("got a start of %s without a sandbox", s.Container.Name)
	}
	if last := m.newest(s.Container.Name); last != nil {
		goesOn := last.State == observed.Created && last.SandboxID == sandbox.ID && s.RestartCount == last.RestartCount
		if last.State == observed.Running || s.RestartCount <= last.RestartCount && !goesOn {
			m.t.Fatalf("got instance %d after %+v", s.RestartCount, last)
		}
		short := last.State == observed.Exited && last.Exit.FinishedAt.Sub(last.StartedAt) <= 10*time.Minute
		if short && last.RestartCount > 0 && !m.replaced[last.Name] && m.now.Sub(last.Exit.FinishedAt) < m.minDelay(last.Name) {
			m.t.Fatalf("got a start of %s %v after its exit", last.ID.ID, m.now.Sub(last.Exit.FinishedAt))
		}
	}
	if s.Kind == derive.RegularContainer || s.Kind == derive.InitContainer {
		m.requireInitDone(s)
	}
}

// minDelay counts the short runs of a container. This runtime keeps all records.
func (m *simulator) minDelay(name string) time.Duration {
	short := 0
	for _, c := range m.snapshot().Instances(name) {
		if c.Exit == nil {
			continue
		}
		if c.Exit.FinishedAt.Sub(c.StartedAt) > 10*time.Minute {
			break
		}
		short++
	}
	return (plan.CrashLoop{Runs: short}).Delay()
}

// requireInitDone checks that each earlier init container succeeded in this sandbox.
func (m *simulator) requireInitDone(s plan.Start) {
	sandbox, _ := m.snapshot().NewestSandbox()
	for i := range m.pod.Spec.InitContainers {
		c := &m.pod.Spec.InitContainers[i]
		if c.Name == s.Container.Name {
			return
		}
		if _, kind := plan.FindContainer(m.pod, c.Name); kind == derive.SidecarContainer {
			continue
		}
		if last := m.newest(c.Name); last == nil || last.SandboxID != sandbox.ID || last.Exit == nil || last.Exit.Code != 0 {
			m.t.Fatalf("got a start of %s before %s succeeded", s.Container.Name, c.Name)
		}
	}
}

func (m *simulator) requireSingleInstances() {
	runs := map[string]bool{}
	for _, c := range m.runtimePod.Containers {
		if c.State != observed.Running {
			continue
		}
		if runs[c.Name] {
			m.t.Fatalf("got two running instances of %s", c.Name)
		}
		runs[c.Name] = true
	}
}

// requireDone checks why the pod is done: its regular containers exited, or an init container failed.
func (m *simulator) requireDone() {
	for i := range m.pod.Spec.InitContainers {
		last := m.newest(m.pod.Spec.InitContainers[i].Name)
		if last != nil && (last.Exit == nil || last.Exit.Code != 0) {
			return
		}
	}
	sandbox, _ := m.snapshot().NewestSandbox()
	for i := range m.pod.Spec.Containers {
		last := m.newest(m.pod.Spec.Containers[i].Name)
		if last == nil || (last.State == observed.Running && sandbox.Ready && last.SandboxID == sandbox.ID) {
			m.t.Fatalf("got done while %s may run: %+v", m.pod.Spec.Containers[i].Name, last)
		}
	}
}

func drawPod(t *rapid.T) *v1.Pod {
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	draw := func(name string) v1.Container {
		c := newContainer(name)
		switch rapid.IntRange(0, 5).Draw(t, name) {
		case 0:
			c = newSidecar(name)
		case 1:
			c = withPolicy(name, v1.ContainerRestartPolicyOnFailure)
		case 2:
			c = withRule(name, v1.ContainerRestartRuleActionRestart)
		case 3:
			c = withRule(name, v1.ContainerRestartRuleActionRestartAllContainers)
		}
		if rapid.Bool().Draw(t, "startup probe of "+name) {
			c = withStartupProbe(c)
		}
		return c
	}
	var inits, regular []v1.Container
	for i := range rapid.IntRange(0, 3).Draw(t, "init containers") {
		inits = append(inits, draw(fmt.Sprintf("i%d", i)))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "regular containers") {
		regular = append(regular, draw(fmt.Sprintf("c%d", i)))
	}
	return withInit(newPod(rapid.SampledFrom(policies).Draw(t, "policy"), regular...), inits...)
}

func newSimulator(t *rapid.T) *simulator {
	return &simulator{
		t: t, pod: drawPod(t), now: now, started: map[observed.ContainerID]bool{},
		unhealthy: map[observed.ContainerID]string{}, replaced: map[string]bool{},
	}
}

func TestComputeActions_Simulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newSimulator(t)
		for range 30 {
			if m.step() {
				return
			}
			m.disturb()
		}
	})
}

// settle syncs until there is nothing to do. It skips back-off.
func (m *simulator) settle() (done bool) {
	for range 200 {
		before := m.created
		in := plan.Input{Pod: m.pod, Observed: m.snapshot(), Started: m.started, Unhealthy: m.unhealthy, Backoff: m.backoff, Now: m.now}
		a := plan.ComputeActions(in)
		if describe(a) == "" {
			return false
		}
		if m.step() {
			return true
		}
		if m.created == before && !a.RequeueAt.IsZero() {
			m.now = a.RequeueAt
		}
	}
	m.t.Fatal("got no convergence")
	return false
}

func TestComputeActions_Convergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newSimulator(t)
		for range 3 {
			if m.step() {
				return
			}
			m.disturb()
		}
		clear(m.unhealthy)
		for range 20 {
			if m.settle() {
				return
			}
			ended := 0
			for i := range m.runtimePod.Containers {
				c := &m.runtimePod.Containers[i]
				if c.State == observed.Running {
					m.started[c.ID] = true
					if _, kind := plan.FindContainer(m.pod, c.Name); kind != derive.SidecarContainer {
						m.advance(time.Hour)
						m.exit(c.ID, 0)
						ended++
					}
				}
			}
			if ended == 0 && !m.hasActions() {
				t.Fatalf("got idle but not done: %+v", m.runtimePod.Containers)
			}
		}
		if m.canComplete() {
			t.Fatal("got never done although all containers succeed")
		}
	})
}

// hasActions reports whether there is something to do, for example because a sidecar counts as started only now.
func (m *simulator) hasActions() bool {
	a := plan.ComputeActions(plan.Input{Pod: m.pod, Observed: m.snapshot(), Started: m.started, Backoff: m.backoff, Now: m.now})
	return describe(a) != ""
}

func (m *simulator) canComplete() bool {
	for _, c := range m.pod.Spec.Containers {
		always := c.RestartPolicy == nil && m.pod.Spec.RestartPolicy == v1.RestartPolicyAlways ||
			c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		if always {
			return false
		}
	}
	return true
}

// drawRuntimePod draws any runtime state of a pod, impossible ones included.
func drawRuntimePod(t *rapid.T, pod *v1.Pod) *observed.Pod {
	at := func(label string) time.Time {
		if rapid.IntRange(0, 9).Draw(t, label+" is missing") == 0 {
			return time.Time{}
		}
		return now.Add(time.Duration(rapid.IntRange(-2000, 100).Draw(t, label)) * time.Second)
	}
	runtimePod := &observed.Pod{}
	for i := range rapid.IntRange(0, 3).Draw(t, "sandboxes") {
		s := readySandbox
		s.ID, s.Attempt, s.CreatedAt = fmt.Sprintf("s%d", i), uint32(i), at("sandbox created")
		s.Ready = rapid.Bool().Draw(t, "ready")
		runtimePod.Sandboxes = append(runtimePod.Sandboxes, s)
	}
	names := []string{"stranger"}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		names = append(names, c.Name)
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "containers") {
		c := observed.Container{
			ID:   containerID(fmt.Sprint(i)),
			Name: rapid.SampledFrom(names).Draw(t, "name"), SandboxID: fmt.Sprintf("s%d", rapid.IntRange(0, 3).Draw(t, "in sandbox")),
			State:        observed.State(rapid.IntRange(0, 3).Draw(t, "state")),
			RestartCount: rapid.IntRange(-1, 9).Draw(t, "restarts"), CreatedAt: at("created"), StartedAt: at("started"),
			SpecHash: rapid.SampledFrom([]uint64{0, 0, 1}).Draw(t, "hash"),
		}
		if rapid.IntRange(0, 9).Draw(t, "exit") != 0 {
			c.Exit = &observed.Exit{Code: rapid.SampledFrom([]int{0, 1, 42, -1}).Draw(t, "code"), FinishedAt: at("finished")}
		}
		runtimePod.Containers = append(runtimePod.Containers, c)
	}
	runtimePod.Sort()
	return runtimePod
}

// requireValid checks the properties that hold for any input.
func requireValid(t *rapid.T, in plan.Input, a plan.Actions) {
	if (a.Done || a.Evict != nil) && (a.KillPod || a.Sandbox != nil || len(a.Stop)+len(a.Start)+len(a.Waiting) > 0) {
		t.Fatalf("got done with %q", describe(a))
	}
	stops := map[observed.ContainerID]bool{}
	for _, s := range a.Stop {
		if stops[s.ID] {
			t.Fatalf("got two stops of %s", s.ID)
		}
		stops[s.ID] = true
	}
	starts := map[string]bool{}
	for _, s := range a.Start {
		if _, waits := a.Waiting[s.Container.Name]; starts[s.Container.Name] || waits {
			t.Fatalf("got two starts of %s, or a start and waiting: %q", s.Container.Name, describe(a))
		}
		starts[s.Container.Name] = true
		for _, c := range in.Observed.Instances(s.Container.Name) {
			if c.State == observed.Running && !a.KillPod && !stops[c.ID] {
				t.Fatalf("got a start of %s next to a running instance: %q", s.Container.Name, describe(a))
			}
		}
	}
	for name, w := range a.Waiting {
		if !w.Until.After(in.Now) || w.Until.Sub(in.Now) > 5*time.Minute || a.RequeueAt.After(w.Until) {
			t.Fatalf("%s: got waiting until %v at %v, requeue at %v", name, w.Until, in.Now, a.RequeueAt)
		}
	}
}

func checkActions(t *rapid.T) {
	pod := drawPod(t)
	in := plan.Input{Pod: pod, Observed: drawRuntimePod(t, pod), Now: now, Unhealthy: map[observed.ContainerID]string{containerID("0"): ""}}
	first := plan.ComputeActions(in)
	requireValid(t, in, first)
	in.Backoff = first.Backoff
	if again := plan.ComputeActions(in); describe(again) != describe(first) {
		t.Fatalf("got %q, then %q with its own back-off", describe(first), describe(again))
	}
	in.Now = now.Add(time.Duration(rapid.IntRange(-4000, 4000).Draw(t, "the clock jumps")) * time.Second)
	requireValid(t, in, plan.ComputeActions(in))
	placed := map[observed.ContainerID]bool{}
	for _, e := range plan.TerminationOrder(pod, in.Observed, time.Minute) {
		for _, before := range e.After {
			if !placed[before] {
				t.Fatalf("%s waits for %s, which is not before it", e.Stop.ID, before)
			}
		}
		placed[e.Stop.ID] = true
	}
	for _, c := range in.Observed.Containers {
		if c.State == observed.Running && !placed[c.ID] {
			t.Fatalf("got no stop of %s", c.ID)
		}
	}
}

func TestComputeActions_AnyInput(t *testing.T) { rapid.Check(t, checkActions) }

func FuzzComputeActions(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkActions)) }
