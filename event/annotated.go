package event

import "k8s.io/apimachinery/pkg/runtime"

// annotatedRecorder is implemented by recorders that keep annotations: client-go's, and broadcaster.Broadcaster.
type annotatedRecorder interface {
	AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, messageFormat string, args ...any)
}

// Annotated returns a Recorder that adds the annotations to each event, if the given one keeps any.
func Annotated(recorder Recorder, annotations map[string]string) Recorder {
	if keeper, ok := recorder.(annotatedRecorder); ok && len(annotations) > 0 {
		return annotating{keeper, annotations}
	}
	return recorder
}

type annotating struct {
	recorder    annotatedRecorder
	annotations map[string]string
}

func (a annotating) Event(object runtime.Object, eventType, reason, message string) {
	a.recorder.AnnotatedEventf(object, a.annotations, eventType, reason, "%s", message)
}
