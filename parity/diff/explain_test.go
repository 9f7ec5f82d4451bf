package diff_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/observed"
)

// explained is a case with statuses of a pod. Every comparison explains all of them.
type explained interface {
	explained() (*v1.Pod, *observed.Pod, []*v1.PodStatus)
}

func (c phaseCase) explained() (*v1.Pod, *observed.Pod, []*v1.PodStatus) {
	return c.Pod, nil, []*v1.PodStatus{c.Status}
}

func (c conditionCase) explained() (*v1.Pod, *observed.Pod, []*v1.PodStatus) {
	return c.Pod, c.Observed, []*v1.PodStatus{c.Old, c.Status}
}

func (c changeCase) explained() (*v1.Pod, *observed.Pod, []*v1.PodStatus) {
	return c.Pod, nil, []*v1.PodStatus{c.Old, c.Next}
}

func (c mergeCase) explained() (*v1.Pod, *observed.Pod, []*v1.PodStatus) {
	return c.Pod, nil, []*v1.PodStatus{c.API, c.Ours}
}

func (c statusCase) explained() (*v1.Pod, *observed.Pod, []*v1.PodStatus) {
	return c.Pod, c.Observed, []*v1.PodStatus{c.Previous, new(c.heraldStatus())}
}

// contradiction returns how an explanation contradicts a status of the case, or "" (E1).
func contradiction(c any) string {
	e, ok := c.(explained)
	if !ok {
		return ""
	}
	pod, runtimePod, statuses := e.explained()
	for _, status := range statuses {
		if status == nil {
			continue
		}
		explainedPod := *pod
		explainedPod.Status = *status
		if problem := explainContradiction(&explainedPod, runtimePod); problem != "" {
			return problem
		}
	}
	return ""
}

func explainContradiction(pod *v1.Pod, runtimePod *observed.Pod) string {
	facts := explain.Facts{Now: fixedNow, Pod: pod, Observed: runtimePod}
	for question, want := range map[explain.Question]bool{
		explain.WhyNotReady:   hasTrueReady(&pod.Status),
		explain.WhyNotRunning: pod.Status.Phase == v1.PodRunning,
	} {
		verdict := explain.Pod(facts, question)
		if verdict.OK != want || verdict.Code == "" || verdict.Headline == "" {
			return fmt.Sprintf("E1: question %s: got OK %v, want %v:\n%s", question, verdict.OK, want, verdict.Text(fixedNow))
		}
	}
	return ""
}

// hasTrueReady reports whether the pod is Ready. Of several conditions of a type, which only generated statuses have, the last one
// counts, as in a patch.
func hasTrueReady(status *v1.PodStatus) bool {
	last := v1.ConditionUnknown
	for _, condition := range status.Conditions {
		if condition.Type == v1.PodReady {
			last = condition.Status
		}
	}
	return last == v1.ConditionTrue
}

// TestE1_ExplainAgreesWithKubelet explains statuses as the kubelet computes them. All other comparisons explain theirs, too: see
// newComparison.
func TestE1_ExplainAgreesWithKubelet(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(2_000) {
		c := generateStatusCase(newGenerator(seed))
		theirs, ok := expectedStatus(c)
		if !ok {
			continue
		}
		pod := *c.Pod
		pod.Status = theirs
		verdict := explain.Pod(explain.Facts{Now: fixedNow, Pod: &pod, Observed: c.Observed}, explain.WhyNotReady)
		if want := podutil.IsPodReadyConditionTrue(theirs); verdict.OK != want {
			t.Fatalf("seed %d: got OK %v, want %v:\n%s", seed, verdict.OK, want, verdict.Text(fixedNow))
		}
		counts[verdict.Code]++
	}
	t.Log(counts)
	if counts[explain.CodeReady] == 0 || len(counts) < 15 {
		t.Errorf("got %d codes, want at least 15 with Ready among them", len(counts))
	}
}
