package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/host"
	"github.com/heraldnode/herald/cgroup/usage"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats"
)

// podStats returns the sample of the pod.
func podStats(ctx context.Context, r *cri.Runtime, pod *v1.Pod) (load.PodSample, error) {
	samples, err := r.ListPodStats(ctx)
	for _, sample := range samples {
		if sample.UID == podid.UID(pod.UID) {
			return sample, nil
		}
	}
	return load.PodSample{}, errors.Join(err, fmt.Errorf("no sample of the pod among %d", len(samples)))
}

// podGroup returns the cgroup of the pod.
func podGroup(t *testing.T, r *cri.Runtime, root string, pod *v1.Pod) usage.Group {
	t.Helper()
	machine, err := host.Read(host.Paths{})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := r.CgroupDriver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := cgroup.PodName(cgroup.NodeName(cgroup.ParseName(root)), derive.QOSClass(pod), podid.UID(pod.UID))
	return usage.Reader{V2: machine.V2}.Group(name.Path(driver))
}

func number(t *testing.T, what string, value load.Value) float64 {
	t.Helper()
	got, known := value.Get()
	if !known {
		t.Errorf("%s is unknown", what)
	}
	return got
}

// TestRES21_PodOfContainerd runs a pod with a CPU limit so low that it is throttled, and compares containerd's numbers with the
// cgroup's files. RES-16, RES-22
func TestRES21_PodOfContainerd(t *testing.T) {
	c := containerd.ForTest(t)
	root := "/" + filepath.Base(c.Dir())
	r, _ := newRuntime(t, c, withCgroups(t, c, root))
	t.Cleanup(func() { removeCgroups(t, root) })
	pod, hostPod := newPod("pause"), newPod("pause")
	pod.Spec.Containers[0].Resources.Limits = newList("10m", "64Mi")
	hostPod.Spec.HostNetwork = true
	container := run(t, r, pod).Containers[0].ID
	run(t, r, hostPod)
	defer remove(t, r, pod)
	defer remove(t, r, hostPod)

	group := podGroup(t, r, root, pod)
	before := group.Read()
	sample, err := podStats(t.Context(), r, pod)
	if err != nil {
		t.Fatal(err)
	}
	after := group.Read()
	const rounding = 1e-6 // of version 2
	low, high := number(t, "CPU time of the cgroup", before.CPUSeconds), number(t, "CPU time of the cgroup", after.CPUSeconds)
	if cpu := number(t, "CPU time of the pod", sample.Usage.CPUSeconds); cpu < low-rounding || cpu > high+rounding || cpu <= 0 {
		t.Errorf("got CPU time %v, want one between %v and %v", cpu, low, high)
	}
	const tolerance = 4 << 20 // the kernel frees and caches pages as it likes
	want := number(t, "working set of the cgroup", after.WorkingSet)
	if got := number(t, "working set of the pod", sample.Usage.WorkingSet); got <= 0 || got > want+tolerance || got < want-tolerance {
		t.Errorf("got working set %v, want about %v", got, want)
	}
	if pids := number(t, "processes", sample.PIDs); pids < 2 { // pause and testpod; containerd counts pause
		t.Errorf("got %v processes, want at least 2", pids)
	}
	number(t, "received bytes", sample.Network.RxBytes)
	if len(sample.Containers) != 1 || sample.Containers[0].ID != container.ID {
		t.Fatalf("got containers %+v, want %s", sample.Containers, container)
	}
	throttled := waitForThrottling(t, r, pod)
	number(t, "major faults", throttled.MajorFaults)
	if available := number(t, "available", throttled.Available); available > 64<<20 {
		t.Errorf("got %v bytes available of a limit of 64Mi", available)
	}
	other, err := podStats(t.Context(), r, hostPod)
	if err != nil {
		t.Fatal(err)
	}
	if other.Network != (load.Network{}) {
		t.Errorf("got network %+v of a pod in the network of the node", other.Network)
	}
}

// waitForThrottling returns the usage of the pod's container once the kernel has counted time in which it was throttled, which it does
// at the end of that time.
func waitForThrottling(t *testing.T, r *cri.Runtime, pod *v1.Pod) load.Usage {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		sample, err := podStats(t.Context(), r, pod)
		if err != nil {
			t.Fatal(err)
		}
		usage := sample.Containers[0].Usage
		periods, seconds := number(t, "throttled periods", usage.Throttling.Throttled), number(t, "throttled seconds", usage.Throttling.Seconds)
		if periods > 0 && seconds > 0 {
			return usage
		}
		if time.Now().After(deadline) {
			t.Fatalf("the start of a Go program with 1 ms of CPU in 100 ms was not throttled: %+v", usage)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A containerd that does not answer delays only the numbers of pods: they turn unknown, and are known again when it answers.
func TestL3_FrozenContainerd(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	pod := newPod("pause")
	run(t, r, pod)
	defer remove(t, r, pod)
	machine, err := stats.NewMachine("/")
	if err != nil {
		t.Fatal(err)
	}
	collector, err := stats.New(stats.Config{
		Machine: machine, Pods: r, NodePeriod: 50 * time.Millisecond, PodPeriod: 100 * time.Millisecond,
		IdlePodPeriod: time.Minute, Timeout: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = collector.Run(ctx) }()
	await := func(what string, want bool) {
		t.Helper()
		heraldtest.Eventually(t, func() error {
			sample, _ := collector.Pod(podid.UID(pod.UID))
			if sample.Memory.OneMinute.Mean.IsKnown() != want {
				return fmt.Errorf("%s: memory of the pod is known: %v, want %v", what, !want, want)
			}
			return nil
		})
	}
	await("running", true)
	if err := c.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Continue() }()
	await("frozen", false)
	if !collector.Node().MemoryBytes.WorkingSet.IsKnown() {
		t.Error("a frozen runtime made the numbers of the node unknown")
	}
	if err := c.Continue(); err != nil {
		t.Fatal(err)
	}
	await("continued", true)
}

// The calls that containerd implements are those that this package relies on.
func TestRES16_CallsOfContainerd(t *testing.T) {
	c := containerd.ForTest(t)
	client := runtimeapi.NewRuntimeServiceClient(connect(t, c))
	if _, err := client.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := client.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{}); err != nil {
		t.Error(err)
	}
}
