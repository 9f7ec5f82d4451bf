package notify

import (
	"context"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/alert"
)

// maxEventMessage is the API server's limit for the message of an Event.
const maxEventMessage = 1024

// eventSink records a Kubernetes Event for each message. The recorder takes care of the API server.
type eventSink struct{ config Config }

func newEventSink(config Config) *sink {
	return &sink{name: KindEvent, kind: KindEvent, sender: eventSink{config}}
}

func (e eventSink) send(_ context.Context, batch []message, _ int) error {
	for i := range batch {
		m := &batch[i]
		eventType, prefix := v1.EventTypeWarning, ""
		if m.status == resolved {
			eventType, prefix = v1.EventTypeNormal, "Resolved: "
		}
		text := m.summary()
		if text == "" {
			text = m.key
		}
		if m.status == resolved && m.alert.Reason != "" {
			text += " (" + m.alert.Reason + ")"
		}
		e.config.Events.Event(e.object(m.alert.Labels), eventType, m.alert.Labels[alert.LabelName], truncate(prefix+text, maxEventMessage))
	}
	return nil
}

func (eventSink) close() {}

// object returns what the Event is about: the pod, a container of it, or the Node.
func (e eventSink) object(labels alert.Labels) *v1.ObjectReference {
	if e.config.Pod != nil && labels[alert.LabelPod] != "" {
		if pod, ok := e.config.Pod(labels[alert.LabelNamespace], labels[alert.LabelPod]); ok {
			return &v1.ObjectReference{
				APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
				FieldPath: fieldPath(pod, labels[alert.LabelContainer]),
			}
		}
	}
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.config.NodeName, UID: types.UID(e.config.NodeName)}
}

// fieldPath refers to a container; it is empty for none.
func fieldPath(pod *v1.Pod, container string) string {
	if container == "" {
		return ""
	}
	list := "containers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			list = "initContainers"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			list = "ephemeralContainers"
		}
	}
	return fmt.Sprintf("spec.%s{%s}", list, container)
}

// logSink writes a line for each message.
type logSink struct{ logger *slog.Logger }

func newLogSink(config Config) *sink {
	return &sink{name: KindLog, kind: KindLog, sender: logSink{config.Logger}}
}

func (l logSink) send(ctx context.Context, batch []message, _ int) error {
	for i := range batch {
		m := &batch[i]
		attributes := []slog.Attr{slog.String("alert", m.alert.Labels[alert.LabelName])}
		for _, name := range []string{alert.LabelSeverity, alert.LabelNamespace, alert.LabelPod, alert.LabelContainer} {
			if value := m.alert.Labels[name]; value != "" {
				attributes = append(attributes, slog.String(name, value))
			}
		}
		attributes = append(attributes, slog.String("summary", m.summary()), slog.Time("startsAt", m.alert.StartsAt))
		if m.missed > 0 {
			attributes = append(attributes, slog.Int(annotationMissed, m.missed))
		}
		if m.status == firing {
			l.logger.LogAttrs(ctx, slog.LevelWarn, "Alert fires", attributes...)
			continue
		}
		attributes = append(attributes, slog.Time("endsAt", m.alert.EndsAt))
		if m.alert.Reason != "" {
			attributes = append(attributes, slog.String(annotationReason, m.alert.Reason))
		}
		l.logger.LogAttrs(ctx, slog.LevelInfo, "Alert is resolved", attributes...)
	}
	return nil
}

func (logSink) close() {}
