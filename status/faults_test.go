package status_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// logTo collects the log in the builder.
func logTo(log *strings.Builder) func(*status.Config) {
	return func(c *status.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) }
}

func TestF6AForeignWriterDoesNotKeepANodeFromReporting(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		seen := record(t, n.server)
		p := n.bound("web")
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(15 * time.Millisecond))
		writer, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for i := 0; writer.Err() == nil; i++ {
				n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) {
					metav1.SetMetaDataAnnotation(&p.ObjectMeta, foreignMark, fmt.Sprint(i))
					setCondition(p, "example.com/gate", map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[i%2 == 0])
				})
				select {
				case <-writer.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		n.faults.Forget()
		for i := range 20 {
			n.SetPodStatus(n.held(p), withReason("%d", i))
			time.Sleep(2 * time.Second)
			if got := n.shown(p); got.Reason != fmt.Sprint(i) {
				t.Fatalf("it shows %q, want %d", got.Reason, i)
			}
		}
		stop()
		if patches, gets := n.writes("PATCH"), n.writes("get"); patches > 8*20 || gets > patches {
			t.Fatalf("%d patches and %d gets for 20 changes", patches, gets)
		}
		seen.mustBeClean(t)
	})
}

func TestF7AStatusThatTheServerRefusesIsNoHotLoop(t *testing.T) {
	var log strings.Builder
	onNode(t, logTo(&log), func(t *testing.T, n *node) {
		p := n.bound("web")
		heal := n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusUnprocessableEntity, fault.InvalidField("status.podIPs", "no more than one")))
		n.SetPodStatus(p, runningStatus())
		time.Sleep(10 * time.Minute)
		if patches := n.writes("PATCH"); patches < 5 || patches > 20 {
			t.Fatalf("%d patches in 10 minutes; want one in a minute, and a few at the beginning", patches)
		}
		if warnings := strings.Count(log.String(), "rejected pod status"); warnings != 1 {
			t.Fatalf("the log says it %d times:\n%s", warnings, log.String())
		}
		n.faults.Forget()
		for i := range 100 {
			n.SetPodStatus(p, withReason("%d", i))
			time.Sleep(100 * time.Millisecond)
		}
		if patches := n.writes("PATCH"); patches < 2 || patches > 11 {
			t.Fatalf("%d patches for 100 changes in 10 s; want one in a second, as a changed status may be taken", patches)
		}
		heal()
		time.Sleep(2 * time.Minute)
		if got := n.shown(p); got.Reason != "99" {
			t.Fatalf("it shows %q", got.Reason)
		}
	})
}

func TestF7ARefusalIsNotBlamedForEarlierFailures(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Add(fault.On("PATCH", "/pods/").Times(8).Reply(http.StatusInternalServerError))
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusUnprocessableEntity))
		n.SetPodStatus(p, runningStatus())
		time.Sleep(5 * time.Minute)
		tries := n.faults.Requests().Of("PATCH", "/pods/")
		if len(tries) != 10 || tries[9].Start.Sub(tries[8].Start) > 1250*time.Millisecond {
			t.Fatalf("%d tries, the last after %v", len(tries), tries[len(tries)-1].Start.Sub(tries[len(tries)-2].Start))
		}
	})
}

func TestF7APoisonousStatusFromAnotherLifeIsNoHotLoop(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("job", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { // somebody says that the container has ended
			p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}
		})
		time.Sleep(10 * time.Minute)
		if patches := n.writes("PATCH"); patches > 20 {
			t.Fatalf("%d patches that the server must refuse", patches)
		}
	})
}

func TestF8APodThatIsGoneIsNotPolled(t *testing.T) {
	refuse := func(options ...fault.ReplyOption) func(n *node, p *v1.Pod) {
		return func(n *node, _ *v1.Pod) {
			n.faults.Add(fault.On("*", "/pods/").Reply(http.StatusForbidden, options...))
		}
	}
	tests := map[string]struct {
		change func(n *node, p *v1.Pod)
		most   int // requests in 10 minutes
	}{
		"deleted": {func(n *node, p *v1.Pod) { n.server.DeletePod(podid.FullNameOf(p), 0) }, 1},
		"re-created here": {func(n *node, p *v1.Pod) {
			n.server.DeletePod(podid.FullNameOf(p), 0)
			n.server.AddPod(successorOf(p))
		}, 2},
		"re-created here, and the server names the UID": {func(n *node, _ *v1.Pod) {
			n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusUnprocessableEntity, fault.InvalidField("metadata.uid", "field is immutable")))
		}, 1},
		"re-created on another node": {refuse(fault.Message(
			`pods "web" is forbidden: node "n1" can only update pod status for pods with spec.nodeName set to itself`)), 1},
		"forbidden altogether": {refuse(fault.Message("RBAC")), 40},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := n.bound("web")
				n.SetPodStatus(p, runningStatus())
				synctest.Wait()
				n.faults.Add(fault.On("watch", "/pods").Stall()) // the address book goes on believing in it
				test.change(n, p)
				n.faults.Forget()
				n.SetPodStatus(p, succeededStatus())
				time.Sleep(10 * time.Minute)
				if requests := len(n.faults.Requests().Of("*", "/pods/")); requests < 1 || requests > test.most {
					t.Fatalf("%d requests in 10 minutes, want at most %d", requests, test.most)
				}
				if _, known := n.GetPodStatus(p.UID); !known {
					t.Fatal("SM-56: a pod that the address book has lost its status")
				}
			})
		})
	}
}

func TestF8AGatewaysErrorPageDoesNotMeanThatAPodIsGone(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Add(fault.On("*", "/pods/").Times(3).Reply(http.StatusNotFound, fault.Body("text/html", []byte("<html>no such page</html>"))))
		n.SetPodStatus(p, runningStatus())
		time.Sleep(10 * time.Second)
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("it shows %s", got.Phase)
		}
	})
}

func TestF8AnObjectThatTheWatchShowsAfterAllIsWrittenTo(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusNotFound))
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Labels = map[string]string{"it": "lives"} })
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("it shows %s", got.Phase)
		}
	})
}

func TestF10AnAnswerWithoutAPodDoesNotMeanThatItsNameIsTaken(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusConflict))
		n.faults.Add(fault.On("GET", "/pods/").Times(1).Reply(http.StatusOK, fault.Body("application/json", []byte("{}"))))
		n.SetPodStatus(p, runningStatus())
		time.Sleep(time.Minute)
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("it shows %s", got.Phase)
		}
	})
}

func TestF9ARequestThatLandsLateDoesNotUndoALaterOne(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		seen := record(t, n.server)
		p := n.bound("web")
		release := make(chan struct{})
		n.faults.Add(fault.On("PATCH", "/pods/web/status").Times(1).HoldUntil(release))
		n.SetPodStatus(p, runningStatus())
		time.Sleep(20 * time.Second) // the client has given up by now
		n.SetPodStatus(p, succeededStatus())
		time.Sleep(20 * time.Second)
		close(release)
		n.faults.Wait()
		synctest.Wait()
		if got := n.shown(p); got.Phase != v1.PodSucceeded {
			t.Fatalf("phase is %s", got.Phase)
		}
		seen.mustBeClean(t)
	})
}

func TestF10ABrokenAnswerNeverLeavesAWrongEnd(t *testing.T) {
	patch := fault.On("PATCH", "/pods/").Times(2)
	answered := func(content string) *fault.Rule {
		return patch.Rewrite(func(r *http.Response) error {
			r.Body.Close()
			r.Body = io.NopCloser(strings.NewReader(content))
			return nil
		})
	}
	breaks := map[string]*fault.Rule{
		"reset before it was sent": patch.Reset(),
		"reset after the commit":   patch.LoseReply(),
		"carried out twice":        patch.Duplicate(),
		"an empty answer":          answered(""),
		"an answer about nothing":  answered(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}`),
		"an answer in tongues":     answered("\x00\xff\xfe"),
		"a page of a gateway":      patch.Reply(http.StatusOK, fault.Body("text/html", []byte("<html>welcome</html>"))),
	}
	for name, broken := range breaks {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) { n.survives(t, broken) })
		})
	}
	for cut := range 200 {
		onNode(t, nil, func(t *testing.T, n *node) { n.survives(t, patch.CutAfter(int64(cut))) })
	}
}

// survives goes through a pod's life with the fault, and checks each step and the end of it.
func (n *node) survives(t *testing.T, broken *fault.Rule) {
	t.Helper()
	seen := record(t, n.server)
	n.faults.Add(broken)
	p := n.bound("job", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
	n.SetPodStatus(p, runningStatus())
	time.Sleep(50 * time.Millisecond)
	n.SetPodStatus(p, succeededStatus())
	time.Sleep(2 * time.Second)
	if got := n.shown(p); got.Phase != v1.PodSucceeded {
		t.Fatalf("phase is %s", got.Phase)
	}
	seen.mustBeClean(t)
}

func successorOf(p *v1.Pod) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Spec: *p.Spec.DeepCopy()}
}

func TestF13APodOfTheSameNameStartsWithAStatusOfItsOwn(t *testing.T) { // SM-58, I9
	tests := map[string]func(n *node, release chan struct{}){
		"before the watch tells of it": func(n *node, _ chan struct{}) { n.faults.Add(fault.On("watch", "/pods").Stall()) },
		"while a request is under way": func(n *node, release chan struct{}) {
			n.faults.Add(fault.On("PATCH", "/pods/").Times(1).HoldUntil(release))
		},
		"while an answer is on its way":  func(n *node, _ chan struct{}) { n.faults.Add(fault.On("PATCH", "/pods/").Times(1).LoseReply()) },
		"and the watch tells both times": func(*node, chan struct{}) {},
	}
	for name, meanwhile := range tests {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				seen := record(t, n.server)
				old := n.bound("web")
				n.SetPodStatus(old, withReason("%s", old.UID))
				synctest.Wait()
				release := make(chan struct{})
				meanwhile(n, release)
				n.SetPodStatus(old, func() v1.PodStatus { s := withReason("%s", old.UID); s.Message = "more"; return s }())
				n.server.DeletePod(podid.FullNameOf(old), 0)
				successor := n.server.AddPod(successorOf(old))
				close(release)
				time.Sleep(time.Minute)
				if got := n.shown(successor); got.Reason != "" || got.Phase != v1.PodPending {
					t.Fatalf("the new pod shows the old one's status: %+v", got)
				}
				n.SetPodStatus(successor, withReason("%s", successor.UID))
				time.Sleep(time.Minute)
				if got := n.shown(successor); got.Reason != string(successor.UID) {
					t.Fatalf("the new pod shows %q", got.Reason)
				}
				seen.mustBeClean(t)
			})
		})
	}
}

func TestF13NamesThatComeAndGoInAHurryAreNeverMixedUp(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		seen := record(t, n.server)
		seen.more = func(_, p *v1.Pod) []string {
			if p.Status.Reason != "" && types.UID(p.Status.Reason) != p.UID {
				return []string{"I9: it shows the status of " + p.Status.Reason}
			}
			return nil
		}
		n.faults.Add(fault.On("*", "/pods/").Chance(0.5, 7).DelayBetween(0, 200*time.Millisecond))
		n.faults.Add(fault.On("PATCH", "/pods/").Chance(0.1, 7).HoldFor(12 * time.Second))
		name := podid.FullName{Namespace: "shop", Name: "web"}
		for range 200 {
			p := n.bound("web")
			for i := range 3 {
				s := withReason("%s", p.UID)
				s.Message = fmt.Sprint(i)
				n.SetPodStatus(p, s)
				time.Sleep(17 * time.Millisecond)
			}
			n.server.DeletePod(name, 0)
		}
		n.faults.Wait()
		seen.mustBeClean(t)
	})
}

func TestF31DriftIsRepairedAtOnce(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Phase = v1.PodPending })
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("phase is %s", got.Phase)
		}
	})
}

func TestF30AFightIsBoundedAndEndsWithTheNodesWord(t *testing.T) {
	var log strings.Builder
	onNode(t, logTo(&log), func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.faults.Forget()
		for range 590 {
			n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { setCondition(p, v1.PodReady, v1.ConditionFalse) })
			time.Sleep(time.Second)
		}
		if fights := n.writes("PATCH"); fights < 20 || fights > 33 {
			t.Fatalf("%d writes in 10 minutes; want 3 in a minute", fights)
		}
		if warnings := strings.Count(log.String(), "Another writer"); warnings < 1 || warnings > 11 {
			t.Fatalf("the log says it %d times", warnings)
		}
		n.SetPodStatus(p, withReason("news")) // what is new is not held back
		if got := n.shown(p); got.Reason != "news" {
			t.Fatalf("it shows %q", got.Reason)
		}
		time.Sleep(2 * time.Minute)
		if got := n.shown(p); conditionOf(got, v1.PodReady).Status != v1.ConditionTrue {
			t.Fatal("the other one's word is the last")
		}
	})
}

func TestF32AStatusThatIsTooLargeIsSentWithLessText(t *testing.T) {
	tests := map[string]*fault.Rule{
		"the server's limit": fault.On("PATCH", "/pods/").Where(isLongerThan(60_000)).Reply(http.StatusRequestEntityTooLarge),
		"etcd's limit": fault.On("PATCH", "/pods/").Where(isLongerThan(60_000)).Reply(
			http.StatusInternalServerError, fault.Message("etcdserver: request is too large")),
		"the limit of the way to etcd": fault.On("PATCH", "/pods/").Where(isLongerThan(60_000)).Reply(
			http.StatusInternalServerError, fault.Message("rpc error: code = ResourceExhausted desc = trying to send message larger than max")),
	}
	for name, limit := range tests {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := n.bound("web")
				n.faults.Add(limit)
				n.faults.Forget()
				s := runningStatus()
				s.Message = strings.Repeat("é", 100_000)
				n.SetPodStatus(p, s)
				time.Sleep(10 * time.Minute)
				got := n.shown(p)
				if got.Phase != v1.PodRunning || len(got.Message) != 128 || strings.Trim(got.Message, "é") != "" {
					t.Fatalf("it shows %s and a message of %d bytes", got.Phase, len(got.Message))
				}
				if cached, _ := n.GetPodStatus(p.UID); len(cached.Message) != 200_000 {
					t.Fatalf("the node keeps %d bytes", len(cached.Message))
				}
				if patches := n.writes("PATCH"); patches != 2 {
					t.Fatalf("%d patches, want 2", patches)
				}
			})
		})
	}
}

func TestF32APodThatLeavesNoRoomAtAllIsNoHotLoop(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusRequestEntityTooLarge))
		n.SetPodStatus(p, runningStatus())
		time.Sleep(10 * time.Minute)
		if patches := n.writes("PATCH"); patches > 20 {
			t.Fatalf("%d patches in 10 minutes", patches)
		}
	})
}

func isLongerThan(limit int) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.ContentLength > int64(limit) }
}
