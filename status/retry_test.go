package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

func TestF6_BusyForeignWriter(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		recorder := record(t, h.server)
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(15 * time.Millisecond))
		writer, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for i := 0; writer.Err() == nil; i++ {
				h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) {
					metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreignWritesAnnotation, fmt.Sprint(i))
					setCondition(pod, "example.com/gate", map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[i%2 == 0])
				})
				select {
				case <-writer.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		h.faults.ClearRequests()
		for i := range 20 {
			h.SetPodStatus(h.watchedPod(pod), runningWithReason("%d", i))
			time.Sleep(2 * time.Second)
			h.wantReason(pod, fmt.Sprint(i))
		}
		stop()
		if patches, gets := h.countRequests("PATCH"), h.countRequests("get"); patches > 8*20 || gets > patches {
			t.Fatalf("got %d patches and %d gets for 20 changes, want at most 160, and no more gets than patches", patches, gets)
		}
		recorder.check(t)
	})
}

func TestF7_RejectedStatus(t *testing.T) {
	var log strings.Builder
	withHarness(t, withLog(&log), func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		heal := h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusUnprocessableEntity, fault.InvalidField("status.podIPs", "no more than one")))
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(10 * time.Minute)
		if patches := h.countRequests("PATCH"); patches < 5 || patches > 20 {
			t.Fatalf("got %d patches in 10 minutes, want one per minute and a few at the beginning", patches)
		}
		if warnings := strings.Count(log.String(), "rejected pod status"); warnings != 1 {
			t.Fatalf("got %d warnings, want 1:\n%s", warnings, log.String())
		}
		h.faults.ClearRequests()
		for i := range 100 {
			h.SetPodStatus(pod, runningWithReason("%d", i))
			time.Sleep(100 * time.Millisecond)
		}
		if patches := h.countRequests("PATCH"); patches < 2 || patches > 11 {
			t.Fatalf("got %d patches for 100 changes in 10s, want one per second", patches)
		}
		heal()
		time.Sleep(2 * time.Minute)
		h.wantReason(pod, "99")
	})
}

func TestF7_RejectionAfterFailures(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Times(8).Reply(http.StatusInternalServerError))
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusUnprocessableEntity))
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(5 * time.Minute)
		patches := h.faults.Requests().Filter("PATCH", "/pods/")
		if len(patches) != 10 || patches[9].Start.Sub(patches[8].Start) > 1250*time.Millisecond {
			t.Fatalf("got %d patches, the last after %v, want 10, 1.25s", len(patches), patches[len(patches)-1].Start.Sub(patches[len(patches)-2].Start))
		}
	})
}

func TestF7_ForeignIllegalStatus(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("job", withRestartPolicyNever)
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { // another writer terminates the container
			pod.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}
		})
		time.Sleep(10 * time.Minute)
		if patches := h.countRequests("PATCH"); patches > 20 {
			t.Fatalf("got %d patches that the server rejects, want at most 20", patches)
		}
	})
}

func TestF8_MissingObjectIsNotPolled(t *testing.T) {
	forbid := func(options ...fault.ReplyOption) func(h *harness, pod *v1.Pod) {
		return func(h *harness, _ *v1.Pod) {
			h.faults.Add(fault.On("*", "/pods/").Reply(http.StatusForbidden, options...))
		}
	}
	tests := map[string]struct {
		change func(h *harness, pod *v1.Pod)
		max    int // requests in 10 minutes
	}{
		"deleted": {func(h *harness, pod *v1.Pod) { h.server.DeletePod(podid.FullNameOf(pod), 0) }, 1},
		"recreated": {func(h *harness, pod *v1.Pod) {
			h.server.DeletePod(podid.FullNameOf(pod), 0)
			h.server.AddPod(recreated(pod))
		}, 2},
		"recreated, UID in the error": {func(h *harness, _ *v1.Pod) {
			h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusUnprocessableEntity, fault.InvalidField("metadata.uid", "field is immutable")))
		}, 1},
		"recreated on another node": {forbid(fault.Message(
			`pods "web" is forbidden: node "n1" can only update pod status for pods with spec.nodeName set to itself`)), 1},
		"forbidden": {forbid(fault.Message("RBAC")), 40},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				h.SetPodStatus(pod, runningStatus())
				synctest.Wait()
				h.faults.Add(fault.On("watch", "/pods").Stall()) // the Pod Manager still has it
				test.change(h, pod)
				h.faults.ClearRequests()
				h.SetPodStatus(pod, succeededStatus())
				time.Sleep(10 * time.Minute)
				if requests := len(h.faults.Requests().Filter("*", "/pods/")); requests < 1 || requests > test.max {
					t.Fatalf("got %d requests in 10 minutes, want 1 to %d", requests, test.max)
				}
				if _, found := h.GetPodStatus(pod.UID); !found {
					t.Fatal("SM-56: the status of a known pod was removed")
				}
			})
		})
	}
}

func TestF8_NotFoundFromGateway(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("*", "/pods/").Times(3).Reply(http.StatusNotFound, fault.Body("text/html", []byte("<html>no such page</html>"))))
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(10 * time.Second)
		h.wantPhase(pod, v1.PodRunning)
	})
}

func TestF8_ObjectWatchedAfterNotFound(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusNotFound))
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Labels = map[string]string{"app": "changed"} })
		h.wantPhase(pod, v1.PodRunning)
	})
}

func TestF10_GetReturnsNoPod(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusConflict))
		h.faults.Add(fault.On("GET", "/pods/").Times(1).Reply(http.StatusOK, fault.Body("application/json", []byte("{}"))))
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(time.Minute)
		h.wantPhase(pod, v1.PodRunning)
	})
}

func TestF9_LateRequest(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		recorder := record(t, h.server)
		pod := h.addPod("web")
		release := make(chan struct{})
		h.faults.Add(fault.On("PATCH", "/pods/web/status").Times(1).HoldUntil(release))
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(20 * time.Second) // the client has timed out by now
		h.SetPodStatus(pod, succeededStatus())
		time.Sleep(20 * time.Second)
		close(release)
		h.faults.Wait()
		synctest.Wait()
		h.wantPhase(pod, v1.PodSucceeded)
		recorder.check(t)
	})
}

func TestF10_BrokenResponses(t *testing.T) {
	patch := fault.On("PATCH", "/pods/").Times(2)
	respond := func(content string) *fault.Rule {
		return patch.Rewrite(func(r *http.Response) error {
			r.Body.Close()
			r.Body = io.NopCloser(strings.NewReader(content))
			return nil
		})
	}
	tests := map[string]*fault.Rule{
		"reset before the request": patch.Reset(),
		"reset after the commit":   patch.LoseReply(),
		"executed twice":           patch.Duplicate(),
		"empty response":           respond(""),
		"response without a pod":   respond(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}`),
		"binary response":          respond("\x00\xff\xfe"),
		"gateway page":             patch.Reply(http.StatusOK, fault.Body("text/html", []byte("<html>welcome</html>"))),
	}
	for name, rule := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) { h.checkSurvives(t, rule) })
		})
	}
	for cut := range 200 {
		withHarness(t, nil, func(t *testing.T, h *harness) { h.checkSurvives(t, patch.CutAfter(int64(cut))) })
	}
}

// checkSurvives runs a pod to completion with the fault, and checks every change and the result.
func (h *harness) checkSurvives(t *testing.T, rule *fault.Rule) {
	t.Helper()
	recorder := record(t, h.server)
	h.faults.Add(rule)
	pod := h.addPod("job", withRestartPolicyNever)
	h.SetPodStatus(pod, runningStatus())
	time.Sleep(50 * time.Millisecond)
	h.SetPodStatus(pod, succeededStatus())
	time.Sleep(2 * time.Second)
	h.wantPhase(pod, v1.PodSucceeded)
	recorder.check(t)
}

// TestF13_RecreatedPod also covers SM-58 and I9.
func TestF13_RecreatedPod(t *testing.T) {
	tests := map[string]func(h *harness, release chan struct{}){
		"watch stalled": func(h *harness, _ chan struct{}) { h.faults.Add(fault.On("watch", "/pods").Stall()) },
		"request in flight": func(h *harness, release chan struct{}) {
			h.faults.Add(fault.On("PATCH", "/pods/").Times(1).HoldUntil(release))
		},
		"response lost": func(h *harness, _ chan struct{}) { h.faults.Add(fault.On("PATCH", "/pods/").Times(1).LoseReply()) },
		"watch current": func(*harness, chan struct{}) {},
	}
	for name, meanwhile := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				recorder := record(t, h.server)
				old := h.addPod("web")
				h.SetPodStatus(old, runningWithReason("%s", old.UID))
				synctest.Wait()
				release := make(chan struct{})
				meanwhile(h, release)
				changed := runningWithReason("%s", old.UID)
				changed.Message = "changed"
				h.SetPodStatus(old, changed)
				h.server.DeletePod(podid.FullNameOf(old), 0)
				successor := h.server.AddPod(recreated(old))
				close(release)
				time.Sleep(time.Minute)
				if got := h.apiStatus(successor); got.Reason != "" || got.Phase != v1.PodPending {
					t.Fatalf("got %+v, want the status of the new pod", got)
				}
				h.SetPodStatus(successor, runningWithReason("%s", successor.UID))
				time.Sleep(time.Minute)
				h.wantReason(successor, string(successor.UID))
				recorder.check(t)
			})
		})
	}
}

func TestF13_RapidRecreation(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		recorder := record(t, h.server)
		recorder.extraCheck = func(_, pod *v1.Pod) []string {
			if pod.Status.Reason != "" && types.UID(pod.Status.Reason) != pod.UID {
				return []string{"I9: has the status of " + pod.Status.Reason}
			}
			return nil
		}
		h.faults.Add(fault.On("*", "/pods/").Probability(0.5, 7).DelayBetween(0, 200*time.Millisecond))
		h.faults.Add(fault.On("PATCH", "/pods/").Probability(0.1, 7).HoldFor(12 * time.Second))
		name := podid.FullName{Namespace: "shop", Name: "web"}
		for range 200 {
			pod := h.addPod("web")
			for i := range 3 {
				podStatus := runningWithReason("%s", pod.UID)
				podStatus.Message = fmt.Sprint(i)
				h.SetPodStatus(pod, podStatus)
				time.Sleep(17 * time.Millisecond)
			}
			h.server.DeletePod(name, 0)
		}
		h.faults.Wait()
		recorder.check(t)
	})
}

func TestF31_DriftIsRepaired(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Phase = v1.PodPending })
		h.wantPhase(pod, v1.PodRunning)
	})
}

func TestF30_RepairsAreBounded(t *testing.T) {
	var log strings.Builder
	withHarness(t, withLog(&log), func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.faults.ClearRequests()
		for range 590 {
			h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { setCondition(pod, v1.PodReady, v1.ConditionFalse) })
			time.Sleep(time.Second)
		}
		if repairs := h.countRequests("PATCH"); repairs < 20 || repairs > 33 {
			t.Fatalf("got %d patches in 10 minutes, want 3 per minute", repairs)
		}
		if warnings := strings.Count(log.String(), "Another writer"); warnings < 1 || warnings > 11 {
			t.Fatalf("got %d warnings, want 1 to 11", warnings)
		}
		h.SetPodStatus(pod, runningWithReason("changed")) // a change is not limited
		h.wantReason(pod, "changed")
		time.Sleep(2 * time.Minute)
		if got := h.apiStatus(pod); conditionOf(got, v1.PodReady).Status != v1.ConditionTrue {
			t.Fatal("the foreign write was not repaired")
		}
	})
}

func TestF32_LargeStatusIsCompacted(t *testing.T) {
	tests := map[string]*fault.Rule{
		"API server limit": fault.On("PATCH", "/pods/").Where(isLongerThan(60_000)).Reply(http.StatusRequestEntityTooLarge),
		"etcd limit": fault.On("PATCH", "/pods/").Where(isLongerThan(60_000)).Reply(
			http.StatusInternalServerError, fault.Message("etcdserver: request is too large")),
		"etcd client limit": fault.On("PATCH", "/pods/").Where(isLongerThan(60_000)).Reply(
			http.StatusInternalServerError, fault.Message("rpc error: code = ResourceExhausted desc = trying to send message larger than max")),
	}
	for name, limit := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				h.faults.Add(limit)
				h.faults.ClearRequests()
				h.SetPodStatus(pod, runningWithMessage(strings.Repeat("é", 100_000)))
				time.Sleep(10 * time.Minute)
				got := h.apiStatus(pod)
				if got.Phase != v1.PodRunning || len(got.Message) != 128 || strings.Trim(got.Message, "é") != "" {
					t.Fatalf("got %s and a message of %d bytes, want Running, 128", got.Phase, len(got.Message))
				}
				if cached, _ := h.GetPodStatus(pod.UID); len(cached.Message) != 200_000 {
					t.Fatalf("got a cached message of %d bytes, want 200000", len(cached.Message))
				}
				h.wantRequests("PATCH", 2)
			})
		})
	}
}

func TestF32_AlwaysTooLarge(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusRequestEntityTooLarge))
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(10 * time.Minute)
		if patches := h.countRequests("PATCH"); patches > 20 {
			t.Fatalf("got %d patches in 10 minutes, want at most 20", patches)
		}
	})
}

func isLongerThan(limit int) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.ContentLength > int64(limit) }
}

// contestedAPI answers every patch that has a resource version with a conflict, as if another writer were always first.
type contestedAPI struct {
	status.API
	first error // the response to the first patch

	mu       sync.Mutex // guards all below
	versions []string   // resource versions of the patches
}

func (c *contestedAPI) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	var sent struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &sent); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.versions = append(c.versions, sent.Metadata.ResourceVersion)
	isFirst := len(c.versions) == 1
	c.mu.Unlock()
	switch {
	case isFirst && c.first != nil:
		return nil, c.first
	case sent.Metadata.ResourceVersion != "":
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("the object has been modified"))
	}
	return c.API.PatchPodStatus(ctx, namespace, name, patch)
}

func (c *contestedAPI) patchVersions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.versions
}

func TestF6_PatchWithoutVersion(t *testing.T) {
	var api *contestedAPI
	contest := func(c *status.Config) { api = &contestedAPI{API: c.API}; c.API = api }
	withHarness(t, contest, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(2 * time.Second)
		h.wantPhase(pod, v1.PodRunning)
		if versions := api.patchVersions(); len(versions) != 6 || versions[4] == "" || versions[5] != "" {
			t.Fatalf("got patches with versions %q, want 6, only the last without one", versions)
		}
	})
}

func TestF9_PatchesHaveVersions(t *testing.T) {
	var api *contestedAPI
	contest := func(c *status.Config) { api = &contestedAPI{API: c.API, first: context.DeadlineExceeded}; c.API = api }
	withHarness(t, contest, func(t *testing.T, h *harness) {
		h.SetPodStatus(h.addPod("web"), runningStatus())
		time.Sleep(time.Minute)
		versions := api.patchVersions()
		for _, version := range versions {
			if version == "" {
				t.Fatalf("got patches with versions %q, want all with one", versions)
			}
		}
		if len(versions) < 5 || len(versions) > 20 {
			t.Fatalf("got %d patches in a minute, want 5 to 20", len(versions))
		}
	})
}

func TestF6_EndlessConflict(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusConflict))
		h.SetPodStatus(h.addPod("web"), runningStatus())
		time.Sleep(time.Minute)
		if patches, gets := h.countRequests("PATCH"), h.countRequests("get"); patches < 5 || patches > 20 || gets > patches {
			t.Fatalf("got %d patches and %d gets in a minute, want 5 to 20, and no more gets than patches", patches, gets)
		}
	})
}

// confusedAPI returns another pod from the first patch.
type confusedAPI struct {
	status.API
	once sync.Once
}

func (c *confusedAPI) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	response, err := c.API.PatchPodStatus(ctx, namespace, name, patch)
	c.once.Do(func() {
		response = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "another", ResourceVersion: "999999"}}
	})
	return response, err
}

func TestF10_ResponseAboutAnotherPod(t *testing.T) {
	withHarness(t, func(c *status.Config) { c.API = &confusedAPI{API: c.API} }, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(time.Minute)
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Phase = v1.PodPending })
		time.Sleep(time.Minute)
		h.wantPhase(pod, v1.PodRunning)
	})
}
