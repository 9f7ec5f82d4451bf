package broadcaster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBroadcaster(t *testing.T, api broadcaster.API, configure ...func(*broadcaster.Config)) *broadcaster.Broadcaster {
	t.Helper()
	config := broadcaster.Config{NodeName: "n1", Scheme: kubeapi.NewScheme(), API: api}
	for _, change := range configure {
		change(&config)
	}
	b, err := broadcaster.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newClient(t *testing.T, server *heraldtest.APIServer) *kubeapi.Client {
	t.Helper()
	client, err := kubeapi.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// runDuring runs the Broadcaster in a synctest bubble while the function executes.
func runDuring(t *testing.T, b *broadcaster.Broadcaster, execute func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	execute()
	synctest.Wait()
	cancel()
	running.Wait()
}

// summarize returns one line per event.
func summarize(events []v1.Event) []string {
	var lines []string
	for _, event := range events {
		lines = append(lines, fmt.Sprintf("%s %s %s x%d", event.InvolvedObject.Name, event.Reason, event.Message, event.Count))
	}
	return lines
}

// storedEvents summarizes the events in the API server.
func storedEvents(server *heraldtest.APIServer) []string {
	var events []v1.Event
	for _, event := range server.Events() {
		events = append(events, *event)
	}
	return summarize(events)
}

func TestRun_SendsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		b := newBroadcaster(t, newClient(t, server))
		b.Event(heraldtest.NewPod("web"), v1.EventTypeNormal, "Pulled", "before Run")
		container := &v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: metav1.NamespaceDefault, Name: "web", FieldPath: "spec.containers{main}"}
		runDuring(t, b, func() { b.Event(container, v1.EventTypeWarning, "BackOff", "again") })

		events := server.Events()
		if len(events) != 2 {
			t.Fatalf("got %d events, want 2", len(events))
		}
		for _, event := range events {
			if event.Source != (v1.EventSource{Component: "kubelet", Host: "n1"}) || event.ReportingController != "herald" || event.InvolvedObject.Name != "web" || event.Count != 1 {
				t.Errorf("got %+v, want one event of herald on n1 about web", event)
			}
		}
	})
}

// journal counts occurrences.
type journal struct{ occurrences atomic.Int32 }

func (j *journal) EventOccurred(event *v1.Event) { j.occurrences.Add(event.Count) }

func TestEvent_Journal(t *testing.T) {
	var kept journal
	b := newBroadcaster(t, nil, func(c *broadcaster.Config) { c.Journal = &kept })
	for range 3 {
		b.Event(heraldtest.NewPod("web"), v1.EventTypeWarning, "BackOff", "again")
	}
	if got := kept.occurrences.Load(); got != 3 {
		t.Errorf("got %d occurrences, want 3", got)
	}
}

func TestEvent_LongObjectName(t *testing.T) {
	b := newBroadcaster(t, nil)
	long := strings.Repeat("a", validation.DNS1123SubdomainMaxLength)
	b.Event(heraldtest.NewPod(long), v1.EventTypeNormal, "Pulled", "one")
	b.Event(heraldtest.NewPod(long), v1.EventTypeNormal, "Started", "two")
	events := b.Recent()
	for _, event := range events {
		if errs := validation.IsDNS1123Subdomain(event.Name); len(errs) > 0 {
			t.Errorf("got invalid name %q: %v", event.Name, errs)
		}
	}
	if events[0].Name == events[1].Name {
		t.Errorf("got two events with the name %q", events[0].Name)
	}
}

func TestRun_CountsRepeatedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		b := newBroadcaster(t, newClient(t, server))
		runDuring(t, b, func() {
			for range 3 {
				b.Event(heraldtest.NewPod("web"), v1.EventTypeWarning, "BackOff", "again")
				time.Sleep(time.Second)
			}
		})
		want := []string{"web BackOff again x3"}
		if diff := cmp.Diff(want, storedEvents(server)); diff != "" {
			t.Errorf("API server (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, summarize(b.Recent())); diff != "" {
			t.Errorf("Recent (-want +got):\n%s", diff)
		}
	})
}

func TestRun_APIServerOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		server.SetDown(true)
		b := newBroadcaster(t, newClient(t, server))
		runDuring(t, b, func() {
			b.Event(heraldtest.NewPod("web"), v1.EventTypeNormal, "Started", "one")
			b.Event(heraldtest.NewPod("db"), v1.EventTypeNormal, "Started", "two")
			time.Sleep(time.Hour)
			if requests := len(server.Requests()); requests > 0 {
				t.Errorf("got %d requests, want 0", requests)
			}
			server.SetDown(false)
			time.Sleep(2 * time.Minute)
		})
		if diff := cmp.Diff([]string{"db Started two x1", "web Started one x1"}, storedEvents(server)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestRun_RateLimitPerObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		b := newBroadcaster(t, newClient(t, server))
		runDuring(t, b, func() {
			for i := range 100 {
				b.Event(heraldtest.NewPod("web"), v1.EventTypeNormal, fmt.Sprintf("Reason%d", i), "news")
			}
		})
		if n := len(server.Requests()); n > 30 {
			t.Errorf("got %d requests, want at most 30", n)
		}
		if n := len(b.Recent()); n != 100 {
			t.Errorf("got %d recent events, want 100", n)
		}
	})
}

// failingAPI fails every request.
type failingAPI struct{ err error }

func (f failingAPI) CreateEvent(context.Context, *v1.Event) (*v1.Event, error) { return nil, f.err }
func (f failingAPI) PatchEvent(context.Context, string, string, []byte) (*v1.Event, error) {
	return nil, f.err
}

func TestRun_RejectedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroadcaster(t, failingAPI{apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "web", nil)})
		start := time.Now()
		runDuring(t, b, func() {
			b.Event(heraldtest.NewPod("web"), v1.EventTypeNormal, "Started", "one")
			b.Event(heraldtest.NewPod("db"), v1.EventTypeNormal, "Started", "two")
		})
		if elapsed := time.Since(start); elapsed > 0 {
			t.Errorf("got a delay of %v, want none", elapsed)
		}
	})
}

// selectiveAPI fails events about one pod, like a server whose admission webhook for a namespace is down.
type selectiveAPI struct {
	broadcaster.API
	podName  string
	fail     func(context.Context) error
	attempts atomic.Int32
}

func (a *selectiveAPI) CreateEvent(ctx context.Context, event *v1.Event) (*v1.Event, error) {
	if event.InvolvedObject.Name == a.podName {
		a.attempts.Add(1)
		return nil, a.fail(ctx)
	}
	return a.API.CreateEvent(ctx, event)
}

func TestRun_FailingEventIsDropped(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"error":       func(context.Context) error { return apierrors.NewInternalError(errors.New("failed calling webhook")) },
		"no response": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				api := &selectiveAPI{API: newClient(t, server), podName: "web", fail: fail}
				b := newBroadcaster(t, api)
				runDuring(t, b, func() {
					b.Event(heraldtest.NewPod("web"), v1.EventTypeNormal, "Started", "")
					for i := range 10 {
						b.Event(heraldtest.NewPod(fmt.Sprint("db-", i)), v1.EventTypeNormal, "Started", "")
						time.Sleep(2 * time.Minute)
						if got := len(storedEvents(server)); got != i+1 {
							t.Fatalf("got %d events, want %d", got, i+1)
						}
					}
					attempts := api.attempts.Load()
					time.Sleep(time.Hour)
					if more := api.attempts.Load() - attempts; more > 0 {
						t.Errorf("got %d more attempts, want 0", more)
					}
				})
			})
		})
	}
}

func TestRun_FullQueueDropsOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		b := newBroadcaster(t, newClient(t, server), func(c *broadcaster.Config) { c.QueueSize = 2 })
		for i := range 4 {
			b.Event(heraldtest.NewPod(fmt.Sprint("p", i)), v1.EventTypeNormal, "Started", "")
		}
		runDuring(t, b, func() {})
		if diff := cmp.Diff([]string{"p2 Started  x1", "p3 Started  x1"}, storedEvents(server)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestRecent_WithoutAPIServer(t *testing.T) {
	b := newBroadcaster(t, nil, func(c *broadcaster.Config) { c.HistorySize = 2 })
	for _, name := range []string{"a", "b", "a", "c"} {
		b.Event(heraldtest.NewPod(name), v1.EventTypeNormal, "Started", "")
	}
	if diff := cmp.Diff([]string{"a Started  x2", "c Started  x1"}, summarize(b.Recent())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	b.Event(heraldtest.NewPod("b"), v1.EventTypeNormal, "Started", "") // was evicted: counts from 1
	if diff := cmp.Diff([]string{"c Started  x1", "b Started  x1"}, summarize(b.Recent())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestConfig_InvalidFields(t *testing.T) {
	if _, err := broadcaster.New(broadcaster.Config{}); err == nil ||
		err.Error() != "broadcaster.Config: NodeName is required\nbroadcaster.Config: Scheme is required" {
		t.Errorf("got %v", err)
	}
}

func TestEvent_SanitizesMessage(t *testing.T) {
	b := newBroadcaster(t, nil)
	b.Event(heraldtest.NewPod("web"), v1.EventTypeWarning, "Failed", "a\x1b[2Jb\n\tc\xff\u009b"+strings.Repeat("é", 1<<20))
	got := b.Recent()[0].Message
	if !strings.HasPrefix(got, "a[2Jb\n\tc\uFFFDé") || len(got) > 5000 || !utf8.ValidString(got) {
		t.Errorf("got %d bytes, %.50q", len(got), got)
	}
}

func TestWatch_RecentThenNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroadcaster(t, nil)
		b.Event(heraldtest.NewPod("web"), v1.EventTypeNormal, "Pulled", "one")
		b.Event(heraldtest.NewPod("web"), v1.EventTypeNormal, "Started", "two")
		ctx, cancel := context.WithCancel(t.Context())
		var seen []v1.Event
		var watching sync.WaitGroup
		watching.Go(func() {
			for event := range b.Watch(ctx) {
				seen = append(seen, event)
			}
		})
		synctest.Wait()
		b.Event(heraldtest.NewPod("web"), v1.EventTypeNormal, "Pulled", "one")
		synctest.Wait()
		b.Event(heraldtest.NewPod("db"), v1.EventTypeNormal, "Pulled", "one")
		synctest.Wait()
		cancel()
		watching.Wait()
		want := []string{"web Pulled one x1", "web Started two x1", "web Pulled one x2", "db Pulled one x1"}
		if diff := cmp.Diff(want, summarize(seen)); diff != "" {
			t.Errorf("watch (-want +got):\n%s", diff)
		}
	})
}

func TestEVI22_Annotations(t *testing.T) {
	b, err := broadcaster.New(broadcaster.Config{NodeName: "n1", Scheme: kubeapi.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]string{"starved_resource": "memory"}
	event.Annotated(b, annotations).Event(heraldtest.NewPod("web"), v1.EventTypeWarning, "Evicted", "100% of memory")
	event.Annotated(b, nil).Event(heraldtest.NewPod("web"), v1.EventTypeWarning, "Evicted", "else")
	event.Annotated(event.Discard, annotations).Event(heraldtest.NewPod("web"), v1.EventTypeWarning, "Evicted", "nobody hears it")
	got := b.Recent()
	if len(got) != 2 || got[0].Annotations["starved_resource"] != "memory" || got[0].Message != "100% of memory" || got[1].Annotations != nil {
		t.Errorf("got %+v", got)
	}
}
