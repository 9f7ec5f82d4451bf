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

// call is something that both sides can do over and over.
type call struct {
	name, what      string
	kubelet, herald repeat
	goal            Goal
}

// repeat does it n times.
type repeat func(n int) error

// cost is what doing it once takes.
type cost struct {
	nanoseconds float64
	allocs      int
}

// compare measures calls on both sides, and returns a row for each.
func compare(lab *Lab, calls []call) ([]Row, error) {
	var rows []Row
	for _, c := range calls {
		lab.say("%s", c.what)
		row, _, err := compareOne(lab.Effort, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.what, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// compareOne also returns how often each side allocates, the kubelet first.
func compareOne(effort Effort, c call) (Row, [2]int, error) {
	var allocs [2]int
	sides := make([]func() (float64, error), 2)
	for i, do := range []repeat{c.kubelet, c.herald} {
		n, err := fitting(do, effort.CallTime)
		if err != nil {
			return Row{}, allocs, err
		}
		sides[i] = func() (float64, error) {
			once, err := timed(do, n)
			allocs[i] = once.allocs
			return once.nanoseconds, err
		}
	}
	took, err := inTurns(effort.Calls, sides...)
	if err != nil {
		return Row{}, allocs, err
	}
	return Row{
		Name: c.name, What: c.what, Kubelet: duration(median(took[0])), Herald: duration(median(took[1])),
		Value: ratio(took[0], took[1]), Goal: c.goal,
	}, allocs, nil
}

// fitting is how often it can be done in about that time. Finding out also warms up.
func fitting(do repeat, budget time.Duration) (int, error) {
	for n := 1; ; n *= 4 {
		once, err := timed(do, n)
		if err != nil {
			return 0, err
		}
		if took := once.nanoseconds * float64(n); took > float64(budget)/8 {
			return max(1, int(float64(budget)/once.nanoseconds)), nil
		}
	}
}

func timed(do repeat, n int) (cost, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	err := do(n)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return cost{
		nanoseconds: float64(took.Nanoseconds()) / float64(n), allocs: int(after.Mallocs-before.Mallocs) / n,
	}, err
}

// each does it for one item after the other, round and round.
func each[T any](items []T, do func(T)) repeat {
	return func(n int) error {
		for i := range n {
			do(items[i%len(items)])
		}
		return nil
	}
}

// loop tells what it does the number of the turn.
func loop(do func(i int)) repeat {
	return func(n int) error {
		for i := range n {
			do(i)
		}
		return nil
	}
}

// keep makes the compiler believe that the answer matters.
func keep(p *v1.Pod, found bool) {
	runtime.KeepAlive(p)
	runtime.KeepAlive(found)
}

const (
	allPods    = 5000
	staticPods = 100
)

// books are two address books with the same pods in them.
type books struct {
	kubelet          kubeletpod.Manager
	herald           *pod.Manager
	pods             []*v1.Pod // all but mirrors
	statics, mirrors []*v1.Pod
	names            []string // the kubelet's form of full names
	fullNames        []podid.FullName
}

func newBooks() *books {
	b := &books{kubelet: kubeletpod.NewBasicPodManager(), herald: pod.NewManager()}
	for i := range allPods {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("deployment-7d4b9c6f8d-%05d", i), Namespace: fmt.Sprintf("team-%d", i%20),
			UID: types.UID(fmt.Sprintf("9f1c1a52-7d3e-4a0c-8a9b-%012d", i)), Annotations: map[string]string{podid.SourceAnnotation: "api"},
		}}
		if i < staticPods {
			p.Annotations = map[string]string{podid.SourceAnnotation: "file", podid.HashAnnotation: "h"}
			m := p.DeepCopy()
			m.UID, m.Annotations = types.UID(fmt.Sprintf("5c0d2e11-1b7f-4e55-9f00-%012d", i)), map[string]string{podid.MirrorAnnotation: "h"}
			b.statics, b.mirrors = append(b.statics, p), append(b.mirrors, m)
		}
		b.pods = append(b.pods, p)
		b.fullNames = append(b.fullNames, podid.FullNameOf(p))
		b.names = append(b.names, podid.FullNameOf(p).String())
	}
	for _, p := range append(append([]*v1.Pod{}, b.pods...), b.mirrors...) {
		b.kubelet.AddPod(p)
		b.herald.AddPod(p)
	}
	return b
}

// podManagerCalls compares the look-ups of the two pod managers, with 5,000 pods of which 100 are static.
func podManagerCalls(_ context.Context, lab *Lab) ([]Row, error) {
	return compare(lab, newBooks().calls())
}

func (b *books) calls() []call {
	return []call{
		{
			name: "pod_by_uid", what: "GetPodByUID",
			kubelet: each(b.pods, func(p *v1.Pod) { keep(b.kubelet.GetPodByUID(p.UID)) }),
			herald:  each(b.pods, func(p *v1.Pod) { keep(b.herald.GetPodByUID(podid.UID(p.UID))) }),
		},
		{
			name: "pod_by_full_name", what: "GetPodByFullName",
			kubelet: each(b.names, func(name string) { keep(b.kubelet.GetPodByFullName(name)) }),
			herald:  each(b.fullNames, func(name podid.FullName) { keep(b.herald.GetPodByFullName(name)) }),
		},
		{
			name: "pod_by_name", what: "GetPodByName",
			kubelet: each(b.fullNames, func(n podid.FullName) { keep(b.kubelet.GetPodByName(n.Namespace, n.Name)) }),
			herald:  each(b.fullNames, func(n podid.FullName) { keep(b.herald.GetPodByName(n.Namespace, n.Name)) }),
		},
		{
			name: "mirror_by_pod", what: "GetMirrorPodByPod",
			kubelet: each(b.statics, func(p *v1.Pod) { keep(b.kubelet.GetMirrorPodByPod(p)) }),
			herald:  each(b.statics, func(p *v1.Pod) { keep(b.herald.GetMirrorPodByPod(p)) }),
		},
		{
			name: "pod_by_mirror", what: "GetPodByMirrorPod",
			kubelet: each(b.mirrors, func(p *v1.Pod) { keep(b.kubelet.GetPodByMirrorPod(p)) }),
			herald:  each(b.mirrors, func(p *v1.Pod) { keep(b.herald.GetPodByMirrorPod(p)) }),
		},
		{
			name: "pod_and_mirror", what: "GetPodAndMirrorPod",
			kubelet: each(b.pods, func(p *v1.Pod) { found, _, is := b.kubelet.GetPodAndMirrorPod(p); keep(found, is) }),
			herald:  each(b.pods, func(p *v1.Pod) { found, _, is := b.herald.GetPodAndMirrorPod(p); keep(found, is) }),
		},
		{
			name: "translate_uid", what: "TranslatePodUID",
			kubelet: each(b.mirrors, func(p *v1.Pod) { keep(nil, b.kubelet.TranslatePodUID(p.UID) != "") }),
			herald:  each(b.mirrors, func(p *v1.Pod) { keep(nil, b.herald.TranslatePodUID(p.UID) != "") }),
		},
		{
			name: "uid_translations", what: "GetUIDTranslations",
			kubelet: each(b.pods, func(*v1.Pod) { m, _ := b.kubelet.GetUIDTranslations(); keep(nil, len(m) > 0) }),
			herald:  each(b.pods, func(*v1.Pod) { m, _ := b.herald.GetUIDTranslations(); keep(nil, len(m) > 0) }),
		},
		{
			name: "update_pod", what: "UpdatePod of an API pod",
			kubelet: each(b.pods[staticPods:], func(p *v1.Pod) { b.kubelet.UpdatePod(p) }),
			herald:  each(b.pods[staticPods:], func(p *v1.Pod) { b.herald.UpdatePod(p) }),
		},
	}
}

// statusCalls compares what setters and getters of the two status managers cost, without an API server.
func statusCalls(_ context.Context, lab *Lab) ([]Row, error) {
	p := threeContainers("web", "u")
	theirPods, ourPods := kubeletpod.NewBasicPodManager(), pod.NewManager()
	theirPods.AddPod(p)
	ourPods.AddPod(p)
	theirs := newKubeletStatus(nil, theirPods)
	ours, err := status.New(status.Config{Pods: ourPods})
	if err != nil {
		return nil, fmt.Errorf("make a status manager: %w", err)
	}
	same := runningStatus()
	theirs.SetPodStatus(klog.Logger{}, p, same)
	ours.SetPodStatus(p, same)

	lab.say("SetPodStatus, unchanged")
	unchanged, allocs, err := compareOne(lab.Effort, call{
		name: "set_unchanged", what: "SetPodStatus, unchanged",
		kubelet: loop(func(int) { theirs.SetPodStatus(klog.Logger{}, p, same) }),
		herald:  loop(func(int) { ours.SetPodStatus(p, same) }),
		goal:    AtLeast(10),
	})
	if err != nil {
		return nil, err
	}
	others, err := compare(lab, changingCalls(theirs, ours, p))
	return append([]Row{unchanged, {
		Name: "set_unchanged_allocs", What: "SetPodStatus, unchanged: allocations of Herald's",
		Kubelet: fmt.Sprint(allocs[0]), Herald: fmt.Sprint(allocs[1]), Value: float64(allocs[1]), Goal: AtMost(8),
	}}, others...), err
}

func changingCalls(theirs kubeletstatus.Manager, ours *status.Manager, p *v1.Pod) []call {
	quiet := klog.Logger{}
	turns := []v1.PodStatus{runningStatus(), runningStatus()}
	turns[0].ContainerStatuses[1].RestartCount = 1
	id := containerID(1)
	return []call{
		{
			name: "set_changed", what: "SetPodStatus, changed",
			kubelet: loop(func(i int) { theirs.SetPodStatus(quiet, p, turns[i%2]) }),
			herald:  loop(func(i int) { ours.SetPodStatus(p, turns[i%2]) }),
			goal:    AtLeast(3),
		},
		{
			name: "set_readiness", what: "SetContainerReadiness",
			kubelet: loop(func(i int) {
				theirs.SetContainerReadiness(quiet, p.UID, kubecontainer.ContainerID{Type: runtimeName, ID: id}, i%2 == 0)
			}),
			herald: loop(func(i int) {
				ours.SetContainerReadiness(p.UID, observed.ContainerID{Runtime: runtimeName, ID: id}, i%2 == 0)
			}),
			goal: AtLeast(3),
		},
		{
			name: "get_status", what: "GetPodStatus",
			kubelet: loop(func(int) { _, found := theirs.GetPodStatus(p.UID); keep(nil, found) }),
			herald:  loop(func(int) { _, found := ours.GetPodStatus(p.UID); keep(nil, found) }),
			goal:    AtLeast(1),
		},
	}
}

const manifests = 1000

// manifestCalls compares what a look at a folder of 1,000 manifests costs: when nothing changed, and when one file did.
func manifestCalls(_ context.Context, lab *Lab) ([]Row, error) {
	dir := lab.Folder
	for i := range manifests {
		if err := writeManifest(dir, i, "nginx:1"); err != nil {
			return nil, err
		}
	}
	theirs := kubelet.NewManifests(dir, "node")
	ours, err := source.NewFile(source.FileConfig{Path: dir, NodeName: "node"})
	if err != nil {
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	kubeletLists := func() (int, error) { pods, err := theirs.List(); return len(pods), err }
	heraldLists := func() (int, error) { return len(ours.Scan().Pods), nil }
	edits := 0
	edit := func() error {
		edits++
		return writeManifest(dir, edits%manifests, fmt.Sprintf("nginx:%d", edits))
	}
	nobody := func() error { return nil }
	return compare(lab, []call{
		{
			name: "manifests_unchanged", what: "look at 1,000 manifests, none changed",
			kubelet: looks(nobody, kubeletLists), herald: looks(nobody, heraldLists),
		},
		{
			name: "manifests_one_changed", what: "look at 1,000 manifests, one changed",
			kubelet: looks(edit, kubeletLists), herald: looks(edit, heraldLists),
		},
	})
}

func looks(before func() error, look func() (int, error)) repeat {
	return func(n int) error {
		for range n {
			if err := before(); err != nil {
				return err
			}
			if pods, err := look(); err != nil || pods != manifests {
				return fmt.Errorf("%d pods of %d, %w", pods, manifests, err)
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
		return fmt.Errorf("write a manifest: %w", err)
	}
	return nil
}
