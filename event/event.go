// Package event defines the event recorder that components report to.
package event

import "k8s.io/apimachinery/pkg/runtime"

// Recorder records Kubernetes events. client-go's record.EventRecorder satisfies it, and so does broadcaster.Broadcaster.
type Recorder interface {
	// Event records an event about object. It must not block.
	Event(object runtime.Object, eventType, reason, message string)
}

// Discard is a Recorder that drops every event.
var Discard Recorder = discard{}

type discard struct{}

func (discard) Event(runtime.Object, string, string, string) {}
