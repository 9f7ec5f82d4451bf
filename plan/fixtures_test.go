package plan_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newPod(policy v1.RestartPolicy, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"},
		Spec: v1.PodSpec{
			RestartPolicy: policy, Containers: containers, TerminationGracePeriodSeconds: new(int64(30)),
		},
	}
}

func withInit(pod *v1.Pod, containers ...v1.Container) *v1.Pod {
	pod.Spec.InitContainers = containers
	return pod
}

func newContainer(name string) v1.Container { return v1.Container{Name: name, Image: name + ":1"} }

func withPolicy(name string, policy v1.ContainerRestartPolicy) v1.Container {
	c := newContainer(name)
	c.RestartPolicy = &policy
	return c
}

func newSidecar(name string) v1.Container { return withPolicy(name, v1.ContainerRestartPolicyAlways) }

// withRule returns a container that restarts only by its rule for exit code 42.
func withRule(name string, action v1.ContainerRestartRuleAction) v1.Container {
	c := withPolicy(name, v1.ContainerRestartPolicyNever)
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    action,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	return c
}

func withStartupProbe(c v1.Container) v1.Container {
	c.StartupProbe = &v1.Probe{}
	return c
}

func containerID(raw string) observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: raw}
}

// newInstance returns an instance that was created and started 20 minutes ago in sandbox s0. Its ID is its name and restart count.
func newInstance(name string, state observed.State, changes ...func(*observed.Container)) observed.Container {
	c := observed.Container{
		Name: name, SandboxID: "s0", State: state, CreatedAt: now.Add(-20 * time.Minute), Image: observed.Image{Name: name + ":1"},
	}
	if state != observed.Created {
		c.StartedAt = c.CreatedAt
	}
	for _, change := range changes {
		change(&c)
	}
	if c.ID.ID == "" {
		c.ID = containerID(fmt.Sprintf("%s#%d", name, c.RestartCount))
	}
	return c
}

func newRunning(name string, changes ...func(*observed.Container)) observed.Container {
	return newInstance(name, observed.Running, changes...)
}

// newExited returns an instance that exited an hour ago after a minute.
func newExited(name string, code int, changes ...func(*observed.Container)) observed.Container {
	return newInstance(name, observed.Exited, append([]func(*observed.Container){func(c *observed.Container) {
		c.Exit = &observed.Exit{Code: code}
		ran(time.Minute, time.Hour)(c)
	}}, changes...)...)
}

// ran sets how long an instance ran and how long ago it exited.
func ran(length, ago time.Duration) func(*observed.Container) {
	return func(c *observed.Container) {
		c.Exit.FinishedAt = now.Add(-ago)
		c.StartedAt = c.Exit.FinishedAt.Add(-length)
		c.CreatedAt = c.StartedAt
	}
}

func restartCount(n int) func(*observed.Container) {
	return func(c *observed.Container) { c.RestartCount = n }
}

func inSandbox(sandbox string) func(*observed.Container) {
	return func(c *observed.Container) { c.SandboxID = sandbox }
}

func withHash(hash uint64) func(*observed.Container) {
	return func(c *observed.Container) { c.SpecHash = hash }
}

func createdAgo(ago time.Duration) func(*observed.Container) {
	return func(c *observed.Container) { c.CreatedAt = now.Add(-ago) }
}

func withReason(reason string) func(*observed.Container) {
	return func(c *observed.Container) { c.Exit.Reason = reason }
}

var readySandbox = observed.Sandbox{
	ID: "s0", Ready: true, CreatedAt: now.Add(-2 * time.Hour),
	Network: &observed.Network{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
}

func deadSandbox(attempt uint32) observed.Sandbox {
	return observed.Sandbox{ID: fmt.Sprintf("s%d", attempt), Attempt: attempt, CreatedAt: readySandbox.CreatedAt}
}

// newRuntimePod returns a pod with this sandbox and these containers.
func newRuntimePod(sandbox observed.Sandbox, containers ...observed.Container) *observed.Pod {
	pod := &observed.Pod{UID: "u1", Sandboxes: []observed.Sandbox{sandbox}, Containers: containers}
	pod.Sort()
	return pod
}

// describe returns the actions as one line, empty if there are none.
func describe(a plan.Actions) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if a.Evict != nil {
		add("evict %s", a.Evict.Reason)
	}
	if a.Done {
		add("done")
	}
	if a.KillPod {
		add("kill")
	}
	if a.Sandbox != nil {
		add("sandbox %d", a.Sandbox.Attempt)
	}
	for _, s := range a.Stop {
		add("stop %s %s", s.ID.ID, s.Reason)
	}
	for _, s := range a.Start {
		add("start %s %s#%d", s.Kind, s.Container.Name, s.RestartCount)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Waiting)) {
		add("%s waits %s", name, a.Waiting[name].Until.Sub(now))
	}
	return strings.Join(parts, ", ")
}

// actionTest is the observed state of a pod and the expected actions.
type actionTest struct {
	pod        *v1.Pod
	runtimePod *observed.Pod
	want       string
}

func runActionTests(t *testing.T, tests map[string]actionTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.ComputeActions(plan.Input{Pod: test.pod, Observed: test.runtimePod, Now: now})
			if diff := cmp.Diff(test.want, describe(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func compute(pod *v1.Pod, runtimePod *observed.Pod, backoff plan.Backoff) plan.Actions {
	return plan.ComputeActions(plan.Input{Pod: pod, Observed: runtimePod, Backoff: backoff, Now: now})
}
