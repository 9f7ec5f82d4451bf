package plan_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// machine is a small working runtime and the loop that drives it. Its clock moves only when it is told so.
type machine struct {
	t        *rapid.T
	pod      *v1.Pod
	now      time.Time
	seen     observed.Pod
	memory   plan.Backoff
	started  map[observed.ContainerID]bool
	ailing   map[observed.ContainerID]string
	made     int
	replaced map[string]bool // names whose last instance was stopped to be replaced: they owe no back-off
}

// step asks for the next actions and does them. It reports whether the pod is done.
func (m *machine) step() bool {
	m.tick(time.Millisecond)
	seen := m.snapshot()
	in := plan.Input{
		Pod: m.pod, Observed: seen, Started: m.started, Unhealthy: m.ailing, Backoff: m.memory, Now: m.now,
	}
	actions := plan.ComputeActions(in)
	if again := plan.ComputeActions(in); !reflect.DeepEqual(actions, again) {
		m.t.Fatalf("the same input gives other actions: %q, then %q", told(actions), told(again))
	}
	m.memory = actions.Backoff
	if actions.Done {
		m.mustBeOver()
		return true
	}
	m.stop(seen, actions)
	if actions.Sandbox != nil {
		m.makeSandbox(actions.Sandbox.Attempt)
	}
	for _, s := range actions.Start {
		if !m.start(s) && s.Kind == derive.InitContainer {
			break
		}
	}
	m.mustKeepTheRules()
	return false
}

func (m *machine) tick(d time.Duration) { m.now = m.now.Add(d) }

func (m *machine) snapshot() *observed.Pod {
	copied := m.seen
	copied.Sandboxes, copied.Containers = slices.Clone(m.seen.Sandboxes), slices.Clone(m.seen.Containers)
	copied.Sort()
	return &copied
}

func (m *machine) stop(seen *observed.Pod, actions plan.Actions) {
	if actions.KillPod {
		for _, ending := range plan.TerminationOrder(m.pod, seen, time.Second) {
			m.end(ending.Stop.ID, 137)
			m.replaced[ending.Stop.Container.Name] = true
		}
		for i := range m.seen.Sandboxes {
			m.seen.Sandboxes[i].Ready = false
		}
	}
	for _, s := range actions.Stop {
		m.end(s.ID, rapid.SampledFrom([]int{0, 137, 143}).Draw(m.t, "code of a stopped one"))
		m.replaced[s.Container.Name] = true
	}
}

func (m *machine) makeSandbox(attempt uint32) {
	for _, s := range m.seen.Sandboxes {
		if s.Attempt >= attempt || s.Ready {
			m.t.Fatalf("sandbox %d is made beside %+v", attempt, s)
		}
	}
	m.tick(time.Millisecond)
	m.seen.Sandboxes = append(m.seen.Sandboxes, observed.Sandbox{
		ID: fmt.Sprintf("s%d", attempt), Attempt: attempt, Ready: true, CreatedAt: m.now,
		Network: &observed.Network{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
	})
}

// start makes an instance, and sometimes fails before or after that.
func (m *machine) start(s plan.Start) bool {
	m.mustBeAllowed(s)
	if rapid.IntRange(0, 9).Draw(m.t, "start") == 0 {
		return false
	}
	m.tick(time.Millisecond)
	m.made++
	sandbox, _ := m.snapshot().NewestSandbox()
	c := observed.Container{
		ID: id(fmt.Sprintf("%s-%d", s.Container.Name, m.made)), Name: s.Container.Name, SandboxID: sandbox.ID,
		RestartCount: s.RestartCount, CreatedAt: m.now, State: observed.Created, SpecHash: plan.HashContainer(s.Container),
	}
	delete(m.replaced, c.Name)
	m.seen.Containers = slices.DeleteFunc(m.seen.Containers, func(old observed.Container) bool {
		return old.Name == c.Name && old.SandboxID == c.SandboxID && old.RestartCount == c.RestartCount // it was never started
	})
	isStarted := rapid.IntRange(0, 9).Draw(m.t, "created only") != 0
	if isStarted {
		c.State, c.StartedAt = observed.Running, m.now
	}
	m.seen.Containers = append(m.seen.Containers, c)
	return isStarted
}

func (m *machine) end(which observed.ContainerID, code int) {
	for i := range m.seen.Containers {
		if c := &m.seen.Containers[i]; c.ID == which && c.State != observed.Exited {
			c.State, c.Exit = observed.Exited, &observed.Exit{Code: code, FinishedAt: m.now}
		}
	}
}

// happen lets something happen to the pod.
func (m *machine) happen() {
	m.tick(time.Duration(rapid.IntRange(0, 400).Draw(m.t, "seconds")) * time.Second)
	if rapid.IntRange(0, 15).Draw(m.t, "sandbox dies") == 0 && len(m.seen.Sandboxes) > 0 {
		m.seen.Sandboxes[len(m.seen.Sandboxes)-1].Ready = false
	}
	if rapid.IntRange(0, 7).Draw(m.t, "agent restarts") == 0 {
		m.memory = nil
	}
	for i := range m.seen.Containers {
		c := &m.seen.Containers[i]
		if c.State != observed.Running {
			continue
		}
		switch rapid.IntRange(0, 5).Draw(m.t, "fate of "+c.ID.ID) {
		case 0, 1:
			m.end(c.ID, rapid.SampledFrom([]int{0, 1, 42}).Draw(m.t, "code"))
		case 2:
			m.started[c.ID] = true
		case 3:
			m.ailing[c.ID] = ""
		}
	}
}

func (m *machine) newest(name string) *observed.Container {
	if instances := m.snapshot().Instances(name); len(instances) > 0 {
		return &instances[0]
	}
	return nil
}

// mustBeAllowed holds a start against the rules: nothing beside a running instance, nothing in back-off, order of init.
func (m *machine) mustBeAllowed(s plan.Start) {
	sandbox, ok := m.snapshot().NewestSandbox()
	if !ok || !sandbox.Ready {
		m.t.Fatalf("%s is started without a sandbox", s.Container.Name)
	}
	if last := m.newest(s.Container.Name); last != nil {
		goesOn := last.State == observed.Created && last.SandboxID == sandbox.ID && s.RestartCount == last.RestartCount
		if last.State == observed.Running || s.RestartCount <= last.RestartCount && !goesOn {
			m.t.Fatalf("instance %d is started after %+v", s.RestartCount, last)
		}
		short := last.State == observed.Exited && last.Exit.FinishedAt.Sub(last.StartedAt) <= 10*time.Minute
		if short && last.RestartCount > 0 && !m.replaced[last.Name] && m.now.Sub(last.Exit.FinishedAt) < m.leastDelay(last.Name) {
			m.t.Fatalf("%s is started %v after its end", last.ID.ID, m.now.Sub(last.Exit.FinishedAt))
		}
	}
	if s.Kind == derive.RegularContainer || s.Kind == derive.InitContainer {
		m.mustHaveRunBefore(s)
	}
}

// leastDelay counts the short runs of a name, all of which this runtime still shows.
func (m *machine) leastDelay(name string) time.Duration {
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

// mustHaveRunBefore checks that each init container before this one has succeeded in this sandbox.
func (m *machine) mustHaveRunBefore(s plan.Start) {
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
			m.t.Fatalf("%s is started before %s has succeeded", s.Container.Name, c.Name)
		}
	}
}

func (m *machine) mustKeepTheRules() {
	runs := map[string]bool{}
	for _, c := range m.seen.Containers {
		if c.State != observed.Running {
			continue
		}
		if runs[c.Name] {
			m.t.Fatalf("two instances of %s run", c.Name)
		}
		runs[c.Name] = true
	}
}

// mustBeOver checks that the pod has a reason to be done: its regular containers ended, or an init container failed.
func (m *machine) mustBeOver() {
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
			m.t.Fatalf("done while %s is not over: %+v", m.pod.Spec.Containers[i].Name, last)
		}
	}
}

func anyPod(t *rapid.T) *v1.Pod {
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	draw := func(name string) v1.Container {
		c := container(name)
		switch rapid.IntRange(0, 5).Draw(t, name) {
		case 0:
			c = sidecar(name)
		case 1:
			c = withPolicy(name, v1.ContainerRestartPolicyOnFailure)
		case 2:
			c = ruled(name, v1.ContainerRestartRuleActionRestart)
		case 3:
			c = ruled(name, v1.ContainerRestartRuleActionRestartAllContainers)
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

func newMachine(t *rapid.T) *machine {
	return &machine{
		t: t, pod: anyPod(t), now: now, started: map[observed.ContainerID]bool{},
		ailing: map[observed.ContainerID]string{}, replaced: map[string]bool{},
	}
}

func TestWhateverHappensThePodIsRunByTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		for range 30 {
			if m.step() {
				return
			}
			m.happen()
		}
	})
}

// settle steps until nothing is to be done, letting back-off pass.
func (m *machine) settle() (done bool) {
	for range 200 {
		before := m.made
		in := plan.Input{Pod: m.pod, Observed: m.snapshot(), Started: m.started, Unhealthy: m.ailing, Backoff: m.memory, Now: m.now}
		a := plan.ComputeActions(in)
		if told(a) == "" {
			return false
		}
		if m.step() {
			return true
		}
		if m.made == before && !a.RequeueAt.IsZero() {
			m.now = a.RequeueAt
		}
	}
	m.t.Fatal("there is always something to do")
	return false
}

func TestLeftAloneAPodComesToRestAndOneThatEndsWellComesToItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		for range 3 {
			if m.step() {
				return
			}
			m.happen()
		}
		clear(m.ailing)
		for range 20 {
			if m.settle() {
				return
			}
			ended := 0
			for i := range m.seen.Containers {
				c := &m.seen.Containers[i]
				if c.State == observed.Running {
					m.started[c.ID] = true
					if _, kind := plan.FindContainer(m.pod, c.Name); kind != derive.SidecarContainer {
						m.tick(time.Hour)
						m.end(c.ID, 0)
						ended++
					}
				}
			}
			if ended == 0 && !m.initWaits() {
				t.Fatalf("nothing runs, nothing is to do, and it is not done: %+v", m.seen.Containers)
			}
		}
		if m.finite() {
			t.Fatalf("a pod whose containers all succeed is never done")
		}
	})
}

// initWaits reports whether the next step was opened by a sidecar that counts as started only now.
func (m *machine) initWaits() bool {
	a := plan.ComputeActions(plan.Input{Pod: m.pod, Observed: m.snapshot(), Started: m.started, Backoff: m.memory, Now: m.now})
	return told(a) != ""
}

func (m *machine) finite() bool {
	for _, c := range m.pod.Spec.Containers {
		always := c.RestartPolicy == nil && m.pod.Spec.RestartPolicy == v1.RestartPolicyAlways ||
			c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		if always {
			return false
		}
	}
	return true
}
