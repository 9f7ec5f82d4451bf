package pod_test

import (
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodeName = "n1"

// newPod makes a pod in namespace "shop" on this node, with the annotations given as key, value, key, value.
func newPod(name string, uid types.UID, annotations ...string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: uid, Annotations: map[string]string{}},
		Spec:       v1.PodSpec{NodeName: nodeName},
	}
	for i := 0; i < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return pod
}

func apiPod(name string, uid types.UID) *v1.Pod {
	return newPod(name, uid, podid.SourceAnnotation, "api")
}

// staticPod has its UID as its hash, as the sources make it (CFG-6).
func staticPod(name string, uid types.UID) *v1.Pod {
	return newPod(name, uid, podid.SourceAnnotation, "file", podid.HashAnnotation, string(uid))
}

// mirrorPod is the mirror of a static pod with that hash, as the API source delivers it.
func mirrorPod(name string, uid types.UID, hash string) *v1.Pod {
	pod := newPod(name, uid, podid.SourceAnnotation, "api", podid.HashAnnotation, hash, podid.MirrorAnnotation, hash)
	isController := true
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: nodeName, UID: "node-uid", Controller: &isController,
	}}
	return pod
}

func fullName(name string) podid.FullName { return podid.FullName{Namespace: "shop", Name: name} }
