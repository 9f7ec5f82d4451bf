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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("uid of " + name)}}
}

func newRecorder(t *testing.T, api broadcaster.API, change ...func(*broadcaster.Config)) *broadcaster.Broadcaster {
	t.Helper()
	config := broadcaster.Config{NodeName: "n1", Scheme: kubeapi.NewScheme(), API: api}
	for _, c := range change {
		c(&config)
	}
	r, err := broadcaster.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newClient(t *testing.T, server *heraldtest.APIServer) *kubeapi.Client {
	t.Helper()
	client, err := kubeapi.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// during runs the recorder while do is done, in a bubble.
func during(t *testing.T, r *broadcaster.Broadcaster, do func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	do()
	synctest.Wait()
	stop()
	running.Wait()
}

// story is what is left of events for a comparison.
func story(events []v1.Event) []string {
	var lines []string
	for _, e := range events {
		lines = append(lines, fmt.Sprintf("%s %s %s x%d", e.InvolvedObject.Name, e.Reason, e.Message, e.Count))
	}
	return lines
}

func shown(server *heraldtest.APIServer) []string {
	var events []v1.Event
	for _, e := range server.Events() {
		events = append(events, *e)
	}
	return story(events)
}

func TestAnEventReachesTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		r := newRecorder(t, newClient(t, server))
		r.Event(pod("web"), v1.EventTypeNormal, "Pulled", "before Run")
		container := &v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "shop", Name: "web", FieldPath: "spec.containers{main}"}
		during(t, r, func() { r.Event(container, v1.EventTypeWarning, "BackOff", "again") })

		events := server.Events()
		if len(events) != 2 {
			t.Fatalf("%d events", len(events))
		}
		for _, e := range events {
			if e.Source != (v1.EventSource{Component: "herald", Host: "n1"}) || e.InvolvedObject.Name != "web" || e.Count != 1 {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestAnEventAboutALongNameHasANameThatAServerTakes(t *testing.T) {
	r := newRecorder(t, nil)
	long := strings.Repeat("a", validation.DNS1123SubdomainMaxLength)
	r.Event(pod(long), v1.EventTypeNormal, "Pulled", "one")
	r.Event(pod(long), v1.EventTypeNormal, "Started", "two")
	events := r.Recent()
	for _, e := range events {
		if faults := validation.IsDNS1123Subdomain(e.Name); len(faults) > 0 {
			t.Errorf("name %q: %v", e.Name, faults)
		}
	}
	if events[0].Name == events[1].Name {
		t.Errorf("two events have the name %q", events[0].Name)
	}
}

func TestAnEventThatHappensAgainIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		r := newRecorder(t, newClient(t, server))
		during(t, r, func() {
			for range 3 {
				r.Event(pod("web"), v1.EventTypeWarning, "BackOff", "again")
				time.Sleep(time.Second)
			}
		})
		want := []string{"web BackOff again x3"}
		if diff := cmp.Diff(want, shown(server)); diff != "" {
			t.Errorf("in the API server: %s", diff)
		}
		if diff := cmp.Diff(want, story(r.Recent())); diff != "" {
			t.Errorf("kept: %s", diff)
		}
	})
}

func TestAnOutageDelaysEventsAndLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		server.SetDown(true)
		r := newRecorder(t, newClient(t, server))
		during(t, r, func() {
			r.Event(pod("web"), v1.EventTypeNormal, "Started", "one")
			r.Event(pod("db"), v1.EventTypeNormal, "Started", "two")
			time.Sleep(time.Hour)
			if requests := len(server.Requests()); requests > 0 {
				t.Errorf("%d requests were answered", requests)
			}
			server.SetDown(false)
			time.Sleep(2 * time.Minute)
		})
		if diff := cmp.Diff([]string{"db Started two x1", "web Started one x1"}, shown(server)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAFloodAboutOneObjectIsThinnedOutAndKeptHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		r := newRecorder(t, newClient(t, server))
		during(t, r, func() {
			for i := range 100 {
				r.Event(pod("web"), v1.EventTypeNormal, fmt.Sprintf("Reason%d", i), "news")
			}
		})
		if n := len(server.Requests()); n > 30 {
			t.Errorf("%d requests", n)
		}
		if n := len(r.Recent()); n != 100 {
			t.Errorf("%d events are kept", n)
		}
	})
}

// refusing answers every request with one error.
type refusing struct{ err error }

func (f refusing) CreateEvent(context.Context, *v1.Event) (*v1.Event, error) { return nil, f.err }
func (f refusing) PatchEvent(context.Context, string, string, []byte) (*v1.Event, error) {
	return nil, f.err
}

func TestARefusedEventHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, refusing{apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "web", nil)})
		start := time.Now()
		during(t, r, func() {
			r.Event(pod("web"), v1.EventTypeNormal, "Started", "one")
			r.Event(pod("db"), v1.EventTypeNormal, "Started", "two")
		})
		if waited := time.Since(start); waited > 0 {
			t.Errorf("waited %v", waited)
		}
	})
}

// picky never takes events about one pod, as a server whose admission webhook for a namespace is down.
type picky struct {
	broadcaster.API
	about string
	deny  func(context.Context) error
	tries atomic.Int32
}

func (p *picky) CreateEvent(ctx context.Context, e *v1.Event) (*v1.Event, error) {
	if e.InvolvedObject.Name == p.about {
		p.tries.Add(1)
		return nil, p.deny(ctx)
	}
	return p.API.CreateEvent(ctx, e)
}

func TestAnEventThatTheServerFailsOnHoldsUpNoOtherAndIsGivenUp(t *testing.T) {
	for name, deny := range map[string]func(context.Context) error{
		"an error":  func(context.Context) error { return apierrors.NewInternalError(errors.New("failed calling webhook")) },
		"no answer": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				api := &picky{API: newClient(t, server), about: "web", deny: deny}
				r := newRecorder(t, api)
				during(t, r, func() {
					r.Event(pod("web"), v1.EventTypeNormal, "Started", "")
					for i := range 10 {
						r.Event(pod(fmt.Sprint("db-", i)), v1.EventTypeNormal, "Started", "")
						time.Sleep(2 * time.Minute)
						if told := len(shown(server)); told != i+1 {
							t.Fatalf("%d of %d events were told", told, i+1)
						}
					}
					tries := api.tries.Load()
					time.Sleep(time.Hour)
					if more := api.tries.Load() - tries; more > 0 {
						t.Errorf("it was tried %d times more", more)
					}
				})
			})
		})
	}
}

func TestAFullBacklogGivesUpTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		r := newRecorder(t, newClient(t, server), func(c *broadcaster.Config) { c.QueueSize = 2 })
		for i := range 4 {
			r.Event(pod(fmt.Sprint("p", i)), v1.EventTypeNormal, "Started", "")
		}
		during(t, r, func() {})
		if diff := cmp.Diff([]string{"p2 Started  x1", "p3 Started  x1"}, shown(server)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWithoutAnAPIServerTheNewestEventsAreKept(t *testing.T) {
	r := newRecorder(t, nil, func(c *broadcaster.Config) { c.HistorySize = 2 })
	for _, name := range []string{"a", "b", "a", "c"} {
		r.Event(pod(name), v1.EventTypeNormal, "Started", "")
	}
	if diff := cmp.Diff([]string{"a Started  x2", "c Started  x1"}, story(r.Recent())); diff != "" {
		t.Error(diff)
	}
	r.Event(pod("b"), v1.EventTypeNormal, "Started", "") // was forgotten: counts anew
	if diff := cmp.Diff([]string{"c Started  x1", "b Started  x1"}, story(r.Recent())); diff != "" {
		t.Error(diff)
	}
}

func TestAConfigThatCannotWorkNamesItsFields(t *testing.T) {
	if _, err := broadcaster.New(broadcaster.Config{}); err == nil ||
		err.Error() != "broadcaster.Config: NodeName is required\nbroadcaster.Config: Scheme is required" {
		t.Errorf("the error is %v", err)
	}
}

func TestAMessageIsBoundedAndSteersNoTerminal(t *testing.T) {
	r := newRecorder(t, nil)
	r.Event(pod("web"), v1.EventTypeWarning, "Failed", "a\x1b[2Jb\n\tc\xff\u009b"+strings.Repeat("é", 1<<20))
	got := r.Recent()[0].Message
	if !strings.HasPrefix(got, "a[2Jb\n\tc\uFFFDé") || len(got) > 5000 || !utf8.ValidString(got) {
		t.Errorf("%d bytes, %.50q", len(got), got)
	}
}
