package node_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// always makes a sidecar of an init container.
func always(c v1.Container) v1.Container {
	policy := v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &policy
	return c
}

func TestInitContainersAndSidecarsKeepTheirOrderAlsoAtTheEnd(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	const diary = diaryPath + "/all"
	p := newPod("orderly", runs("main", "work", diary, "main", "--on-term", "300ms"))
	p.Spec.InitContainers = []v1.Container{
		runs("first", "work", diary, "first", "--after", "300ms"),
		always(runs("early", "work", diary, "early", "--on-term", "100ms")),
		runs("second", "work", diary, "second", "--after", "300ms"),
		always(runs("late", "work", diary, "late", "--on-term", "100ms")),
	}
	tr.bind(tr.keepsDiary(p))
	tr.Await("orderly", "ready", isReady)
	tr.awaitLine("all", "main started")
	tr.delete("orderly")
	tr.AwaitDeleted("orderly")
	got := tr.written("all")
	for _, pair := range [][2]string{
		{"first started", "first ended"}, {"first ended", "early started"}, {"early started", "second started"},
		{"second ended", "late started"}, {"late started", "main started"},
		{"main started", "main ended"}, {"main ended", "late ended"}, {"late ended", "early ended"},
	} {
		mustBeInOrder(t, got, pair[0], pair[1])
	}
	if len(got) != 10 {
		t.Errorf("written was %q", got)
	}
}

func TestASidecarDoesNotKeepAJobFromEnding(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	job := newPod("job", runs("main", "work", diaryPath+"/all", "main", "--after", "300ms", "--exit", "3"))
	job.Spec.RestartPolicy = v1.RestartPolicyNever
	job.Spec.InitContainers = []v1.Container{always(runs("side", "work", diaryPath+"/all", "side"))}
	tr.bind(tr.keepsDiary(job))
	p := tr.Await("job", "failed", hasPhase(v1.PodFailed))
	if end := containerOf(p, "side").State.Terminated; end == nil {
		t.Errorf("the sidecar is %+v", containerOf(p, "side").State)
	}
	tr.mustHaveWritten("all", "side started", "main started", "main ended", "side ended")
}

func TestAnInitContainerThatFailsKeepsTheRestFromRunning(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	p := newPod("broken", runs("main", "work", diaryPath+"/all", "main"))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.InitContainers = []v1.Container{
		runs("first", "work", diaryPath+"/all", "first", "--after", "10ms", "--exit", "9"),
		runs("second", "work", diaryPath+"/all", "second", "--after", "10ms"),
	}
	tr.bind(tr.keepsDiary(p))
	failed := tr.Await("broken", "failed", hasPhase(v1.PodFailed))
	if end := containerOf(failed, "first").State.Terminated; end == nil || end.ExitCode != 9 {
		t.Errorf("the first is %+v", containerOf(failed, "first").State)
	}
	tr.mustHaveWritten("all", "first started", "first ended")
}

// mustBeInOrder fails the test unless both lines are there, once, one before the other.
func mustBeInOrder(t *testing.T, lines []string, before, after string) {
	t.Helper()
	at := map[string][]int{}
	for i, line := range lines {
		at[line] = append(at[line], i)
	}
	if len(at[before]) != 1 || len(at[after]) != 1 || at[before][0] > at[after][0] {
		t.Errorf("%q should come before %q, each once, in %q", before, after, lines)
	}
}
