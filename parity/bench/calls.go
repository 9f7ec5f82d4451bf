package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

// call is an operation that both sides can repeat.
type call struct {
	name, description string
	kubelet, herald   repeatFunc
	goal              Goal
}

// repeatFunc runs the operation n times.
type repeatFunc func(n int) error

// cost is what one operation takes.
type cost struct {
	nanoseconds float64
	allocs      int
}

// compareCalls measures the calls on both sides and returns a result for each.
func compareCalls(env *Environment, calls []call) ([]Result, error) {
	var results []Result
	for _, c := range calls {
		env.logf("%s", c.description)
		result, _, err := compareCall(env.Profile, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.description, err)
		}
		results = append(results, result)
	}
	return results, nil
}

// compareCall also returns the allocations of each side, the kubelet's first.
func compareCall(profile Profile, c call) (Result, [2]int, error) {
	var allocs [2]int
	sides := make([]func() (float64, error), 2)
	for i, do := range []repeatFunc{c.kubelet, c.herald} {
		n, err := calibrate(do, profile.CallTime)
		if err != nil {
			return Result{}, allocs, err
		}
		sides[i] = func() (float64, error) {
			once, err := timeCalls(do, n)
			allocs[i] = once.allocs
			return once.nanoseconds, err
		}
	}
	took, err := measureRounds(profile.CallRounds, sides...)
	if err != nil {
		return Result{}, allocs, err
	}
	return Result{
		Name: c.name, Description: c.description, Kubelet: formatNanoseconds(median(took[0])), Herald: formatNanoseconds(median(took[1])),
		Value: ratio(took[0], took[1]), Goal: c.goal,
	}, allocs, nil
}

// calibrate returns how many operations take about the budget. It also warms up caches.
func calibrate(do repeatFunc, budget time.Duration) (int, error) {
	for n := 1; ; n *= 4 {
		once, err := timeCalls(do, n)
		if err != nil {
			return 0, err
		}
		if took := once.nanoseconds * float64(n); took > float64(budget)/8 {
			return max(1, int(float64(budget)/once.nanoseconds)), nil
		}
	}
}

func timeCalls(do repeatFunc, n int) (cost, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	err := do(n)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return cost{
		nanoseconds: float64(took.Nanoseconds()) / float64(n), allocs: int(after.Mallocs-before.Mallocs) / n,
	}, err
}

// repeatEach passes the items in turn.
func repeatEach[T any](items []T, do func(T)) repeatFunc {
	return func(n int) error {
		for i := range n {
			do(items[i%len(items)])
		}
		return nil
	}
}

// repeatIndexed passes the iteration number.
func repeatIndexed(do func(i int)) repeatFunc {
	return func(n int) error {
		for i := range n {
			do(i)
		}
		return nil
	}
}

// keepAlive stops the compiler from removing the call.
func keepAlive(p *v1.Pod, found bool) {
	runtime.KeepAlive(p)
	runtime.KeepAlive(found)
}

const (
	allPods    = 5000
	staticPods = 100
)

// podManagers are the kubelet's and Herald's pod managers with the same pods.
type podManagers struct {
	kubelet          kubeletpod.Manager
	herald           *pod.Manager
	pods             []*v1.Pod // without mirror pods
	statics, mirrors []*v1.Pod
	names            []string // full names in the kubelet's form
	fullNames        []podid.FullName
}

func newPodManagers() *podManagers {
	m := &podManagers{kubelet: kubeletpod.NewBasicPodManager(), herald: pod.NewManager()}
	for i := range allPods {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("deployment-7d4b9c6f8d-%05d", i), Namespace: fmt.Sprintf("team-%d", i%20),
			UID: types.UID(fmt.Sprintf("9f1c1a52-7d3e-4a0c-8a9b-%012d", i)), Annotations: map[string]string{podid.SourceAnnotation: "api"},
		}}
		if i < staticPods {
			p.Annotations = map[string]string{podid.SourceAnnotation: "file", podid.HashAnnotation: "h"}
			mirror := p.DeepCopy()
			mirror.UID = types.UID(fmt.Sprintf("5c0d2e11-1b7f-4e55-9f00-%012d", i))
			mirror.Annotations = map[string]string{podid.MirrorAnnotation: "h"}
			m.statics, m.mirrors = append(m.statics, p), append(m.mirrors, mirror)
		}
		m.pods = append(m.pods, p)
		m.fullNames = append(m.fullNames, podid.FullNameOf(p))
		m.names = append(m.names, podid.FullNameOf(p).String())
	}
	for _, p := range append(append([]*v1.Pod{}, m.pods...), m.mirrors...) {
		m.kubelet.AddPod(p)
		m.herald.AddPod(p)
	}
	return m
}

// podManagerCalls compares lookups with 5,000 pods, 100 of them static.
func podManagerCalls(_ context.Context, env *Environment) ([]Result, error) {
	return compareCalls(env, newPodManagers().calls())
}

func (m *podManagers) calls() []call {
	return []call{
		{
			name: "pod_by_uid", description: "GetPodByUID",
			kubelet: repeatEach(m.pods, func(p *v1.Pod) { keepAlive(m.kubelet.GetPodByUID(p.UID)) }),
			herald:  repeatEach(m.pods, func(p *v1.Pod) { keepAlive(m.herald.GetPodByUID(podid.UID(p.UID))) }),
		},
		{
			name: "pod_by_full_name", description: "GetPodByFullName",
			kubelet: repeatEach(m.names, func(name string) { keepAlive(m.kubelet.GetPodByFullName(name)) }),
			herald:  repeatEach(m.fullNames, func(name podid.FullName) { keepAlive(m.herald.GetPodByFullName(name)) }),
		},
		{
			name: "pod_by_name", description: "GetPodByName",
			kubelet: repeatEach(m.fullNames, func(n podid.FullName) { keepAlive(m.kubelet.GetPodByName(n.Namespace, n.Name)) }),
			herald:  repeatEach(m.fullNames, func(n podid.FullName) { keepAlive(m.herald.GetPodByName(n.Namespace, n.Name)) }),
		},
		{
			name: "mirror_by_pod", description: "GetMirrorPodByPod",
			kubelet: repeatEach(m.statics, func(p *v1.Pod) { keepAlive(m.kubelet.GetMirrorPodByPod(p)) }),
			herald:  repeatEach(m.statics, func(p *v1.Pod) { keepAlive(m.herald.GetMirrorPodByPod(p)) }),
		},
		{
			name: "pod_by_mirror", description: "GetPodByMirrorPod",
			kubelet: repeatEach(m.mirrors, func(p *v1.Pod) { keepAlive(m.kubelet.GetPodByMirrorPod(p)) }),
			herald:  repeatEach(m.mirrors, func(p *v1.Pod) { keepAlive(m.herald.GetPodByMirrorPod(p)) }),
		},
		{
			name: "pod_and_mirror", description: "GetPodAndMirrorPod",
			kubelet: repeatEach(m.pods, func(p *v1.Pod) { found, _, is := m.kubelet.GetPodAndMirrorPod(p); keepAlive(found, is) }),
			herald:  repeatEach(m.pods, func(p *v1.Pod) { found, _, is := m.herald.GetPodAndMirrorPod(p); keepAlive(found, is) }),
		},
		{
			name: "translate_uid", description: "TranslatePodUID",
			kubelet: repeatEach(m.mirrors, func(p *v1.Pod) { keepAlive(nil, m.kubelet.TranslatePodUID(p.UID) != "") }),
			herald:  repeatEach(m.mirrors, func(p *v1.Pod) { keepAlive(nil, m.herald.TranslatePodUID(p.UID) != "") }),
		},
		{
			name: "uid_translations", description: "GetUIDTranslations",
			kubelet: repeatEach(m.pods, func(*v1.Pod) { toMirror, _ := m.kubelet.GetUIDTranslations(); keepAlive(nil, len(toMirror) > 0) }),
			herald:  repeatEach(m.pods, func(*v1.Pod) { toMirror, _ := m.herald.GetUIDTranslations(); keepAlive(nil, len(toMirror) > 0) }),
		},
		{
			name: "update_pod", description: "UpdatePod of an API pod",
			kubelet: repeatEach(m.pods[staticPods:], func(p *v1.Pod) { m.kubelet.UpdatePod(p) }),
			herald:  repeatEach(m.pods[staticPods:], func(p *v1.Pod) { m.herald.UpdatePod(p) }),
		},
	}
}

// statusManagerCalls compares the setters and getters of the two status managers, without an API server.
func statusManagerCalls(_ context.Context, env *Environment) ([]Result, error) {
	p := threeContainerPod("web", "u")
	kubeletPods, heraldPods := kubeletpod.NewBasicPodManager(), pod.NewManager()
	kubeletPods.AddPod(p)
	heraldPods.AddPod(p)
	kubeletStatus := newKubeletStatusManager(nil, kubeletPods)
	heraldStatus, err := status.New(status.Config{Pods: heraldPods})
	if err != nil {
		return nil, fmt.Errorf("create status manager: %w", err)
	}
	same := runningStatus()
	kubeletStatus.SetPodStatus(klog.Logger{}, p, same)
	heraldStatus.SetPodStatus(p, same)

	env.logf("SetPodStatus, unchanged")
	unchanged, allocs, err := compareCall(env.Profile, call{
		name: "set_unchanged", description: "SetPodStatus, unchanged",
		kubelet: repeatIndexed(func(int) { kubeletStatus.SetPodStatus(klog.Logger{}, p, same) }),
		herald:  repeatIndexed(func(int) { heraldStatus.SetPodStatus(p, same) }),
		goal:    AtLeast(10),
	})
	if err != nil {
		return nil, err
	}
	others, err := compareCalls(env, statusSetterCalls(kubeletStatus, heraldStatus, p))
	return append([]Result{unchanged, {
		Name: "set_unchanged_allocs", Description: "SetPodStatus, unchanged: Herald's allocations per call",
		Kubelet: fmt.Sprint(allocs[0]), Herald: fmt.Sprint(allocs[1]), Value: float64(allocs[1]), Goal: AtMost(8),
	}}, others...), err
}

func statusSetterCalls(kubelet kubeletstatus.Manager, herald *status.Manager, p *v1.Pod) []call {
	quiet := klog.Logger{}
	statuses := []v1.PodStatus{runningStatus(), runningStatus()}
	statuses[0].ContainerStatuses[1].RestartCount = 1
	id := containerID(1)
	return []call{
		{
			name: "set_changed", description: "SetPodStatus, changed",
			kubelet: repeatIndexed(func(i int) { kubelet.SetPodStatus(quiet, p, statuses[i%2]) }),
			herald:  repeatIndexed(func(i int) { herald.SetPodStatus(p, statuses[i%2]) }),
			goal:    AtLeast(3),
		},
		{
			name: "set_readiness", description: "SetContainerReadiness",
			kubelet: repeatIndexed(func(i int) {
				kubelet.SetContainerReadiness(quiet, p.UID, kubecontainer.ContainerID{Type: runtimeName, ID: id}, i%2 == 0)
			}),
			herald: repeatIndexed(func(i int) {
				herald.SetContainerReadiness(p.UID, observed.ContainerID{Runtime: runtimeName, ID: id}, i%2 == 0)
			}),
			goal: AtLeast(3),
		},
		{
			name: "get_status", description: "GetPodStatus",
			kubelet: repeatIndexed(func(int) { _, found := kubelet.GetPodStatus(p.UID); keepAlive(nil, found) }),
			herald:  repeatIndexed(func(int) { _, found := herald.GetPodStatus(p.UID); keepAlive(nil, found) }),
			goal:    AtLeast(1),
		},
	}
}

const manifestCount = 1000

// fileSourceCalls compares scans of a directory with 1,000 manifests: without changes, and with one changed file.
func fileSourceCalls(_ context.Context, env *Environment) ([]Result, error) {
	dir := env.ManifestDir
	for i := range manifestCount {
		if err := writeManifest(dir, i, "nginx:1"); err != nil {
			return nil, err
		}
	}
	kubeletSource := kubelet.NewFileSource(dir, "node")
	heraldSource, err := source.NewFile(source.FileConfig{Path: dir, NodeName: "node"})
	if err != nil {
		return nil, fmt.Errorf("create file source: %w", err)
	}
	scanKubelet := func() (int, error) { pods, err := kubeletSource.List(); return len(pods), err }
	scanHerald := func() (int, error) { return len(heraldSource.Scan().Pods), nil }
	edits := 0
	edit := func() error {
		edits++
		return writeManifest(dir, edits%manifestCount, fmt.Sprintf("nginx:%d", edits))
	}
	noEdit := func() error { return nil }
	return compareCalls(env, []call{
		{
			name: "manifests_unchanged", description: "scan 1,000 manifests, none changed",
			kubelet: repeatScan(noEdit, scanKubelet), herald: repeatScan(noEdit, scanHerald),
		},
		{
			name: "manifests_one_changed", description: "scan 1,000 manifests, one changed",
			kubelet: repeatScan(edit, scanKubelet), herald: repeatScan(edit, scanHerald),
		},
	})
}

func repeatScan(before func() error, scan func() (int, error)) repeatFunc {
	return func(n int) error {
		for range n {
			if err := before(); err != nil {
				return err
			}
			if pods, err := scan(); err != nil || pods != manifestCount {
				return fmt.Errorf("scan returned %d pods, want %d: %w", pods, manifestCount, err)
			}
		}
		return nil
	}
}

func writeManifest(dir string, i int, image string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: web-%d
  labels: {app: web}
spec:
  containers:
  - name: main
    image: %s
    ports: [{containerPort: 80}]
    readinessProbe: {httpGet: {port: 80}}
    resources: {requests: {cpu: 10m, memory: 16Mi}}
`, i, image)
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("web-%04d.yaml", i)), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}
