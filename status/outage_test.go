package status_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// withReason is a running pod's status that tells one change from another.
func withReason(format string, args ...any) v1.PodStatus {
	s := runningStatus()
	s.Reason = fmt.Sprintf(format, args...)
	return s
}

func TestF1AnOutageLosesNothingAndTheNewestIsSentOnce(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		pods := n.boundMany(300)
		n.server.SetDown(true)
		n.faults.Forget()
		start := time.Now()
		for flip := range 5 {
			for _, p := range pods {
				n.SetPodStatus(p, withReason("%d", flip))
			}
			time.Sleep(20 * time.Second)
		}
		// Each pod is tried at 0.1, 0.2, 0.4, ... s, then every 10 s, however often it changes.
		if tries, most := n.writes("PATCH"), len(pods)*(8+int(time.Since(start)/(10*time.Second))); tries > most {
			t.Fatalf("%d requests in an outage of %v, want at most %d", tries, time.Since(start), most)
		}
		n.server.SetDown(false)
		n.faults.Forget()
		back := time.Now()
		for n.writes("PATCH") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(back); took > 2*time.Second {
			t.Fatalf("the first request came after %v", took)
		}
		time.Sleep(time.Second)
		for _, p := range pods {
			if got := n.shown(p); got.Reason != "4" {
				t.Fatalf("a second after the first answer %s shows change %q", p.Name, got.Reason)
			}
		}
		time.Sleep(time.Minute)
		if sent := n.writes("PATCH"); sent != len(pods) {
			t.Fatalf("%d requests for %d pods", sent, len(pods))
		}
	})
}

func TestF1AfterAnOutageTheUrgentComesFirst(t *testing.T) {
	onNode(t, func(c *status.Config) { c.Workers = 1 }, func(t *testing.T, n *node) {
		pods := n.boundMany(30)
		for _, p := range pods {
			n.SetPodStatus(p, runningStatus())
		}
		synctest.Wait()
		n.server.SetDown(true)
		for _, p := range pods {
			n.SetPodStatus(p, withReason("noise"))
		}
		last, unready := pods[29], unreadyStatus()
		n.SetPodStatus(last, unready)
		unready.Reason = "and something less urgent"
		n.SetPodStatus(last, unready)
		time.Sleep(time.Minute)
		n.server.SetDown(false)
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(100 * time.Millisecond))
		n.faults.Forget()
		time.Sleep(30 * time.Second)
		for place, name := range n.patched() {
			if name == last.Name {
				if place > 2 { // the one that ended the outage goes first, and one may be under way
					t.Fatalf("the readiness was told as number %d", place+1)
				}
				return
			}
		}
		t.Fatal("the readiness was not told")
	})
}

func TestBUG6AFailingPodIsTriedAgainWithBackOffAndHoldsUpNobody(t *testing.T) { // SM-57, F5
	onNode(t, nil, func(t *testing.T, n *node) {
		bad, good := n.bound("bad"), n.bound("good")
		heal := n.faults.Add(fault.On("PATCH", "/pods/bad/").Reply(http.StatusInternalServerError))
		n.SetPodStatus(bad, runningStatus())
		for i := range 100 {
			n.SetPodStatus(good, withReason("%d", i))
			if got := n.shown(good); got.Reason != fmt.Sprint(i) {
				t.Fatalf("the good pod shows %q, want %d", got.Reason, i)
			}
			n.SetPodStatus(bad, withReason("%d", i))
			time.Sleep(100 * time.Millisecond)
		}
		tries := n.faults.Requests().Of("PATCH", "/pods/bad/")
		if len(tries) < 5 || len(tries) > 8 {
			t.Fatalf("%d tries in 10 s, want 5 to 8", len(tries))
		}
		for i := 2; i < len(tries); i++ {
			if before, after := tries[i-1].Start.Sub(tries[i-2].Start), tries[i].Start.Sub(tries[i-1].Start); after < before {
				t.Fatalf("a wait of %v after one of %v", after, before)
			}
		}
		heal()
		time.Sleep(13 * time.Second)
		if got := n.shown(bad); got.Reason != "99" {
			t.Fatalf("the bad pod shows %q", got.Reason)
		}
	})
}

func TestF5RandomServerErrorsLeaveNothingBehind(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		seen := record(t, n.server)
		pods := n.boundMany(30)
		for i, code := range []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
			n.faults.Add(fault.On("*", "/pods/").Chance(0.1, uint64(i)).Reply(code, fault.Message("etcdserver: request timed out")))
		}
		for i := range 20 {
			for _, p := range pods {
				n.SetPodStatus(p, withReason("%d", i))
			}
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, p := range pods {
			if got := n.shown(p); got.Reason != "19" {
				t.Fatalf("%s shows %q", p.Name, got.Reason)
			}
		}
		seen.mustBeClean(t)
	})
}

func TestSM55AndF2OneSlowPodDelaysNobody(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		pods := n.boundMany(100)
		n.faults.Add(fault.On("PATCH", "/pods/web-000/").Delay(9 * time.Second))
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(20 * time.Millisecond))
		for _, p := range pods {
			n.SetPodStatus(p, runningStatus())
		}
		time.Sleep(time.Second)
		for _, p := range pods[1:] {
			if got := n.shown(p); got.Phase != v1.PodRunning {
				t.Fatalf("%s waited for another pod", p.Name)
			}
		}
		time.Sleep(9 * time.Second)
		if got := n.shown(pods[0]); got.Phase != v1.PodRunning {
			t.Fatalf("the slow one shows %s", got.Phase)
		}
	})
}

func TestF3ARequestThatHangsIsGivenUp(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Hang())
		n.SetPodStatus(p, runningStatus())
		time.Sleep(11 * time.Second)
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("phase is %s", got.Phase)
		}
	})
}

func TestF4PatienceIsGivenWhereItIsAskedFor(t *testing.T) {
	tests := map[string]struct {
		options []fault.ReplyOption
		least   time.Duration
		most    int
	}{
		"for a time":     {[]fault.ReplyOption{fault.RetryAfter(7 * time.Second)}, 7 * time.Second, 6},
		"without a time": {nil, 100 * time.Millisecond, 10},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := n.bound("web")
				heal := n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusTooManyRequests, test.options...))
				n.faults.Forget()
				for i := range 300 { // however much there would be to say
					n.SetPodStatus(p, withReason("%d", i))
					time.Sleep(100 * time.Millisecond)
				}
				tries := n.faults.Requests().Of("PATCH", "/pods/")
				if len(tries) < 2 || len(tries) > test.most {
					t.Fatalf("%d requests in 30 s, want at most %d", len(tries), test.most)
				}
				for i := 1; i < len(tries); i++ {
					if wait := tries[i].Start.Sub(tries[i-1].Start); wait < test.least {
						t.Fatalf("asked again after %v", wait)
					}
				}
				heal()
				time.Sleep(13 * time.Second)
				if got := n.shown(p); got.Reason != "299" {
					t.Fatalf("it shows %q", got.Reason)
				}
			})
		})
	}
}

func TestF4NoServerIsBelievedThatItNeedsADayOfPatience(t *testing.T) {
	for name, code := range map[string]int{
		"too many requests": http.StatusTooManyRequests, "a gateway's maintenance": http.StatusServiceUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := n.bound("web")
				n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(code, fault.RetryAfter(24*time.Hour)))
				n.SetPodStatus(p, runningStatus())
				time.Sleep(7 * time.Minute)
				if got := n.shown(p); got.Phase != v1.PodRunning {
					t.Fatalf("it shows %s", got.Phase)
				}
			})
		})
	}
}

func TestF4TheNodeAsAWholeSlowsDownAndTheUrgentIsNotStarved(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		pods := n.boundMany(200)
		for _, p := range pods {
			n.SetPodStatus(p, runningStatus())
		}
		synctest.Wait()
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(50 * time.Millisecond))
		heal := n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)))
		inFlight := func(of time.Duration) int {
			n.faults.Forget()
			time.Sleep(of)
			return n.faults.Requests().Of("PATCH", "/pods/").MaxInFlight()
		}
		for _, p := range pods {
			n.SetPodStatus(p, unreadyStatus())
		}
		time.Sleep(time.Second)
		if most := inFlight(500 * time.Millisecond); most > 8 || most < 4 {
			t.Errorf("%d requests in flight after the first time, want 4 to 8: a round of answers halves the number once", most)
		}
		time.Sleep(5 * time.Second)
		if most := inFlight(5 * time.Second); most > 2 {
			t.Errorf("%d requests in flight after a while, want at most 2", most)
		}
		n.SetPodStatus(pods[199], succeededStatus())
		time.Sleep(10 * time.Second)
		heal()
		time.Sleep(13 * time.Second) // its own last wait, and nothing for the others'
		if got := n.shown(pods[199]); got.Phase != v1.PodSucceeded {
			t.Errorf("the end is not told: %s", got.Phase)
		}
		time.Sleep(time.Minute)
		for _, p := range pods[:199] {
			n.SetPodStatus(p, runningStatus())
		}
		if most := inFlight(10 * time.Second); most < 9 {
			t.Errorf("%d requests in flight when the server is well again", most)
		}
	})
}

func TestBUG6ASuccessWipesTheSlateClean(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		heal := n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusInternalServerError))
		n.SetPodStatus(p, runningStatus())
		time.Sleep(time.Minute)
		heal()
		time.Sleep(time.Minute)
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusInternalServerError))
		n.SetPodStatus(p, withReason("later"))
		time.Sleep(125 * time.Millisecond)
		if got := n.shown(p); got.Reason != "later" {
			t.Fatal("an old failure still counts")
		}
	})
}

func TestF11AWatchThatIsCutOrCompactedLosesNothing(t *testing.T) {
	breaks := map[string]func(n *node){
		"cut":       func(n *node) { n.server.CutWatches() },
		"compacted": func(n *node) { n.server.SetDown(true); n.server.Compact(); n.server.SetDown(false) },
		"stalled for long": func(n *node) {
			unstall := n.faults.Add(fault.On("watch", "/pods").Stall())
			time.AfterFunc(5*time.Minute, unstall)
		},
	}
	for name, breakIt := range breaks {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := n.bound("web")
				n.SetPodStatus(p, runningStatus())
				synctest.Wait()
				breakIt(n)
				n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Phase = v1.PodPending })
				n.SetPodStatus(p, withReason("after"))
				time.Sleep(6 * time.Minute)
				if got := n.shown(p); got.Phase != v1.PodRunning || got.Reason != "after" {
					t.Fatalf("it shows %s, %q", got.Phase, got.Reason)
				}
				if _, known := n.GetPodStatus(p.UID); !known {
					t.Fatal("the pod was taken for deleted")
				}
			})
		})
	}
}

func TestF11AServerThatWasRestoredFromABackUpIsToldEverythingAgain(t *testing.T) {
	for name, changesBefore := range map[string]int{"an old one": 0, "one that has all": 10} {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := n.bound("web")
				var backup *v1.Pod
				for i := range 11 {
					if i == changesBefore {
						backup = n.server.Pod(podid.FullNameOf(p))
					}
					n.SetPodStatus(p, withReason("%d", min(i, 9)))
					synctest.Wait()
				}
				restored := heraldtest.NewAPIServer()
				restored.AddPod(backup)
				n.line.Store(restored)
				n.faults.Add(fault.On("watch", "/pods").Times(1).Reply(http.StatusGone)) // it does not know such a version
				n.server.CutWatches()
				n.server = restored
				time.Sleep(time.Minute)
				if got := n.shown(p); got.Reason != "9" {
					t.Fatalf("the restored server shows %q", got.Reason)
				}
				restored.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Reason = "theirs" })
				if got := n.shown(p); got.Reason != "9" {
					t.Fatalf("drift in the restored server is not seen: it shows %q", got.Reason)
				}
			})
		})
	}
}
