package pod_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

// A static pod from a file and its mirror pod from the API server have the same name and different UIDs.
func ExampleManager() {
	newPod := func(uid types.UID, annotations map[string]string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "etcd-n1", UID: uid, Annotations: annotations}}
	}
	static := newPod("9f3c", map[string]string{podid.SourceAnnotation: "file", podid.HashAnnotation: "9f3c"})
	mirror := newPod("uid-from-server", map[string]string{podid.SourceAnnotation: "api", podid.MirrorAnnotation: "9f3c"})

	manager := pod.NewManager()
	manager.AddPod(static)
	manager.AddPod(mirror)

	fmt.Println("pods to run:", len(manager.GetPods()))
	fmt.Println("the mirror pod's UID translates to", manager.TranslatePodUID(mirror.UID))
	if found, ok := manager.GetMirrorPodByPod(static); ok {
		fmt.Println("the mirror pod is current:", podid.IsMirrorOf(found, static))
	}

	manager.RemovePod(static)
	_, _, orphanedMirrors := manager.GetPodsAndMirrorPods()
	fmt.Println("orphaned mirror pods:", orphanedMirrors)
	// Output:
	// pods to run: 1
	// the mirror pod's UID translates to 9f3c
	// the mirror pod is current: true
	// orphaned mirror pods: [etcd-n1_kube-system]
}
