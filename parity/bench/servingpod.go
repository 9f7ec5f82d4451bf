package bench

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/parity/containerd"
)

// servingPod has a readiness and a liveness probe every second, and answers them as soon as it runs.
func servingPod(name string, uid types.UID) *v1.Pod {
	probe := func(path string) *v1.Probe {
		get := &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}
		return &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: get}, PeriodSeconds: 1}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"serve"},
			ReadinessProbe: probe("/readyz"), LivenessProbe: probe("/healthz"),
		}}},
	}
}
