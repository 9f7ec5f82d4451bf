package resolve

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// FSGroup is the group that shares the pod's volumes; nil: none.
func FSGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// FSUser is the user as whom all containers of the pod run, if the spec says so; nil: there are several, or nobody knows.
func FSUser(pod *v1.Pod) *int64 {
	var user *int64
	for i, container := range containersOf(pod) {
		its := runAsUser(pod, &container)
		if its == nil || i > 0 && *its != *user {
			return nil
		}
		user = its
	}
	return user
}

func runAsUser(pod *v1.Pod, container *v1.Container) *int64 {
	if security := container.SecurityContext; security != nil && security.RunAsUser != nil {
		return security.RunAsUser
	}
	if security := pod.Spec.SecurityContext; security != nil {
		return security.RunAsUser
	}
	return nil
}

func containersOf(pod *v1.Pod) []v1.Container {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for _, ephemeral := range pod.Spec.EphemeralContainers {
		all = append(all, v1.Container(ephemeral.EphemeralContainerCommon))
	}
	return all
}

// NestedMounts are the places inside the volume at which containers mount something else. They must be there before: the
// volume itself is mounted read-only.
func NestedMounts(pod *v1.Pod, volume string) []string {
	var places []string
	for _, container := range containersOf(pod) {
		for _, outer := range container.VolumeMounts {
			if outer.Name != volume || outer.SubPath != "" || outer.SubPathExpr != "" {
				continue
			}
			for _, inner := range container.VolumeMounts {
				below, isBelow := strings.CutPrefix(path.Clean(inner.MountPath), path.Clean(outer.MountPath)+"/")
				if isBelow && !strings.HasPrefix(below, "..") { // those names are the volume's own
					places = append(places, below)
				}
			}
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}
