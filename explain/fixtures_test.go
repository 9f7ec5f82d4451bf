package explain_test

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/podid"
)

// now is the time of all cases.
var now = time.Date(2026, 11, 15, 14, 1, 5, 0, time.UTC)

func ago(d time.Duration) time.Time       { return now.Add(-d) }
func in(d time.Duration) time.Time        { return now.Add(d) }
func metaAgo(d time.Duration) metav1.Time { return metav1.NewTime(ago(d)) }

// option changes the facts about a pod.
type option func(*explain.Facts)

// newFacts returns the facts about a Running pod with the container web.
func newFacts(name string, options ...option) explain.Facts {
	f := explain.Facts{
		Now: now, Name: podid.FullName{Namespace: "shop", Name: name},
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", CreationTimestamp: metaAgo(62 * time.Minute)},
			Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "web", Image: "reg/web:1"}}},
			Status:     v1.PodStatus{Phase: v1.PodRunning, StartTime: new(metaAgo(61 * time.Minute))},
		},
	}
	for _, apply := range options {
		apply(&f)
	}
	return f
}

func web(f *explain.Facts) *v1.Container { return &f.Pod.Spec.Containers[0] }

func phase(p v1.PodPhase) option { return func(f *explain.Facts) { f.Pod.Status.Phase = p } }

func reason(reason, message string) option {
	return func(f *explain.Facts) { f.Pod.Status.Reason, f.Pod.Status.Message = reason, message }
}

func policy(p v1.RestartPolicy) option {
	return func(f *explain.Facts) { f.Pod.Spec.RestartPolicy = p }
}

func static(f *explain.Facts) {
	f.Pod.Annotations = map[string]string{podid.SourceAnnotation: "file"}
	f.Source.Name = podid.File
}

func with(condition v1.PodConditionType, status v1.ConditionStatus, d time.Duration) option {
	return func(f *explain.Facts) {
		f.Pod.Status.Conditions = append(f.Pod.Status.Conditions, v1.PodCondition{Type: condition, Status: status, LastTransitionTime: metaAgo(d)})
	}
}

// ready makes the container web run and the pod Ready.
func ready(f *explain.Facts) {
	f.Pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", Ready: true, Started: new(true), State: running(52 * time.Hour)}}
	with(v1.ContainersReady, v1.ConditionTrue, 52*time.Hour)(f)
	with(v1.PodReady, v1.ConditionTrue, 52*time.Hour)(f)
}

func running(d time.Duration) v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metaAgo(d)}}
}

func waits(reason, message string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// exited is the state of a container that exited two seconds ago.
func exited(code int32, reason string, ran time.Duration) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: metaAgo(ran + 2*time.Second), FinishedAt: metaAgo(2 * time.Second),
		ContainerID: "containerd://old",
	}}
}

// status sets the status of a regular container.
func status(s v1.ContainerStatus) option {
	return func(f *explain.Facts) { f.Pod.Status.ContainerStatuses = append(f.Pod.Status.ContainerStatuses, s) }
}

// webIs sets the state of the container web.
func webIs(state v1.ContainerState) option {
	return status(v1.ContainerStatus{Name: "web", State: state})
}

// pending is a pod whose container web waits.
func pending(reason, message string) option {
	return func(f *explain.Facts) {
		phase(v1.PodPending)(f)
		webIs(waits(reason, message))(f)
	}
}

func image(name string) option { return func(f *explain.Facts) { web(f).Image = name } }

func worker(change func(*explain.Worker)) option {
	return func(f *explain.Facts) {
		f.Worker.Known = true
		change(&f.Worker)
	}
}

func start(container string, s explain.Start) option {
	return worker(func(w *explain.Worker) {
		if w.Starts == nil {
			w.Starts = map[string]explain.Start{}
		}
		w.Starts[container] = s
	})
}

// trouble is a failed sync that is tried again in 145 seconds.
func trouble(message string, failures int) option {
	return worker(func(w *explain.Worker) {
		w.Trouble, w.Failures, w.RetryAt = errors.New(message), failures, in(145*time.Second)
	})
}

func probe(p explain.Probe) option {
	return func(f *explain.Facts) {
		p.Container = "web"
		f.Probes = append(f.Probes, p)
		spec := &v1.Probe{PeriodSeconds: 10, FailureThreshold: 3}
		switch p.Kind {
		case explain.Startup:
			spec.PeriodSeconds = 1
			web(f).StartupProbe = spec
		case explain.Liveness:
			web(f).LivenessProbe = spec
		default:
			web(f).ReadinessProbe = spec
		}
	}
}

// unready makes the container web run without being ready.
func unready(started bool) option {
	return func(f *explain.Facts) {
		status(v1.ContainerStatus{Name: "web", Started: new(started), State: running(11 * time.Second)})(f)
		with(v1.PodReady, v1.ConditionFalse, 53*time.Second)(f)
	}
}

// initContainers adds init containers and their states.
func initContainers(states map[string]v1.ContainerState, names ...string) option {
	return func(f *explain.Facts) {
		phase(v1.PodPending)(f)
		for _, name := range names {
			f.Pod.Spec.InitContainers = append(f.Pod.Spec.InitContainers, v1.Container{Name: name, Image: "reg/" + name + ":1"})
			state, ok := states[name]
			if !ok {
				state = waits("PodInitializing", "")
			}
			f.Pod.Status.InitContainerStatuses = append(f.Pod.Status.InitContainerStatuses, v1.ContainerStatus{Name: name, State: state})
		}
		webIs(waits("PodInitializing", ""))(f)
	}
}

// deleted requests the deletion 41 seconds ago with a grace period of one minute.
func deleted(f *explain.Facts) {
	f.Pod.DeletionTimestamp = new(metav1.NewTime(in(19 * time.Second)))
	f.Pod.DeletionGracePeriodSeconds = new(int64(60))
}

func memoryLimit(limit string) option {
	return func(f *explain.Facts) {
		web(f).Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit)}
	}
}

func sync(s explain.Sync) option { return func(f *explain.Facts) { f.Sync = s } }

func runtime(r explain.Runtime) option { return func(f *explain.Facts) { f.Runtime = r } }
