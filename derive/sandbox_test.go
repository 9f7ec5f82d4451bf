package derive_test

import (
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

func TestPodReadyToStartContainersTellsWhetherTheSandboxWillDo(t *testing.T) {
	own, host := newPod(always, container("a")), newPod(always, container("a"))
	host.Spec.HostNetwork = true
	noIP, withIP := &observed.Network{}, &observed.Network{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	box := func(id string, ready bool, network *observed.Network) observed.Sandbox {
		age := time.Hour
		if id == "new" {
			age = time.Minute
		}
		return observed.Sandbox{ID: id, Ready: ready, CreatedAt: noon.Add(-age), Network: network}
	}
	ofHost := box("new", true, noIP)
	ofHost.HostNetwork = true
	tests := map[string]struct {
		pod   *v1.Pod
		boxes []observed.Sandbox
		want  string
	}{
		"GEN-24 none":                          {pod: own, want: "no pod sandbox exists"},
		"GEN-25 two are ready":                 {pod: own, boxes: []observed.Sandbox{box("new", true, nil), box("old", true, nil)}, want: "multiple pod sandboxes are ready and need to be reconciled"},
		"GEN-26 the newest is dead":            {pod: own, boxes: []observed.Sandbox{box("old", true, nil), box("new", false, nil)}, want: "pod sandbox is not ready"},
		"GEN-27 the pod left the host's":       {pod: own, boxes: []observed.Sandbox{ofHost}, want: "network namespace mode changed and sandbox needs to be recreated"},
		"GEN-27 the pod moved to the host's":   {pod: host, boxes: []observed.Sandbox{box("new", true, withIP)}, want: "network namespace mode changed and sandbox needs to be recreated"},
		"GEN-28 no address":                    {pod: own, boxes: []observed.Sandbox{box("new", true, noIP)}, want: "pod sandbox has no IP address"},
		"GEN-28 nobody speaks of a network":    {pod: own, boxes: []observed.Sandbox{box("new", true, nil)}},
		"GEN-28 the host's network needs none": {pod: host, boxes: []observed.Sandbox{ofHost}},
		"GEN-29 it will do":                    {pod: own, boxes: []observed.Sandbox{box("new", true, withIP), box("old", false, nil)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			seen := &observed.Pod{Sandboxes: test.boxes}
			seen.Sort()
			mustEqual(t, derive.NewSandboxReason(test.pod, seen), test.want)
			want := isTrue(v1.PodReadyToStartContainers)
			if test.want != "" {
				want.Status = v1.ConditionFalse
			}
			mustEqual(t, derive.ReadyToStartContainersCondition(test.pod, seen), want)
		})
	}
	t.Run("GEN-24 the runtime was never asked", func(t *testing.T) {
		mustEqual(t, derive.NewSandboxReason(own, nil), "no pod sandbox exists")
	})
}

func TestGEN30ASandboxThatWasJustMadeIsToldAtOnce(t *testing.T) {
	pod := newPod(always, container("a"))
	before := status(derive.Input{Pod: pod})
	got := derive.WithSandboxReady(pod, before)
	mustEqual(t, condition(t, got, v1.PodReadyToStartContainers).Status, v1.ConditionTrue)
	mustEqual(t, condition(t, before, v1.PodReadyToStartContainers).Status, v1.ConditionFalse)
	mustEqual(t, kinds(got), kinds(before))
}

func TestGEN31TheConditionDescribesThePresent(t *testing.T) {
	pod := newPod(never, container("a"))
	before := status(derive.Input{Pod: pod, Observed: world(seenExit("a", 1, 0))})
	mustEqual(t, condition(t, before, v1.PodReadyToStartContainers).Status, v1.ConditionTrue)
	after := status(derive.Input{Pod: pod, Previous: &before, Observed: &observed.Pod{}})
	mustEqual(t, condition(t, after, v1.PodReadyToStartContainers).Status, v1.ConditionFalse)
}
