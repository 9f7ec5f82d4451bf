package diff_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubelet "k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/heraldnode/herald/admission"
	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

// diskLayout is a node with scripted statistics and a layout of its file systems.
type diskLayout struct {
	oneDisk
	eviction.Layout
	// reclaimed is what becomes available when exited containers or unused images are removed.
	reclaim func(eviction.Reclaim)
}

func (d *diskLayout) HasDedicatedImageFs(context.Context) (bool, error) {
	return d.Layout != eviction.OneDisk, nil
}

func (d *diskLayout) HasDedicatedContainerFs(context.Context) (bool, error) {
	return d.Layout == eviction.OnlyImagesApart, nil
}

func (d *diskLayout) DeleteUnusedImages(context.Context) error {
	d.reclaim(eviction.ReclaimImages)
	return nil
}

func (d *diskLayout) DeleteAllUnusedContainers(context.Context) error {
	d.reclaim(eviction.ReclaimContainers)
	return nil
}

// machine has the figures of a node, by signal.
type machine map[eviction.Signal]eviction.Observation

const gibi = 1 << 30

// healthyMachine returns figures above all thresholds.
func healthyMachine(now time.Time, layout eviction.Layout) machine {
	m := machine{}
	for _, signal := range []eviction.Signal{
		eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree,
		eviction.ImageFSAvailable, eviction.ImageFSInodesFree, eviction.ContainerFSAvailable, eviction.ContainerFSInodesFree, eviction.PIDAvailable,
	} {
		m[signal] = eviction.Observation{Available: 9 * gibi, Capacity: 10 * gibi, At: now}
	}
	m.align(layout)
	return m
}

// align gives file systems on the same disk the same figures.
func (m machine) align(layout eviction.Layout) {
	same := func(to, from eviction.Signal) { m[to] = m[from] }
	if layout == eviction.OneDisk {
		same(eviction.ImageFSAvailable, eviction.NodeFSAvailable)
		same(eviction.ImageFSInodesFree, eviction.NodeFSInodesFree)
	}
	if layout == eviction.OnlyImagesApart {
		same(eviction.ContainerFSAvailable, eviction.NodeFSAvailable)
		same(eviction.ContainerFSInodesFree, eviction.NodeFSInodesFree)
		return
	}
	same(eviction.ContainerFSAvailable, eviction.ImageFSAvailable)
	same(eviction.ContainerFSInodesFree, eviction.ImageFSInodesFree)
}

// summary returns the kubelet's statistics of the same machine.
func (m machine) summary() statsapi.NodeStats {
	memory := func(o eviction.Observation) *statsapi.MemoryStats {
		return &statsapi.MemoryStats{
			Time: metav1.NewTime(o.At), AvailableBytes: new(uint64(o.Available)), WorkingSetBytes: new(uint64(o.Capacity - o.Available)),
		}
	}
	fileSystem := func(space, inodes eviction.Observation) *statsapi.FsStats {
		return &statsapi.FsStats{
			Time: metav1.NewTime(space.At), AvailableBytes: new(uint64(space.Available)), CapacityBytes: new(uint64(space.Capacity)),
			InodesFree: new(uint64(inodes.Available)), Inodes: new(uint64(inodes.Capacity)),
		}
	}
	pids := m[eviction.PIDAvailable]
	return statsapi.NodeStats{
		Memory:           memory(m[eviction.MemoryAvailable]),
		SystemContainers: []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: memory(m[eviction.AllocatableMemoryAvailable])}},
		Fs:               fileSystem(m[eviction.NodeFSAvailable], m[eviction.NodeFSInodesFree]),
		Runtime: &statsapi.RuntimeStats{
			ImageFs:     fileSystem(m[eviction.ImageFSAvailable], m[eviction.ImageFSInodesFree]),
			ContainerFs: fileSystem(m[eviction.ContainerFSAvailable], m[eviction.ContainerFSInodesFree]),
		},
		Rlimit: &statsapi.RlimitStats{
			Time: metav1.NewTime(pids.At), MaxPID: new(pids.Capacity), NumOfRunningProcesses: new(pids.Capacity - pids.Available),
		},
	}
}

// randomSettings returns thresholds for one signal and for memory: with more, the kubelet takes them in no order.
func randomSettings(random *rand.Rand, signal eviction.Signal) eviction.Settings {
	type values = map[string]string
	threshold := []string{"10%", "1Gi", "1500Mi", "12.5%"}[random.IntN(4)]
	settings := eviction.Settings{
		Hard: values{"memory.available": "1Gi"}, MaxPodGracePeriod: random.IntN(40), PressureTransitionPeriod: 5 * time.Minute,
		IgnoreAllocatable: random.IntN(2) == 0,
	}
	if random.IntN(2) == 0 && signal != eviction.MemoryAvailable {
		settings.Soft, settings.SoftGracePeriod = values{string(signal): threshold}, values{string(signal): []string{"30s", "2m"}[random.IntN(2)]}
	} else {
		settings.Hard[string(signal)] = threshold
	}
	if random.IntN(2) == 0 {
		settings.MinimumReclaim = values{string(signal): []string{"500Mi", "5%"}[random.IntN(2)]}
	}
	return settings
}

func kubeletConfig(t *testing.T, settings eviction.Settings) kubelet.Config {
	t.Helper()
	enforced := []string{"pods"}
	if settings.IgnoreAllocatable {
		enforced = nil
	}
	thresholds, err := kubelet.ParseThresholdConfig(enforced, settings.Hard, settings.Soft, settings.SoftGracePeriod, settings.MinimumReclaim)
	if err != nil {
		t.Fatal(err)
	}
	return kubelet.Config{
		Thresholds: thresholds, PressureTransitionPeriod: settings.PressureTransitionPeriod, MaxPodGracePeriodSeconds: int64(settings.MaxPodGracePeriod),
	}
}

// randomPressedPod has requests and a priority. Pods do not tie: the kubelet's order of those is random.
func randomPressedPod(random *rand.Rand, i int) *v1.Pod {
	return heraldtest.NewPod(fmt.Sprint("pod-", i), func(pod *v1.Pod) {
		pod.UID, pod.Spec.Priority = types.UID(pod.Name), new(int32(random.IntN(3)))
		request := func() v1.ResourceRequirements {
			list := v1.ResourceList{}
			for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceEphemeralStorage} {
				if random.IntN(2) == 0 {
					list[name] = resource.MustParse([]string{"100Mi", "1Gi", "700M"}[random.IntN(3)])
				}
			}
			return v1.ResourceRequirements{Requests: list}
		}
		pod.Spec.Containers = []v1.Container{{Name: "a", Resources: request()}, {Name: "b", Resources: request()}}
		if random.IntN(4) == 0 {
			pod.Spec.InitContainers = []v1.Container{{Name: "init", Resources: request(), RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
		}
		if random.IntN(4) == 0 {
			pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("600Mi")}}
		}
		if random.IntN(3) == 0 {
			pod.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("50Mi")}
		}
		if random.IntN(2) == 0 {
			pod.Spec.TerminationGracePeriodSeconds = new(int64(random.IntN(60)))
		}
		pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		switch random.IntN(10) {
		case 0:
			pod.Annotations = map[string]string{podid.SourceAnnotation: "file"}
		case 1:
			pod.Spec.Priority = new(int32(2_000_000_000))
		}
	})
}

// randomPodUsage returns the same usage for both, nil for a pod that was not measured: one at most.
func randomPodUsage(random *rand.Rand, pod *v1.Pod, mayBeMissing bool) (*eviction.PodUsage, *statsapi.PodStats) {
	if mayBeMissing && random.IntN(20) == 0 {
		return nil, nil
	}
	bytes := func() float64 { return float64(random.Int64N(2 * gibi)) }
	usage := &eviction.PodUsage{Memory: load.Known(bytes()), PIDs: load.Known(float64(random.IntN(1 << 20)))}
	number := func(value load.Value) *uint64 {
		known, _ := value.Get()
		return new(uint64(known))
	}
	space := func() (eviction.Space, *statsapi.FsStats) {
		s := eviction.Space{Bytes: load.Known(bytes()), Inodes: load.Known(bytes())}
		return s, &statsapi.FsStats{UsedBytes: number(s.Bytes), InodesUsed: number(s.Inodes)}
	}
	stats := &statsapi.PodStats{
		PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		Memory: &statsapi.MemoryStats{WorkingSetBytes: number(usage.Memory)}, ProcessStats: &statsapi.ProcessStats{ProcessCount: number(usage.PIDs)},
	}
	for _, container := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		used := eviction.ContainerUsage{Name: container.Name, Memory: load.Known(bytes())}
		of := statsapi.ContainerStats{Name: container.Name, Memory: &statsapi.MemoryStats{WorkingSetBytes: number(used.Memory)}}
		used.Layer, of.Rootfs = space()
		used.Logs, of.Logs = space()
		usage.Containers, stats.Containers = append(usage.Containers, used), append(stats.Containers, of)
	}
	var volume *statsapi.FsStats
	usage.Volumes, volume = space()
	stats.VolumeStats = []statsapi.VolumeStats{{Name: "v", FsStats: *volume}}
	return usage, stats
}

// pressurePair is the kubelet's eviction manager and Herald's decisions about the same node.
type pressurePair struct {
	t       *testing.T
	random  *rand.Rand
	node    *diskLayout
	signal  eviction.Signal
	figures machine
	clock   *clocktesting.FakeClock
	now     time.Time // of this pass
	pods    []*v1.Pod
	usages  map[types.UID]*eviction.PodUsage

	// freed is what the next reclaim makes available.
	freed int64
	log   []string // of the kubelet in this pass

	policy eviction.Policy
	state  eviction.State
	seen   map[string]int

	waiting sync.WaitGroup
	resumed chan struct{}
}

// prepare sets the node of the next pass.
func (p *pressurePair) prepare() {
	p.clock.Step(time.Duration(5+p.random.IntN(120)) * time.Second)
	p.now = p.clock.Now()
	measured := p.now
	if p.random.IntN(8) == 0 {
		measured = p.figures[p.signal].At // EVI-10: nothing was measured since the last pass
	}
	p.figures = healthyMachine(measured, p.node.Layout)
	if p.random.IntN(3) > 0 {
		figure := p.figures[p.signal]
		threshold := []int64{gibi, 1500 << 20, figure.Capacity / 8}[p.random.IntN(3)]
		figure.Available = threshold + []int64{-500 << 20, -1, 0, 1, 200 << 20, 500 << 20}[p.random.IntN(6)]
		p.figures[p.signal] = figure
	}
	if p.signal != eviction.MemoryAvailable && p.random.IntN(10) == 0 {
		figure := p.figures[eviction.MemoryAvailable]
		figure.Available = gibi - 1
		p.figures[eviction.MemoryAvailable] = figure
	}
	p.figures.align(p.node.Layout)
	p.freed = []int64{0, 100 << 20, 3 * gibi}[p.random.IntN(3)]
	p.node.Summary = statsapi.Summary{Node: p.figures.summary()}
	p.pods, p.usages, p.log = nil, map[types.UID]*eviction.PodUsage{}, nil
	for i := range p.random.IntN(6) {
		pod := randomPressedPod(p.random, i)
		switch p.signal {
		case eviction.ImageFSAvailable: // where only images are, nothing else tells pods apart
			pod.Spec.Priority = new(*pod.Spec.Priority*10 + int32(i)) //nolint:gosec // small
		case eviction.NodeFSInodesFree: // BUG-142
			for c := range pod.Spec.Containers {
				delete(pod.Spec.Containers[c].Resources.Requests, v1.ResourceEphemeralStorage)
			}
			pod.Spec.InitContainers = nil
		}
		usage, stats := randomPodUsage(p.random, pod, len(p.usages) == len(p.pods))
		p.pods = append(p.pods, pod)
		if usage != nil {
			p.usages[pod.UID], p.node.Pods = usage, append(p.node.Pods, *stats)
		}
	}
}

// afterReclaim returns the figures when something was removed.
func (p *pressurePair) afterReclaim() machine {
	after := maps.Clone(p.figures)
	figure := after[p.signal]
	figure.Available += p.freed
	after[p.signal] = figure
	after.align(p.node.Layout)
	return after
}

// herald returns what Herald does about the node.
func (p *pressurePair) herald() (log []string) {
	var verdict eviction.Verdict
	input := eviction.Input{Observations: eviction.Observations(p.figures), Layout: p.node.Layout, Now: p.now}
	p.state, verdict = p.policy.Observe(p.state, input)
	if low := verdict.Starved; low != nil {
		for _, kind := range low.Reclaim {
			log = append(log, "reclaim "+string(kind))
		}
		if len(low.Reclaim) == 0 || !low.IsResolved(eviction.Observations(p.afterReclaim())) {
			var pods []eviction.Pod
			for _, pod := range p.pods {
				pods = append(pods, eviction.Pod{Object: pod, Usage: p.usages[pod.UID]})
			}
			if victim := low.Victim(pods); victim != nil {
				var status v1.PodStatus
				eviction.SetStatus(&status, victim.Pod, victim.Message, time.Time{})
				log = append(log, describeEviction(victim.Pod, victim.GracePeriod, &status))
			}
		}
	}
	return append(log, fmt.Sprint(verdict.Conditions))
}

func describeEviction(pod *v1.Pod, gracePeriod time.Duration, status *v1.PodStatus) string {
	condition := status.Conditions[0]
	return fmt.Sprintf("evict %s in %v: %s %s %q, %s %s %s %q %d", pod.Name, max(gracePeriod, time.Second), status.Phase, status.Reason, status.Message,
		condition.Type, condition.Status, condition.Reason, condition.Message, condition.ObservedGeneration)
}

// kill is called by the kubelet.
func (p *pressurePair) kill(pod *v1.Pod, _ bool, gracePeriod *int64, setStatus func(*v1.PodStatus)) error {
	var status v1.PodStatus
	setStatus(&status)
	p.log = append(p.log, describeEviction(pod, time.Duration(*gracePeriod)*time.Second, &status))
	p.resumed = make(chan struct{})
	p.waiting.Go(func() { // the kubelet waits for the end of the pod, by its clock
		for {
			select {
			case <-p.resumed:
				return
			case <-time.After(time.Millisecond):
				if p.clock.HasWaiters() {
					p.clock.Step(time.Second)
				}
			}
		}
	})
	return nil
}

// resume is called when the kubelet begins another pass.
func (p *pressurePair) resume() {
	if p.resumed != nil {
		close(p.resumed)
		p.waiting.Wait()
		p.resumed = nil
	}
}

// compare compares the last pass. The kubelet decided in it before it asks for the pods of the next one.
func (p *pressurePair) compare(manager kubelet.Manager, admit lifecycle.PodAdmitHandler, step int) {
	want := append(p.log, fmt.Sprint(kubeletConditions(manager)))
	got := p.herald()
	if diff := gocmp.Diff(want, got); diff != "" {
		p.t.Errorf("step %d, %s, %s: (-kubelet +Herald)\n%s", step, p.signal, p.node.Layout, diff)
	}
	p.seen[fmt.Sprint(len(want))]++
	p.compareAdmission(admit)
}

func kubeletConditions(manager kubelet.Manager) (held []v1.NodeConditionType) {
	for _, condition := range []struct {
		name  v1.NodeConditionType
		holds bool
	}{
		{v1.NodeMemoryPressure, manager.IsUnderMemoryPressure()}, {v1.NodeDiskPressure, manager.IsUnderDiskPressure()},
		{v1.NodePIDPressure, manager.IsUnderPIDPressure()},
	} {
		if condition.holds {
			held = append(held, condition.name)
		}
	}
	return held
}

// compareAdmission lets both admit a pod under the conditions of the last pass (ADM-22).
func (p *pressurePair) compareAdmission(admit lifecycle.PodAdmitHandler) {
	_, enforced := p.policy.Held(p.state, p.now)
	pod := heraldtest.NewPod("new", func(pod *v1.Pod) {
		if p.random.IntN(2) == 0 {
			pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")}
		}
		switch p.random.IntN(4) {
		case 0:
			pod.Spec.Priority = new(int32(2_000_000_000))
		case 1:
			pod.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}}
		}
	})
	want := admit.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	node := admission.Node{Pressures: enforced, Allocatable: v1.ResourceList{
		v1.ResourcePods: resource.MustParse("1"), v1.ResourceCPU: resource.MustParse("1"),
	}}
	got := cmp.Or(admission.Check(pod, node, nil), &admission.Rejection{})
	// The kubelet lists several conditions in no order.
	if got.Reason != want.Reason || (len(enforced) < 2 && got.Message != want.Message) || len(got.Message) != len(want.Message) {
		p.t.Errorf("admission under %v: got %q, %q, the kubelet has %q, %q", enforced, got.Reason, got.Message, want.Reason, want.Message)
	}
	if want.Reason != "" {
		p.seen["rejected"]++
	}
}

// The kubelet's eviction manager and Herald see the same node and the same pods over time: what do they reclaim, which pod do they evict,
// how, and which conditions do they report? EVI-3 to EVI-21, without the order among several thresholds.
func TestEVI12_EVI13_SameDecisions(t *testing.T) {
	seen := map[string]int{}
	for _, layout := range []eviction.Layout{eviction.OneDisk, eviction.ImagesApart, eviction.OnlyImagesApart} {
		for _, signal := range []eviction.Signal{
			eviction.MemoryAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree, eviction.ImageFSAvailable, eviction.PIDAvailable,
		} {
			if layout == eviction.OneDisk && signal == eviction.ImageFSAvailable {
				continue // figures of the data
			}
			for seed := range uint64(4) {
				t.Run(fmt.Sprint(layout, "/", signal, "/", seed), func(t *testing.T) { comparePressure(t, layout, signal, seed, seen) })
			}
		}
	}
	for _, kind := range []string{"1", "2", "3", "rejected"} {
		if seen[kind] < 50 {
			t.Errorf("got only %v", seen)
		}
	}
}

func comparePressure(t *testing.T, layout eviction.Layout, signal eviction.Signal, seed uint64, seen map[string]int) {
	const steps = 150
	random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // reproducible on purpose
	settings := randomSettings(random, signal)
	policy, err := eviction.NewPolicy(settings)
	if err != nil {
		t.Fatal(err)
	}
	p := &pressurePair{
		t: t, random: random, node: &diskLayout{Layout: layout}, signal: signal, policy: policy, seen: seen,
		clock: clocktesting.NewFakeClock(time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)),
	}
	p.node.reclaim = func(kind eviction.Reclaim) {
		p.log = append(p.log, "reclaim "+string(kind))
		p.node.Node = p.afterReclaim().summary()
	}
	manager, admit := kubelet.NewManager(
		p.node, kubeletConfig(t, settings), p.kill, p.node, p.node, &record.FakeRecorder{}, &v1.ObjectReference{}, p.clock, true)
	done, step := make(chan struct{}), 0
	manager.Start(klog.NewContext(t.Context(), logr.Discard()), p.node, func() []*v1.Pod {
		p.resume()
		if step > 0 {
			p.compare(manager, admit, step)
		}
		if step++; step > steps || t.Failed() {
			close(done)
			runtime.Goexit() // the kubelet's loop never ends
		}
		p.prepare()
		return slices.Clone(p.pods)
	}, func(*v1.Pod) bool { return true }, 0)
	<-done
}
