package derive_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

func told(phase v1.PodPhase, reason string) v1.PodStatus {
	status := v1.PodStatus{Phase: phase, Reason: reason}
	if reason != "" {
		status.Message = "about " + reason
	}
	return status
}

func TestWhatWasToldAboutAPodsPhaseIsKept(t *testing.T) {
	evicted := &derive.Eviction{Reason: "Evicted", Message: "about Evicted"}
	runs, succeeds := seen("a", 1, observed.Running), seenExit("a", 1, 0)
	tests := map[string]struct {
		api, previous v1.PodStatus
		seen          observed.Container
		evict         *derive.Eviction
		want          v1.PodStatus
	}{
		"PH-17 a published terminal phase stays":                 {previous: told(v1.PodFailed, "X"), seen: runs, want: told(v1.PodFailed, "X")},
		"PH-17 else the API's":                                   {api: told(v1.PodFailed, "X"), previous: told(v1.PodRunning, ""), seen: runs, want: told(v1.PodFailed, "X")},
		"PH-17 and does not become the other terminal phase":     {previous: told(v1.PodFailed, "Evicted"), seen: succeeds, want: told(v1.PodFailed, "Evicted")},
		"PH-18 the phase stays, so do reason and message":        {previous: told(v1.PodRunning, "X"), seen: runs, want: told(v1.PodRunning, "X")},
		"PH-18 or the API's, when none was published":            {api: told(v1.PodRunning, "X"), previous: told(v1.PodRunning, ""), seen: runs, want: told(v1.PodRunning, "X")},
		"PH-18 the phase changes, both go":                       {api: told(v1.PodPending, "X"), previous: told(v1.PodPending, "X"), seen: runs, want: told(v1.PodRunning, "")},
		"PH-19 an eviction fails the pod, whatever runs":         {previous: told(v1.PodRunning, ""), seen: runs, evict: evicted, want: told(v1.PodFailed, "Evicted")},
		"PH-19 but not one that has ended":                       {previous: told(v1.PodSucceeded, "X"), seen: succeeds, evict: evicted, want: told(v1.PodSucceeded, "X")},
		"PH-20 the API's terminal phase is above ours":           {api: told(v1.PodSucceeded, "Y"), previous: told(v1.PodFailed, "X"), seen: runs, want: told(v1.PodSucceeded, "Y")},
		"PH-20 and above an eviction":                            {api: told(v1.PodSucceeded, "Y"), previous: told(v1.PodRunning, ""), seen: runs, evict: evicted, want: told(v1.PodSucceeded, "Y")},
		"PH-20 and above what the containers say":                {api: told(v1.PodFailed, "Y"), previous: told(v1.PodRunning, ""), seen: succeeds, want: told(v1.PodFailed, "Y")},
		"an ordinary end is told without a reason":               {previous: told(v1.PodRunning, ""), seen: succeeds, want: told(v1.PodSucceeded, "")},
		"a first status has nothing to keep":                     {seen: runs, want: told(v1.PodRunning, "")},
		"a phase that nobody knows is no obstacle":               {previous: told(v1.PodUnknown, ""), seen: runs, want: told(v1.PodRunning, "")},
		"BUG-42 the API's terminal phase is above what we kept":  {api: told(v1.PodFailed, "Y"), previous: told(v1.PodRunning, ""), seen: seen("a", 1, observed.Unknown), want: told(v1.PodFailed, "Y")},
		"PH-20 the same phase in both keeps the published words": {api: told(v1.PodFailed, "Y"), previous: told(v1.PodFailed, "X"), seen: runs, want: told(v1.PodFailed, "X")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(never, container("a"))
			pod.Status = test.api
			got := status(derive.Input{Pod: pod, Previous: &test.previous, Observed: world(test.seen), Eviction: test.evict})
			mustEqual(t, v1.PodStatus{Phase: got.Phase, Reason: got.Reason, Message: got.Message}, test.want)
		})
	}
}

func TestPH19ADeadlineIsCountedFromTheRecordedStart(t *testing.T) {
	tests := map[string]struct {
		limit *int64
		start time.Time
		now   time.Time
		want  bool
	}{
		"no limit":            {start: noon, now: later},
		"no start":            {limit: new(int64(1)), now: later},
		"a moment before":     {limit: new(int64(60)), start: noon, now: later.Add(-1)},
		"at the very moment":  {limit: new(int64(60)), start: noon, now: later, want: true},
		"long after":          {limit: new(int64(60)), start: noon, now: later.Add(time.Hour), want: true},
		"the clock went back": {limit: new(int64(60)), start: noon, now: noon.Add(-time.Hour)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(always, container("a"))
			pod.Spec.ActiveDeadlineSeconds = test.limit
			got := derive.DeadlineExceeded(pod, test.start, test.now)
			if (got != nil) != test.want {
				t.Fatalf("past its deadline: %v, want %v", got, test.want)
			}
			if got != nil && *got != (derive.Eviction{
				Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline",
			}) {
				t.Fatalf("told as %+v", *got)
			}
		})
	}
}

func TestPH21HistoryComesFromWhatWasPublishedElseFromTheAPI(t *testing.T) {
	pod := newPod(always, container("a"))
	pod.Status = v1.PodStatus{StartTime: &metav1.Time{Time: noon.Add(-time.Hour)}, ContainerStatuses: statuses{exited("a", 3)}}
	got := status(derive.Input{Pod: pod})
	mustEqual(t, got.ContainerStatuses[0].State.Terminated.ExitCode, int32(3))
	mustEqual(t, got.StartTime.Time, noon.Add(-time.Hour))

	published := v1.PodStatus{StartTime: &metav1.Time{Time: noon.Add(-time.Minute)}, ContainerStatuses: statuses{exited("a", 4)}}
	got = status(derive.Input{Pod: pod, Previous: &published})
	mustEqual(t, got.ContainerStatuses[0].State.Terminated.ExitCode, int32(4))
	mustEqual(t, got.StartTime.Time, noon.Add(-time.Minute))
}

// A running pod of which one container is not known goes on running (BUG-42). It goes back to Pending only when its
// init containers must do their work again.
func TestBUG42ARunningPodDoesNotBounceToPending(t *testing.T) {
	tests := map[string]struct {
		pod      *v1.Pod
		previous statuses
		seen     *observed.Pod
		want     v1.PodPhase
	}{
		"PH-11 one container in no known state, never seen running": {
			pod: newPod(always, container("a"), container("b")), previous: statuses{waiting("a"), running("b")},
			seen: world(seen("a", 1, observed.Unknown), seen("b", 1, observed.Running)), want: v1.PodRunning,
		},
		"one container appeared in the manifest": {
			pod: newPod(always, container("a"), container("b")), previous: statuses{running("b")},
			seen: world(seen("b", 1, observed.Running)), want: v1.PodRunning,
		},
		"a terminated one whose state the runtime cannot tell any more": {
			pod: newPod(always, container("a")), previous: statuses{exited("a", 1)},
			seen: world(seen("a", 1, observed.Unknown)), want: v1.PodRunning,
		},
		"PH-15 its init container has to run again": {
			pod: withInit(newPod(always, container("a")), container("init")), previous: statuses{running("a")},
			seen: world(seen("init", 2, observed.Running)), want: v1.PodPending,
		},
		"PH-15 its sidecar has to start again": {
			pod: withInit(newPod(always, container("a")), sidecar("log")), previous: statuses{running("a")},
			seen: world(seen("log", 2, observed.Created)), want: v1.PodPending,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			previous := &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: test.previous}
			if got := status(derive.Input{Pod: test.pod, Previous: previous, Observed: test.seen}); got.Phase != test.want {
				t.Fatalf("phase %s, want %s", got.Phase, test.want)
			}
		})
	}
}

// Whether a regular container was created is judged on the newest sandbox, if it is ready (PH-15).
func TestPH15LeftoversOfAnOldSandboxProveNothing(t *testing.T) {
	pod := withInit(newPod(always, container("a")), sidecar("log"))
	pod.Spec.InitContainers[0].StartupProbe = &v1.Probe{}
	leftover := seenExit("a", 1, 255)
	leftover.SandboxID = "old"
	tests := map[string]struct {
		of    string
		ready bool
		want  v1.PodPhase
	}{
		"of the current sandbox":           {"new", true, v1.PodRunning},
		"of the sandbox before":            {"old", true, v1.PodPending},
		"of a newest sandbox that is dead": {"new", false, v1.PodPending},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			leftover.SandboxID = test.of
			world := world(leftover, seen("log", 1, observed.Running))
			world.Sandboxes[0].Ready = test.ready
			if got := status(derive.Input{Pod: pod, Observed: world}); got.Phase != test.want {
				t.Fatalf("phase %s, want %s", got.Phase, test.want)
			}
		})
	}
}

func TestPH16AnInitContainerKilledForWantOfMemoryHasFailedWhateverItsCode(t *testing.T) {
	killed := seenExit("init", 1, 0)
	killed.Exit.Reason = "OOMKilled"
	tests := map[string]struct {
		policy v1.RestartPolicy
		want   v1.PodPhase
	}{
		"it may not try again": {never, v1.PodFailed},
		"it tries again":       {onFailure, v1.PodPending},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(test.policy, container("a")), container("init"))
			in := derive.Input{Pod: pod, Observed: world(killed), Waiting: map[string]derive.Waiting{"init": {Reason: "CrashLoopBackOff"}}}
			got := status(in)
			if got.Phase != test.want {
				t.Errorf("phase %s, want %s", got.Phase, test.want)
			}
			if got.InitContainerStatuses[0].Ready || condition(t, got, v1.PodInitialized).Status != v1.ConditionFalse {
				t.Error("it counts as done")
			}
			if waits := got.InitContainerStatuses[0].State.Waiting != nil; waits != (test.policy == onFailure) {
				t.Errorf("shown as waiting for its next try: %v", waits)
			}
		})
	}
	t.Run("by the kubelet's reckoning it has succeeded", func(t *testing.T) {
		pod := withInit(newPod(never, container("a")), container("init"))
		mustEqual(t, derive.Phase(pod, statuses{reasoned(exited("init", 0), "OOMKilled"), waiting("a")}, false, false), v1.PodPending)
	})
}
