package manager_test

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

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/manager"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a node with pods. It survives restarts of the manager. It is what the manager asks and tells.
type machine struct {
	*testing.T
	dir   string // of the checkpoints
	rules string // folder

	manager *manager.Manager
	kill    func() // ends the manager without a last save: what is on disk is copied before
	stop    func()

	mu       sync.Mutex // guards all below
	node     view.NodeView
	statuses map[podid.UID]*v1.PodStatus
	version  uint64
	told     []string // what the notifier and others were told, in order
	current  map[string]alert.State
	allows   map[string]func(int) (bool, error)
	onUpdate func()
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{
		T: t, dir: t.TempDir(), rules: t.TempDir(), statuses: map[podid.UID]*v1.PodStatus{}, current: map[string]alert.State{},
		allows: map[string]func(int) (bool, error){},
	}
	m.node.Metadata.Name = "n1"
	return m
}

const crashRule = `
  - alert: Crashing
    on: container
    expr: container.restarted('10m') >= 3
    labels: {severity: warning}
    annotations: {summary: it crashes}
`

func ruleFile(rules string) string {
	return "apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: test\n  rules:" + rules
}

func (m *machine) write(name, content string) {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.rules, name), []byte(content), 0o600); err != nil {
		m.Fatal(err)
	}
}

// noWatcher fails: the bubbles of synctest cannot wait for files.
func noWatcher() (*fsnotify.Watcher, error) { return nil, errors.New("no watcher") }

// start starts a manager on the state of the last one.
func (m *machine) start(change ...func(*manager.Config)) {
	m.Helper()
	state, err := checkpoint.Open(m.dir, checkpoint.Options{})
	if err != nil {
		m.Fatal(err)
	}
	config := manager.Config{NodeName: "n1", Views: m, Paths: []string{m.rules}, NoDefaults: true, State: state, Notifier: m, Actor: m, Journal: m, NewWatcher: noWatcher}
	for _, c := range change {
		c(&config)
	}
	if m.manager, err = manager.New(config); err != nil {
		m.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.manager.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		if err := state.Close(); err != nil {
			m.Error(err)
		}
	})
	m.kill = func() {
		m.Helper()
		copied := m.TempDir()
		if err := os.CopyFS(copied+"/state", os.DirFS(m.dir)); err != nil {
			m.Fatal(err)
		}
		m.stop()
		m.dir = copied + "/state"
	}
	synctest.Wait()
}

// set gives a pod a status with this number of restarts, which ended at once.
func (m *machine) set(name string, restarts int32) {
	m.Helper()
	uid := podid.UID("u-" + name)
	status := &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
		Name: "main", RestartCount: restarts, ContainerID: fmt.Sprintf("test://%s-%d", name, restarts),
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}}
	if restarts > 0 {
		status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{
			Reason: "Error", ExitCode: 1, ContainerID: fmt.Sprintf("test://%s-%d", name, restarts-1),
		}
	}
	m.mu.Lock()
	before := m.statuses[uid]
	m.statuses[uid] = status
	m.version++
	version := manager.Version{UID: uid, Pod: newPod(name), Before: before, After: status, Version: m.version, Time: time.Now()}
	m.mu.Unlock()
	m.manager.PodVersion(version)
}

func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
}

func (m *machine) remove(name string) {
	uid := podid.UID("u-" + name)
	m.mu.Lock()
	last := m.statuses[uid]
	delete(m.statuses, uid)
	m.mu.Unlock()
	m.manager.PodVersion(manager.Version{UID: uid, Pod: newPod(name), Before: last, After: last, Time: time.Now(), Removed: true})
	synctest.Wait()
}

func (m *machine) PodVersion(pod *v1.Pod, status *v1.PodStatus, version uint64, at time.Time) *view.PodView {
	v := &view.PodView{Metadata: view.Metadata{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}}
	v.Spec.Containers = []view.Container{{Name: "main", Kind: "regular"}}
	v.Local = view.Status{Version: version, At: view.NewTime(at), Status: *status}
	return v
}

func (m *machine) PodNow(uid podid.UID) (*view.PodView, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	status, found := m.statuses[uid]
	if !found {
		return nil, false
	}
	return m.PodVersion(newPod(strings.TrimPrefix(string(uid), "u-")), status, m.version, time.Now()), true
}

func (m *machine) NodeNow() *view.NodeView {
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.node
	node.Alerting = m.manager.Alerting()
	return &node
}

func (m *machine) setNode(change func(*view.NodeView)) {
	m.mu.Lock()
	change(&m.node)
	m.mu.Unlock()
	m.manager.NodeChanged()
	synctest.Wait()
}

func (m *machine) Describe(_ context.Context, pod podid.FullName, container string) (string, []string) {
	return pod.Key() + " " + container + " is broken", slices.Repeat([]string{"line"}, 12)
}

func (m *machine) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, fmt.Sprintf(format, args...))
}

func (m *machine) Update(alerts []alert.Alert) {
	for _, a := range alerts {
		m.note("update %s %s %s", a.Labels["alertname"], a.Labels["pod"], a.State)
		m.mu.Lock()
		m.current[a.Key()] = a.State
		onUpdate := m.onUpdate
		m.mu.Unlock()
		if onUpdate != nil {
			onUpdate()
		}
	}
}

func (m *machine) Reconcile(all []alert.Alert) { m.note("reconcile %d", len(all)) }

func (m *machine) Failing() int { return 0 }

func (m *machine) Deliveries() map[string][]alert.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	deliveries := map[string][]alert.Delivery{}
	for key := range m.current {
		deliveries[key] = []alert.Delivery{{Receiver: "hook", State: alert.Failing, Problem: "500", NextTry: time.Now().Add(time.Minute)}}
	}
	return deliveries
}

func (m *machine) Fired(a alert.Alert, actions []rule.Action, allows func(int) (bool, error)) {
	m.note("fired %s %d", a.Labels["alertname"], len(actions))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allows[a.Labels["alertname"]] = allows
}

func (m *machine) Resolved(a alert.Alert) { m.note("resolved %s", a.Labels["alertname"]) }

func (m *machine) AlertChanged(a *alert.Alert, _ time.Time) {
	m.note("record %s %s %s", a.Labels["alertname"], a.State, a.Reason)
}

func (m *machine) RulesChanged(path, message string) {
	m.note("rules %s broken: %t", filepath.Base(path), message != "")
}

// take returns what was told since the last call.
func (m *machine) take() []string {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	told := m.told
	m.told = nil
	return told
}

func (m *machine) wantTold(want ...string) {
	m.Helper()
	if got := m.take(); !slices.Equal(got, want) {
		m.Errorf("got %q, want %q", got, want)
	}
}

// wait lets time pass.
func (m *machine) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func run(t *testing.T, test func(*machine)) {
	t.Helper()
	m := newMachine(t)
	m.write("a.yaml", ruleFile(crashRule))
	synctest.Test(t, func(t *testing.T) {
		m.T = t
		m.start()
		defer func() { m.stop() }()
		m.manager.KnownPods(nil)
		m.manager.KnownPods(map[types.UID]bool{})
		m.take()
		test(m)
	})
}

func TestManager_FiresAndResolves(t *testing.T) {
	run(t, func(m *machine) {
		for restarts := range int32(4) {
			m.set("web", restarts)
		}
		m.wantTold("record Crashing firing ", "update Crashing web firing", "fired Crashing 0")
		alerts := m.manager.Alerts()
		if len(alerts) != 1 || alerts[0].Annotations["explain"] != "shop/web main is broken" ||
			strings.Count(alerts[0].Annotations["last_log"], "line") != 10 || alerts[0].Annotations["summary"] != "it crashes" {
			t.Fatalf("got %+v, want one with all annotations", alerts)
		}
		if got := alerts[0].Deliveries; len(got) != 1 || got[0].Receiver != "hook" || got[0].State != "failing" || got[0].NextTry == nil {
			t.Errorf("got deliveries %+v, want that of the webhook", got)
		}
		if got := m.manager.Alerting(); got.Firing != 1 || got.Rules != 1 {
			t.Errorf("got %+v, want one firing", got)
		}
		m.wait(11 * time.Minute)
		m.wantTold("record Crashing resolved ", "update Crashing web resolved", "resolved Crashing")
	})
}

// A1, A5: an alert is on disk before it is told, comes back as it was, and is resolved if its object is gone.
func TestA5_Killed(t *testing.T) {
	run(t, func(m *machine) {
		m.mu.Lock()
		m.onUpdate = func() { // the manager is killed when the first receiver hears of the alert
			m.mu.Lock()
			defer m.mu.Unlock()
			m.onUpdate = nil
			if err := os.CopyFS(m.rules+"/../killed", os.DirFS(m.dir)); err != nil {
				t.Error(err)
			}
		}
		m.mu.Unlock()
		for restarts := range int32(4) {
			m.set("web", restarts)
		}
		m.wantTold("record Crashing firing ", "update Crashing web firing", "fired Crashing 0")
		startsAt := m.manager.Alerts()[0].StartsAt
		m.stop()
		m.dir = m.rules + "/../killed"
		time.Sleep(time.Minute)
		m.start()
		m.wantTold("update Crashing web firing", "fired Crashing 0")
		if got := m.manager.Alerts()[0].StartsAt; !got.Equal(startsAt) {
			t.Errorf("got start %v, want %v", got, startsAt)
		}
		m.set("web", 4)
		m.manager.KnownPods(map[types.UID]bool{"u-web": true})
		m.wantTold("reconcile 1")
		m.kill()
		m.start()
		m.take()
		m.manager.KnownPods(map[types.UID]bool{})
		m.wantTold("record Crashing resolved object gone", "update Crashing web resolved", "resolved Crashing", "reconcile 1")
		if got := m.manager.Alerts()[0].StartsAt; !got.Equal(startsAt) {
			t.Errorf("got start %v, want %v", got, startsAt)
		}
	})
}

// A5: a restart and an end that an alert has counted, but that the restored status of the pod does not have yet, are not counted again.
func TestA5_KilledBeforeStatusSaved(t *testing.T) {
	m := newMachine(t)
	var rules strings.Builder
	for _, function := range []string{"restarted(", "ended('Error', "} {
		for count := 2; count <= 3; count++ {
			fmt.Fprintf(&rules, "\n  - alert: %s%d\n    on: container\n    expr: container.%s'10m') >= %d", function[:5], count, function, count)
		}
	}
	m.write("a.yaml", ruleFile(rules.String()+"\n"))
	synctest.Test(t, func(t *testing.T) {
		m.T = t
		m.start()
		defer func() { m.stop() }()
		firing := func() string {
			synctest.Wait()
			var names []string
			for _, a := range m.manager.Alerts() {
				names = append(names, a.Labels["alertname"])
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		const early, all = "ended2 resta2", "ended2 ended3 resta2 resta3"
		for restarts := range int32(3) {
			m.set("web", restarts)
		}
		if got := firing(); got != early {
			t.Fatalf("got %q after two restarts, want %q", got, early)
		}
		for range 2 {
			m.kill() // the alerts are on disk, the last status is not
			m.start()
			m.mu.Lock()
			clear(m.statuses)
			m.mu.Unlock()
			m.set("web", 1) // the status manager restores what it has
			m.set("web", 2) // and hears from the runtime what is
			if got := firing(); got != early {
				t.Fatalf("got %q after two restarts and a restart of the agent, want %q", got, early)
			}
		}
		m.set("web", 3)
		if got := firing(); got != all {
			t.Fatalf("got %q after three restarts, want %q", got, all)
		}
	})
}

// A static pod that is put back has its old UID, and its restarts are counted from zero again.
func TestManager_PutBack(t *testing.T) {
	run(t, func(m *machine) {
		for restarts := range int32(3) {
			m.set("web", restarts)
		}
		m.remove("web")
		m.wait(2 * time.Second) // it is on disk
		m.kill()
		m.start()
		m.take()
		m.set("web", 0)
		synctest.Wait()
		if got := m.manager.Alerts(); len(got) > 0 {
			t.Fatalf("got %+v after two restarts, want none", got)
		}
		m.set("web", 1)
		m.wantTold("record Crashing firing ", "update Crashing web firing", "fired Crashing 0")
	})
}

// What could not be written is written later, also if nothing else changes.
func TestSave_Retried(t *testing.T) {
	run(t, func(m *machine) {
		file := filepath.Join(m.dir, "alerts")
		if err := errors.Join(os.RemoveAll(file), os.MkdirAll(filepath.Join(file, "full"), 0o700)); err != nil {
			t.Fatal(err)
		}
		for restarts := range int32(4) {
			m.set("web", restarts)
		}
		m.wantTold("record Crashing firing ", "update Crashing web firing", "fired Crashing 0")
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		m.kill()
		m.start()
		m.wantTold("update Crashing web firing", "fired Crashing 0")
	})
}

// A5: a status that an earlier run left is no proof that the pod exists: a pod whose removal was not saved does not fire again.
func TestA5_RemovalNotSaved(t *testing.T) {
	run(t, func(m *machine) {
		m.write("b.yaml", ruleFile("\n  - {alert: Ended, on: pod, expr: pod.phase == 'Failed'}\n"))
		m.stop()
		m.start()
		m.take()
		ended := manager.Version{UID: "u-web", Pod: newPod("web"), After: &v1.PodStatus{Phase: v1.PodFailed}, Version: 1, Time: time.Now()}
		m.manager.PodVersion(ended)
		m.manager.KnownPods(map[types.UID]bool{"u-web": true})
		m.wantTold("record Ended firing ", "update Ended web firing", "fired Ended 0", "reconcile 1")
		m.remove("web")
		m.wantTold("record Ended resolved object gone", "update Ended web resolved", "resolved Ended")
		m.kill()
		m.start()
		ended.Pod, ended.Restored = &v1.Pod{ObjectMeta: newPod("web").ObjectMeta}, true
		m.manager.PodVersion(ended)
		m.manager.KnownPods(map[types.UID]bool{})
		m.wantTold("update Ended web resolved", "reconcile 1")
	})
}

// A5: a pod that has ended may never get another status: its alert stays when the node still has it.
func TestA5_EndedBefore(t *testing.T) {
	run(t, func(m *machine) {
		m.write("b.yaml", ruleFile("\n  - {alert: Ended, on: pod, expr: pod.phase == 'Failed'}\n"))
		m.stop()
		m.start()
		m.take()
		status := &v1.PodStatus{Phase: v1.PodFailed}
		m.mu.Lock()
		m.statuses["u-web"] = status
		m.mu.Unlock()
		ended := manager.Version{UID: "u-web", Pod: newPod("web"), After: status, Version: 1, Time: time.Now()}
		m.manager.PodVersion(ended)
		m.manager.KnownPods(map[types.UID]bool{"u-web": true})
		m.wantTold("record Ended firing ", "update Ended web firing", "fired Ended 0", "reconcile 1")
		m.kill()
		m.start()
		ended.Pod, ended.Restored = &v1.Pod{ObjectMeta: newPod("web").ObjectMeta}, true
		m.manager.PodVersion(ended)
		m.manager.KnownPods(map[types.UID]bool{"u-web": true})
		m.wantTold("update Ended web firing", "fired Ended 0", "reconcile 1")
	})
}

// Restored alerts wait for their objects at most two minutes.
func TestStartup_Ends(t *testing.T) {
	run(t, func(m *machine) {
		for restarts := range int32(4) {
			m.set("web", restarts)
		}
		synctest.Wait()
		m.kill()
		m.start()
		m.take()
		m.wait(119 * time.Second)
		m.manager.KnownPods(map[types.UID]bool{"u-web": true}) // its status is not known yet
		m.wantTold()
		m.wait(2 * time.Second)
		m.wantTold("record Crashing resolved object gone", "update Crashing web resolved", "resolved Crashing", "reconcile 1")
	})
}

func TestPodRemoved(t *testing.T) {
	run(t, func(m *machine) {
		for restarts := range int32(4) {
			m.set("web", restarts)
		}
		m.take()
		m.remove("web")
		m.wantTold("record Crashing resolved object gone", "update Crashing web resolved", "resolved Crashing")
	})
}

// A manager that falls behind counts what it does not evaluate.
func TestQueue_Compaction(t *testing.T) {
	m := newMachine(t)
	m.write("a.yaml", ruleFile(crashRule))
	synctest.Test(t, func(t *testing.T) {
		m.T = t
		state, err := checkpoint.Open(m.dir, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		m.manager, err = manager.New(manager.Config{NodeName: "n1", Views: m, Paths: []string{m.rules}, NoDefaults: true, Notifier: m, NewWatcher: noWatcher})
		if err != nil {
			t.Fatal(err)
		}
		for restarts := range int32(3) {
			m.set("web", restarts)
		}
		for i := range int32(3 * 4096) {
			m.set("busy", i/4096) // two restarts
		}
		m.set("web", 3)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = m.manager.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		m.wantTold("update Crashing web firing")
	})
}

func TestSilence(t *testing.T) {
	run(t, func(m *machine) {
		matcher, err := alert.ParseMatcher("alertname=Crashing")
		if err != nil {
			t.Fatal(err)
		}
		silence, err := m.manager.AddSilence(m.Context(), alert.Silence{
			Matchers: []alert.Matcher{matcher}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: "me",
		})
		if err != nil || silence.ID == "" {
			t.Fatalf("got %+v, %v", silence, err)
		}
		m.kill()
		m.start()
		if got := m.manager.Silences(); len(got) != 1 || got[0].ID != silence.ID {
			t.Fatalf("got %+v after a restart", got)
		}
		for restarts := range int32(4) {
			m.set("web", restarts)
		}
		synctest.Wait()
		if alerts := m.manager.Alerts(); len(alerts) != 1 || !alerts[0].Mute.IsMuted() {
			t.Fatalf("got %+v, want a muted alert", alerts)
		}
		if err := m.manager.ExpireSilence(m.Context(), silence.ID); err != nil {
			t.Error(err)
		}
		if err := m.manager.ExpireSilence(m.Context(), silence.ID); !errors.Is(err, alert.ErrNoSilence) {
			t.Errorf("got %v for a silence that has ended", err)
		}
		if alerts := m.manager.Alerts(); alerts[0].Mute.IsMuted() {
			t.Error("the alert is still muted")
		}
		m.stop()
		if _, err := m.manager.AddSilence(m.Context(), silence); !errors.Is(err, manager.ErrStopped) {
			t.Errorf("got %v after the end", err)
		}
	})
}

const nodeRules = `
  - alert: Down
    on: node
    expr: "!node.runtime_ready"
    keep_firing_for: 1m
    condition: {type: RuntimeBroken, reason: RuntimeDown}
    annotations: {summary: the runtime is down}
  - alert: DiskReadOnly
    on: node
    expr: node.load.read_only
    condition: {type: DiskBroken, reason: ReadOnly}
`

func (m *machine) conditions() map[v1.NodeConditionType]v1.NodeCondition {
	synctest.Wait()
	all := map[v1.NodeConditionType]v1.NodeCondition{}
	for _, condition := range m.manager.Conditions() {
		all[condition.Type] = condition
	}
	return all
}

func TestConditions(t *testing.T) {
	m := newMachine(t)
	m.write("a.yaml", ruleFile(nodeRules))
	synctest.Test(t, func(t *testing.T) {
		m.T = t
		m.start()
		defer func() { m.stop() }()
		if got := m.conditions(); got["RuntimeBroken"].Status != v1.ConditionFalse || got["DiskBroken"].Type != "" {
			t.Fatalf("got %+v, want RuntimeBroken False, and DiskBroken not yet", got)
		}
		m.wait(2 * time.Minute)
		m.manager.NodeSampled()
		if got := m.conditions(); got["DiskBroken"].Status != v1.ConditionUnknown {
			t.Fatalf("got %+v, want DiskBroken Unknown: there is no load", got)
		}
		m.setNode(func(n *view.NodeView) { n.Runtime.Problem = "down" })
		want := v1.NodeCondition{Type: "RuntimeBroken", Status: v1.ConditionTrue, Reason: "RuntimeDown", Message: "the runtime is down"}
		if got := m.conditions()["RuntimeBroken"]; got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		m.kill()
		m.start()
		if got := m.conditions()["RuntimeBroken"]; got != want {
			t.Fatalf("got %+v after a restart, want %+v", got, want)
		}
		m.setNode(func(n *view.NodeView) { n.Runtime.Problem = "" })
		if got := m.conditions()["RuntimeBroken"]; got.Status != v1.ConditionTrue {
			t.Errorf("got %+v while the alert recovers, want True", got)
		}
		m.wait(2 * time.Minute)
		if got := m.conditions()["RuntimeBroken"]; got.Status != v1.ConditionFalse {
			t.Errorf("got %+v after it recovered, want False", got)
		}
		m.kill()
		m.write("a.yaml", ruleFile(crashRule))
		m.start()
		if got := m.conditions(); len(got) != 2 || got["RuntimeBroken"].Status != "" || got["DiskBroken"].Status != "" {
			t.Errorf("got %+v without the rules, want both to be removed", got)
		}
	})
}

// Nothing is evaluated while nothing happens.
func TestIdle(t *testing.T) {
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		m.T = t
		registry := prometheus.NewRegistry()
		m.start(func(c *manager.Config) { c.NoDefaults, c.Metrics = false, registry })
		defer func() { m.stop() }()
		known := map[types.UID]bool{}
		for i := range 110 {
			name := fmt.Sprint("p", i)
			m.set(name, 0)
			known[types.UID("u-"+name)] = true
		}
		m.manager.KnownPods(known)
		m.wait(time.Hour) // what depends on the start has happened
		before := evaluations(t, registry)
		for range 60 {
			m.wait(time.Minute)
			m.manager.NodeChanged() // the node is looked at, and has not changed
			m.manager.KnownPods(known)
		}
		if got := evaluations(t, registry) - before; got != 0 || before == 0 {
			t.Errorf("got %v evaluations in an hour in which nothing happened, after %v", got, before)
		}
	})
}

func evaluations(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	synctest.Wait()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "herald_alert_evaluations_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("no metric")
	return 0
}
