package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

const unseenMessage = "The container could not be located when the pod was terminated"

func waitsFor(reason, message string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func endedWith(code int32, reason, message string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

// exitState is how seenExit(name, n, code) is shown.
func exitState(name string, n int, code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: code, Reason: "Error", Message: "it broke", ContainerID: idOf(name, n).String(),
		StartedAt: metav1.NewTime(noon), FinishedAt: metav1.NewTime(later),
	}}
}

func runState() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}
}

func counted(status v1.ContainerStatus, restarts int32) v1.ContainerStatus {
	status.RestartCount = restarts
	return status
}

// One container "a", of which the test's case says what was published and what the runtime has.
func TestAContainersStateIsWhatWasSeenAndWhatIsKnownOfItsPast(t *testing.T) {
	lost := "The container could not be located when the pod was deleted.  The container used to be Running"
	plain := func() *v1.Pod { return newPod(always, container("a")) }
	afterInit := func() *v1.Pod { return withInit(newPod(always, container("a")), container("init")) }
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
		"PH-22 nothing is known yet":           {pod: plain(), want: shown{state: waitsFor("ContainerCreating", "")}},
		"PH-22 nor in a pod with init":         {pod: afterInit(), want: shown{state: waitsFor("PodInitializing", "")}},
		"PH-22 the past is kept meanwhile":     {pod: plain(), old: statuses{counted(crashed("a", 2), 5)}, want: shown{waitsFor("ContainerCreating", ""), exited("a", 2).State, 5}},
		"PH-23 its record was collected":       {pod: plain(), old: statuses{counted(exited("a", 2), 5)}, want: shown{state: exited("a", 2).State, restarts: 5}},
		"PH-24 the two newest instances":       {pod: plain(), seen: []observed.Container{seenExit("a", 1, 1), seenExit("a", 2, 2), seen("a", 3, observed.Running)}, want: shown{runState(), exitState("a", 2, 2), 2}},
		"PH-24 BUG-40 one that never started":  {pod: plain(), old: statuses{{Name: "a", ContainerID: "test://a-2", LastTerminationState: exited("a", 2).State}}, seen: []observed.Container{seen("a", 2, observed.Created), seen("a", 3, observed.Created)}, want: shown{waitsFor("", ""), exited("a", 2).State, 2}},
		"PH-24 a name that is not in the pod":  {pod: plain(), seen: []observed.Container{seen("b", 1, observed.Running)}, want: shown{state: waitsFor("ContainerCreating", "")}},
		"PH-25 created and not started":        {pod: plain(), seen: []observed.Container{seen("a", 1, observed.Created)}, want: shown{state: waitsFor("", "")}},
		"PH-26 running":                        {pod: plain(), seen: []observed.Container{seen("a", 1, observed.Running)}, want: shown{state: runState()}},
		"PH-27 exited":                         {pod: plain(), seen: []observed.Container{seenExit("a", 1, 3)}, want: shown{state: exitState("a", 1, 3)}},
		"PH-28 unknown, it was running":        {pod: plain(), old: statuses{counted(running("a"), 5)}, seen: []observed.Container{seen("a", 1, observed.Unknown)}, want: shown{state: endedWith(137, "ContainerStatusUnknown", unseenMessage), restarts: 6}},
		"PH-28 unknown, it was not":            {pod: plain(), old: statuses{waiting("a")}, seen: []observed.Container{seen("a", 1, observed.Unknown)}, want: shown{state: waitsFor("", "")}},
		"PH-28 unknown, it had ended":          {pod: plain(), old: statuses{exited("a", 2)}, seen: []observed.Container{seen("a", 1, observed.Unknown)}, want: shown{state: exited("a", 2).State}},
		"PH-28 unknown, the one before ended":  {pod: plain(), old: statuses{exited("a", 2)}, seen: []observed.Container{seen("a", 2, observed.Unknown)}, want: shown{waitsFor("", ""), exited("a", 2).State, 1}},
		"PH-28 unknown, it had ended for good": {pod: newPod(never, container("a")), old: statuses{exited("a", 2)}, seen: []observed.Container{seen("a", 1, observed.Unknown)}, waiting: backOff, want: shown{state: exited("a", 2).State}},
		"PH-28 unknown, it may run again":      {pod: plain(), old: statuses{exited("a", 2)}, seen: []observed.Container{seen("a", 1, observed.Unknown)}, waiting: backOff, want: shown{waitsFor("CrashLoopBackOff", "back-off 10s"), exited("a", 2).State, 0}},
		"PH-28 an exit without evidence":       {pod: plain(), old: statuses{running("a")}, seen: []observed.Container{seen("a", 1, observed.Exited)}, want: shown{state: endedWith(137, "ContainerStatusUnknown", unseenMessage), restarts: 1}},
		"PH-29 it ran and is gone":             {pod: plain(), old: statuses{counted(running("a"), 5)}, want: shown{waitsFor("ContainerCreating", ""), endedWith(137, "ContainerStatusUnknown", lost), 6}},
		"PH-29 in a pod with init":             {pod: afterInit(), old: statuses{running("a")}, want: shown{waitsFor("PodInitializing", ""), endedWith(137, "ContainerStatusUnknown", lost), 1}},
		"PH-29 and the pod is deleted":         {pod: deleted(plain()), old: statuses{counted(running("a"), 5)}, want: shown{waitsFor("ContainerCreating", ""), endedWith(137, "ContainerStatusUnknown", lost), 5}},
		"PH-29 an end is already known": {
			pod: plain(), old: statuses{{Name: "a", State: runState(), LastTerminationState: exited("a", 2).State, RestartCount: 5}},
			want: shown{waitsFor("ContainerCreating", ""), exited("a", 2).State, 5},
		},
		"PH-31 it cannot be started again":     {pod: plain(), seen: []observed.Container{seenExit("a", 1, 3)}, waiting: backOff, want: shown{state: waitsFor("CrashLoopBackOff", "back-off 10s"), last: exitState("a", 1, 3)}},
		"PH-31 it was never created":           {pod: plain(), waiting: backOff, want: shown{state: waitsFor("CrashLoopBackOff", "back-off 10s")}},
		"PH-31 its ended record was collected": {pod: plain(), old: statuses{exited("a", 2)}, waiting: backOff, want: shown{state: waitsFor("CrashLoopBackOff", "back-off 10s"), last: exited("a", 2).State}},
		"PH-32 it will be, no reason is known": {pod: plain(), seen: []observed.Container{seenExit("a", 1, 3)}, want: shown{state: exitState("a", 1, 3)}},
		"PH-33 it runs, the reason is old":     {pod: plain(), seen: []observed.Container{seen("a", 1, observed.Running)}, waiting: backOff, want: shown{state: runState()}},
		"PH-33 the pod is deleted":             {pod: deleted(plain()), seen: []observed.Container{seenExit("a", 1, 3)}, waiting: backOff, want: shown{state: exitState("a", 1, 3)}},
		"PH-33 it will not be started":         {pod: newPod(never, container("a")), seen: []observed.Container{seenExit("a", 1, 3)}, waiting: backOff, want: shown{state: exitState("a", 1, 3)}},
		"PH-33 it was created":                 {pod: newPod(never, container("a")), seen: []observed.Container{seen("a", 1, observed.Created)}, waiting: backOff, want: shown{state: waitsFor("CrashLoopBackOff", "back-off 10s")}},
		"PH-33 its state is unknown":           {pod: newPod(never, container("a")), seen: []observed.Container{seen("a", 1, observed.Unknown)}, waiting: backOff, want: shown{state: waitsFor("CrashLoopBackOff", "back-off 10s")}},
		"PH-35 reasons are lost on restart":    {pod: plain(), old: statuses{crashed("a", 2)}, seen: []observed.Container{seenExit("a", 1, 2)}, want: shown{state: exitState("a", 1, 2), last: exited("a", 2).State}},
		"PH-36 the count is the runtime's":     {pod: plain(), seen: []observed.Container{seen("a", 4, observed.Running)}, want: shown{state: runState(), restarts: 3}},
		"PH-36 and never falls":                {pod: plain(), old: statuses{counted(running("a"), 5)}, seen: []observed.Container{seen("a", 1, observed.Running)}, want: shown{state: runState(), restarts: 5}},
		"PH-36 also when records were removed": {pod: plain(), old: statuses{counted(exited("a", 2), 5)}, seen: []observed.Container{seen("a", 2, observed.Running)}, want: shown{runState(), exited("a", 2).State, 6}},
		"PH-50 the runtime's message is shown": {pod: plain(), seen: []observed.Container{seenExit("a", 1, 1)}, want: shown{state: exitState("a", 1, 1)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			previous := &v1.PodStatus{ContainerStatuses: test.old}
			got := status(derive.Input{Pod: test.pod, Previous: previous, Observed: world(test.seen...), Waiting: test.waiting})
			a := named(t, got.ContainerStatuses, "a")
			mustEqual(t, []any{a.State, a.LastTerminationState, a.RestartCount},
				[]any{test.want.state, test.want.last, test.want.restarts})
		})
	}
}

func TestPH30AnInitContainerThatWasForgottenHasDoneItsWork(t *testing.T) {
	done := endedWith(0, "Completed",
		"Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally")
	tests := map[string]struct {
		spec v1.Container
		seen []observed.Container
		old  statuses
		want v1.ContainerState
	}{
		"a regular container runs":        {spec: container("init"), seen: []observed.Container{seen("a", 1, observed.Running)}, want: done},
		"a regular container was created": {spec: container("init"), seen: []observed.Container{seen("a", 1, observed.Created)}, want: done},
		"one in an unknown state":         {spec: container("init"), seen: []observed.Container{seen("a", 1, observed.Unknown)}, want: waitsFor("PodInitializing", "")},
		"none was":                        {spec: container("init"), want: waitsFor("PodInitializing", "")},
		"a sidecar has to be restarted":   {spec: sidecar("init"), seen: []observed.Container{seen("a", 1, observed.Running)}, want: waitsFor("PodInitializing", "")},
		"its end is known":                {spec: container("init"), seen: []observed.Container{seen("a", 1, observed.Running)}, old: statuses{exited("init", 0)}, want: exited("init", 0).State},
		"it is there":                     {spec: container("init"), seen: []observed.Container{seen("a", 1, observed.Running), seen("init", 1, observed.Running)}, want: runState()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(always, container("a")), test.spec)
			in := derive.Input{
				Pod: pod, Previous: &v1.PodStatus{InitContainerStatuses: test.old}, Observed: world(test.seen...),
			}
			mustEqual(t, status(in).InitContainerStatuses[0].State, test.want)
		})
	}
}

func TestPH34AFinishedInitContainerIsNotShownAsFailing(t *testing.T) {
	pod := withInit(newPod(always, container("a")), container("init"))
	in := derive.Input{Pod: pod, Observed: world(seenExit("init", 1, 0)), Waiting: map[string]derive.Waiting{"init": {Reason: "CrashLoopBackOff"}}}
	mustEqual(t, status(in).InitContainerStatuses[0].State, exitState("init", 1, 0))
}

func TestPH37TheImageIsShownByDigestAndTheContainerWithItsRuntime(t *testing.T) {
	c := seen("a", 1, observed.Running)
	c.User = &observed.User{UID: 1000, GID: 1001, SupplementalGroups: []int64{5}}
	got := status(derive.Input{Pod: newPod(always, container("a")), Observed: world(c)}).ContainerStatuses[0]
	mustEqual(t, []string{got.Image, got.ImageID, got.ContainerID}, []string{"a:1", "sha256:a", "test://a-1"})
	mustEqual(t, got.User, &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000, GID: 1001, SupplementalGroups: []int64{5}}})
}

func TestPH41ListsHaveAFixedOrder(t *testing.T) {
	pod := withInit(newPod(always, container("b"), container("a")), container("z"), container("y"))
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
	got := status(derive.Input{Pod: pod})
	mustEqual(t, names(got.ContainerStatuses), []string{"a", "b"})
	mustEqual(t, names(got.InitContainerStatuses), []string{"z", "y"})
	mustEqual(t, names(got.EphemeralContainerStatuses), []string{"e", "f"})
}

func TestPH42AnEphemeralContainerIsNeverReadyAndNeverRestarted(t *testing.T) {
	pod := newPod(always, container("a"))
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "dbg:1"}}}
	reason := map[string]derive.Waiting{"debug": {Reason: "ErrImagePull"}}
	tests := map[string]struct {
		seen []observed.Container
		want v1.ContainerState
	}{
		"its image cannot be pulled": {want: waitsFor("ErrImagePull", "")},
		"it runs":                    {seen: []observed.Container{seen("debug", 1, observed.Running)}, want: runState()},
		"it ended":                   {seen: []observed.Container{seenExit("debug", 1, 1)}, want: exitState("debug", 1, 1)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := derive.Input{
				Pod: pod, Observed: world(test.seen...), Waiting: reason,
				Probes: derive.ProbeResults{idOf("debug", 1): {Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}},
			}
			got := status(in).EphemeralContainerStatuses[0]
			mustEqual(t, got.State, test.want)
			if got.Ready || got.Started != nil {
				t.Fatalf("ready %v, started %v", got.Ready, got.Started)
			}
		})
	}
}

func TestPH4ContainersRemovedForARestartOfAllWaitAndCountIt(t *testing.T) {
	const message = "The container is removed because RestartAllContainers in place"
	pod := newPod(never, ruled("a", v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers), container("b"))
	restarting := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}
	want := func(status v1.ContainerStatus) {
		t.Helper()
		mustEqual(t, status.State, waitsFor("RestartingAllContainers", message))
		mustEqual(t, status.LastTerminationState, endedWith(137, "RestartingAllContainers", message))
		mustEqual(t, status.RestartCount, int32(3))
	}
	got := status(derive.Input{Pod: pod, Previous: &v1.PodStatus{
		Conditions:        []v1.PodCondition{restarting},
		ContainerStatuses: statuses{counted(exited("a", 42), 2), counted(running("b"), 2)},
	}})
	want(got.ContainerStatuses[0])
	want(got.ContainerStatuses[1])
	mustEqual(t, got.Phase, v1.PodRunning)

	t.Run("one whose state is unknown meanwhile is told as part of it", func(t *testing.T) {
		got := status(derive.Input{
			Pod: pod, Observed: world(seenExit("a", 1, 42), seen("b", 1, observed.Unknown)),
			Previous: &v1.PodStatus{ContainerStatuses: statuses{running("a"), running("b")}},
		})
		mustEqual(t, got.ContainerStatuses[1].State, endedWith(137, "RestartingAllContainers", unseenMessage))
	})
}

func TestVolumeMountsAreThoseOfTheSpecUntilTheyWereShown(t *testing.T) {
	enabled, ifPossible := v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible
	disabled, shared := v1.RecursiveReadOnlyDisabled, v1.MountPropagationHostToContainer
	c := container("a")
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
	pod, runs := newPod(always, c), world(seen("a", 1, observed.Running))
	can := derive.NodeInfo{RecursiveReadOnly: true}
	mustEqual(t, status(derive.Input{Pod: pod}).ContainerStatuses[0].VolumeMounts, shown(disabled))
	mustEqual(t, status(derive.Input{Pod: pod, Node: can}).ContainerStatuses[0].VolumeMounts, shown(enabled))
	mustEqual(t, status(derive.Input{Pod: pod, Node: can, Observed: runs}).ContainerStatuses[0].VolumeMounts, shown(enabled))
	previous := &v1.PodStatus{ContainerStatuses: statuses{{Name: "a", VolumeMounts: shown(disabled)}}}
	got := status(derive.Input{Pod: pod, Node: can, Observed: runs, Previous: previous})
	mustEqual(t, got.ContainerStatuses[0].VolumeMounts, shown(disabled))
}
