package bench

import (
	"context"
	"fmt"

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
