package criconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Labels of sandboxes and containers, as the kubelet sets them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// Annotations of containers, as the kubelet sets them.
const (
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"

	annotationHash                   = "io.kubernetes.container.hash"
	annotationRestartCount           = "io.kubernetes.container.restartCount"
	annotationPreStopHandler         = "io.kubernetes.container.preStopHandler"
	annotationPorts                  = "io.kubernetes.container.ports"
	annotationDeletionGracePeriod    = "io.kubernetes.pod.deletionGracePeriod"
	annotationTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
)

func identityLabels(pod *v1.Pod) map[string]string {
	return map[string]string{
		LabelPodName: pod.Name, LabelPodNamespace: pod.Namespace, LabelPodUID: string(pod.UID),
	}
}

// podLabels returns the pod's own labels with its identity, which they cannot override.
func podLabels(pod *v1.Pod) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, pod.Labels)
	maps.Copy(labels, identityLabels(pod))
	return labels
}

func containerLabels(pod *v1.Pod, name string) map[string]string {
	labels := identityLabels(pod)
	labels[LabelContainerName] = name
	return labels
}

func containerAnnotations(pod *v1.Pod, start plan.Start) (map[string]string, error) {
	container := start.Container
	annotations := map[string]string{
		annotationHash:                     strconv.FormatUint(plan.HashContainer(container), 16),
		annotationRestartCount:             strconv.Itoa(start.RestartCount),
		AnnotationTerminationMessagePath:   container.TerminationMessagePath,
		AnnotationTerminationMessagePolicy: string(container.TerminationMessagePolicy),
	}
	annotateSeconds(annotations, annotationDeletionGracePeriod, pod.DeletionGracePeriodSeconds)
	annotateSeconds(annotations, annotationTerminationGracePeriod, pod.Spec.TerminationGracePeriodSeconds)
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		if err := annotateJSON(annotations, annotationPreStopHandler, container.Lifecycle.PreStop); err != nil {
			return nil, err
		}
	}
	if len(container.Ports) > 0 {
		if err := annotateJSON(annotations, annotationPorts, container.Ports); err != nil {
			return nil, err
		}
	}
	return annotations, nil
}

func annotateSeconds(annotations map[string]string, key string, seconds *int64) {
	if seconds != nil {
		annotations[key] = strconv.FormatInt(*seconds, 10)
	}
}

func annotateJSON(annotations map[string]string, key string, value any) error {
	encoded, err := json.Marshal(value)
	annotations[key] = string(encoded)
	return err
}

// Owner returns the pod that the labels name. ok is false if the labels are missing or the UID cannot be a directory name:
// such an object does not belong to a pod of this agent and must be left alone.
func Owner(labels map[string]string) (uid podid.UID, name podid.FullName, ok bool) {
	uid = podid.UID(labels[LabelPodUID])
	name = podid.FullName{Namespace: labels[LabelPodNamespace], Name: labels[LabelPodName]}
	return uid, name, isFileName(string(uid)) && name.Name != ""
}

// SpecHash returns the hash of the container spec that the instance was created from, or 0 if it is unknown.
func SpecHash(annotations map[string]string) uint64 {
	hash, err := strconv.ParseUint(annotations[annotationHash], 16, 64)
	if err != nil {
		return 0
	}
	return hash
}

// RestartCount returns the restart count of the instance. Without a valid annotation it is the runtime's attempt number.
func RestartCount(annotations map[string]string, attempt uint32) int {
	count, err := strconv.Atoi(annotations[annotationRestartCount])
	if err != nil {
		return int(attempt)
	}
	return count
}

// ContainerLogPath returns the path of an instance's log, relative to the pod's log directory.
func ContainerLogPath(name string, restartCount int) string {
	return filepath.Join(name, strconv.Itoa(restartCount)+".log")
}

// FormatPod names a pod as the kubelet's messages do: name_namespace(uid).
func FormatPod(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

// isFileName reports whether name can name an entry of a directory and nothing outside of it.
func isFileName(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\x00") && len(name) <= 255
}

// validateNames rejects a pod whose names would escape its directories. Pods name their directories, and containers their
// logs. The API server and the manifest decoder only accept DNS labels and UIDs; this check holds for pods from any source.
func validateNames(pod *v1.Pod) error {
	validate := func(name, format string, args ...any) error {
		if isFileName(name) {
			return nil
		}
		return fmt.Errorf("%s: %q is not a valid file name", fmt.Sprintf(format, args...), name)
	}
	if err := validate(pod.Namespace, "metadata.namespace"); err != nil {
		return err
	}
	if err := validate(pod.Name, "metadata.name"); err != nil {
		return err
	}
	if err := validate(string(pod.UID), "metadata.uid"); err != nil {
		return err
	}
	for i := range pod.Spec.InitContainers {
		if err := validate(pod.Spec.InitContainers[i].Name, "spec.initContainers[%d].name", i); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := validate(pod.Spec.Containers[i].Name, "spec.containers[%d].name", i); err != nil {
			return err
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if err := validate(pod.Spec.EphemeralContainers[i].Name, "spec.ephemeralContainers[%d].name", i); err != nil {
			return err
		}
	}
	return nil
}
