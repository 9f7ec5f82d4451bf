package explain

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// Pod answers a question about a pod. The first match of the decision tree wins, in the order of the files of this package: source,
// deletion, terminal, node, images, initcontainers, containers, conditions, ready.
//
// The meaning of Verdict.OK depends on the question:
//
//   - WhyNotReady: the Ready condition of the local status is True.
//   - WhyNotRunning: the phase of the local status is Running.
//   - WhyNotDeleted: the node does not have the pod.
//   - WhyRestarting: no container restarted in the last hour.
//   - WhatIsWrong: the class of the code is Healthy or Ended.
func Pod(f Facts, q Question) Verdict {
	e := &explainer{Facts: f, question: q}
	if f.Pod != nil {
		e.listContainers()
	}
	var v Verdict
	switch {
	case f.Pod == nil:
		v = e.absent()
	case q == WhyNotDeleted:
		v = e.notDeleted()
	case q == WhyRestarting:
		v = e.restarting()
	case q == WhyNotRunning && f.Pod.Status.Phase == v1.PodRunning:
		v = e.running()
	case q == WhyNotReady && e.isReady():
		v = e.ready()
	default:
		v = e.wrong()
	}
	return e.finish(v)
}

// explainer holds the state of one call of Pod.
type explainer struct {
	Facts
	question Question
	// all are the init and regular containers.
	all []container
}

// wrong returns the worst that is wrong with a pod that the node has.
func (e *explainer) wrong() Verdict {
	if e.question != WhatIsWrong {
		return e.notAsWanted()
	}
	if v, ok := e.deletion(); ok {
		return v
	}
	if e.isReady() {
		return e.ready()
	}
	return e.notAsWanted()
}

// notAsWanted walks the decision tree of a pod that is not Ready, or not Running.
func (e *explainer) notAsWanted() Verdict {
	for _, branch := range [...]func(*explainer) (Verdict, bool){
		(*explainer).notStarted,
		(*explainer).deletion,
		(*explainer).terminal,
		(*explainer).node,
		(*explainer).images,
		(*explainer).initContainers,
		(*explainer).containers,
		(*explainer).conditions,
	} {
		if v, ok := branch(e); ok {
			return e.withRefusedManifest(v)
		}
	}
	return e.withRefusedManifest(e.statusPending())
}

// finish decides OK, adds evidence, and bounds all texts.
func (e *explainer) finish(v Verdict) Verdict {
	v.OK = e.isOK(v.Code)
	v.Headline = clean(v.Headline, maxHeadline)
	v.Summary = clean(v.Summary, maxHeadline)
	if v.Since.IsZero() && e.Pod != nil && ClassOf(v.Code) != Ended {
		v.Since = e.readySince()
	}
	for i := range v.Chain {
		v.Chain[i].Text = clean(v.Chain[i].Text, maxText)
		v.Chain[i].Input = clean(v.Chain[i].Input, maxText)
	}
	for i := range v.Changes {
		v.Changes[i] = clean(v.Changes[i], maxText)
	}
	v.Next.What, v.Next.Then = clean(v.Next.What, maxText), clean(v.Next.Then, maxText)
	if v.Next.By == "" {
		v.Next.By = ByNobody
	}
	if v.Container != "" && !v.OK {
		v.Evidence = e.evidence(v.Container)
	}
	return v
}

func (e *explainer) isOK(code string) bool {
	switch e.question {
	case WhyNotReady:
		return e.Pod != nil && e.isReady()
	case WhyNotRunning:
		return e.Pod != nil && e.Pod.Status.Phase == v1.PodRunning
	case WhyNotDeleted:
		return e.Pod == nil
	case WhyRestarting:
		return code == CodeNotRestarting
	default:
		class := ClassOf(code)
		return class == Healthy || class == Ended
	}
}

// evidence returns the newest lines of the container's last failed instance.
func (e *explainer) evidence(container string) []Line {
	lines := e.LastLines[container]
	if len(lines) > maxLines {
		lines = lines[len(lines)-maxLines:]
	}
	if len(lines) == 0 {
		return nil
	}
	evidence := make([]Line, len(lines))
	for i, line := range lines {
		evidence[i] = Line{Container: container, Text: clean(line, maxText)}
	}
	return evidence
}

// name returns the name of the pod for a headline.
func (e *explainer) name() string {
	if e.Pod != nil && e.Pod.Name != "" {
		return clean(e.Pod.Name, maxName)
	}
	if e.Name.Name != "" {
		return clean(e.Name.Name, maxName)
	}
	return "the pod"
}

// isNot begins a headline: "web is not Ready". The phase of a pod with the question WhatIsWrong decides what is missing first.
func (e *explainer) isNot() string {
	if e.wantsRunning() {
		return e.name() + " is not Running"
	}
	return e.name() + " is not Ready"
}

// wantsRunning reports whether the answer is about the phase and not about the Ready condition.
func (e *explainer) wantsRunning() bool {
	switch e.question {
	case WhyNotRunning:
		return true
	case WhyNotReady:
		return false
	default:
		return e.Pod.Status.Phase != v1.PodRunning
	}
}

// condition returns the condition of this type, or nil. If there are several, the last one wins, as in a patch.
func condition(status *v1.PodStatus, conditionType v1.PodConditionType) *v1.PodCondition {
	for i := len(status.Conditions) - 1; i >= 0; i-- {
		if status.Conditions[i].Type == conditionType {
			return &status.Conditions[i]
		}
	}
	return nil
}

func isTrue(status *v1.PodStatus, conditionType v1.PodConditionType) bool {
	found := condition(status, conditionType)
	return found != nil && found.Status == v1.ConditionTrue
}

func (e *explainer) isReady() bool { return isTrue(&e.Pod.Status, v1.PodReady) }

// readySince returns when the Ready condition last changed. Zero if unknown.
func (e *explainer) readySince() time.Time {
	if ready := condition(&e.Pod.Status, v1.PodReady); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}

func (e *explainer) isStatic() bool { return podid.IsStatic(e.Pod) }

// container is a container of the spec with its status.
type container struct {
	spec   *v1.Container
	kind   derive.ContainerKind
	status *v1.ContainerStatus // nil if it has none
	// field is its path in the spec.
	list  string
	index int
}

func (c *container) name() string { return clean(c.spec.Name, maxName) }

func (c *container) isRunning() bool { return c.status != nil && c.status.State.Running != nil }

// isStarted reports whether the container runs and its startup probe, if any, has succeeded.
func (c *container) isStarted() bool {
	return c.isRunning() && (c.spec.StartupProbe == nil || c.status.Started != nil && *c.status.Started)
}

func (c *container) waiting() *v1.ContainerStateWaiting {
	if c.status == nil {
		return nil
	}
	return c.status.State.Waiting
}

// lastEnd returns how the last instance that ended has ended, or nil.
func (c *container) lastEnd() *v1.ContainerStateTerminated {
	switch {
	case c.status == nil:
		return nil
	case c.status.State.Terminated != nil:
		return c.status.State.Terminated
	default:
		return c.status.LastTerminationState.Terminated
	}
}

func findStatus(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// listContainers lists init and regular containers in the order of the spec.
func (e *explainer) listContainers() {
	spec, status := &e.Pod.Spec, &e.Pod.Status
	e.all = make([]container, 0, len(spec.InitContainers)+len(spec.Containers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		e.all = append(e.all, container{
			spec: c, kind: derive.InitContainerKind(c), list: "initContainers", index: i,
			status: findStatus(status.InitContainerStatuses, c.Name),
		})
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		e.all = append(e.all, container{
			spec: c, kind: derive.RegularContainer, list: "containers", index: i, status: findStatus(status.ContainerStatuses, c.Name),
		})
	}
}

// initList and regularList are the two parts of all containers.
func (e *explainer) initList() []container    { return e.all[:len(e.Pod.Spec.InitContainers)] }
func (e *explainer) regularList() []container { return e.all[len(e.Pod.Spec.InitContainers):] }

// findAny returns the first container that matches: init containers first, then regular ones. It returns nil if there is none.
func (e *explainer) findAny(match func(*container) bool) *container {
	for i := range e.all {
		if match(&e.all[i]) {
			return &e.all[i]
		}
	}
	return nil
}

// find is findAny without init containers that run to completion.
func (e *explainer) find(match func(*container) bool) *container {
	return e.findAny(func(c *container) bool { return c.kind != derive.InitContainer && match(c) })
}
