package e2e_test

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// plot is what happens to a pod over its life, chapter by chapter. The status in each chapter is the same whoever tells it
// and whenever, as a container runtime outlives the agents that ask it.
type plot struct {
	policy v1.RestartPolicy
	// leaves tells that somebody deletes the pod in the middle.
	leaves bool
	// exit is the exit code in the last chapter; negative for a pod that runs on.
	exit int32
}

// lastChapter is the same in all plots.
const lastChapter = 16

// plots are known by the first part of a pod's name.
var plots = map[string]plot{
	"service": {policy: v1.RestartPolicyAlways, exit: -1},
	"leaver":  {policy: v1.RestartPolicyAlways, leaves: true, exit: 0},
	"job":     {policy: v1.RestartPolicyNever, exit: 0},
	"failure": {policy: v1.RestartPolicyNever, exit: 3},
	"static":  {policy: v1.RestartPolicyAlways, exit: -1},
}

func plotOf(name string) plot {
	kind, _, _ := strings.Cut(name, "-")
	return plots[kind]
}

// hasEnded tells whether nothing of the pod runs in that chapter.
func (p plot) hasEnded(chapter int) bool { return p.exit >= 0 && chapter >= lastChapter }

// dawn is when all stories begin.
var dawn = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// status is what there is to say in a chapter. A pod that may restart its container does so in every second one.
func (p plot) status(pod *v1.Pod, chapter int) v1.PodStatus {
	run := int32(0)
	if p.policy == v1.RestartPolicyAlways {
		run = int32(chapter / 2)
	}
	isReady := chapter%2 == 1 && !p.hasEnded(chapter)
	since := metav1.NewTime(dawn.Add(time.Duration(run) * time.Minute))
	main := v1.ContainerStatus{
		Name: "main", Image: "web", ImageID: "web", RestartCount: run, Ready: isReady, Started: &isReady,
		ContainerID: fmt.Sprintf("test://%s/%d", pod.UID, run),
		State:       v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: since}},
	}
	phase := v1.PodRunning
	if p.hasEnded(chapter) {
		phase = map[bool]v1.PodPhase{true: v1.PodSucceeded, false: v1.PodFailed}[p.exit == 0]
		end := v1.ContainerStateTerminated{ExitCode: p.exit, StartedAt: since, FinishedAt: metav1.NewTime(since.Add(time.Second)), ContainerID: main.ContainerID}
		main.State = v1.ContainerState{Terminated: &end}
	}
	ready := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[isReady]
	return v1.PodStatus{
		Phase: phase, Message: recorder.NumberedMessage(chapter, pod.UID), ContainerStatuses: []v1.ContainerStatus{main},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}, {Type: v1.ContainersReady, Status: ready}},
	}
}
