package action_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
)

// fakeNode has pods with one container and carries actions out by noting them.
type fakeNode struct {
	mu       sync.Mutex
	dir      string // of the ledger
	pods     map[podid.FullName]*view.PodView
	deeds    []string
	unsafe   []string // deeds without an intent on disk
	takes    time.Duration
	err      error
	onDo     func(action.Request)
	records  []action.Record
	changes  int
	isHidden bool // the runtime does not answer
	looks    int  // how often somebody asked for the node or a pod
}

func (n *fakeNode) addPod(name string, change func(*view.PodView)) {
	started := metav1.NewTime(time.Now().Add(-time.Hour))
	pod := &view.PodView{
		Metadata: view.Metadata{Namespace: "shop", Name: name, OwnerKind: "ReplicaSet"},
		Spec:     view.Spec{RestartPolicy: "Always", Containers: []view.Container{{Name: "app", Kind: "regular"}}},
		Worker:   view.Worker{Stage: "sync"},
	}
	pod.Local.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: &started, ContainerStatuses: []v1.ContainerStatus{
		{Name: "app", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: started}}},
	}}
	if change != nil {
		change(pod)
	}
	n.pods[podid.FullName{Namespace: pod.Metadata.Namespace, Name: name}] = pod
}

func (n *fakeNode) Pod(_ context.Context, name podid.FullName) (view.PodView, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	pod, found := n.pods[name]
	if !found {
		return view.PodView{}, false
	}
	return *pod, true
}

func (n *fakeNode) Node(context.Context) view.NodeView {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	return view.NodeView{Pods: view.PodCounts{Total: len(n.pods)}, Runtime: view.Runtime{Stale: n.isHidden}}
}

// Do notes the deed, and whether its intent is in the file.
func (n *fakeNode) Do(ctx context.Context, request action.Request) (string, error) {
	text, err := os.ReadFile(filepath.Join(n.dir, "actions"))
	intent := fmt.Sprintf(`"id":%d,`, request.ID)
	n.mu.Lock()
	deed := fmt.Sprintf("%s %s", request.Type, request.Object)
	n.deeds = append(n.deeds, deed)
	if err != nil || !strings.Contains(string(text), intent) || !strings.Contains(string(text), string(request.Type)) {
		n.unsafe = append(n.unsafe, deed)
	}
	onDo := n.onDo
	takes, deedErr := n.takes, n.err
	n.mu.Unlock()
	if onDo != nil {
		onDo(request)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return "done by the test", deedErr
}

func (n *fakeNode) taken() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.deeds)
}

// lookCount returns how often somebody asked for the node or a pod.
func (n *fakeNode) lookCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.looks
}

// recorded returns the records until now.
func (n *fakeNode) recorded() []action.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.records)
}

// harness is an actor with a ledger in a real directory.
type harness struct {
	*testing.T
	*fakeNode
	actor *action.Actor
	stop  func()
	never bool
}

func newHarness(t *testing.T) *harness {
	h := &harness{T: t, fakeNode: &fakeNode{dir: t.TempDir(), pods: map[podid.FullName]*view.PodView{}}}
	return h
}

func (h *harness) start() {
	h.Helper()
	dir, err := checkpoint.Open(h.dir, checkpoint.Options{})
	if err != nil {
		h.Fatal(err)
	}
	h.actor, err = action.New(action.Config{
		State: dir, Views: h.fakeNode, Deeds: h.fakeNode, NeverEnforce: h.never,
		Now: func() remedy.Instant {
			return remedy.Instant{At: time.Now(), Boot: "b", UptimeMs: time.Since(epoch).Milliseconds()}
		},
		OnRecord: func(r action.Record) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.records = append(h.records, r)
		},
		OnChange: func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.changes++
		},
	})
	if err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.actor.Run(ctx); err != nil {
			h.Error(err)
		}
	}()
	h.stop = func() {
		cancel()
		<-done
		if err := dir.Close(); err != nil {
			h.Error(err)
		}
	}
}

// epoch is the time at which a synctest bubble begins: the boot of the machine.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// run runs a test with an actor that was started an hour ago.
func run(t *testing.T, prepare func(h *harness), test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		if prepare != nil {
			prepare(h)
		}
		h.start()
		defer func() { h.stop() }()
		h.wait(time.Hour)
		test(h)
		if len(h.unsafe) > 0 {
			t.Errorf("R1: got deeds %v without an intent on disk", h.unsafe)
		}
	})
}

func (h *harness) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newAlert(name, pod string, episode uint64) alert.Alert {
	labels := alert.Labels{alert.LabelName: name, alert.LabelScope: "node"}
	if pod != "" {
		labels = alert.Labels{
			alert.LabelName: name, alert.LabelNamespace: "shop", alert.LabelPod: pod, alert.LabelContainer: "app", alert.LabelScope: "container",
		}
	}
	return alert.Alert{Labels: labels, State: alert.Firing, StartsAt: time.Now(), Episode: episode}
}

func enforce(types ...remedy.Type) []rule.Action {
	actions := make([]rule.Action, len(types))
	for i, t := range types {
		actions[i] = rule.Action{Policy: remedy.Policy{Type: t, Enforce: true}}
	}
	return actions
}

func (h *harness) wantDeeds(want ...string) {
	h.Helper()
	synctest.Wait()
	if got := h.taken(); !slices.Equal(got, want) {
		h.Fatalf("got deeds %q, want %q", got, want)
	}
}

// outcomes returns the outcomes of the actions, oldest first.
func (h *harness) outcomes() []string {
	var outcomes []string
	for _, record := range slices.Backward(h.actor.List(0)) {
		text := string(record.Type) + " " + string(record.Decision) + " " + string(record.Outcome) + string(record.Reason)
		outcomes = append(outcomes, strings.TrimSpace(text))
	}
	return outcomes
}

func (h *harness) wantOutcomes(want ...string) {
	h.Helper()
	synctest.Wait()
	if got := h.outcomes(); !slices.Equal(got, want) {
		h.Fatalf("got %q, want %q", got, want)
	}
}

// TestActor_Restart follows one alert: a snapshot at once, a restart after 30 seconds, verification, and the end.
func TestActor_Restart(t *testing.T) {
	run(t, func(h *harness) { h.addPod("web", nil) }, func(h *harness) {
		fired := newAlert("Stuck", "web", 1)
		h.actor.Fired(fired, enforce(remedy.Snapshot, remedy.RestartContainer), nil)
		h.wantDeeds("snapshot shop/web")
		h.wait(30*time.Second - 1)
		h.wantDeeds("snapshot shop/web")
		h.wait(1)
		h.wantDeeds("snapshot shop/web", "restart-container shop/web app")
		h.wantOutcomes("snapshot do done", "restart-container do done")
		h.wait(time.Minute)
		h.actor.Resolved(fired)
		h.wait(5 * time.Minute)
		h.wantOutcomes("snapshot do done", "restart-container do helped")
		h.wait(24 * time.Hour)
		h.wantDeeds("snapshot shop/web", "restart-container shop/web app")
	})
}

// TestActor_DidNotHelp: twice in a row without help, the action is off for the object for 24 hours.
func TestActor_DidNotHelp(t *testing.T) {
	run(t, func(h *harness) { h.addPod("web", nil); h.addPod("cart", nil) }, func(h *harness) {
		h.actor.Fired(newAlert("Stuck", "web", 1), enforce(remedy.RestartContainer), nil)
		h.wait(20 * time.Minute)
		const deed = "restart-container shop/web app"
		h.wantDeeds(deed, deed)
		h.wantOutcomes("restart-container do not-helped", "restart-container refuse CoolDown", "restart-container do not-helped",
			"restart-container refuse Exhausted")
		if state := h.actor.State(); len(state.Exhausted) != 1 || state.Exhausted[0].Pod != "web" || h.changes == 0 {
			t.Fatalf("got %+v and %d changes, want one exhausted object", state, h.changes)
		}
		h.wait(23 * time.Hour)
		h.wantDeeds(deed, deed)
		h.actor.Fired(newAlert("Stuck", "cart", 1), enforce(remedy.RestartContainer), nil)
		h.wait(31 * time.Second)
		h.wantDeeds(deed, deed, "restart-container shop/cart app")
		h.wait(2 * time.Hour)
		if got := len(h.taken()); got < 4 {
			t.Fatalf("got %d deeds, want another one after 24 hours", got)
		}
	})
}

func TestActor_Recovering(t *testing.T) {
	run(t, func(h *harness) { h.addPod("web", nil) }, func(h *harness) {
		fired := newAlert("Stuck", "web", 1)
		h.actor.Fired(fired, enforce(remedy.RestartContainer), nil)
		h.wait(time.Minute)
		fired.State = alert.Recovering
		h.actor.Fired(fired, enforce(remedy.RestartContainer), nil)
		h.wait(time.Hour)
		h.wantDeeds("restart-container shop/web app")
		h.wantOutcomes("restart-container do helped")
	})
}

// TestActor_Refusals: what the deed's own authority refuses counts against the limits, but not as "did not help".
func TestActor_Refusals(t *testing.T) {
	run(t, func(h *harness) {
		h.addPod("web", nil)
		h.err = fmt.Errorf("%w: disruption budget", action.ErrRefused)
	}, func(h *harness) {
		h.actor.Fired(newAlert("Stuck", "web", 1), enforce(remedy.RestartPod), nil)
		h.wait(time.Hour)
		h.wantDeeds("restart-pod shop/web", "restart-pod shop/web")
		if state := h.actor.State(); len(state.Exhausted) != 0 {
			t.Errorf("got %+v exhausted", state.Exhausted)
		}
		if got := h.actor.List(1)[0]; got.Decision != remedy.Refuse || got.Reason != remedy.ReasonCoolDown {
			t.Errorf("got %+v, want a refusal by the cool-down", got)
		}
		list, err := h.actor.Actions(t.Context(), 0)
		if err != nil || len(list.Items) < 3 || list.Items[0].Decision != "refuse" || list.Items[0].Reason != "CoolDown" ||
			list.Items[0].Message == "" || list.Items[0].ID != "" || list.Items[0].Object != "shop/web" || list.Items[0].Rule != "Stuck" {
			t.Errorf("got %+v, %v", list, err)
		}
		if last := list.Items[len(list.Items)-1]; last.ID != "1" || last.Outcome != "refused" || last.Decision != "do" {
			t.Errorf("got %+v, want the first action", last)
		}
	})
}

func TestActor_OnlyIf(t *testing.T) {
	run(t, func(h *harness) { h.addPod("web", nil) }, func(h *harness) {
		actions := enforce(remedy.RestartContainer)
		actions[0].OnlyIf = "container.restarts < 20"
		var mu sync.Mutex
		isAllowed, problem := false, error(nil)
		h.actor.Fired(newAlert("Stuck", "web", 1), actions, func(int) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			return isAllowed, problem
		})
		h.wait(10 * time.Minute)
		h.wantOutcomes("restart-container refuse OnlyIf")
		mu.Lock()
		isAllowed, problem = true, errors.New("no such fact")
		mu.Unlock()
		h.wait(10 * time.Minute)
		h.wantDeeds()
		mu.Lock()
		problem = nil
		mu.Unlock()
		h.wait(time.Minute)
		h.wantDeeds("restart-container shop/web app")
	})
}

func TestActor_Muted(t *testing.T) {
	run(t, func(h *harness) { h.addPod("web", nil) }, func(h *harness) {
		fired := newAlert("Stuck", "web", 1)
		fired.Mute.SilencedBy = []string{"s1"}
		h.actor.Fired(fired, enforce(remedy.Snapshot, remedy.RestartContainer), nil)
		h.wait(time.Hour)
		h.wantDeeds()
		fired.Mute = alert.Mute{}
		h.actor.Fired(fired, enforce(remedy.Snapshot, remedy.RestartContainer), nil)
		h.wait(time.Second)
		if got := h.taken(); len(got) != 2 {
			t.Fatalf("got %q, want both", got)
		}
	})
}

// TestActor_OneAtATime: a disruptive action waits for the end of another one.
func TestActor_OneAtATime(t *testing.T) {
	var running, most int
	run(t, func(h *harness) {
		for i := range 40 {
			h.addPod(fmt.Sprintf("web-%02d", i), nil)
		}
		h.takes = time.Minute
		h.onDo = func(action.Request) {
			h.mu.Lock()
			defer h.mu.Unlock()
			running++
			most = max(most, running)
			time.AfterFunc(time.Minute-1, func() { h.mu.Lock(); running--; h.mu.Unlock() })
		}
	}, func(h *harness) {
		h.actor.Fired(newAlert("A", "web-00", 1), enforce(remedy.RestartContainer), nil)
		h.actor.Fired(newAlert("B", "web-01", 1), enforce(remedy.RestartPod), nil)
		h.actor.Fired(newAlert("C", "", 1), enforce(remedy.Cordon), nil)
		h.wait(10 * time.Minute)
		if got := h.taken(); len(got) != 3 || most != 1 {
			t.Fatalf("got %q, %d at once; want three, one at a time", got, most)
		}
	})
}

// TestActor_StartOfRun: nothing disruptive in the first two minutes, also if the alert is older.
func TestActor_StartOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.addPod("web", nil)
		h.start()
		fired := newAlert("Stuck", "web", 1)
		fired.StartsAt = time.Now().Add(-time.Hour)
		h.actor.Fired(fired, enforce(remedy.RestartContainer), nil)
		h.wait(2*time.Minute - 1)
		h.wantDeeds()
		h.wait(1)
		h.wantDeeds("restart-container shop/web app")
		h.stop()
	})
}

// TestR2_Restarts: the ledger of an earlier run limits this one.
func TestR2_Restarts(t *testing.T) {
	run(t, func(h *harness) { h.addPod("web", nil) }, func(h *harness) {
		fired := newAlert("Stuck", "web", 1)
		actions := enforce(remedy.Snapshot, remedy.RestartContainer)
		h.actor.Fired(fired, actions, nil)
		h.wait(time.Minute)
		h.wantDeeds("snapshot shop/web", "restart-container shop/web app")
		for range 2 {
			h.stop()
			h.start()
			h.actor.Fired(fired, actions, nil)
			h.wait(4 * time.Minute)
			h.wantDeeds("snapshot shop/web", "restart-container shop/web app")
		}
		h.wantOutcomes("snapshot do done", "restart-container do not-helped", "restart-container refuse CoolDown")
		h.wait(2 * time.Minute)
		if got := h.taken(); len(got) != 3 || got[2] != "restart-container shop/web app" {
			t.Fatalf("got %q, want another restart after the cool-down, but no other snapshot", got)
		}
	})
}

// TestR4_ManyAtOnce: of 100 pods that fail together at most one is acted upon, and all other rules wait, too.
func TestR4_ManyAtOnce(t *testing.T) {
	run(t, func(h *harness) {
		for i := range 100 {
			h.addPod(fmt.Sprintf("web-%02d", i), nil)
		}
	}, func(h *harness) {
		for i := range 100 {
			h.actor.Fired(newAlert("Stuck", fmt.Sprintf("web-%02d", i), 1), enforce(remedy.RestartContainer), nil)
			h.wait(100 * time.Millisecond)
		}
		h.wait(3 * time.Hour)
		if got := h.taken(); len(got) > 1 {
			t.Fatalf("got %d deeds, want at most one", len(got))
		}
		if state := h.actor.State(); state.Suspended == "" {
			t.Fatal("got no suspension while all pods fire")
		}
		other := newAlert("Other", "web-07", 1)
		h.actor.Fired(other, enforce(remedy.RestartContainer), nil)
		for i := range 100 {
			h.actor.Resolved(newAlert("Stuck", fmt.Sprintf("web-%02d", i), 1))
		}
		h.wait(29 * time.Minute)
		if state := h.actor.State(); state.Suspended == "" || len(h.taken()) > 1 {
			t.Fatalf("got %+v and %d deeds before 30 minutes of calm", state, len(h.taken()))
		}
		h.wait(12 * time.Minute)
		if got := h.taken(); h.actor.State().Suspended != "" || len(got) == 0 || got[len(got)-1] != "restart-container shop/web-07 app" {
			t.Fatalf("got %q, want the action of the other rule after the calm", got)
		}
	})
}

// TestActor_Resume: somebody ends the suspension; what fired before does not begin another one.
func TestActor_Resume(t *testing.T) {
	run(t, func(h *harness) {
		for i := range 10 {
			h.addPod(fmt.Sprintf("web-%d", i), nil)
		}
	}, func(h *harness) {
		for i := range 4 {
			h.actor.Fired(newAlert("Stuck", fmt.Sprintf("web-%d", i), 1), enforce(remedy.RestartContainer), nil)
		}
		h.wait(time.Minute)
		h.wantDeeds()
		h.stop()
		h.start() // the suspension survives
		for i := range 4 {
			fired := newAlert("Stuck", fmt.Sprintf("web-%d", i), 1)
			fired.StartsAt = time.Now().Add(-time.Minute)
			h.actor.Fired(fired, enforce(remedy.RestartContainer), nil)
		}
		h.wait(3 * time.Minute)
		h.wantDeeds()
		if was, err := h.actor.Resume(h.Context(), "root"); !was || err != nil {
			t.Fatalf("got %v, %v, want a suspension", was, err)
		}
		h.wait(time.Second)
		h.wantDeeds("restart-container shop/web-0 app")
		if was, err := h.actor.Resume(h.Context(), "root"); was || err != nil {
			t.Fatalf("got %v, %v, want none", was, err)
		}
		h.wait(10 * time.Minute)
		if got := len(h.taken()); got != 2 {
			t.Fatalf("got %d deeds, want one of ten pods in 10 minutes", got)
		}
	})
}

// TestR5_DryRun: a dry-run is written down once for each firing and does nothing.
func TestR5_DryRun(t *testing.T) {
	for _, never := range []bool{false, true} {
		run(t, func(h *harness) { h.addPod("web", nil); h.never = never }, func(h *harness) {
			var actions []rule.Action
			for _, kind := range remedy.Types() {
				policy := remedy.Policy{Type: kind, Enforce: never && kind.IsDisruptive()} // the agent's configuration is stronger
				if kind.HasTarget() {
					policy.Target = "x"
				}
				actions = append(actions, rule.Action{Policy: policy})
			}
			fired := newAlert("Stuck", "web", 1)
			h.actor.Fired(fired, actions, nil)
			h.wait(3 * time.Hour)
			h.actor.Resolved(fired)
			h.wait(time.Hour)
			h.wantDeeds()
			records := slices.DeleteFunc(h.actor.List(0), func(r action.Record) bool { return r.Decision == remedy.Refuse }) // waits for another
			if len(records) != len(actions) {
				t.Fatalf("got %d records, want %d", len(records), len(actions))
			}
			for _, record := range records {
				if record.Decision != remedy.DryRun || record.Outcome != remedy.Done || record.ID == 0 {
					t.Errorf("got %+v, want a dry-run", record)
				}
			}
			if state := h.actor.State(); len(state.Cordoned) != 0 {
				t.Errorf("got %+v, want no cordon", state)
			}
		})
	}
}

// TestR6_Cordon: the cordon is undone when its alert is resolved, after a start without the alert, and again until that succeeds.
func TestR6_Cordon(t *testing.T) {
	run(t, nil, func(h *harness) {
		fired := newAlert("DiskBroken", "", 1)
		h.actor.Fired(fired, enforce(remedy.Cordon), nil)
		h.wait(time.Minute)
		h.wantDeeds("cordon the node")
		h.stop()
		h.start()
		h.actor.Fired(fired, enforce(remedy.Cordon), nil)
		h.wait(time.Hour)
		h.wantDeeds("cordon the node")
		h.stop()
		h.start() // the rule is gone, and with it the alert
		h.wait(2 * time.Minute)
		h.wantDeeds("cordon the node")
		h.mu.Lock()
		h.err = errors.New("no API server")
		h.mu.Unlock()
		h.wait(90 * time.Second)
		h.wantDeeds("cordon the node", "uncordon the node")
		h.mu.Lock()
		h.err = nil
		h.mu.Unlock()
		h.wait(time.Hour)
		h.wantDeeds("cordon the node", "uncordon the node", "uncordon the node")
		if state := h.actor.State(); len(state.Cordoned) != 0 {
			t.Errorf("got %+v, want no cordon", state)
		}
		h.wait(6 * time.Hour)
		fired.Episode++
		fired.StartsAt = time.Now()
		h.actor.Fired(fired, enforce(remedy.Cordon), nil)
		h.wait(time.Minute)
		h.actor.Resolved(fired)
		h.wait(time.Second)
		h.wantDeeds("cordon the node", "uncordon the node", "uncordon the node", "cordon the node", "uncordon the node")
	})
}

func TestActor_DamagedLedger(t *testing.T) {
	run(t, func(h *harness) { h.addPod("web", nil) }, func(h *harness) {
		h.actor.Fired(newAlert("Stuck", "web", 1), enforce(remedy.RestartContainer), nil)
		h.wait(time.Minute)
		h.stop()
		path := filepath.Join(h.dir, "actions")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)/2] ^= 0x55
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		h.start()
		if state := h.actor.State(); !strings.Contains(state.Suspended, "damaged") {
			t.Errorf("got %+v, want a suspension", state)
		}
		h.actor.Fired(newAlert("Stuck", "web", 1), enforce(remedy.RestartContainer), nil)
		h.wait(29 * time.Minute)
		h.wantDeeds("restart-container shop/web app")
	})
}

// TestR1_UnwritableLedger: without an intent on disk there is no deed.
func TestR1_UnwritableLedger(t *testing.T) {
	run(t, func(h *harness) { h.addPod("web", nil) }, func(h *harness) {
		blocker := filepath.Join(h.dir, "actions")
		if err := os.Mkdir(blocker, 0o700); err != nil {
			t.Fatal(err)
		}
		h.actor.Fired(newAlert("Stuck", "web", 1), enforce(remedy.Snapshot, remedy.RestartContainer), nil)
		h.wait(10 * time.Minute)
		h.wantDeeds()
		if err := os.Remove(blocker); err != nil {
			t.Fatal(err)
		}
		h.wait(time.Minute)
		if got := len(h.taken()); got != 2 {
			t.Fatalf("got %d deeds, want both once the ledger can be written", got)
		}
	})
}

func TestActor_Panic(t *testing.T) {
	run(t, func(h *harness) {
		h.addPod("web", nil)
		h.onDo = func(action.Request) { panic("broken deed") }
	}, func(h *harness) {
		h.actor.Fired(newAlert("Stuck", "web", 1), enforce(remedy.Snapshot), nil)
		h.wait(time.Minute)
		h.wantOutcomes("snapshot do failed")
	})
}

// TestActor_Protected: protected pods are never acted upon, and what is not known refuses.
func TestActor_Protected(t *testing.T) {
	run(t, func(h *harness) {
		h.addPod("critical", func(p *view.PodView) { p.Spec.Priority = 2_000_001_000 })
		h.addPod("never", func(p *view.PodView) { p.Metadata.Annotations = map[string]string{remedy.OptOutAnnotation: "never"} })
		h.addPod("deleted", func(p *view.PodView) { p.Metadata.DeletionTimestamp = view.NewTime(time.Now()) })
		h.addPod("ending", func(p *view.PodView) { p.Worker.Stage = "terminating" })
	}, func(h *harness) {
		for _, pod := range []string{"critical", "never", "deleted", "ending", "gone"} {
			h.actor.Fired(newAlert("Stuck", pod, 1), enforce(remedy.RestartContainer, remedy.RestartPod), nil)
			h.wait(10 * time.Minute)
		}
		h.wantDeeds()
		h.mu.Lock()
		h.isHidden = true
		h.addPod("web", nil)
		h.mu.Unlock()
		h.actor.Fired(newAlert("Stuck", "web", 1), enforce(remedy.RestartContainer), nil)
		h.wait(10 * time.Minute)
		h.wantDeeds()
	})
}
