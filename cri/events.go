package cri

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/event"
)

// Reasons of events, in the kubelet's words.
const (
	eventCreated             = "Created"
	eventStarted             = "Started"
	eventFailed              = "Failed"
	eventKilling             = "Killing"
	eventFailedPostStart     = "FailedPostStartHook"
	eventFailedPreStop       = "FailedPreStopHook"
	eventFailedSandbox       = "FailedCreatePodSandBox"
	eventDNSConfigForming    = "DNSConfigForming"
	eventMissingClusterDNS   = "MissingClusterDNS"
	eventHTTPFallback        = "LifecycleHTTPFallback"
	eventImagePulling        = "Pulling"
	eventImagePulled         = "Pulled"
	eventImageBackOff        = "BackOff"
	eventPullSecret          = "FailedToRetrieveImagePullSecret"
	eventImageInspectFailed  = "InspectFailed"
	eventImageErrorNeverPull = "ErrImageNeverPull"
)

// warnPod tells of something about the pod as a whole.
func (r *Runtime) warnPod(pod *v1.Pod, reason, format string, args ...any) {
	r.config.Events.Event(podReference(pod, ""), v1.EventTypeWarning, reason, fmt.Sprintf(format, args...))
}

// containerEvents tells of one container. The events of its restarts must be alike to be counted as one, so its ID never
// shows in them.
type containerEvents struct {
	recorder event.Recorder
	pod      *v1.Pod
	name     string
	id       string // "" until there is one
}

func (r *Runtime) eventsOf(pod *v1.Pod, name string) *containerEvents {
	return &containerEvents{recorder: r.config.Events, pod: pod, name: name}
}

func (e *containerEvents) normal(reason, message string) { e.tell(v1.EventTypeNormal, reason, message) }
func (e *containerEvents) warn(reason, message string)   { e.tell(v1.EventTypeWarning, reason, message) }

func (e *containerEvents) tell(kind, reason, message string) {
	if e.pod == nil {
		return
	}
	if e.id != "" {
		message = strings.ReplaceAll(message, e.id, e.name)
	}
	e.recorder.Event(podReference(e.pod, containerField(e.pod, e.name)), kind, reason, message)
}

func podReference(pod *v1.Pod, field string) *v1.ObjectReference {
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: field,
	}
}

// containerField is where the container stands in the pod, spec.containers{web}.
func containerField(pod *v1.Pod, name string) string {
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
