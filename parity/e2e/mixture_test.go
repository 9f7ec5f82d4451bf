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
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// gate is a readiness gate whose condition others write.
const gate = "example.com/gate"

// mixture breaks about one request in three, each in a way that the seed says, and now and then a watch.
func mixture(seed uint64) []*fault.Rule {
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

// meddle writes a condition and a label to pods in turn, as fast as it can, until ctx ends. It tells when each pod had five
// writes on average.
func (r *reporter) meddle(ctx context.Context, pods []*v1.Pod, enough chan<- struct{}) {
	writes := 0
	for n := 1; ctx.Err() == nil; n++ {
		round, name := n/len(pods), pods[n%len(pods)].Name
		var err error
		if round%2 == 0 {
			value := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[round%4 == 0]
			err = r.foreignStatus(name, n, fmt.Sprintf(`{"conditions":[{"type":%q,"status":%q,"message":"%d"}]}`, gate, value, n))
		} else {
			err = r.foreignLabel(name, n, "n", fmt.Sprint(n))
		}
		switch {
		case err == nil:
			if writes++; writes == 5*len(pods) {
				close(enough)
			}
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			r.t.Errorf("a foreign write: %v", err)
		}
	}
}

func TestAnyMixtureOfFaultsEndsWithTheTruth(t *testing.T) { // F2..F6, F9..F11, I1..I9, I12
	t.Parallel()
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := openBehindProxy(t, cluster, fmt.Sprintf("mixture-%d", seed), hasty())
			pods := r.bindAllPlots(5)
			meddling, stop := context.WithCancel(t.Context())
			defer stop()
			enough := make(chan struct{})
			var meddler sync.WaitGroup
			meddler.Go(func() { r.meddle(meddling, pods, enough) })
			start := time.Now()
			var heal []func()
			for _, rule := range mixture(seed) {
				heal = append(heal, r.faults.Add(rule))
			}
			r.play(pods)
			<-enough // also where the story is told faster than others can write
			lasted := time.Since(start)
			for _, end := range heal {
				end()
			}
			stop()
			meddler.Wait()
			r.mustEndWell(pods)
			r.mustHaveBackedOff(lasted)
			t.Logf("%d requests of the node in %v", len(r.asked.Requests()), lasted)
		})
	}
}

// updates is how many statuses the containers of a mixture's pods get: a hundred and more in each chapter.
const updates = 2000

// play goes through the stories, with many small changes on the way.
func (r *reporter) play(pods []*v1.Pod) {
	r.t.Helper()
	for chapter := 1; chapter <= lastChapter; chapter++ {
		for i := range updates / lastChapter {
			for _, p := range pods {
				if plot := plotOf(p.Name); !plot.hasEnded(chapter) {
					s := plot.status(p, chapter)
					s.Reason = fmt.Sprint(i)
					r.SetPodStatus(p, s)
				}
			}
		}
		for _, p := range pods {
			r.turnPage(p, chapter)
		}
		if chapter%5 == 0 {
			r.proxy.ResetConnections()
		}
		if chapter%2 == 1 {
			continue
		}
		service := pods[chapter%5].Name // those do not end
		r.Await(service, "in the next chapter", func(p *v1.Pod) bool {
			number, _, _ := recorder.ParseNumberedMessage(p.Status.Message)
			return number == chapter
		})
	}
}

func (r *reporter) turnPage(p *v1.Pod, chapter int) {
	r.t.Helper()
	plot := plotOf(p.Name)
	if plot.leaves && chapter == lastChapter/2 {
		if err := r.Admin.CoreV1().Pods("default").Delete(r.t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.SetPodStatus(p, plot.status(p, chapter))
	if plot.hasEnded(chapter) {
		r.TerminatePod(p)
	}
}

// mustEndWell fails the test if a pod does not show the end of its story, or is still there after it.
func (r *reporter) mustEndWell(pods []*v1.Pod) {
	r.t.Helper()
	for _, p := range pods {
		plot := plotOf(p.Name)
		if plot.leaves {
			r.AwaitDeleted(p.Name)
			continue
		}
		want := plot.status(p, lastChapter)
		r.Await(p.Name, "at the end of its story", func(p *v1.Pod) bool {
			return p.Status.Phase == want.Phase && p.Status.Message == want.Message && p.Status.Reason == "" &&
				p.Status.ContainerStatuses[0].RestartCount == want.ContainerStatuses[0].RestartCount
		})
	}
}

// mustHaveBackedOff fails the test if a pod was tried more often than the shortest pause allows. Pauses end early with an
// outage, which is when a request succeeds after some in a row that did not, whichever pods they were about; a conflict
// need not lead to one.
func (r *reporter) mustHaveBackedOff(lasted time.Duration) {
	r.t.Helper()
	trace := r.asked.Requests().Filter("*", "/pods/.+")
	slices.SortFunc(trace, func(a, b fault.Request) int { return a.End.Compare(b.End) })
	outages, silence := 0, 0
	for _, request := range trace {
		if hasFailed(request) {
			silence++
		} else {
			if silence >= 3 { // the manager wants 5, but may have heard of them in another order
				outages++
			}
			silence = 0
		}
	}
	most := 1 + int(lasted/(100*time.Millisecond)) + outages
	for name, requests := range byPod(trace) {
		failures := slices.DeleteFunc(requests, func(q fault.Request) bool { return !hasFailed(q) })
		if len(failures) > most {
			r.t.Errorf("%s: %d requests failed in %v, want %d at most", name, len(failures), lasted, most)
		}
	}
}

// hasFailed tells whether the node has to make a pause after it.
func hasFailed(q fault.Request) bool {
	return q.Err != nil || q.Status == 0 || q.Status == http.StatusTooManyRequests || q.Status >= http.StatusInternalServerError
}
