package source_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

func newAPI(t *testing.T, server *apiServer, edits ...func(*source.APIConfig)) *source.API {
	t.Helper()
	config := source.APIConfig{ListerWatcher: server, NodeName: node}
	for _, edit := range edits {
		edit(&config)
	}
	a, err := source.NewAPI(config)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// settled checks what the source has told once nothing moves any more.
func settled(t *testing.T, sink *recorder, wantSets int, wantPods string) {
	t.Helper()
	synctest.Wait()
	if sets, pods, problems := sink.told(); sets != wantSets || pods != wantPods {
		t.Fatalf("%d sets, pods %q, want %d and %q; problems %q", sets, pods, wantSets, wantPods, problems)
	}
}

func TestCFG31ListAndWatchBeginWhenTheNodeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, known := newAPIServer(pod("web", "u1")), make(chan struct{})
		sink := start(t, newAPI(t, server, func(c *source.APIConfig) {
			c.WaitForNode = func(ctx context.Context) error {
				select {
				case <-known:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
		}))
		time.Sleep(time.Hour)
		if lists, watches := server.requests(); len(lists)+len(watches) > 0 {
			t.Fatal("the server was asked before the node was known")
		}
		close(known)
		settled(t, sink, 1, "u1")
		server.set(pod("db", "u2"))
		server.set(pod("web", "u1", image("new")))
		settled(t, sink, 1, "u1 u2") // events are changes, not sets
		server.delete("web")
		settled(t, sink, 1, "u2")
	})
}

func TestCFG33AnEmptyListIsASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settled(t, start(t, newAPI(t, newAPIServer())), 1, "")
	})
}

func TestCFG34AnUnreachableServerRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"), pod("db", "u2"))
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1 u2")
		server.fault(func() { server.down = errors.New("connection refused") })
		server.cut()
		server.delete("db")
		time.Sleep(time.Hour)
		settled(t, sink, 1, "u1 u2")
		if _, _, problems := sink.told(); !strings.HasPrefix(problems, "API server: cannot ") ||
			!strings.HasSuffix(problems, " pods, so those that are known stay: connection refused") {
			t.Fatalf("problems %q", problems)
		}
		server.fault(func() { server.down = nil })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, pods, problems := sink.told(); pods != "u1" || problems != "" {
			t.Fatalf("pods %q, problems %q", pods, problems)
		}
	})
}

func TestF12AServerThatIsDownAtTheStartSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"))
		server.down = errors.New("connection refused")
		sink := start(t, newAPI(t, server))
		time.Sleep(time.Hour)
		settled(t, sink, 0, "")
	})
}

func TestTheSourceEndsAtOnceWhileTheServerRefusesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"))
		server.streams = true
		server.fault(func() { server.down = &url.Error{Op: "Get", URL: "/?timeoutSeconds=17", Err: syscall.ECONNREFUSED} })
		ctx, cancel := context.WithCancel(t.Context())
		sink, ended := newRecorder(), make(chan error, 1)
		go func() { ended <- newAPI(t, server).Run(ctx, sink) }()
		time.Sleep(10 * time.Minute)
		if _, _, problems := sink.told(); strings.Contains(fmt.Sprint(problems), "timeoutSeconds") {
			t.Fatalf("problems %q: the address of a request is another one at each try, and so would be the problem", problems)
		}
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Fatal("the source is still waiting for its next try")
		}
	})
}

func TestF11ACutWatchLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"), pod("db", "u2"))
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1 u2")
		time.Sleep(time.Minute)
		server.fault(func() { server.stalled = true })
		server.delete("web")
		server.set(pod("log", "u3"))
		server.cut()
		time.Sleep(time.Minute)
		settled(t, sink, 1, "u2 u3")
	})
}

func TestF11AfterCompactionTheListDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"), pod("db", "u2"))
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1 u2")
		time.Sleep(time.Minute)
		server.fault(func() { server.stalled = true })
		server.delete("web")
		server.set(pod("web", "u3"))
		server.compact()
		time.Sleep(time.Minute)
		settled(t, sink, 2, "u2 u3")
		if _, _, problems := sink.told(); problems != "" {
			t.Fatalf("problems %q", problems)
		}
	})
}

func TestF11ASilentWatchIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"))
		sink := start(t, newAPI(t, server))
		for range 10 { // bookmarks keep a watch
			time.Sleep(time.Minute)
			server.bookmark()
		}
		settled(t, sink, 1, "u1")
		if _, watches := server.requests(); len(watches) != 1 {
			t.Fatalf("%d watches, want 1", len(watches))
		}
		server.fault(func() { server.stalled = true })
		server.set(pod("db", "u2"))
		settled(t, sink, 1, "u1")
		time.Sleep(4 * time.Minute)
		settled(t, sink, 1, "u1 u2")
	})
}

func TestF3ARequestThatIsNeverAnsweredIsMadeAgain(t *testing.T) {
	for name, streams := range map[string]bool{"a list": false, "a list that is streamed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer(pod("web", "u1"))
				server.streams = streams
				server.fault(func() { server.silent = true })
				sink := start(t, newAPI(t, server))
				time.Sleep(time.Minute)
				server.fault(func() { server.silent = false }) // for those who ask from now on
				time.Sleep(4 * time.Minute)
				settled(t, sink, 1, "u1")
			})
		})
	}
	t.Run("a watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := newAPIServer(pod("web", "u1"))
			sink := start(t, newAPI(t, server))
			settled(t, sink, 1, "u1")
			server.fault(func() { server.silent = true })
			server.cut()
			time.Sleep(time.Minute)
			server.fault(func() { server.silent = false })
			server.set(pod("db", "u2"))
			time.Sleep(4 * time.Minute)
			synctest.Wait()
			if _, pods, problems := sink.told(); pods != "u1 u2" || problems != "" {
				t.Fatalf("pods %q, problems %q", pods, problems)
			}
		})
	})
}

func TestF4AServerThatAsksForPatienceGetsItButNotADay(t *testing.T) {
	for name, streams := range map[string]bool{"a list": false, "a list that is streamed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer(pod("web", "u1"))
				server.streams, server.down = streams, apierrors.NewTooManyRequests("busy", 60)
				sink := start(t, newAPI(t, server))
				time.Sleep(10 * time.Minute)
				lists, watches := server.requests()
				if asked := len(lists) + len(watches); asked < 5 || asked > 11 {
					t.Errorf("asked %d times in 10 minutes", asked)
				}
				server.fault(func() { server.down = apierrors.NewTooManyRequests("busy", 24*3600) })
				time.Sleep(2 * time.Minute)
				server.fault(func() { server.down = nil })
				time.Sleep(5 * time.Minute)
				settled(t, sink, 1, "u1")
			})
		})
	}
}

func TestF12TheFirstListIsAConsistentOneAndAnOlderOneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"))
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1")
		if lists, _ := server.requests(); len(lists) != 1 || lists[0].ResourceVersion != "" {
			t.Fatalf("lists %+v, want one that asks for the newest", lists)
		}
		server.set(pod("db", "u2"))
		server.fault(func() { server.answer = &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "99"}} })
		server.compact()
		time.Sleep(time.Minute)
		settled(t, sink, 1, "u1 u2")
		if _, _, problems := sink.told(); !strings.Contains(problems, "older than what it has already shown") {
			t.Fatalf("problems %q", problems)
		}
		server.fault(func() { server.answer = nil })
		time.Sleep(2 * time.Minute)
		settled(t, sink, 2, "u1 u2")
	})
}

func TestF10AnAnswerThatIsNoListRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"))
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1")
		server.fault(func() { server.answer = &v1.PodList{} }) // what client-go reads from the body {}
		server.compact()
		time.Sleep(time.Minute)
		settled(t, sink, 1, "u1")
		if _, _, problems := sink.told(); !strings.Contains(problems, "no list") {
			t.Fatalf("problems %q", problems)
		}
		server.fault(func() { server.answer = nil })
		time.Sleep(2 * time.Minute)
		settled(t, sink, 2, "u1")
	})
}

func TestF11ARestoredServerIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"))
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1")
		server.set(pod("db", "u2"))
		settled(t, sink, 1, "u1 u2")
		server.fault(func() { server.version, server.history = 50, nil; delete(server.pods, "db") })
		server.compact()
		time.Sleep(2 * time.Minute)
		settled(t, sink, 2, "u1")
	})
}

func TestAListThatIsStreamedIsASetToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"), pod("db", "u2"))
		server.streams = true
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1 u2")
		server.set(pod("log", "u3"))
		settled(t, sink, 1, "u1 u2 u3")
		if lists, _ := server.requests(); len(lists) != 0 {
			t.Fatalf("%d lists, want none", len(lists))
		}
	})
}

func TestF11AStreamedListThatIsNeverCompleteIsNoHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"))
		server.streams, server.severed = true, 1000
		sink := start(t, newAPI(t, server))
		time.Sleep(5 * time.Minute)
		if _, watches := server.requests(); len(watches) < 10 || len(watches) > 200 {
			t.Fatalf("%d requests in 5 minutes", len(watches))
		}
		server.fault(func() { server.severed = 0 })
		time.Sleep(20 * time.Second)
		settled(t, sink, 1, "u1")
		server.fault(func() { server.severed = 1 })
		server.compact()
		time.Sleep(2 * time.Second) // the reflector's own pause
		settled(t, sink, 2, "u1")
	})
}

func TestAServerThatDoesNotStreamListsIsNoProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, problems := newAPIServer(pod("web", "u1")), &loud{recorder: newRecorder()}
		server.old = true
		run(t, newAPI(t, server), problems)
		settled(t, problems.recorder, 1, "u1")
		if problems.found {
			t.Fatal("it is reported as one")
		}
	})
}

// loud remembers whether there ever was a problem.
type loud struct {
	*recorder
	found bool
}

func (l *loud) Report(problems []source.Problem) {
	l.found = l.found || len(problems) > 0
	l.recorder.Report(problems)
}

func TestPodsOfOtherNodesAreLeftOutAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := func(p *v1.Pod) { p.Spec.NodeName = "n2" }
		server := newAPIServer(pod("web", "u1"), pod("far", "u2", foreign))
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1")
		server.set(pod("farther", "u3", foreign))
		settled(t, sink, 1, "u1")
		want := `API server: sent pods that are not bound to node n1, such as farther_default on "n2"; they are left out: ` +
			`the field selector spec.nodeName is missing`
		if _, _, problems := sink.told(); problems != want {
			t.Fatalf("problems %q, want %q", problems, want)
		}
	})
}

func TestAPodThatTookAnothersNameHasReplacedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1"))
		sink := start(t, newAPI(t, server))
		settled(t, sink, 1, "u1")
		server.set(pod("web", "u2")) // without a deletion between
		settled(t, sink, 1, "u2")
	})
}

func TestThePipelineFromTheServerToTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(pod("web", "u1", func(p *v1.Pod) { p.ManagedFields = make([]metav1.ManagedFieldsEntry, 3) }))
		m := merge(t, func(c *source.MuxConfig) { c.Sources = append(c.Sources, newAPI(t, server)) }, podid.File)
		m.expect("api ADD web/u1")
		m.sinks[podid.File].Replace(nil)
		m.expect("file ADD")
		server.set(pod("web", "u1", phase(v1.PodRunning)))
		got := m.expect("api RECONCILE web/u1")[0].Pods[0]
		if got.ResourceVersion != "102" || got.ManagedFields != nil {
			t.Fatalf("version %s, managed fields %v", got.ResourceVersion, got.ManagedFields)
		}
		server.set(pod("web", "u1", phase(v1.PodRunning), deleted))
		m.expect("api DELETE web/u1")
		server.delete("web")
		m.expect("api REMOVE web/u1")
		if !m.mux.AllReady() {
			t.Fatal("not ready")
		}
	})
}

func TestTheAPISourceSaysWhichFieldOfItsConfigurationIsWrong(t *testing.T) {
	tests := map[string]struct {
		config source.APIConfig
		want   string
	}{
		"no server": {source.APIConfig{NodeName: node}, "source.APIConfig.ListerWatcher: required"},
		"no node":   {source.APIConfig{ListerWatcher: newAPIServer()}, "source.APIConfig.Node: required"},
		"negative idle": {
			source.APIConfig{ListerWatcher: newAPIServer(), NodeName: node, IdleTimeout: -1},
			"source.APIConfig.IdleTimeout: -1ns is negative",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := source.NewAPI(test.config); err == nil || err.Error() != test.want {
				t.Fatalf("error %v, want %s", err, test.want)
			}
		})
	}
}

// The reflector begins a list in a goroutine of its own, and does not wait for it when it is ended just then. The race detector
// is the judge.
func TestASourceThatEndsAsItBeginsLeavesNoListBehind(t *testing.T) {
	for range 1000 {
		server := newAPIServer(pod("web", "u1"))
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := newAPI(t, server).Run(ctx, newRecorder()); err != nil {
			t.Fatal(err)
		}
	}
}
