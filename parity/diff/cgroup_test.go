package diff_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/host"
	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// generateCgroupPod generates a pod whose resources are as large as those of real pods, too.
func generateCgroupPod(g *generator) *v1.Pod {
	pod := generatePod(g)
	pod.UID = types.UID(oneOf(g, "u1", "0123abcd-4567-89ef-0123-456789abcdef", "0123456789abcdef0123456789abcdef"))
	scale := oneOf(g, int64(1), 1, 7, 1024, 300_000)
	enlarge := func(list v1.ResourceList) {
		for name, quantity := range list {
			list[name] = *resource.NewMilliQuantity(quantity.MilliValue()*scale, quantity.Format)
		}
	}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range containers {
		enlarge(containers[i].Resources.Requests)
		enlarge(containers[i].Resources.Limits)
		if g.chance(40) { // makes some pods guaranteed, and some limited
			containers[i].Resources.Limits = containers[i].Resources.Requests
		}
	}
	for i := range containers {
		if at := i - len(pod.Spec.InitContainers); at >= 0 {
			pod.Spec.Containers[at].Resources = containers[i].Resources
		} else {
			pod.Spec.InitContainers[i].Resources = containers[i].Resources
		}
	}
	pod.Spec.PriorityClassName = oneOf(g, "", "", "system-node-critical", "system-cluster-critical")
	if g.chance(40) {
		pod.Spec.Priority = new(oneOf(g, int32(0), 2_000_000_000, 2_000_001_000))
	}
	return pod
}

// cgroupValues converts the kubelet's values. It always sends the period with the quota.
func cgroupValues(config *cm.ResourceConfig) cgroup.Resources {
	result := cgroup.Resources{CPUQuota: config.CPUQuota, Memory: config.Memory, PIDs: config.PidsLimit, HugePages: config.HugePageLimit}
	if config.CPUShares != nil {
		result.CPUShares = new(int64(*config.CPUShares))
	}
	return result
}

// TestCGR3_KubeletNames compares cgroup_parent under both drivers. CGR-4, CGR-5
func TestCGR3_KubeletNames(t *testing.T) {
	type input struct {
		Pod          *v1.Pod
		Root, Driver string
	}
	generate := func(g *generator) input {
		return input{generateCgroupPod(g), oneOf(g, "/", "/a", "/my-node/b"), oneOf(g, cgroup.DriverCgroupfs, cgroup.DriverSystemd)}
	}
	newComparison(generate, func(in input) string {
		want := kubelet.PodCgroupParent(in.Root, in.Driver, derive.QOSClass(in.Pod), in.Pod)
		node := cgroup.NodeName(cgroup.ParseName(in.Root))
		generator := &criconfig.Generator{CgroupParent: node.Path(cgroup.DriverCgroupfs), LogDir: "/logs"}
		config, err := generator.SandboxConfig(in.Pod, 0, in.Driver)
		if err != nil {
			return err.Error()
		}
		if got := config.Linux.CgroupParent; got != want {
			return fmt.Sprintf("got %s, want %s", got, want)
		}
		if got := cgroup.PodName(node, derive.QOSClass(in.Pod), podid.UID(in.Pod.UID)); !slices.ContainsFunc(
			cgroup.PodNames(node, podid.UID(in.Pod.UID)), func(name cgroup.Name) bool { return slices.Equal(name, got) }) {
			return fmt.Sprintf("%v is not among the cgroups that are removed", got)
		}
		return ""
	}).run(t)
}

// TestCGR11_KubeletPodValues compares the values of pod cgroups. CGR-12, CGR-13, CGR-15
func TestCGR11_KubeletPodValues(t *testing.T) {
	newComparison(generateCgroupPod, func(pod *v1.Pod) string {
		return cmp.Diff(cgroupValues(kubelet.PodCgroup(pod)), cgroup.PodResources(pod, 0))
	}).run(t)
}

// TestCGR9_KubeletQOSValues compares the values of the cgroups of QoS classes.
func TestCGR9_KubeletQOSValues(t *testing.T) {
	machine, err := host.Read(host.Paths{})
	if err != nil {
		t.Fatal(err)
	}
	generate := func(g *generator) []*v1.Pod {
		var pods []*v1.Pod
		for range g.IntN(5) {
			pods = append(pods, generateCgroupPod(g))
		}
		return pods
	}
	newComparison(generate, func(pods []*v1.Pod) string {
		burstable, bestEffort, err := kubelet.QOSCgroups(pods)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(cgroupValues(burstable), cgroup.QOSResources(v1.PodQOSBurstable, pods, machine.HugePageSizes)) +
			cmp.Diff(cgroupValues(bestEffort), cgroup.QOSResources(v1.PodQOSBestEffort, pods, machine.HugePageSizes))
	}).run(t)
}

// TestCGR8_KubeletNodeValues compares the values of the cgroup of all pods.
func TestCGR8_KubeletNodeValues(t *testing.T) {
	generate := func(g *generator) v1.ResourceList {
		available := v1.ResourceList{}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "pid", "hugepages-2Mi", "hugepages-1Gi", "ephemeral-storage"} {
			if g.chance(60) {
				available[name] = *resource.NewMilliQuantity(int64(g.IntN(1<<40)), resource.DecimalSI)
			}
		}
		return available
	}
	newComparison(generate, func(available v1.ResourceList) string {
		return cmp.Diff(cgroupValues(kubelet.NodeCgroup(available)), cgroup.NodeResources(available))
	}).run(t)
}

func TestCGR16_KubeletWeight(t *testing.T) {
	for shares := int64(2); shares <= 262144+10; shares++ {
		if got, want := cgroup.CPUWeight(shares), int64(kubelet.CPUWeight(uint64(shares))); got != want {
			t.Fatalf("%d shares: got weight %d, want %d", shares, got, want)
		}
	}
}

// TestCGR15_KubeletSystemdQuota compares quotas with the systemd driver with those of the kubelet's cgroup library.
func TestCGR15_KubeletSystemdQuota(t *testing.T) {
	for quota := int64(-1); quota <= 400_000; quota++ {
		got := cgroup.SystemdCPUQuota(quota)
		want, perSecond := kubelet.SystemdCPUQuota(quota)
		if got != want || quota > 0 && uint64(got)*10 != perSecond {
			t.Fatalf("quota %d: got %d, want %d and %d µs per second", quota, got, want, perSecond)
		}
	}
}

// TestCGR24_KubeletContainerResources compares what containers and sandboxes get over the CRI, on machines of both cgroup
// versions. CGR-25, CGR-26, CGR-27, CGR-28, CGR-29, CGR-30
func TestCGR24_KubeletContainerResources(t *testing.T) {
	manager, err := kubelet.NewRuntimeManager(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	machine, err := host.Read(host.Paths{})
	if err != nil {
		t.Fatal(err)
	}
	type input struct {
		Pod  *v1.Pod
		Host kubelet.Host
	}
	generate := func(g *generator) input {
		return input{generateCgroupPod(g), kubelet.Host{
			V2: g.chance(50), SwapController: g.chance(50), SingleProcessOOMKill: g.chance(30),
			MemoryCapacity: oneOf(g, uint64(1<<20), 1<<30, 1<<34),
		}}
	}
	newComparison(generate, func(in input) string {
		generator := &criconfig.Generator{
			LogDir: "/logs", MemoryCapacity: int64(in.Host.MemoryCapacity), SingleProcessOOMKill: in.Host.SingleProcessOOMKill,
			CgroupHost: cgroup.Host{V2: in.Host.V2, SwapController: in.Host.SwapController, HugePageSizes: machine.HugePageSizes},
		}
		return compareContainers(manager, generator, in.Host, in.Pod) + compareSandboxes(manager, generator, in.Host, in.Pod)
	}).run(t)
}

func compareContainers(manager *kubelet.RuntimeManager, generator *criconfig.Generator, host kubelet.Host, pod *v1.Pod) string {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		want := manager.ContainerResources(host, pod, &container)
		slices.SortFunc(want.HugepageLimits, func(a, b *runtimeapi.HugepageLimit) int { // the kubelet's order is random
			return slices.Index(pageSizeOrder, a.PageSize) - slices.Index(pageSizeOrder, b.PageSize)
		})
		config, err := generator.ContainerConfig(pod, plan.Start{Container: &container}, criconfig.ContainerInputs{})
		if err != nil {
			return err.Error()
		}
		if diff := cmp.Diff(want, config.Linux.Resources, protocmp.Transform()); diff != "" {
			return container.Name + ":\n" + diff
		}
	}
	return ""
}

var pageSizeOrder = []string{"64KB", "2MB", "32MB", "1GB"}

func compareSandboxes(manager *kubelet.RuntimeManager, generator *criconfig.Generator, host kubelet.Host, pod *v1.Pod) string {
	resources, overhead, err := manager.SandboxResources(host, pod)
	if err != nil {
		return err.Error()
	}
	config, err := generator.SandboxConfig(pod, 0, cgroup.DriverCgroupfs)
	if err != nil {
		return err.Error()
	}
	return cmp.Diff(resources, config.Linux.Resources, protocmp.Transform()) +
		cmp.Diff(overhead, config.Linux.Overhead, protocmp.Transform())
}
