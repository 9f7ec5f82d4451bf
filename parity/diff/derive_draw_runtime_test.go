package diff_test

import (
	"fmt"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

func containerID(name string, instance int) observed.ContainerID {
	return observed.ContainerID{Runtime: "rt", ID: fmt.Sprintf("%s-%d", name, instance)}
}

// drawObserved draws what a runtime holds of the pod, leftovers and strangers included. Now and then all is well, which
// chance alone would hardly bring about.
func drawObserved(d *drawer, pod *v1.Pod) *observed.Pod {
	seen := &observed.Pod{}
	boxes := oneOf(d, 0, 1, 1, 1, 2, 2, 3)
	well := boxes > 0 && d.chance(30)
	for i := range boxes {
		seen.Sandboxes = append(seen.Sandboxes, drawSandbox(d, pod, i))
	}
	age := time.Duration(0)
	for _, name := range containerNames(pod) {
		restarts := d.IntN(4)
		for instance := range oneOf(d, 0, 1, 1, 1, 2, 3) {
			age += time.Minute
			c := drawInstance(d, name, instance)
			c.CreatedAt = firstDay.Add(-age)
			c.RestartCount = max(0, restarts-instance) // which only rises: see observed.Pod.Sort
			if boxes > 0 {
				c.SandboxID = seen.Sandboxes[d.IntN(boxes)].ID
			}
			seen.Containers = append(seen.Containers, c)
		}
	}
	for _, ip := range oneOf(d, nil, nil, []string{"10.0.0.1"}, []string{"2001:db8::1", "10.0.0.2", "10.0.0.3"},
		[]string{"2001:db8::2"}, []string{"::ffff:10.1.1.1", "2001:db8:0::7"}) {
		seen.IPs = append(seen.IPs, netip.MustParseAddr(ip))
	}
	if d.chance(50) {
		seen.Resources = drawEnforced(d)
	}
	seen.Sort()
	if well {
		makeWell(pod, seen)
	}
	return seen
}

// makeWell lets the newest sandbox be ready, all containers run, and those that initialize be done.
func makeWell(pod *v1.Pod, seen *observed.Pod) {
	seen.Sandboxes[0].Ready = true
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if seen.Instances(c.Name)[0].ID != c.ID {
			continue
		}
		c.State, c.Exit, c.SandboxID = observed.Running, nil, seen.Sandboxes[0].ID
		for j := range pod.Spec.InitContainers {
			if spec := &pod.Spec.InitContainers[j]; spec.Name == c.Name && !isSidecar(spec) {
				c.State, c.Exit = observed.Exited, &observed.Exit{Reason: "Completed", FinishedAt: c.StartedAt}
			}
		}
	}
}

func isSidecar(spec *v1.Container) bool {
	return spec.RestartPolicy != nil && *spec.RestartPolicy == v1.ContainerRestartPolicyAlways
}

func drawSandbox(d *drawer, pod *v1.Pod, age int) observed.Sandbox {
	box := observed.Sandbox{
		ID: fmt.Sprintf("box%d", age), CreatedAt: firstDay.Add(-time.Duration(age) * time.Hour), Attempt: uint32(9 - age),
		Ready: d.chance(70), HostNetwork: pod.Spec.HostNetwork != d.chance(10),
	}
	if d.chance(70) {
		box.Network = &observed.Network{}
		if d.chance(80) {
			box.Network.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		}
	}
	return box
}

func drawInstance(d *drawer, name string, instance int) observed.Container {
	c := observed.Container{
		ID: containerID(name, instance), Name: name, StartedAt: drawTime(d).Time,
		State: oneOf(d, observed.Unknown, observed.Created, observed.Running, observed.Running, observed.Exited, observed.Exited),
		Image: observed.Image{Name: name + ":2", Ref: name + "@sha256:2"},
	}
	if instance > 0 && d.chance(60) {
		c.State = observed.Exited
	}
	if c.State == observed.Exited {
		c.Exit = &observed.Exit{
			Code: d.IntN(3), Reason: oneOf(d, "Completed", "Error", "Error", "Error", "Error", "OOMKilled"), Message: "it stopped", FinishedAt: drawTime(d).Time,
		}
	}
	if d.chance(50) {
		c.Resources = drawEnforced(d)
	}
	if d.chance(20) {
		c.User = &observed.User{UID: 1, GID: 2, SupplementalGroups: []int64{3}}
	}
	return c
}

func drawEnforced(d *drawer) *observed.Resources {
	some := func(values ...int64) *int64 {
		if d.chance(30) {
			return nil
		}
		return new(oneOf(d, values...))
	}
	return &observed.Resources{
		MilliCPURequest: some(2, 3, 100), MilliCPULimit: some(5, 10, 11, 100),
		MemoryRequestBytes: some(1, 1<<20), MemoryLimitBytes: some(1, 1<<20),
	}
}

// drawProbes draws results for containers that are probed.
func drawProbes(d *drawer, pod *v1.Pod, seen *observed.Pod) derive.Probes {
	probes := derive.Probes{}
	verdict := func(probe *v1.Probe) derive.Verdict {
		if probe == nil {
			return derive.ProbeUndecided
		}
		return oneOf(d, derive.ProbeUndecided, derive.ProbePassed, derive.ProbePassed, derive.ProbeFailed)
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, c := range seen.Instances(containers[i].Name) {
				facts := derive.ProbeFacts{Startup: verdict(containers[i].StartupProbe), Readiness: verdict(containers[i].ReadinessProbe)}
				if facts != (derive.ProbeFacts{}) {
					probes[c.ID] = facts
				}
			}
		}
	}
	return probes
}
