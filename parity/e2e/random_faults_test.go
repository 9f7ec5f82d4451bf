package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// randomFaults breaks about one request in three, and some watches. The seed determines which and how.
func randomFaults(seed uint64) []*fault.Rule {
	kind := uint64(0)
	some := func(verb string, chance float64) fault.Selector {
		kind++
		return fault.On(verb, "/pods/.+").Probability(chance, seed<<8+kind)
	}
	return []*fault.Rule{
		some("*", 0.01).Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)), // F4
		some("*", 0.04).Reply(http.StatusInternalServerError),                            // F5
		some("*", 0.04).Reply(http.StatusServiceUnavailable),                             // F5
		some("PATCH", 0.04).Reply(http.StatusConflict),                                   // F6
		some("*", 0.04).Reset(),
		some("*", 0.04).LoseReply(),                                          // F10
		some("PATCH", 0.04).CutAfter(20),                                     // F10
		some("PATCH", 0.04).Duplicate(),                                      // F10
		some("*", 0.01).Hang(),                                               // F3
		some("PATCH", 0.04).HoldFor(1500 * time.Millisecond),                 // F9
		some("*", 0.04).Delay(100 * time.Millisecond),                        // F2
		fault.On("watch", "/pods$").Probability(0.3, seed).CutAfter(1 << 14), // F11
	}
}

// writeForeign writes a condition or a label to the pods in turn, as fast as possible, until ctx ends. It closes enough after five
// writes per pod on average.
func (h *statusHarness) writeForeign(ctx context.Context, pods []*v1.Pod, enough chan<- struct{}) {
	writes := 0
	for n := 1; ctx.Err() == nil; n++ {
		round, name := n/len(pods), pods[n%len(pods)].Name
		var err error
		if round%2 == 0 {
			value := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[round%4 == 0]
			err = h.patchForeignStatus(name, n, fmt.Sprintf(`{"conditions":[{"type":%q,"status":%q,"message":"%d"}]}`, gate, value, n))
		} else {
			err = h.patchForeignLabel(name, n, "n", fmt.Sprint(n))
		}
		switch {
		case err == nil:
			if writes++; writes == 5*len(pods) {
				close(enough)
			}
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			h.t.Errorf("foreign write: %v", err)
		}
	}
}

// Under random faults, every pod shows its newest status in the end: F2..F6, F9..F11, I1..I9, I12.
func TestStatus_RandomFaults(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			h := newProxyHarness(t, cluster, fmt.Sprintf("mixture-%d", seed), shortTimeout())
			pods := h.addAllLifecycles(5)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			enough := make(chan struct{})
			var writer sync.WaitGroup
			writer.Go(func() { h.writeForeign(ctx, pods, enough) })
			start := time.Now()
			var heal []func()
			for _, rule := range randomFaults(seed) {
				heal = append(heal, h.faults.Add(rule))
			}
			h.runLifecycles(pods)
			<-enough
			elapsed := time.Since(start)
			for _, removeRule := range heal {
				removeRule()
			}
			stop()
			writer.Wait()
			h.awaitLastSteps(pods)
			h.checkFailureRate(elapsed)
			t.Logf("%d requests of the node in %v", len(h.requests.Requests()), elapsed)
		})
	}
}

// updatesPerPod is the number of status updates of each pod: more than a hundred in each step.
const updatesPerPod = 2000

// runLifecycles executes all steps, with many small changes in each.
func (h *statusHarness) runLifecycles(pods []*v1.Pod) {
	h.t.Helper()
	for step := 1; step <= lastStep; step++ {
		for i := range updatesPerPod / lastStep {
			for _, p := range pods {
				if lifecycle := lifecycleOf(p.Name); !lifecycle.hasEnded(step) {
					status := lifecycle.status(p, step)
					status.Reason = fmt.Sprint(i)
					h.SetPodStatus(p, status)
				}
			}
		}
		for _, p := range pods {
			h.completeStep(p, step)
		}
		if step%5 == 0 {
			h.proxy.ResetConnections()
		}
		if step%2 == 1 {
			continue
		}
		service := pods[step%5].Name // services do not end
		h.Await(service, "in the next step", func(p *v1.Pod) bool { return shownStep(p) == step })
	}
}

// completeStep deletes the pod if its lifecycle says so, and reports the status at the end of the step.
func (h *statusHarness) completeStep(p *v1.Pod, step int) {
	h.t.Helper()
	lifecycle := lifecycleOf(p.Name)
	if lifecycle.isDeleted && step == lastStep/2 {
		if err := h.Admin.CoreV1().Pods("default").Delete(h.t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			h.t.Fatal(err)
		}
	}
	h.SetPodStatus(p, lifecycle.status(p, step))
	if lifecycle.hasEnded(step) {
		h.TerminatePod(p)
	}
}

// awaitLastSteps waits until every pod shows its last step or is deleted.
func (h *statusHarness) awaitLastSteps(pods []*v1.Pod) {
	h.t.Helper()
	for _, p := range pods {
		lifecycle := lifecycleOf(p.Name)
		if lifecycle.isDeleted {
			h.AwaitDeleted(p.Name)
			continue
		}
		want := lifecycle.status(p, lastStep)
		h.Await(p.Name, "in its last step", func(p *v1.Pod) bool {
			return p.Status.Phase == want.Phase && p.Status.Message == want.Message && p.Status.Reason == "" &&
				p.Status.ContainerStatuses[0].RestartCount == want.ContainerStatuses[0].RestartCount
		})
	}
}

// checkFailureRate fails the test if more requests of a pod failed than the shortest delay allows. The end of an outage cancels the
// delays of all pods. An outage ends when a request succeeds after several failures in a row, of any pods. A conflict need not cause
// a delay.
func (h *statusHarness) checkFailureRate(elapsed time.Duration) {
	h.t.Helper()
	trace := h.requests.Requests().Filter("*", "/pods/.+")
	slices.SortFunc(trace, func(a, b fault.Request) int { return a.End.Compare(b.End) })
	outages, failuresInRow := 0, 0
	for _, request := range trace {
		if hasFailed(request) {
			failuresInRow++
		} else {
			if failuresInRow >= 3 { // the manager requires 5, but may see the responses in another order
				outages++
			}
			failuresInRow = 0
		}
	}
	limit := 1 + int(elapsed/(100*time.Millisecond)) + outages
	for path, requests := range byPod(trace) {
		failures := slices.DeleteFunc(requests, func(request fault.Request) bool { return !hasFailed(request) })
		if len(failures) > limit {
			h.t.Errorf("%s: got %d failed requests in %v, want at most %d", path, len(failures), elapsed, limit)
		}
	}
}

// hasFailed reports whether the node must delay the next attempt.
func hasFailed(request fault.Request) bool {
	return request.Err != nil || request.Status == 0 || request.Status == http.StatusTooManyRequests ||
		request.Status >= http.StatusInternalServerError
}
