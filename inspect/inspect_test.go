package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/inspect"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

// harness is a running agent with a runtime in memory and its inspector.
type harness struct {
	*inspect.Inspector
	agent   *agent.Agent
	runtime *execRuntime
	sink    source.Sink
	stop    func()
}

// execRuntime is a runtime whose commands fail. It records when they run.
type execRuntime struct {
	*fakeruntime.Runtime

	mu   sync.Mutex // guards runs
	runs []time.Time
}

// Exec implements check.Runtime.
func (r *execRuntime) Exec(context.Context, observed.ContainerID, []string) ([]byte, int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, time.Now())
	return []byte("db down"), 1, nil
}

func (r *execRuntime) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

// testSource hands its sink to the test.
type testSource struct{ sinks chan source.Sink }

func (testSource) Name() podid.Source { return podid.File }

func (s testSource) Run(ctx context.Context, sink source.Sink) error {
	sink.Replace(nil)
	s.sinks <- sink
	<-ctx.Done()
	return nil
}

// journal feeds the tally, as nodeagent does.
type journal struct{ *inspect.Tally }

func (j journal) Accepted(v status.Version) { j.Tally.Accepted(v.UID, v.Before, v.After, v.Time) }

func (journal) Acknowledged(podid.UID, uint64, time.Time) {}

func start(tb testing.TB) *harness {
	tb.Helper()
	h := &harness{runtime: &execRuntime{Runtime: fakeruntime.New()}}
	pods := testSource{make(chan source.Sink, 1)}
	tally := inspect.NewTally()
	var err error
	h.agent, err = agent.New(agent.Config{
		NodeName: "n1", Sources: []source.Source{pods}, Runtime: h.runtime, Events: event.Discard, Journal: journal{tally},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if h.Inspector, err = inspect.New(inspect.Config{Agent: h.agent, Tally: tally}); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = h.agent.Run(ctx) })
	h.sink = <-pods.sinks
	h.stop = func() { cancel(); running.Wait() }
	return h
}

// run calls test in a synctest bubble.
func run(t *testing.T, test func(*testing.T, *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := start(t)
		defer h.stop()
		test(t, h)
	})
}

// starts returns how many instances of the pod's containers were started.
func (h *harness) starts(t *testing.T) int {
	t.Helper()
	inspected, err := h.runtime.InspectPod(t.Context(), "u-web")
	if err != nil {
		t.Fatal(err)
	}
	return len(inspected.Containers)
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newPod(name string, mutate ...func(*v1.Pod)) *v1.Pod {
	return heraldtest.NewPod(name, append([]func(*v1.Pod){func(pod *v1.Pod) {
		pod.Namespace, pod.UID = "shop", types.UID("u-"+name)
		pod.Annotations = map[string]string{podid.SourceAnnotation: string(podid.File)}
		pod.Spec.Containers = []v1.Container{{Name: "main", Image: "web:1"}}
	}}, mutate...)...)
}

var web = podid.FullName{Namespace: "shop", Name: "web"}

func (h *harness) explain(t *testing.T, code string) explain.Verdict {
	t.Helper()
	verdict, found := h.Explain(t.Context(), web, explain.WhyNotReady)
	if !found || verdict.OK || verdict.Code != code {
		t.Fatalf("got %+v, %v; want %s", verdict, found, code)
	}
	return verdict
}

// The next step of the verdict is the next start of the worker: it happens then and not before.
func TestE3_CrashLoop(t *testing.T) {
	run(t, func(t *testing.T, h *harness) {
		h.runtime.SetScript("main", fakeruntime.Script{RunDuration: time.Second, ExitCode: 3})
		h.sink.Apply([]*v1.Pod{newPod("web")}, nil)
		advance(5 * time.Second)
		for range 4 {
			verdict := h.explain(t, explain.CodeCrashLoop)
			before := h.starts(t)
			advance(time.Until(verdict.Next.At) - 1)
			if got := h.starts(t); got != before {
				t.Fatalf("got %d starts before the instant, want %d", got, before)
			}
			advance(1)
			if got := h.starts(t); got != before+1 {
				t.Fatalf("got %d starts at the instant, want %d", got, before+1)
			}
			advance(3 * time.Second)
		}
		facts, _ := h.Facts(t.Context(), web)
		if got := facts.Recent["main"].Restarts; got != h.starts(t)-1 {
			t.Fatalf("got %d recent restarts, want %d", got, h.starts(t)-1)
		}
	})
}

// The next step of the verdict is the next check of the prober.
func TestE3_Readiness(t *testing.T) {
	run(t, func(t *testing.T, h *harness) {
		h.runtime.SetScript("main", fakeruntime.Script{})
		h.sink.Apply([]*v1.Pod{newPod("web", func(pod *v1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{
				ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ready"}}},
				PeriodSeconds: 7, FailureThreshold: 2,
			}
		})}, nil)
		advance(20 * time.Second)
		for range 3 {
			verdict := h.explain(t, explain.CodeReadinessFailing)
			before := h.runtime.count()
			advance(time.Until(verdict.Next.At) - 1)
			if got := h.runtime.count(); got != before {
				t.Fatalf("got %d checks before the instant, want %d", got, before)
			}
			advance(1)
			if got := h.runtime.count(); got != before+1 {
				t.Fatalf("got %d checks at the instant, want %d", got, before+1)
			}
			advance(time.Second)
		}
	})
}

// The next step of the verdict on a deletion is the kill at the end of the grace period.
func TestE3_Stopping(t *testing.T) {
	run(t, func(t *testing.T, h *harness) {
		h.runtime.SetScript("main", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		h.sink.Apply([]*v1.Pod{newPod("web", func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(40)) })}, nil)
		advance(5 * time.Second)
		h.sink.Apply(nil, []types.UID{"u-web"})
		advance(3 * time.Second)
		verdict, found := h.Explain(t.Context(), web, explain.WhyNotDeleted)
		if !found || verdict.Code != explain.CodeStopping {
			t.Fatalf("got %+v, want %s", verdict, explain.CodeStopping)
		}
		isRunning := func() bool {
			inspected, err := h.runtime.InspectPod(t.Context(), "u-web")
			return err == nil && inspected.Running()
		}
		advance(time.Until(verdict.Next.At) - 1)
		if !isRunning() {
			t.Fatal("got a kill before the instant")
		}
		advance(1)
		if isRunning() {
			t.Fatal("got no kill at the instant")
		}
	})
}

func TestPod_NotFound(t *testing.T) {
	run(t, func(t *testing.T, h *harness) {
		if _, found := h.Pod(t.Context(), web); found {
			t.Error("got a view of an unknown pod")
		}
		if verdict, found := h.Explain(t.Context(), web, explain.WhatIsWrong); found {
			t.Errorf("got %+v of an unknown pod", verdict)
		}
		if _, err := h.Restart(t.Context(), web, "main", ""); !errors.Is(err, inspect.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		if _, err := h.CheckProbe(t.Context(), web, "", ""); !errors.Is(err, inspect.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	})
}

// A view shows the status of LocalPods for every pod, also while pods come, change, crash and go.
func TestQ_AgreesWithLocalPods(t *testing.T) {
	h := start(t)
	defer h.stop()
	h.runtime.SetScript("main", fakeruntime.Script{RunDuration: 20 * time.Millisecond, ExitCode: 1})
	var churn sync.WaitGroup
	done := make(chan struct{})
	churn.Go(func() {
		defer close(done)
		for round := range 200 {
			name := "p" + strconv.Itoa(round%20)
			if round%3 == 2 {
				h.sink.Apply(nil, []types.UID{types.UID("u-" + name)})
			} else {
				h.sink.Apply([]*v1.Pod{newPod(name)}, nil)
			}
			h.agent.PLEG.Refresh(podid.UID("u-" + name))
		}
	})
	compared := 0
	compare := func() {
		before, views, after := statuses(h.agent), h.Pods(t.Context()), statuses(h.agent)
		for i := range views {
			uid := types.UID(views[i].Metadata.UID)
			old, wasThere := before[uid]
			if now, isThere := after[uid]; !wasThere || !isThere || !cmp.Equal(old, now) {
				continue // changed meanwhile
			}
			compared++
			if diff := cmp.Diff(old, views[i].Local.Status); diff != "" {
				t.Fatalf("%s:\n%s", uid, diff)
			}
		}
	}
	for isDone := false; !isDone; {
		select {
		case <-done:
			isDone = true
		default:
		}
		compare()
	}
	churn.Wait()
	heraldtest.Eventually(t, func() error {
		if compare(); compared == 0 {
			return errors.New("no pod was compared")
		}
		return nil
	})
	if len(h.Pods(t.Context())) != len(h.agent.LocalPods()) {
		heraldtest.Eventually(t, func() error {
			if got, want := len(h.Pods(t.Context())), len(h.agent.LocalPods()); got != want {
				return fmt.Errorf("got %d views of %d pods", got, want)
			}
			return nil
		})
	}
}

func statuses(a *agent.Agent) map[types.UID]v1.PodStatus {
	statuses := map[types.UID]v1.PodStatus{}
	for _, pod := range a.LocalPods() {
		statuses[pod.UID] = pod.Status
	}
	return statuses
}

// startMany returns a harness with pods that run.
func startMany(b *testing.B, count int) (*harness, []*v1.Pod) {
	b.Helper()
	h := start(b)
	h.runtime.SetScript("main", fakeruntime.Script{})
	var pods []*v1.Pod
	for i := range count {
		pods = append(pods, newPod("p"+strconv.Itoa(i)))
	}
	h.sink.Apply(pods, nil)
	heraldtest.Eventually(b, func() error {
		for _, pod := range h.agent.LocalPods() {
			if pod.Status.Phase != v1.PodRunning {
				return fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
			}
		}
		if got := len(h.agent.LocalPods()); got != len(pods) {
			return fmt.Errorf("got %d pods", got)
		}
		return nil
	})
	return h, pods
}

// BenchmarkPods500 lists 500 pods that run. The goal is 20 ms.
func BenchmarkPods500(b *testing.B) {
	h, pods := startMany(b, 500)
	defer h.stop()
	for b.Loop() {
		if got := h.Pods(b.Context()); len(got) != len(pods) {
			b.Fatalf("got %d pods", len(got))
		}
	}
}

// BenchmarkPodVersion builds the view that rules are evaluated with at a version of a status. The goal is 15 us.
func BenchmarkPodVersion(b *testing.B) {
	h, _ := startMany(b, 110)
	defer h.stop()
	pod := h.agent.LocalPods()[0]
	now := time.Now()
	for b.Loop() {
		if got := h.PodVersion(pod, &pod.Status, 7, now); got.Local.Version != 7 {
			b.Fatalf("got version %d", got.Local.Version)
		}
	}
}

// BenchmarkNodeNow builds the view that rules of the node are evaluated with.
func BenchmarkNodeNow(b *testing.B) {
	h, pods := startMany(b, 110)
	defer h.stop()
	for b.Loop() {
		if got := h.NodeNow(); got.Pods.Total != len(pods) {
			b.Fatalf("got %d pods", got.Pods.Total)
		}
	}
}

// TestPodVersion compares the view for rules with that of a question.
func TestPodVersion(t *testing.T) {
	run(t, func(t *testing.T, h *harness) {
		h.runtime.SetScript("main", fakeruntime.Script{})
		h.sink.Apply([]*v1.Pod{newPod("web")}, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want, found := h.Pod(t.Context(), podid.FullName{Namespace: "shop", Name: "web"})
		if !found {
			t.Fatal("no pod")
		}
		want.Local.Summary, want.Synced = "", nil
		now, found := h.PodNow("u-web")
		if diff := cmp.Diff(&want, now); !found || diff != "" {
			t.Errorf("found %t, view for rules:\n%s", found, diff)
		}
		pod := h.agent.LocalPods()[0]
		version := h.PodVersion(pod, &v1.PodStatus{Phase: v1.PodFailed}, 3, time.Now())
		if version.Local.Status.Phase != v1.PodFailed || version.Local.Version != 3 || version.Worker.Stage != want.Worker.Stage {
			t.Errorf("got %s of version %d, stage %s", version.Local.Status.Phase, version.Local.Version, version.Worker.Stage)
		}
		if _, found := h.PodNow("u-other"); found {
			t.Error("got a view of a pod that does not exist")
		}
		node, full := h.NodeNow(), h.Node(t.Context())
		if node.Pods.Total != full.Pods.Total || node.Runtime.Stale || node.Runtime.Problem != full.Runtime.Problem {
			t.Errorf("got %+v, want %+v", node.Pods, full.Pods)
		}
	})
}
