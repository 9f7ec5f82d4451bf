package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// NewPod returns the view of a pod. It shares the statuses, labels and annotations of the facts, which must not be modified. A pod that
// the node does not have has only its name.
func NewPod(f explain.Facts) PodView {
	pod := f.Pod
	if pod == nil {
		pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.Name.Namespace, Name: f.Name.Name}}
	}
	v := newPod(f, pod)
	v.Local.Summary, v.Synced = transition.PodSummary(pod, &pod.Status), newSynced(pod, &f.Sync)
	return v
}

// NewRulePod returns a view without summaries and without the status of the API server, which rules do not read. f.Pod is required.
func NewRulePod(f explain.Facts) PodView { return newPod(f, f.Pod) }

func newPod(f explain.Facts, pod *v1.Pod) PodView {
	v := PodView{
		APIVersion: APIVersion, Kind: "PodView", Metadata: newMetadata(&pod.ObjectMeta),
		Source: string(cmp.Or(f.Source.Name, podid.SourceOf(pod))),
		Spec:   newSpec(pod),
		Local:  Status{Version: f.Sync.Version, At: NewTime(f.Sync.At), Status: pod.Status},
		Lag:    newLag(&f.Sync, f.Now), Worker: newWorker(&f.Worker),
		Waiting: newWaiting(pod, f.Worker.Starts), Why: newWhy(f),
	}
	for i := range f.Probes {
		v.Probes = append(v.Probes, newProbe(&f.Probes[i]))
	}
	for _, s := range f.Worker.Stopping {
		v.Stopping = append(v.Stopping, Stopping{
			Container: s.Container, Reason: string(s.Reason), Since: NewTime(s.Since), KillAt: NewTime(s.KillAt),
		})
	}
	return v
}

func newMetadata(meta *metav1.ObjectMeta) Metadata {
	m := Metadata{
		Namespace: meta.Namespace, Name: meta.Name, UID: string(meta.UID), Labels: meta.Labels, Annotations: meta.Annotations,
		CreationTimestamp: NewTime(meta.CreationTimestamp.Time), Generation: meta.Generation,
	}
	if meta.DeletionTimestamp != nil {
		m.DeletionTimestamp = NewTime(meta.DeletionTimestamp.Time)
	}
	if owner := metav1.GetControllerOfNoCopy(meta); owner != nil {
		m.OwnerKind = owner.Kind
	}
	return m
}

func newSpec(pod *v1.Pod) Spec {
	spec := &pod.Spec
	s := Spec{
		NodeName: spec.NodeName, RestartPolicy: string(spec.RestartPolicy), HostNetwork: spec.HostNetwork, Static: podid.IsStatic(pod),
		Containers: make([]Container, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers)),
	}
	if spec.Priority != nil {
		s.Priority = *spec.Priority
	}
	for i := range spec.InitContainers {
		s.add(&spec.InitContainers[i], derive.InitContainerKind(&spec.InitContainers[i]))
	}
	for i := range spec.Containers {
		s.add(&spec.Containers[i], derive.RegularContainer)
	}
	for i := range spec.EphemeralContainers {
		ephemeral := &spec.EphemeralContainers[i].EphemeralContainerCommon
		s.Containers = append(s.Containers, Container{ephemeral.Name, string(derive.EphemeralContainer), ephemeral.Image})
	}
	return s
}

func (s *Spec) add(container *v1.Container, kind derive.ContainerKind) {
	s.Containers = append(s.Containers, Container{container.Name, string(kind), container.Image})
}

func newSynced(pod *v1.Pod, sync *explain.Sync) *Status {
	if sync.Synced == nil {
		return nil
	}
	return &Status{
		Version: sync.SyncedVersion, At: NewTime(sync.SyncedAt), Summary: transition.PodSummary(pod, sync.Synced),
		ResourceVersion: sync.ResourceVersion, Status: *sync.Synced,
	}
}

func newLag(sync *explain.Sync, now time.Time) Lag {
	lag := Lag{
		State: sync.State, Behind: sync.Behind, TookMs: sync.Took.Milliseconds(), Reason: sync.Reason, Failures: sync.Failures,
		NextTry: NewTime(sync.NextTry),
	}
	if !sync.Since.IsZero() {
		lag.SinceMs = max(0, now.Sub(sync.Since).Milliseconds()) // the clock may have been set back
	}
	return lag
}

func newWorker(w *explain.Worker) Worker {
	if !w.Known {
		return Worker{}
	}
	worker := Worker{Stage: w.Stage.String(), Failures: w.Failures, RetryAt: NewTime(w.RetryAt)}
	switch {
	case w.Rejected != nil:
		worker.Trouble = w.Rejected.Error()
	case w.Trouble != nil:
		worker.Trouble = w.Trouble.Error()
	}
	return worker
}

func newProbe(p *explain.Probe) Probe {
	probe := Probe{
		Container: p.Container, Kind: p.Kind, Target: p.Target, Verdict: cmp.Or(p.Result, explain.Undecided),
		Streak: p.Streak, StreakFailed: p.StreakFailed, Threshold: p.Threshold, Errors: p.Errors, Next: NewTime(p.Next),
	}
	if !p.Last.At.IsZero() {
		probe.Last = NewAnswer(p.Last)
		probe.P50Ms, probe.MaxMs = p.Median.Milliseconds(), p.Longest.Milliseconds()
	}
	return probe
}

// NewAnswer returns the view of an answer.
func NewAnswer(a explain.Answer) *Answer {
	return &Answer{At: NewTime(a.At), TookMs: a.Took.Milliseconds(), OK: a.OK, Message: a.Message}
}

// newWaiting returns the containers that wait by their status, in its order, and then others that the worker will start.
func newWaiting(pod *v1.Pod, starts map[string]explain.Start) []Waiting {
	var all []Waiting
	known := map[string]bool{}
	for _, statuses := range [...][]v1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			if state := statuses[i].State.Waiting; state != nil {
				name := statuses[i].Name
				known[name] = true
				all = append(all, newWaitingContainer(name, *state, starts[name]))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(starts)) {
		if !known[name] {
			all = append(all, newWaitingContainer(name, v1.ContainerStateWaiting{}, starts[name]))
		}
	}
	return all
}

// newWaitingContainer prefers what the worker knows: the status may be older.
func newWaitingContainer(name string, state v1.ContainerStateWaiting, start explain.Start) Waiting {
	return Waiting{
		Container: name, Reason: cmp.Or(start.Reason, state.Reason), Message: cmp.Or(start.Message, state.Message),
		Until: NewTime(start.At), Failures: start.Failures, DelayMs: start.Delay.Milliseconds(),
	}
}

func newWhy(f explain.Facts) Why {
	verdict := explain.Pod(f, explain.WhatIsWrong)
	return Why{
		OK: verdict.OK, Code: verdict.Code, Class: explain.ClassOf(verdict.Code),
		Text: explain.Short(verdict, f.Now), Since: NewTime(verdict.Since),
	}
}
