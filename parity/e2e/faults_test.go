package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/status"
)

// shortTimeout returns a configuration whose requests time out after a second, so that tests with hanging requests are short.
func shortTimeout() status.Config { return status.Config{RequestTimeout: time.Second} }

// attempts returns the number of unsuccessful requests that a pod may take: one immediately, the others after delays that double
// from initial to limit.
func attempts(elapsed, initial, limit time.Duration) int {
	n := 1
	for delay, at := initial, initial; at <= elapsed; at += delay {
		n++
		delay = min(2*delay, limit)
	}
	return n
}

// backoffAttempts returns the attempts with the delays after failures (F5).
func backoffAttempts(elapsed time.Duration) int {
	return attempts(elapsed, 100*time.Millisecond, 10*time.Second)
}

// attemptsPerSecond returns the attempts with the delays after a rejection while the status changes (F7), or with a Retry-After of
// one second (F4).
func attemptsPerSecond(elapsed time.Duration) int { return attempts(elapsed, time.Second, time.Second) }

// checkBackoff lets every status request fail while statuses change, until each pod was attempted minAttempts times. It fails the
// test if there were more attempts than the limit for the elapsed time. In the end, every pod must show its newest status.
func (h *statusHarness) checkBackoff(rule *fault.Rule, minAttempts int, limit func(elapsed time.Duration) int) {
	h.t.Helper()
	pods := h.addPods(10)
	h.faults.ClearRequests()
	start := time.Now()
	heal := h.faults.Add(rule)
	change := 0
	var trace fault.Trace
	heraldtest.Eventually(h.t, func() error {
		change++
		for _, p := range pods {
			h.SetPodStatus(p, restartedStatus(p, change))
		}
		trace = h.faults.Requests().Filter("PATCH", "/pods/")
		attempted := trace.ByPath()
		maps.DeleteFunc(attempted, func(_ string, requests fault.Trace) bool { return len(requests) < minAttempts })
		if len(attempted) != len(pods) {
			return fmt.Errorf("%d of %d pods were attempted %d times", len(attempted), len(pods), minAttempts)
		}
		return nil
	})
	elapsed := time.Since(start)
	heal()
	for path, requests := range trace.ByPath() {
		if len(requests) > limit(elapsed) {
			h.t.Errorf("%s: got %d requests in %v, want at most %d", path, len(requests), elapsed, limit(elapsed))
		}
	}
	for _, p := range pods {
		h.Await(p.Name, "with its newest status", hasRestarted(change))
	}
}

// A slow request for one pod does not delay other pods.
func TestF2_SlowRequest(t *testing.T) {
	t.Parallel()
	h := newProxyHarness(t, cluster, "slow", status.Config{})
	pods := h.addPods(10)
	release := make(chan struct{})
	remove := h.faults.Add(fault.On("PATCH", "/pods/slow-0/status").HoldUntil(release))
	h.SetPodStatus(pods[0], restartedStatus(pods[0], 1))
	for i := range 20 {
		for _, p := range pods[1:] {
			h.SetPodStatus(p, restartedStatus(p, i+1))
			h.Await(p.Name, "updated before the slow pod", hasRestarted(i+1))
		}
	}
	if hasRestarted(1)(h.Await("slow-0", "known", func(*v1.Pod) bool { return true })) {
		t.Error("the request for slow-0 was not held")
	}
	remove()
	close(release)
	h.Await("slow-0", "updated", hasRestarted(1))
}

// Hanging requests time out and are retried with backoff.
func TestF3_HangingRequests(t *testing.T) {
	t.Parallel()
	newProxyHarness(t, cluster, "hang", shortTimeout()).checkBackoff(fault.On("PATCH", "/pods/").Hang(), 2, backoffAttempts)
}

func TestF4_RetryAfter(t *testing.T) {
	t.Parallel()
	rule := fault.On("PATCH", "/pods/").Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second))
	newProxyHarness(t, cluster, "retry-after", shortTimeout()).checkBackoff(rule, 2, attemptsPerSecond)
}

func TestF5_ServerErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			h := newProxyHarness(t, cluster, fmt.Sprintf("fails-%d", code), shortTimeout())
			h.checkBackoff(fault.On("PATCH", "/pods/").Reply(code), 4, backoffAttempts)
		})
	}
}

func TestF6_EndlessConflicts(t *testing.T) {
	t.Parallel()
	const immediate = 2 // retries without delay
	newProxyHarness(t, cluster, "conflict", shortTimeout()).checkBackoff(fault.On("PATCH", "/pods/").Reply(http.StatusConflict), 5,
		func(elapsed time.Duration) int { return immediate + backoffAttempts(elapsed) })
}

func TestF7_InvalidStatus(t *testing.T) {
	t.Parallel()
	rule := fault.On("PATCH", "/pods/").Reply(http.StatusUnprocessableEntity, fault.InvalidField("status.podIPs", "no more than one"))
	newProxyHarness(t, cluster, "invalid", shortTimeout()).checkBackoff(rule, 2, attemptsPerSecond)
}

// Under restart policy Never, a terminated container cannot run again: kube-apiserver rejects the node's status until the node
// reports the termination, too.
func TestF7_ForeignTermination(t *testing.T) {
	t.Parallel()
	h := newProxyHarness(t, cluster, "poison", shortTimeout())
	job := lifecycles["failure"]
	p := h.addPod("failure-poison", func(pod *v1.Pod) { pod.Spec.RestartPolicy = job.policy })
	h.SetPodStatus(p, job.status(p, 0))
	h.Await(p.Name, "running", isRunning)
	h.faults.ClearRequests()
	start := time.Now()
	terminated := fmt.Sprintf(
		`{"containerStatuses":[{"name":"main","image":"web","imageID":"web","state":{"terminated":{"exitCode":3,"finishedAt":%q}}}]}`,
		firstStart.Add(time.Second).Format(time.RFC3339))
	if err := h.patchForeignStatus(p.Name, 1, terminated); err != nil {
		t.Fatal(err)
	}
	var rejected fault.Trace
	step := 1
	heraldtest.Eventually(t, func() error {
		step = min(step+1, lastStep-1)
		h.SetPodStatus(h.awaitKnown(p.UID), job.status(p, step))
		rejected = slices.DeleteFunc(h.faults.Requests().Filter("PATCH", "/pods/"), func(request fault.Request) bool {
			return request.Status != http.StatusUnprocessableEntity
		})
		if len(rejected) <= 1 {
			return fmt.Errorf("got %d rejected requests, want two", len(rejected))
		}
		return nil
	})
	if limit := attemptsPerSecond(time.Since(start)); len(rejected) > limit {
		t.Errorf("got %d rejected requests, want at most %d", len(rejected), limit)
	}
	h.SetPodStatus(h.awaitKnown(p.UID), job.status(p, lastStep))
	h.Await(p.Name, "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
}

// The node reports a pod whose deletion it does not know yet: kube-apiserver returns 404, 422 or 403. The pod is neither written nor
// polled: I9.
func TestF8F13_PodDeleted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ successorOn string }{
		"deleted":            {},
		"replaced here":      {"replaced-here"},
		"replaced elsewhere": {"elsewhere"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newProxyHarness(t, cluster, strings.ReplaceAll(name, " ", "-"), shortTimeout())
			h.checkDeletedUnwatched(test.successorOn)
		})
	}
}

// checkDeletedUnwatched deletes a pod while the node's watch is stalled. If successorOn is set, another pod with this name is
// created on that node.
func (h *statusHarness) checkDeletedUnwatched(successorOn string) {
	h.t.Helper()
	name := "deleted-" + h.NodeName
	p := h.addPod(name)
	h.SetPodStatus(p, restartedStatus(p, 1))
	h.Await(name, "with a status", hasRestarted(1))
	heal := h.faults.Add(fault.On("watch", "/pods").Stall())
	defer heal()
	if err := h.Admin.CoreV1().Pods("default").Delete(h.t.Context(), name, forceDelete()); err != nil {
		h.t.Fatal(err)
	}
	if successorOn != "" {
		if _, err := h.Cluster.CreateNode(h.t.Context(), successorOn); err != nil {
			h.t.Fatal(err)
		}
		createPod(h.t, h.Admin, newPod(name, successorOn))
	}
	h.faults.ClearRequests()
	other := h.addPodUnwatched("other-" + h.NodeName)
	for i := range 50 {
		h.SetPodStatus(p, restartedStatus(p, 2+i))
		h.SetPodStatus(other, restartedStatus(other, i))
		h.Await(other.Name, "updated", hasRestarted(i))
	}
	if requests := h.faults.Requests().Filter("*", "/pods/"+name); len(requests) > 3 {
		h.t.Errorf("got %d requests for a deleted pod, want at most 3", len(requests))
	}
	if successorOn != "" {
		successor, err := h.Admin.CoreV1().Pods("default").Get(h.t.Context(), name, metav1.GetOptions{})
		if err != nil || successor.Status.Message != "" {
			h.t.Errorf("successor: got message %q, %v; want none", successor.Status.Message, err)
		}
	}
}

// addPodUnwatched adds a pod while the watch is stalled, directly to the Pod Manager.
func (h *statusHarness) addPodUnwatched(name string) *v1.Pod {
	h.t.Helper()
	p := createPod(h.t, h.Admin, newPod(name, h.NodeName))
	h.pods.UpdatePod(p)
	return p
}

// A request that arrives late does not undo a later one.
func TestF9_LateRequest(t *testing.T) {
	t.Parallel()
	h := newProxyHarness(t, cluster, "zombie", shortTimeout())
	pods := h.addPods(5)
	h.faults.ClearRequests()
	release := make(chan struct{})
	hold := fault.On("PATCH", "/pods/").Times(len(pods)).HoldUntil(release)
	h.faults.Add(hold)
	for _, p := range pods {
		h.SetPodStatus(p, restartedStatus(p, 1))
	}
	heraldtest.Eventually(t, func() error {
		if hold.Fired() != len(pods) {
			return fmt.Errorf("the proxy holds %d requests, want %d", hold.Fired(), len(pods))
		}
		return nil
	})
	for _, p := range pods {
		h.SetPodStatus(p, restartedStatus(p, 2))
		h.Await(p.Name, "with its newest status", hasRestarted(2))
	}
	close(release)
	h.faults.Wait()
	for path, requests := range h.faults.Requests().Filter("PATCH", "/pods/").ByPath() {
		if late := requests[0].Forwarded; len(late) != 1 || late[0].Status != http.StatusConflict {
			t.Errorf("%s: first request: got %+v, want a conflict", path, late)
		}
	}
}

func TestF10_LostResponse(t *testing.T) {
	t.Parallel()
	patch := fault.On("PATCH", "/pods/").Times(15).Probability(0.5, 10)
	tests := map[string]*fault.Rule{
		"reset after the write":  patch.LoseReply(),
		"reset before the write": patch.Reset(),
		"truncated response":     patch.CutAfter(20),
		"duplicate write":        patch.Duplicate(),
		"gateway error page":     patch.Reply(http.StatusNotFound, fault.Body("text/html", []byte("<html>no such page</html>"))),
		"not an object": patch.Rewrite(func(resp *http.Response) error {
			resp.Header.Set("Content-Type", "text/plain")
			return nil
		}),
	}
	for name, rule := range tests {
		t.Run(name, func(t *testing.T) {
			h := newProxyHarness(t, cluster, "garbled", shortTimeout())
			pods := h.addPods(4)
			heal := h.faults.Add(rule)
			defer heal()
			for i := range 6 {
				for _, p := range pods {
					h.SetPodStatus(p, restartedStatus(p, i))
				}
				h.Await(pods[i%len(pods)].Name, "with its newest status", hasRestarted(i))
			}
			for _, p := range pods {
				h.Await(p.Name, "with its newest status", hasRestarted(5))
			}
			if rule.Fired() == 0 {
				t.Error("no fault was injected")
			}
		})
	}
}

func TestF11_WatchCut(t *testing.T) {
	t.Parallel()
	h := newProxyHarness(t, cluster, "cut", shortTimeout())
	pods := h.addPods(5)
	for i := range 5 {
		heal := h.faults.Add(fault.On("watch", "/pods").Cut())
		heal()
		for _, p := range pods {
			if err := h.patchForeignStatus(p.Name, i, `{"phase":"Pending","reason":"Theirs"}`); err != nil {
				t.Fatal(err)
			}
			h.SetPodStatus(p, restartedStatus(p, i))
		}
	}
	for _, p := range pods {
		h.Await(p.Name, "with the node's status", func(p *v1.Pod) bool {
			return hasRestarted(4)(p) && isRunning(p) && p.Status.Reason == ""
		})
	}
}

// A status that is too large is sent with truncated text. etcd rejects objects of 1.5 MiB, kube-apiserver requests of 3 MiB.
func TestF32_StatusTooLarge(t *testing.T) {
	t.Parallel()
	h := newProxyHarness(t, cluster, "large", shortTimeout())
	for i, size := range []int{1 << 21, 1 << 22} {
		p := h.addPod(fmt.Sprintf("large-%d", i))
		h.faults.ClearRequests()
		status := restartedStatus(p, 1)
		status.ContainerStatuses[0].State = v1.ContainerState{
			Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: strings.Repeat("long ", size/5)},
		}
		h.SetPodStatus(p, status)
		h.Await(p.Name, "with truncated text", isRunning)
		if requests := h.faults.Requests().Filter("PATCH", p.Name); len(requests) > 4 {
			t.Errorf("got %d requests, want at most 4", len(requests))
		}
	}
}

// A frozen API server keeps its connections without responding. When it resumes, it handles requests that have timed out (F9).
func TestF3_APIServerFrozen(t *testing.T) {
	t.Parallel()
	h := newProxyHarness(t, recorder.ForTest(t), "frozen", status.Config{})
	pods := h.addAllLifecycles(4)
	for _, p := range pods {
		h.SetPodStatus(p, lifecycleOf(p.Name).status(p, 0))
	}
	for _, p := range pods {
		h.Await(p.Name, "running", isRunning)
	}
	h.faults.ClearRequests()
	start := time.Now()
	if err := h.Cluster.APIServer.Freeze(); err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(30 * time.Second / lastStep)
	defer ticker.Stop()
	for step := 1; step <= lastStep; step++ {
		for _, p := range pods {
			h.SetPodStatus(p, lifecycleOf(p.Name).status(p, step))
		}
		<-ticker.C
	}
	trace := h.faults.Requests().Filter("*", "/pods/.+")
	elapsed := time.Since(start)
	if err := h.Cluster.APIServer.Continue(); err != nil {
		t.Fatal(err)
	}
	for path, requests := range trace.ByPath() {
		if limit := backoffAttempts(elapsed); len(requests) > limit {
			t.Errorf("%s: got %d requests in %v, want at most %d", path, len(requests), elapsed, limit)
		}
	}
	for _, p := range pods {
		last := h.Await(p.Name, "in its last step", func(p *v1.Pod) bool {
			return p.Status.Message == recorder.NumberedMessage(lastStep, p.UID)
		})
		if want := lifecycleOf(p.Name).hasEnded(lastStep); derive.IsTerminal(last.Status.Phase) != want {
			t.Errorf("pod %s: got phase %s, want terminal=%v", p.Name, last.Status.Phase, want)
		}
	}
}

// gate is a readiness gate whose condition another writer sets.
const gate = "example.com/gate"

func withGate(pod *v1.Pod) { pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: gate}} }

// addAllLifecycles adds n pods of each lifecycle except the static one.
func (h *statusHarness) addAllLifecycles(n int) (pods []*v1.Pod) {
	h.t.Helper()
	for _, kind := range []string{"service", "job", "failure", "leaver"} {
		for i := range n {
			pods = append(pods, h.addPod(fmt.Sprintf("%s-%d-%s", kind, i, h.NodeName), withGate, func(pod *v1.Pod) {
				pod.Spec.RestartPolicy = lifecycles[kind].policy
			}))
		}
	}
	return pods
}
