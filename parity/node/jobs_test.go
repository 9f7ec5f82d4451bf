package node_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

func TestAJobEndsWithItsExitCodeAndItsMessage(t *testing.T) {
	t.Parallel()
	fallback := v1.TerminationMessageFallbackToLogsOnError
	cases := map[string]struct {
		args    []string
		policy  v1.TerminationMessagePolicy
		phase   v1.PodPhase
		reason  string
		code    int32
		message string
	}{
		"succeeded":            {[]string{"exit", "0", "--message", "well"}, "", v1.PodSucceeded, "Completed", 0, "well"},
		"failed":               {[]string{"exit", "3", "--message", "no luck"}, "", v1.PodFailed, "Error", 3, "no luck"},
		"failed-with-a-log":    {[]string{"exit", "4", "--print", "out of ink"}, fallback, v1.PodFailed, "Error", 4, "out of ink"},
		"succeeded-with-a-log": {[]string{"exit", "0", "--print", "never mind"}, fallback, v1.PodSucceeded, "Completed", 0, ""},
		"failed-with-both": {
			[]string{"exit", "5", "--print", "the log", "--message", "the file"}, fallback, v1.PodFailed, "Error", 5, "the file",
		},
	}
	tr := tryOn(t, quiet.node(t))
	for name, tc := range cases {
		c := runs("main", tc.args...)
		c.TerminationMessagePolicy = tc.policy
		job := newPod(name, c)
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		tr.bind(job)
	}
	for name, tc := range cases {
		end := containerOf(tr.Await(name, "ended", hasPhase(tc.phase)), "main").State.Terminated
		if end == nil || end.Reason != tc.reason || end.ExitCode != tc.code || strings.TrimSpace(end.Message) != tc.message {
			t.Errorf("%s: it ended with %+v", name, end)
		}
	}
}

func TestAContainerThatCrashesIsStartedAgainAfterABackOff(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	tr.bind(tr.keepsDiary(newPod("crash", runs("main", "work", diaryPath+"/main", "main", "--exit", "7", "--after", "10ms"))))
	backingOff := func(restarts int32, message string) func(*v1.Pod) bool {
		return func(p *v1.Pod) bool {
			c := containerOf(p, "main")
			waiting := c.State.Waiting
			return c.RestartCount == restarts && waiting != nil && waiting.Reason == "CrashLoopBackOff" &&
				strings.HasPrefix(waiting.Message, message+" restarting failed container=main pod=crash_")
		}
	}
	first := tr.Await("crash", "in its first back-off", backingOff(1, "back-off 10s"))
	second := tr.Await("crash", "in its second back-off", backingOff(2, "back-off 20s"))
	before := containerOf(first, "main").LastTerminationState.Terminated
	after := containerOf(second, "main").LastTerminationState.Terminated
	if before == nil || after == nil || before.ExitCode != 7 || after.StartedAt.Sub(before.FinishedAt.Time).Seconds() < 9 {
		t.Errorf("its ends were %+v and %+v", before, after)
	}
	if written := tr.written("main"); len(written) != 6 {
		t.Errorf("written was %q", written)
	}
}

func TestAJobThatMayTryAgainSucceedsInTheEnd(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	job := newPod("persistent", runs("main", "flip", diaryPath+"/coin"))
	job.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	tr.bind(tr.keepsDiary(job))
	p := tr.Await("persistent", "succeeded", hasPhase(v1.PodSucceeded))
	if c := containerOf(p, "main"); c.RestartCount != 1 || c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
		t.Errorf("it ended with %+v", c)
	}
}

func TestAPodMayNotRunLongerThanItsDeadline(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	late := newPod("late", runs("main", "work", diaryPath+"/main", "main"))
	late.Spec.ActiveDeadlineSeconds = new(int64(2))
	late.Spec.RestartPolicy = v1.RestartPolicyNever
	tr.bind(tr.keepsDiary(late))
	p := tr.Await("late", "failed", hasPhase(v1.PodFailed))
	if p.Status.Reason != "DeadlineExceeded" || p.Status.Message == "" {
		t.Errorf("its status is %+v", p.Status)
	}
	tr.mustHaveWritten("main", "main started", "main ended")
}

func TestWhatIsNotHonouredIsRefusedByName(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	p := newPod("devices", runs("main", "pause"))
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
	tr.bind(p)
	refused := tr.Await("devices", "failed", hasPhase(v1.PodFailed))
	if !strings.Contains(refused.Status.Message, "spec.resourceClaims") {
		t.Errorf("it was refused with %s: %s", refused.Status.Reason, refused.Status.Message)
	}
	tr.awaitEvent("devices", refused.Status.Reason, "spec.resourceClaims")
}

// awaitEvent waits for an event about the pod that says this.
func (tr *trial) awaitEvent(pod, reason, words string) {
	tr.t.Helper()
	recorder.Eventually(tr.t, "the event "+reason+" of "+pod, func() (string, bool) {
		events, err := tr.Admin.CoreV1().Events(tr.Namespace).List(tr.t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + pod,
		})
		if err != nil {
			return err.Error(), false
		}
		var told []string
		for _, e := range events.Items {
			if e.Reason == reason && strings.Contains(e.Message, words) {
				return "", true
			}
			told = append(told, e.Reason+": "+e.Message)
		}
		return strings.Join(told, "; "), false
	})
}
