package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

const lostMessage = "The container could not be located when the pod was terminated"

func waitingState(reason, message string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func terminatedState(code int32, reason, message string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

// exitedState returns the state of newExited(name, n, code).
func exitedState(name string, n int, code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: code, Reason: "Error", Message: "it broke", ContainerID: containerID(name, n).String(),
		StartedAt: metav1.NewTime(noon), FinishedAt: metav1.NewTime(later),
	}}
}

func runningState() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}
}

func withRestarts(status v1.ContainerStatus, restarts int32) v1.ContainerStatus {
	status.RestartCount = restarts
	return status
}

func lostStatus(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: terminatedState(137, "ContainerStatusUnknown", lostMessage)}
}

func withContainerID(status v1.ContainerStatus, n int) v1.ContainerStatus {
	status.ContainerID = containerID(status.Name, n).String()
	return status
}

// TestStatus_ContainerState covers one container "a", given its published status and the runtime's records.
func TestStatus_ContainerState(t *testing.T) {
	lost := "The container could not be located when the pod was deleted.  The container used to be Running"
	plain := func() *v1.Pod { return newPod(always, newContainer("a")) }
	afterInit := func() *v1.Pod { return withInit(newPod(always, newContainer("a")), newContainer("init")) }
	backOff := map[string]derive.Waiting{"a": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}}
	type shown struct {
		state, last v1.ContainerState
		restarts    int32
	}
	tests := map[string]struct {
		pod     *v1.Pod
		old     statuses
		seen    []observed.Container
		waiting map[string]derive.Waiting
		want    shown
	}{
		"PH-22 no history":                         {pod: plain(), want: shown{state: waitingState("ContainerCreating", "")}},
		"PH-22 no history, init containers":        {pod: afterInit(), want: shown{state: waitingState("PodInitializing", "")}},
		"PH-22 history is kept":                    {pod: plain(), old: statuses{withRestarts(crashedStatus("a", 2), 5)}, want: shown{waitingState("ContainerCreating", ""), exitedStatus("a", 2).State, 5}},
		"PH-23 record garbage collected":           {pod: plain(), old: statuses{withRestarts(exitedStatus("a", 2), 5)}, want: shown{state: exitedStatus("a", 2).State, restarts: 5}},
		"PH-24 two newest instances":               {pod: plain(), seen: []observed.Container{newExited("a", 1, 1), newExited("a", 2, 2), newInstance("a", 3, observed.Running)}, want: shown{runningState(), exitedState("a", 2, 2), 2}},
		"PH-24 BUG-40 never started":               {pod: plain(), old: statuses{{Name: "a", ContainerID: "test://a-2", LastTerminationState: exitedStatus("a", 2).State}}, seen: []observed.Container{newInstance("a", 2, observed.Created), newInstance("a", 3, observed.Created)}, want: shown{waitingState("", ""), exitedStatus("a", 2).State, 2}},
		"PH-24 name not in the pod":                {pod: plain(), seen: []observed.Container{newInstance("b", 1, observed.Running)}, want: shown{state: waitingState("ContainerCreating", "")}},
		"PH-25 created":                            {pod: plain(), seen: []observed.Container{newInstance("a", 1, observed.Created)}, want: shown{state: waitingState("", "")}},
		"PH-26 running":                            {pod: plain(), seen: []observed.Container{newInstance("a", 1, observed.Running)}, want: shown{state: runningState()}},
		"PH-27 exited":                             {pod: plain(), seen: []observed.Container{newExited("a", 1, 3)}, want: shown{state: exitedState("a", 1, 3)}},
		"PH-28 unknown, was running":               {pod: plain(), old: statuses{withRestarts(runningStatus("a"), 5)}, seen: []observed.Container{newInstance("a", 1, observed.Unknown)}, want: shown{state: terminatedState(137, "ContainerStatusUnknown", lostMessage), restarts: 6}},
		"PH-28 unknown, was waiting":               {pod: plain(), old: statuses{waitingStatus("a")}, seen: []observed.Container{newInstance("a", 1, observed.Unknown)}, want: shown{state: waitingState("", "")}},
		"PH-28 unknown, was terminated":            {pod: plain(), old: statuses{exitedStatus("a", 2)}, seen: []observed.Container{newInstance("a", 1, observed.Unknown)}, want: shown{state: exitedStatus("a", 2).State}},
		"PH-28 unknown, prior instance terminated": {pod: plain(), old: statuses{exitedStatus("a", 2)}, seen: []observed.Container{newInstance("a", 2, observed.Unknown)}, want: shown{waitingState("", ""), exitedStatus("a", 2).State, 1}},
		"PH-28 unknown, terminated for good":       {pod: newPod(never, newContainer("a")), old: statuses{exitedStatus("a", 2)}, seen: []observed.Container{newInstance("a", 1, observed.Unknown)}, waiting: backOff, want: shown{state: exitedStatus("a", 2).State}},
		"PH-28 unknown, restarts":                  {pod: plain(), old: statuses{exitedStatus("a", 2)}, seen: []observed.Container{newInstance("a", 1, observed.Unknown)}, waiting: backOff, want: shown{waitingState("CrashLoopBackOff", "back-off 10s"), exitedStatus("a", 2).State, 0}},
		"PH-28 unknown, runs again":                {pod: plain(), old: statuses{withRestarts(withContainerID(lostStatus("a"), 1), 6)}, seen: []observed.Container{newInstance("a", 1, observed.Running)}, want: shown{state: runningState(), restarts: 6}},
		"I3 next instance after a lost one":        {pod: plain(), old: statuses{withRestarts(withContainerID(lostStatus("a"), 1), 6)}, seen: []observed.Container{newInstance("a", 2, observed.Running)}, want: shown{runningState(), lostStatus("a").State, 7}},
		"PH-28 exited without exit record":         {pod: plain(), old: statuses{runningStatus("a")}, seen: []observed.Container{newInstance("a", 1, observed.Exited)}, want: shown{state: terminatedState(137, "ContainerStatusUnknown", lostMessage), restarts: 1}},
		"PH-29 record of running container gone":   {pod: plain(), old: statuses{withRestarts(runningStatus("a"), 5)}, want: shown{waitingState("ContainerCreating", ""), terminatedState(137, "ContainerStatusUnknown", lost), 6}},
		"PH-29 init containers":                    {pod: afterInit(), old: statuses{runningStatus("a")}, want: shown{waitingState("PodInitializing", ""), terminatedState(137, "ContainerStatusUnknown", lost), 1}},
		"PH-29 deleted pod":                        {pod: asDeleted(plain()), old: statuses{withRestarts(runningStatus("a"), 5)}, want: shown{waitingState("ContainerCreating", ""), terminatedState(137, "ContainerStatusUnknown", lost), 5}},
		"PH-29 termination already known": {
			pod: plain(), old: statuses{{Name: "a", State: runningState(), LastTerminationState: exitedStatus("a", 2).State, RestartCount: 5}},
			want: shown{waitingState("ContainerCreating", ""), exitedStatus("a", 2).State, 5},
		},
		"PH-31 restart fails":              {pod: plain(), seen: []observed.Container{newExited("a", 1, 3)}, waiting: backOff, want: shown{state: waitingState("CrashLoopBackOff", "back-off 10s"), last: exitedState("a", 1, 3)}},
		"PH-31 never created":              {pod: plain(), waiting: backOff, want: shown{state: waitingState("CrashLoopBackOff", "back-off 10s")}},
		"PH-31 record garbage collected":   {pod: plain(), old: statuses{exitedStatus("a", 2)}, waiting: backOff, want: shown{state: waitingState("CrashLoopBackOff", "back-off 10s"), last: exitedStatus("a", 2).State}},
		"PH-32 no reason known":            {pod: plain(), seen: []observed.Container{newExited("a", 1, 3)}, want: shown{state: exitedState("a", 1, 3)}},
		"PH-33 running, old reason":        {pod: plain(), seen: []observed.Container{newInstance("a", 1, observed.Running)}, waiting: backOff, want: shown{state: runningState()}},
		"PH-33 deleted pod":                {pod: asDeleted(plain()), seen: []observed.Container{newExited("a", 1, 3)}, waiting: backOff, want: shown{state: exitedState("a", 1, 3)}},
		"PH-33 does not restart":           {pod: newPod(never, newContainer("a")), seen: []observed.Container{newExited("a", 1, 3)}, waiting: backOff, want: shown{state: exitedState("a", 1, 3)}},
		"PH-33 created":                    {pod: newPod(never, newContainer("a")), seen: []observed.Container{newInstance("a", 1, observed.Created)}, waiting: backOff, want: shown{state: waitingState("CrashLoopBackOff", "back-off 10s")}},
		"PH-33 unknown state":              {pod: newPod(never, newContainer("a")), seen: []observed.Container{newInstance("a", 1, observed.Unknown)}, waiting: backOff, want: shown{state: waitingState("CrashLoopBackOff", "back-off 10s")}},
		"PH-35 reason lost with the agent": {pod: plain(), old: statuses{crashedStatus("a", 2)}, seen: []observed.Container{newExited("a", 1, 2)}, want: shown{state: exitedState("a", 1, 2), last: exitedStatus("a", 2).State}},
		"PH-36 runtime's count":            {pod: plain(), seen: []observed.Container{newInstance("a", 4, observed.Running)}, want: shown{state: runningState(), restarts: 3}},
		"PH-36 never decreases":            {pod: plain(), old: statuses{withRestarts(runningStatus("a"), 5)}, seen: []observed.Container{newInstance("a", 1, observed.Running)}, want: shown{state: runningState(), restarts: 5}},
		"PH-36 records removed":            {pod: plain(), old: statuses{withRestarts(exitedStatus("a", 2), 5)}, seen: []observed.Container{newInstance("a", 2, observed.Running)}, want: shown{runningState(), exitedStatus("a", 2).State, 6}},
		"PH-50 runtime's message":          {pod: plain(), seen: []observed.Container{newExited("a", 1, 1)}, want: shown{state: exitedState("a", 1, 1)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			previous := &v1.PodStatus{ContainerStatuses: test.old}
			got := computeStatus(derive.Input{Pod: test.pod, Previous: previous, Observed: newRuntimePod(test.seen...), Waiting: test.waiting})
			a := findStatus(t, got.ContainerStatuses, "a")
			requireEqual(t, []any{a.State, a.LastTerminationState, a.RestartCount},
				[]any{test.want.state, test.want.last, test.want.restarts})
		})
	}
}

func TestPH30_InitContainerRecordGone(t *testing.T) {
	done := terminatedState(0, "Completed",
		"Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally")
	tests := map[string]struct {
		spec v1.Container
		seen []observed.Container
		old  statuses
		want v1.ContainerState
	}{
		"regular container runs":    {spec: newContainer("init"), seen: []observed.Container{newInstance("a", 1, observed.Running)}, want: done},
		"regular container created": {spec: newContainer("init"), seen: []observed.Container{newInstance("a", 1, observed.Created)}, want: done},
		"regular container unknown": {spec: newContainer("init"), seen: []observed.Container{newInstance("a", 1, observed.Unknown)}, want: waitingState("PodInitializing", "")},
		"no regular container":      {spec: newContainer("init"), want: waitingState("PodInitializing", "")},
		"sidecar":                   {spec: newSidecar("init"), seen: []observed.Container{newInstance("a", 1, observed.Running)}, want: waitingState("PodInitializing", "")},
		"termination known":         {spec: newContainer("init"), seen: []observed.Container{newInstance("a", 1, observed.Running)}, old: statuses{exitedStatus("init", 0)}, want: exitedStatus("init", 0).State},
		"record exists":             {spec: newContainer("init"), seen: []observed.Container{newInstance("a", 1, observed.Running), newInstance("init", 1, observed.Running)}, want: runningState()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(always, newContainer("a")), test.spec)
			in := derive.Input{
				Pod: pod, Previous: &v1.PodStatus{InitContainerStatuses: test.old}, Observed: newRuntimePod(test.seen...),
			}
			requireEqual(t, computeStatus(in).InitContainerStatuses[0].State, test.want)
		})
	}
}

func TestPH34_CompletedInitContainer(t *testing.T) {
	pod := withInit(newPod(always, newContainer("a")), newContainer("init"))
	in := derive.Input{Pod: pod, Observed: newRuntimePod(newExited("init", 1, 0)), Waiting: map[string]derive.Waiting{"init": {Reason: "CrashLoopBackOff"}}}
	requireEqual(t, computeStatus(in).InitContainerStatuses[0].State, exitedState("init", 1, 0))
}

func TestPH37_ImageIDAndUser(t *testing.T) {
	c := newInstance("a", 1, observed.Running)
	c.User = &observed.User{UID: 1000, GID: 1001, SupplementalGroups: []int64{5}}
	got := computeStatus(derive.Input{Pod: newPod(always, newContainer("a")), Observed: newRuntimePod(c)}).ContainerStatuses[0]
	requireEqual(t, []string{got.Image, got.ImageID, got.ContainerID}, []string{"a:1", "sha256:a", "test://a-1"})
	requireEqual(t, got.User, &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000, GID: 1001, SupplementalGroups: []int64{5}}})
}

func TestPH41_ContainerOrder(t *testing.T) {
	pod := withInit(newPod(always, newContainer("b"), newContainer("a")), newContainer("z"), newContainer("y"))
	for _, name := range []string{"f", "e"} {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name},
		})
	}
	names := func(statuses statuses) (names []string) {
		for _, s := range statuses {
			names = append(names, s.Name)
		}
		return names
	}
	got := computeStatus(derive.Input{Pod: pod})
	requireEqual(t, names(got.ContainerStatuses), []string{"a", "b"})
	requireEqual(t, names(got.InitContainerStatuses), []string{"z", "y"})
	requireEqual(t, names(got.EphemeralContainerStatuses), []string{"e", "f"})
}

func TestPH42_EphemeralContainer(t *testing.T) {
	pod := newPod(always, newContainer("a"))
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "dbg:1"}}}
	reason := map[string]derive.Waiting{"debug": {Reason: "ErrImagePull"}}
	tests := map[string]struct {
		seen []observed.Container
		want v1.ContainerState
	}{
		"image pull fails": {want: waitingState("ErrImagePull", "")},
		"running":          {seen: []observed.Container{newInstance("debug", 1, observed.Running)}, want: runningState()},
		"terminated":       {seen: []observed.Container{newExited("debug", 1, 1)}, want: exitedState("debug", 1, 1)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := derive.Input{
				Pod: pod, Observed: newRuntimePod(test.seen...), Waiting: reason,
				Probes: derive.ProbeResults{containerID("debug", 1): {Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}},
			}
			got := computeStatus(in).EphemeralContainerStatuses[0]
			requireEqual(t, got.State, test.want)
			if got.Ready || got.Started != nil {
				t.Fatalf("got ready %v, started %v, want neither", got.Ready, got.Started)
			}
		})
	}
}

func TestPH4_RemovedForRestartAll(t *testing.T) {
	const message = "The container is removed because RestartAllContainers in place"
	pod := newPod(never, withRule("a", v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers), newContainer("b"))
	restarting := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}
	want := func(status v1.ContainerStatus) {
		t.Helper()
		requireEqual(t, status.State, waitingState("RestartingAllContainers", message))
		requireEqual(t, status.LastTerminationState, terminatedState(137, "RestartingAllContainers", message))
		requireEqual(t, status.RestartCount, int32(3))
	}
	got := computeStatus(derive.Input{Pod: pod, Previous: &v1.PodStatus{
		Conditions:        []v1.PodCondition{restarting},
		ContainerStatuses: statuses{withRestarts(exitedStatus("a", 42), 2), withRestarts(runningStatus("b"), 2)},
	}})
	want(got.ContainerStatuses[0])
	want(got.ContainerStatuses[1])
	requireEqual(t, got.Phase, v1.PodRunning)

	t.Run("unknown state during the restart", func(t *testing.T) {
		got := computeStatus(derive.Input{
			Pod: pod, Observed: newRuntimePod(newExited("a", 1, 42), newInstance("b", 1, observed.Unknown)),
			Previous: &v1.PodStatus{ContainerStatuses: statuses{runningStatus("a"), runningStatus("b")}},
		})
		requireEqual(t, got.ContainerStatuses[1].State, terminatedState(137, "RestartingAllContainers", lostMessage))
	})
}

func TestStatus_VolumeMounts(t *testing.T) {
	enabled, ifPossible := v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible
	disabled, shared := v1.RecursiveReadOnlyDisabled, v1.MountPropagationHostToContainer
	c := newContainer("a")
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "rw", MountPath: "/rw"},
		{Name: "ro", MountPath: "/ro", ReadOnly: true},
		{Name: "off", MountPath: "/off", ReadOnly: true, RecursiveReadOnly: &disabled},
		{Name: "rro", MountPath: "/rro", ReadOnly: true, RecursiveReadOnly: &enabled},
		{Name: "maybe", MountPath: "/maybe", ReadOnly: true, RecursiveReadOnly: &ifPossible},
		{Name: "shared", MountPath: "/shared", ReadOnly: true, RecursiveReadOnly: &enabled, MountPropagation: &shared},
	}
	shown := func(mode v1.RecursiveReadOnlyMode) []v1.VolumeMountStatus {
		return []v1.VolumeMountStatus{
			{Name: "rw", MountPath: "/rw"},
			{Name: "ro", MountPath: "/ro", ReadOnly: true, RecursiveReadOnly: &disabled},
			{Name: "off", MountPath: "/off", ReadOnly: true, RecursiveReadOnly: &disabled},
			{Name: "rro", MountPath: "/rro", ReadOnly: true, RecursiveReadOnly: &mode},
			{Name: "maybe", MountPath: "/maybe", ReadOnly: true, RecursiveReadOnly: &mode},
			{Name: "shared", MountPath: "/shared", ReadOnly: true, RecursiveReadOnly: &disabled},
		}
	}
	pod, runs := newPod(always, c), newRuntimePod(newInstance("a", 1, observed.Running))
	can := derive.NodeInfo{RecursiveReadOnly: true}
	requireEqual(t, computeStatus(derive.Input{Pod: pod}).ContainerStatuses[0].VolumeMounts, shown(disabled))
	requireEqual(t, computeStatus(derive.Input{Pod: pod, Node: can}).ContainerStatuses[0].VolumeMounts, shown(enabled))
	requireEqual(t, computeStatus(derive.Input{Pod: pod, Node: can, Observed: runs}).ContainerStatuses[0].VolumeMounts, shown(enabled))
	previous := &v1.PodStatus{ContainerStatuses: statuses{{Name: "a", VolumeMounts: shown(disabled)}}}
	got := computeStatus(derive.Input{Pod: pod, Node: can, Observed: runs, Previous: previous})
	requireEqual(t, got.ContainerStatuses[0].VolumeMounts, shown(disabled))
}
