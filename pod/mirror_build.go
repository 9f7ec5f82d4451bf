package pod

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
)

// mirrorOf is the mirror that the server is asked to create (PM-18). UID, version and status are the server's.
// Finalizers stay behind: nobody would release them from a copy, and the mirror could never be replaced. The spec is
// shared with the static pod, which nobody changes.
func mirrorOf(static *v1.Pod, node metav1.OwnerReference) *v1.Pod {
	annotations := make(map[string]string, len(static.Annotations)+1)
	maps.Copy(annotations, static.Annotations)
	annotations[podid.MirrorAnnotation] = podid.HashOf(static)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            static.Name,
			Namespace:       static.Namespace,
			Labels:          static.Labels,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{node},
		},
		Spec: static.Spec,
	}
}
