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

func newAPI(t *testing.T, server *fakeAPIServer, mutate ...func(*source.APIConfig)) *source.API {
	t.Helper()
	config := source.APIConfig{ListerWatcher: server, NodeName: node}
	for _, change := range mutate {
		change(&config)
	}
	a, err := source.NewAPI(config)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// expectState waits until all goroutines are blocked and checks what the source has reported.
func expectState(t *testing.T, sink *fakeSink, wantSets int, wantPods string) {
	t.Helper()
	synctest.Wait()
	if sets, pods, problems := sink.state(); sets != wantSets || pods != wantPods {
		t.Fatalf("got %d sets, pods %q, problems %q; want %d sets, pods %q", sets, pods, problems, wantSets, wantPods)
	}
}

func TestCFG31_WaitForNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, registered := newFakeAPIServer(newPod("web", "u1")), make(chan struct{})
		sink := startSource(t, newAPI(t, server, func(c *source.APIConfig) {
			c.WaitForNode = func(ctx context.Context) error {
				select {
				case <-registered:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
		}))
		time.Sleep(time.Hour)
		if lists, watches := server.requests(); len(lists)+len(watches) > 0 {
			t.Fatal("got requests before the node is known, want none")
		}
		close(registered)
		expectState(t, sink, 1, "u1")
		server.set(newPod("db", "u2"))
		server.set(newPod("web", "u1", withImage("new")))
		expectState(t, sink, 1, "u1 u2") // events change the set
		server.delete("web")
		expectState(t, sink, 1, "u2")
	})
}

func TestCFG33_EmptyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expectState(t, startSource(t, newAPI(t, newFakeAPIServer())), 1, "")
	})
}

func TestCFG34_UnreachableServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"), newPod("db", "u2"))
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1 u2")
		server.configure(func() { server.err = errors.New("connection refused") })
		server.closeWatches()
		server.delete("db")
		time.Sleep(time.Hour)
		expectState(t, sink, 1, "u1 u2")
		if _, _, problems := sink.state(); !strings.HasPrefix(problems, "API server: cannot ") ||
			!strings.HasSuffix(problems, " pods; the known pods are kept: connection refused") {
			t.Fatalf("problems: got %q, want the refused connection", problems)
		}
		server.configure(func() { server.err = nil })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, pods, problems := sink.state(); pods != "u1" || problems != "" {
			t.Fatalf("got pods %q, problems %q; want %q, none", pods, problems, "u1")
		}
	})
}

func TestF12_ServerDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"))
		server.err = errors.New("connection refused")
		sink := startSource(t, newAPI(t, server))
		time.Sleep(time.Hour)
		expectState(t, sink, 0, "")
	})
}

func TestAPI_StopsDuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"))
		server.streams = true
		server.configure(func() { server.err = &url.Error{Op: "Get", URL: "/?timeoutSeconds=17", Err: syscall.ECONNREFUSED} })
		ctx, cancel := context.WithCancel(t.Context())
		sink, done := newFakeSink(), make(chan error, 1)
		go func() { done <- newAPI(t, server).Run(ctx, sink) }()
		time.Sleep(10 * time.Minute)
		if _, _, problems := sink.state(); strings.Contains(fmt.Sprint(problems), "timeoutSeconds") {
			t.Fatalf("problems: got %q, want none with the URL, which differs between retries", problems)
		}
		cancel()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Fatal("Run: got blocked in its backoff, want it to return")
		}
	})
}

func TestF11_InterruptedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"), newPod("db", "u2"))
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1 u2")
		time.Sleep(time.Minute)
		server.configure(func() { server.stalled = true })
		server.delete("web")
		server.set(newPod("log", "u3"))
		server.closeWatches()
		time.Sleep(time.Minute)
		expectState(t, sink, 1, "u2 u3")
	})
}

func TestF11_Compaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"), newPod("db", "u2"))
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1 u2")
		time.Sleep(time.Minute)
		server.configure(func() { server.stalled = true })
		server.delete("web")
		server.set(newPod("web", "u3"))
		server.compact()
		time.Sleep(time.Minute)
		expectState(t, sink, 2, "u2 u3")
		if _, _, problems := sink.state(); problems != "" {
			t.Fatalf("problems: got %q, want none", problems)
		}
	})
}

func TestF11_IdleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"))
		sink := startSource(t, newAPI(t, server))
		for range 10 { // bookmarks keep the watch open
			time.Sleep(time.Minute)
			server.bookmark()
		}
		expectState(t, sink, 1, "u1")
		if _, watches := server.requests(); len(watches) != 1 {
			t.Fatalf("got %d watches, want 1", len(watches))
		}
		server.configure(func() { server.stalled = true })
		server.set(newPod("db", "u2"))
		expectState(t, sink, 1, "u1")
		time.Sleep(4 * time.Minute)
		expectState(t, sink, 1, "u1 u2")
	})
}

func TestF3_UnansweredRequest(t *testing.T) {
	for name, streams := range map[string]bool{"list": false, "streamed list": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeAPIServer(newPod("web", "u1"))
				server.streams = streams
				server.configure(func() { server.hangs = true })
				sink := startSource(t, newAPI(t, server))
				time.Sleep(time.Minute)
				server.configure(func() { server.hangs = false }) // for new requests
				time.Sleep(4 * time.Minute)
				expectState(t, sink, 1, "u1")
			})
		})
	}
	t.Run("watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := newFakeAPIServer(newPod("web", "u1"))
			sink := startSource(t, newAPI(t, server))
			expectState(t, sink, 1, "u1")
			server.configure(func() { server.hangs = true })
			server.closeWatches()
			time.Sleep(time.Minute)
			server.configure(func() { server.hangs = false })
			server.set(newPod("db", "u2"))
			time.Sleep(4 * time.Minute)
			synctest.Wait()
			if _, pods, problems := sink.state(); pods != "u1 u2" || problems != "" {
				t.Fatalf("got pods %q, problems %q; want %q, none", pods, problems, "u1")
			}
		})
	})
}

func TestF4_RetryAfter(t *testing.T) {
	for name, streams := range map[string]bool{"list": false, "streamed list": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeAPIServer(newPod("web", "u1"))
				server.streams, server.err = streams, apierrors.NewTooManyRequests("busy", 60)
				sink := startSource(t, newAPI(t, server))
				time.Sleep(10 * time.Minute)
				lists, watches := server.requests()
				if requests := len(lists) + len(watches); requests < 5 || requests > 11 {
					t.Errorf("got %d requests in 10 minutes, want 5 to 11", requests)
				}
				server.configure(func() { server.err = apierrors.NewTooManyRequests("busy", 24*3600) })
				time.Sleep(2 * time.Minute)
				server.configure(func() { server.err = nil })
				time.Sleep(5 * time.Minute)
				expectState(t, sink, 1, "u1")
			})
		})
	}
}

func TestF12_StaleList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"))
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1")
		if lists, _ := server.requests(); len(lists) != 1 || lists[0].ResourceVersion != "" {
			t.Fatalf("got lists %+v, want one without a version", lists)
		}
		server.set(newPod("db", "u2"))
		server.configure(func() { server.response = &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "99"}} })
		server.compact()
		time.Sleep(time.Minute)
		expectState(t, sink, 1, "u1 u2")
		if _, _, problems := sink.state(); !strings.Contains(problems, "older than what it returned before") {
			t.Fatalf("problems: got %q, want the stale list", problems)
		}
		server.configure(func() { server.response = nil })
		time.Sleep(2 * time.Minute)
		expectState(t, sink, 2, "u1 u2")
	})
}

func TestF10_NotAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"))
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1")
		server.configure(func() { server.response = &v1.PodList{} }) // client-go decodes the body {} to this
		server.compact()
		time.Sleep(time.Minute)
		expectState(t, sink, 1, "u1")
		if _, _, problems := sink.state(); !strings.Contains(problems, "did not return a list") {
			t.Fatalf("problems: got %q, want the missing list", problems)
		}
		server.configure(func() { server.response = nil })
		time.Sleep(2 * time.Minute)
		expectState(t, sink, 2, "u1")
	})
}

func TestF11_RestoredServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"))
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1")
		server.set(newPod("db", "u2"))
		expectState(t, sink, 1, "u1 u2")
		server.configure(func() { server.version, server.history = 50, nil; delete(server.pods, "db") })
		server.compact()
		time.Sleep(2 * time.Minute)
		expectState(t, sink, 2, "u1")
	})
}

func TestAPI_StreamedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"), newPod("db", "u2"))
		server.streams = true
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1 u2")
		server.set(newPod("log", "u3"))
		expectState(t, sink, 1, "u1 u2 u3")
		if lists, _ := server.requests(); len(lists) != 0 {
			t.Fatalf("got %d lists, want none", len(lists))
		}
	})
}

func TestF11_InterruptedStreamedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"))
		server.streams, server.cutLists = true, 1000
		sink := startSource(t, newAPI(t, server))
		time.Sleep(5 * time.Minute)
		if _, watches := server.requests(); len(watches) < 10 || len(watches) > 200 {
			t.Fatalf("got %d requests in 5 minutes, want 10 to 200", len(watches))
		}
		server.configure(func() { server.cutLists = 0 })
		time.Sleep(20 * time.Second)
		expectState(t, sink, 1, "u1")
		server.configure(func() { server.cutLists = 1 })
		server.compact()
		time.Sleep(2 * time.Second) // the reflector's own backoff
		expectState(t, sink, 2, "u1")
	})
}

func TestAPI_StreamingUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, sink := newFakeAPIServer(newPod("web", "u1")), &problemSink{fakeSink: newFakeSink()}
		server.rejectsStreaming = true
		runSource(t, newAPI(t, server), sink)
		expectState(t, sink.fakeSink, 1, "u1")
		if sink.found {
			t.Fatal("got a problem, want none")
		}
	})
}

// problemSink records whether a problem was ever reported.
type problemSink struct {
	*fakeSink
	found bool
}

func (s *problemSink) Report(problems []source.Problem) {
	s.found = s.found || len(problems) > 0
	s.fakeSink.Report(problems)
}

func TestAPI_PodsOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := func(p *v1.Pod) { p.Spec.NodeName = "n2" }
		server := newFakeAPIServer(newPod("web", "u1"), newPod("other", "u2", foreign))
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1")
		server.set(newPod("another", "u3", foreign))
		expectState(t, sink, 1, "u1")
		want := `API server: sent pods that are not bound to node n1, such as another_default on "n2"; they are skipped; ` +
			`the request needs the field selector spec.nodeName`
		if _, _, problems := sink.state(); problems != want {
			t.Fatalf("problems: got %q, want %q", problems, want)
		}
	})
}

func TestAPI_ReplacedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1"))
		sink := startSource(t, newAPI(t, server))
		expectState(t, sink, 1, "u1")
		server.set(newPod("web", "u2")) // without a delete event
		expectState(t, sink, 1, "u2")
	})
}

func TestAPI_EndToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeAPIServer(newPod("web", "u1", func(p *v1.Pod) { p.ManagedFields = make([]metav1.ManagedFieldsEntry, 3) }))
		m := newMuxHarness(t, func(c *source.MuxConfig) { c.Sources = append(c.Sources, newAPI(t, server)) }, podid.File)
		m.expectUpdates("api ADD web/u1")
		m.sinks[podid.File].Replace(nil)
		m.expectUpdates("file ADD")
		server.set(newPod("web", "u1", withPhase(v1.PodRunning)))
		got := m.expectUpdates("api RECONCILE web/u1")[0].Pods[0]
		if got.ResourceVersion != "102" || got.ManagedFields != nil {
			t.Fatalf("got version %s, managed fields %v; want 102 and none", got.ResourceVersion, got.ManagedFields)
		}
		server.set(newPod("web", "u1", withPhase(v1.PodRunning), terminating))
		m.expectUpdates("api DELETE web/u1")
		server.delete("web")
		m.expectUpdates("api REMOVE web/u1")
		if !m.mux.AllReady() {
			t.Fatal("AllReady: got false, want true")
		}
	})
}

func TestAPIConfig_Validation(t *testing.T) {
	tests := map[string]struct {
		config source.APIConfig
		want   string
	}{
		"no server": {source.APIConfig{NodeName: node}, "source.APIConfig: ListerWatcher is required"},
		"no node":   {source.APIConfig{ListerWatcher: newFakeAPIServer()}, "source.APIConfig: NodeName is required"},
		"negative idle timeout": {
			source.APIConfig{ListerWatcher: newFakeAPIServer(), NodeName: node, IdleTimeout: -1},
			"source.APIConfig: IdleTimeout must not be negative",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := source.NewAPI(test.config); err == nil || err.Error() != test.want {
				t.Fatalf("got error %v, want %s", err, test.want)
			}
		})
	}
}

// The reflector lists in a goroutine that it does not wait for when it ends. The race detector checks the result.
func TestAPI_StopWaitsForList(t *testing.T) {
	for range 1000 {
		server := newFakeAPIServer(newPod("web", "u1"))
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := newAPI(t, server).Run(ctx, newFakeSink()); err != nil {
			t.Fatal(err)
		}
	}
}
