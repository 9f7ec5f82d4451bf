package cri

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Pods name their folders, and containers their logs. The API server and the manifests' reader let only DNS labels
// and UIDs pass; here nothing else can become a part of a path, whoever made the pod.

// isName reports whether the text names something in a folder, and nothing elsewhere.
func isName(text string) bool {
	return text != "" && text[0] != '.' && !strings.ContainsAny(text, "/\x00") && len(text) <= 255
}

// checkNames refuses a pod whose names would lead elsewhere.
func checkNames(pod *v1.Pod) error {
	names := map[string]string{
		"metadata.namespace": pod.Namespace, "metadata.name": pod.Name, "metadata.uid": string(pod.UID),
	}
	for i := range pod.Spec.InitContainers {
		names[fmt.Sprintf("spec.initContainers[%d].name", i)] = pod.Spec.InitContainers[i].Name
	}
	for i := range pod.Spec.Containers {
		names[fmt.Sprintf("spec.containers[%d].name", i)] = pod.Spec.Containers[i].Name
	}
	for i := range pod.Spec.EphemeralContainers {
		names[fmt.Sprintf("spec.ephemeralContainers[%d].name", i)] = pod.Spec.EphemeralContainers[i].Name
	}
	for field, name := range names {
		if !isName(name) {
			return fmt.Errorf("%s: %q cannot be the name of a file", field, name)
		}
	}
	return nil
}
