package cri

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/event"
)

// Event reasons, as the kubelet reports them.
const (
	eventCreated             = "Created"
	eventStarted             = "Started"
	eventFailed              = "Failed"
	eventKilling             = "Killing"
	eventFailedPostStart     = "FailedPostStartHook"
	eventFailedPreStop       = "FailedPreStopHook"
	eventFailedSandbox       = "FailedCreatePodSandBox"
	eventFailedPodContainer  = "FailedCreatePodContainer"
	eventHTTPFallback        = "LifecycleHTTPFallback"
	eventImagePulling        = "Pulling"
	eventImagePulled         = "Pulled"
	eventImageBackOff        = "BackOff"
	eventFailedPullSecret    = "FailedToRetrieveImagePullSecret"
	eventImageInspectFailed  = "InspectFailed"
	eventImageErrorNeverPull = "ErrImageNeverPull"
)

// warnPod records a warning about the pod as a whole.
func (r *Runtime) warnPod(pod *v1.Pod, reason, format string, args ...any) {
	r.config.Events.Event(podReference(pod, ""), v1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}

// containerEvents records events of one container. Events of its restarts must be identical to be aggregated, so its ID is
// replaced by its name in messages.
type containerEvents struct {
	recorder event.Recorder
	pod      *v1.Pod
	name     string
	id       string // "" until created
}

func (r *Runtime) containerEvents(pod *v1.Pod, name string) *containerEvents {
	return &containerEvents{recorder: r.config.Events, pod: pod, name: name}
}

func (e *containerEvents) normal(reason, message string) {
	e.record(v1.EventTypeNormal, reason, message)
}

func (e *containerEvents) warn(reason, message string) {
	e.record(v1.EventTypeWarning, reason, message)
}

func (e *containerEvents) record(eventType, reason, message string) {
	if e.id != "" {
		message = strings.ReplaceAll(message, e.id, e.name)
	}
	e.recorder.Event(podReference(e.pod, containerFieldPath(e.pod, e.name)), eventType, reason, message)
}

func podReference(pod *v1.Pod, fieldPath string) *v1.ObjectReference {
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fieldPath,
	}
}

// containerFieldPath returns the container's field in the pod, such as spec.containers{web}.
func containerFieldPath(pod *v1.Pod, name string) string {
	list := "containers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			list = "initContainers"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			list = "ephemeralContainers"
		}
	}
	return fmt.Sprintf("spec.%s{%s}", list, name)
}
