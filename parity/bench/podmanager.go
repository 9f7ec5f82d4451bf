package bench

import (
	"fmt"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

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

// PodManager compares the look-ups of the two pod managers, with 5,000 pods of which 100 are static.
func PodManager() []Case {
	b := newBooks()
	return []Case{
		{
			Name: "pod_by_uid", What: "GetPodByUID",
			Kubelet: each(b.pods, func(p *v1.Pod) { keep(b.kubelet.GetPodByUID(p.UID)) }),
			Herald:  each(b.pods, func(p *v1.Pod) { keep(b.herald.GetPodByUID(podid.UID(p.UID))) }),
		},
		{
			Name: "pod_by_full_name", What: "GetPodByFullName",
			Kubelet: each(b.names, func(name string) { keep(b.kubelet.GetPodByFullName(name)) }),
			Herald:  each(b.fullNames, func(name podid.FullName) { keep(b.herald.GetPodByFullName(name)) }),
		},
		{
			Name: "pod_by_name", What: "GetPodByName",
			Kubelet: each(b.fullNames, func(n podid.FullName) { keep(b.kubelet.GetPodByName(n.Namespace, n.Name)) }),
			Herald:  each(b.fullNames, func(n podid.FullName) { keep(b.herald.GetPodByName(n.Namespace, n.Name)) }),
		},
		{
			Name: "mirror_by_pod", What: "GetMirrorPodByPod",
			Kubelet: each(b.statics, func(p *v1.Pod) { keep(b.kubelet.GetMirrorPodByPod(p)) }),
			Herald:  each(b.statics, func(p *v1.Pod) { keep(b.herald.GetMirrorPodByPod(p)) }),
		},
		{
			Name: "pod_by_mirror", What: "GetPodByMirrorPod",
			Kubelet: each(b.mirrors, func(p *v1.Pod) { keep(b.kubelet.GetPodByMirrorPod(p)) }),
			Herald:  each(b.mirrors, func(p *v1.Pod) { keep(b.herald.GetPodByMirrorPod(p)) }),
		},
		{
			Name: "pod_and_mirror", What: "GetPodAndMirrorPod",
			Kubelet: each(b.pods, func(p *v1.Pod) { found, _, is := b.kubelet.GetPodAndMirrorPod(p); keep(found, is) }),
			Herald:  each(b.pods, func(p *v1.Pod) { found, _, is := b.herald.GetPodAndMirrorPod(p); keep(found, is) }),
		},
		{
			Name: "translate_uid", What: "TranslatePodUID",
			Kubelet: each(b.mirrors, func(p *v1.Pod) { keep(nil, b.kubelet.TranslatePodUID(p.UID) != "") }),
			Herald:  each(b.mirrors, func(p *v1.Pod) { keep(nil, b.herald.TranslatePodUID(p.UID) != "") }),
		},
		{
			Name: "uid_translations", What: "GetUIDTranslations",
			Kubelet: each(b.pods, func(*v1.Pod) { m, _ := b.kubelet.GetUIDTranslations(); keep(nil, len(m) > 0) }),
			Herald:  each(b.pods, func(*v1.Pod) { m, _ := b.herald.GetUIDTranslations(); keep(nil, len(m) > 0) }),
		},
		{
			Name: "update_pod", What: "UpdatePod of an API pod",
			Kubelet: each(b.pods[staticPods:], func(p *v1.Pod) { b.kubelet.UpdatePod(p) }),
			Herald:  each(b.pods[staticPods:], func(p *v1.Pod) { b.herald.UpdatePod(p) }),
		},
	}
}

// each does it for one item after the other, round and round.
func each[T any](items []T, do func(T)) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			do(items[i%len(items)])
		}
	}
}

// keep makes the compiler believe that the answer matters.
func keep(p *v1.Pod, found bool) {
	runtime.KeepAlive(p)
	runtime.KeepAlive(found)
}
