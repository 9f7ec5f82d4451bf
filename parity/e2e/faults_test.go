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

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/status"
)

// hasty is a Status Manager that gives up a request after a second, so that a test of requests that hang is short.
func hasty() status.Config { return status.Config{RequestTimeout: time.Second} }

// tries is how many requests a pod may cost in a time without a success: one at once, the others after pauses that double
// from the first to the last.
func tries(lasted, first, last time.Duration) int {
	n := 1
	for pause, at := first, first; at <= lasted; at += pause {
		n++
		pause = min(2*pause, last)
	}
	return n
}

// backedOff is tries with the pauses after a failure (F5).
func backedOff(lasted time.Duration) int { return tries(lasted, 100*time.Millisecond, 10*time.Second) }

// everySecond is tries with the pauses after a refusal of a status that goes on changing (F7), or with those that were
// asked for (F4).
func everySecond(lasted time.Duration) int { return tries(lasted, time.Second, time.Second) }

// endure has every status request fail until each pod was tried so often, while statuses go on changing. There must not have
// been more tries than most says for the time that it lasted, and in the end every pod shows its newest status.
func (r *reporter) endure(trouble *fault.Rule, often int, most func(lasted time.Duration) int) {
	r.t.Helper()
	pods := r.bindMany(10)
	r.faults.ClearRequests()
	start := time.Now()
	heal := r.faults.Add(trouble)
	change := 0
	var trace fault.Trace
	recorder.Eventually(r.t, "the node under "+r.t.Name(), func() (string, bool) {
		change++
		for _, p := range pods {
			r.SetPodStatus(p, restarted(p, change))
		}
		trace = r.faults.Requests().Filter("PATCH", "/pods/")
		tried := trace.ByPath()
		maps.DeleteFunc(tried, func(_ string, tries fault.Trace) bool { return len(tries) < often })
		return fmt.Sprintf("at %d tries", len(trace)), len(tried) == len(pods)
	})
	lasted := time.Since(start)
	heal()
	for path, tried := range trace.ByPath() {
		if len(tried) > most(lasted) {
			r.t.Errorf("%s was tried %d times in %v, want %d at most", path, len(tried), lasted, most(lasted))
		}
	}
	for _, p := range pods {
		r.Await(p.Name, "with its newest status", hasRestarted(change))
	}
}

func TestF2OneSlowPodDelaysNobody(t *testing.T) {
	t.Parallel()
	r := openBehindProxy(t, cluster, "slow", status.Config{})
	pods := r.bindMany(10)
	release := make(chan struct{})
	held := r.faults.Add(fault.On("PATCH", "/pods/slow-0/status").HoldUntil(release))
	r.SetPodStatus(pods[0], restarted(pods[0], 1))
	for i := range 20 {
		for _, p := range pods[1:] {
			r.SetPodStatus(p, restarted(p, i+1))
			r.Await(p.Name, "ahead of the slow one", hasRestarted(i+1))
		}
	}
	if hasRestarted(1)(r.Await("slow-0", "at all", func(*v1.Pod) bool { return true })) {
		t.Error("the slow one was not slow")
	}
	held()
	close(release)
	r.Await("slow-0", "in the end", hasRestarted(1))
}

func TestF3RequestsThatHangAreGivenUpAndNotRepeatedInAHurry(t *testing.T) {
	t.Parallel()
	openBehindProxy(t, cluster, "hang", hasty()).endure(fault.On("PATCH", "/pods/").Hang(), 2, backedOff)
}

func TestF4AServerThatAsksForPatienceGetsIt(t *testing.T) {
	t.Parallel()
	trouble := fault.On("PATCH", "/pods/").Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second))
	openBehindProxy(t, cluster, "patience", hasty()).endure(trouble, 2, everySecond)
}

func TestF5AServerThatFailsIsNotHammered(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := openBehindProxy(t, cluster, fmt.Sprintf("fails-%d", code), hasty())
			r.endure(fault.On("PATCH", "/pods/").Reply(code), 4, backedOff)
		})
	}
}

func TestF6ConflictsWithoutEndAreNoHotLoop(t *testing.T) {
	t.Parallel()
	const quick = 2 // are answered at once
	openBehindProxy(t, cluster, "conflict", hasty()).endure(fault.On("PATCH", "/pods/").Reply(http.StatusConflict), 5,
		func(lasted time.Duration) int { return quick + backedOff(lasted) })
}

func TestF7ARefusalIsNoHotLoop(t *testing.T) {
	t.Parallel()
	trouble := fault.On("PATCH", "/pods/").Reply(http.StatusUnprocessableEntity, fault.InvalidField("status.podIPs", "no more than one"))
	openBehindProxy(t, cluster, "refusal", hasty()).endure(trouble, 2, everySecond)
}

// A container that has ended cannot run again under this policy: kube-apiserver refuses what the node says, until the node
// says that it has ended too.
func TestF7AnEndThatSomebodyElseWroteIsNoHotLoop(t *testing.T) {
	t.Parallel()
	r := openBehindProxy(t, cluster, "poison", hasty())
	job := plots["failure"]
	p := r.known(createPod(t, r.Admin, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "failure-poison"},
		Spec:       v1.PodSpec{NodeName: "poison", RestartPolicy: job.policy, Containers: []v1.Container{{Name: "main", Image: "web"}}},
	}).UID)
	r.SetPodStatus(p, job.status(p, 0))
	r.Await(p.Name, "running", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
	r.faults.ClearRequests()
	start := time.Now()
	end := dawn.Add(time.Second).Format(time.RFC3339)
	if err := r.foreignStatus(p.Name, 1, fmt.Sprintf(`{"containerStatuses":[{"name":"main","image":"web","imageID":"web","state":{"terminated":{"exitCode":3,"finishedAt":%q}}}]}`, end)); err != nil {
		t.Fatal(err)
	}
	var refused fault.Trace
	change := 1
	recorder.Eventually(t, "the node", func() (string, bool) {
		change = min(change+1, lastChapter-1)
		r.SetPodStatus(r.known(p.UID), job.status(p, change))
		refused = slices.DeleteFunc(r.faults.Requests().Filter("PATCH", "/pods/"), func(q fault.Request) bool { return q.Status != http.StatusUnprocessableEntity })
		return fmt.Sprintf("refused %d times", len(refused)), len(refused) > 1
	})
	if most := everySecond(time.Since(start)); len(refused) > most {
		t.Errorf("it was refused %d times, want %d at most", len(refused), most)
	}
	r.SetPodStatus(r.known(p.UID), job.status(p, lastChapter))
	r.Await(p.Name, "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
}

// The node does not know yet that its pod is gone, and goes on reporting: kube-apiserver answers 404, 422 or 403.
func TestF8AndF13APodThatIsGoneIsNotWrittenToNorPolled(t *testing.T) { // I9
	t.Parallel()
	tests := map[string]struct{ successorOn string }{
		"gone":               {},
		"replaced here":      {"replaced-here"},
		"replaced elsewhere": {"elsewhere"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := openBehindProxy(t, cluster, strings.ReplaceAll(name, " ", "-"), hasty())
			r.outlives(test.successorOn)
		})
	}
}

// outlives has a pod disappear behind the node's back, and perhaps another one take its name.
func (r *reporter) outlives(successorOn string) {
	r.t.Helper()
	name := "outlived-" + r.NodeName
	p := r.bind(name)
	r.SetPodStatus(p, restarted(p, 1))
	r.Await(name, "with a status", hasRestarted(1))
	heal := r.faults.Add(fault.On("watch", "/pods").Stall())
	defer heal()
	if err := r.Admin.CoreV1().Pods("default").Delete(r.t.Context(), name, atOnce()); err != nil {
		r.t.Fatal(err)
	}
	if successorOn != "" {
		if _, err := r.Cluster.CreateNode(r.t.Context(), successorOn); err != nil {
			r.t.Fatal(err)
		}
		createPod(r.t, r.Admin, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1.PodSpec{NodeName: successorOn, Containers: []v1.Container{{Name: "main", Image: "web"}}},
		})
	}
	r.faults.ClearRequests()
	other := r.bindUnseen("other-" + r.NodeName)
	for i := range 50 {
		r.SetPodStatus(p, restarted(p, 2+i))
		r.SetPodStatus(other, restarted(other, i))
		r.Await(other.Name, "meanwhile", hasRestarted(i))
	}
	if requests := r.faults.Requests().Filter("*", "/pods/"+name); len(requests) > 3 {
		r.t.Errorf("%d requests about a pod that is gone", len(requests))
	}
	if successorOn != "" {
		now, err := r.Admin.CoreV1().Pods("default").Get(r.t.Context(), name, metav1.GetOptions{})
		if err != nil || now.Status.Message != "" {
			r.t.Errorf("the successor shows %q, %v", now.Status.Message, err)
		}
	}
}

// bindUnseen binds a pod while the watch is of no use, and puts it into the address book by hand.
func (r *reporter) bindUnseen(name string) *v1.Pod {
	r.t.Helper()
	p := createPod(r.t, r.Admin, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{NodeName: r.NodeName, Containers: []v1.Container{{Name: "main", Image: "web"}}},
	})
	r.book.UpdatePod(p)
	return p
}

func TestF9ARequestThatLandsLateDoesNotUndoALaterOne(t *testing.T) {
	t.Parallel()
	r := openBehindProxy(t, cluster, "zombie", hasty())
	pods := r.bindMany(5)
	r.faults.ClearRequests()
	release := make(chan struct{})
	hold := fault.On("PATCH", "/pods/").Times(len(pods)).HoldUntil(release)
	r.faults.Add(hold)
	for _, p := range pods {
		r.SetPodStatus(p, restarted(p, 1))
	}
	recorder.Eventually(t, "the proxy", func() (string, bool) { return fmt.Sprintf("holding %d", hold.Fired()), hold.Fired() == len(pods) })
	for _, p := range pods {
		r.SetPodStatus(p, restarted(p, 2))
		r.Await(p.Name, "with its newest status", hasRestarted(2))
	}
	close(release)
	r.faults.Wait()
	for path, requests := range r.faults.Requests().Filter("PATCH", "/pods/").ByPath() {
		if late := requests[0].Forwarded; len(late) != 1 || late[0].Status != http.StatusConflict {
			t.Errorf("the first request for %s landed as %+v, want a conflict", path, late)
		}
	}
}

func TestF10AnAnswerThatIsLostOrGarbledLeavesNothingWrong(t *testing.T) {
	t.Parallel()
	patch := fault.On("PATCH", "/pods/").Times(15).Probability(0.5, 10)
	tests := map[string]*fault.Rule{
		"the connection broke after the write":  patch.LoseReply(),
		"the connection broke before the write": patch.Reset(),
		"the answer was cut":                    patch.CutAfter(20),
		"the write was made twice":              patch.Duplicate(),
		"the answer is a page of a gateway":     patch.Reply(http.StatusNotFound, fault.Body("text/html", []byte("<html>no such page</html>"))),
		"the answer is no object": patch.Rewrite(func(resp *http.Response) error {
			resp.Header.Set("Content-Type", "text/plain")
			return nil
		}),
	}
	for name, rule := range tests {
		t.Run(name, func(t *testing.T) {
			r := openBehindProxy(t, cluster, "garbled", hasty())
			pods := r.bindMany(4)
			heal := r.faults.Add(rule)
			defer heal()
			for i := range 6 {
				for _, p := range pods {
					r.SetPodStatus(p, restarted(p, i))
				}
				r.Await(pods[i%len(pods)].Name, "with its newest status", hasRestarted(i))
			}
			for _, p := range pods {
				r.Await(p.Name, "with its newest status", hasRestarted(5))
			}
			if rule.Fired() == 0 {
				t.Error("nothing happened")
			}
		})
	}
}

func TestF11AWatchThatIsCutLosesNothing(t *testing.T) {
	t.Parallel()
	r := openBehindProxy(t, cluster, "cut", hasty())
	pods := r.bindMany(5)
	for i := range 5 {
		heal := r.faults.Add(fault.On("watch", "/pods").Cut())
		heal()
		for _, p := range pods {
			if err := r.foreignStatus(p.Name, i, `{"phase":"Pending","reason":"Theirs"}`); err != nil {
				t.Fatal(err)
			}
			r.SetPodStatus(p, restarted(p, i))
		}
	}
	for _, p := range pods {
		r.Await(p.Name, "with the node's word", func(p *v1.Pod) bool {
			return hasRestarted(4)(p) && p.Status.Phase == v1.PodRunning && p.Status.Reason == ""
		})
	}
}

// etcd has no room for an object of 1.5 MiB, kube-apiserver none for a request of 3 MiB.
func TestF32AStatusThatIsTooLargeIsSentWithLessText(t *testing.T) {
	t.Parallel()
	r := openBehindProxy(t, cluster, "large", hasty())
	for i, size := range []int{1 << 21, 1 << 22} {
		p := r.bind(fmt.Sprintf("large-%d", i))
		r.faults.ClearRequests()
		s := restarted(p, 1)
		s.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: strings.Repeat("long ", size/5)}}
		r.SetPodStatus(p, s)
		r.Await(p.Name, "with less text", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
		if requests := r.faults.Requests().Filter("PATCH", p.Name); len(requests) > 4 {
			t.Errorf("it took %d requests", len(requests))
		}
	}
}
