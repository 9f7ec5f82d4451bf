package manager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/eviction/manager"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/load"
)

const mebi = 1 << 20

// machine is a node of which memory and disk are measured.
type machine struct {
	*node
	t *testing.T
	*manager.Manager

	// Guarded by node.mu:
	memory, disk int64 // available
	usage        map[string]int64
	sampleErr    error
	podsErr      error
	unfinished   bool
	log          []string
	changes      int
	wakeStalled  func()
}

func (m *machine) record(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *machine) takeLog() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.log
	m.log = nil
	return log
}

func (m *machine) Sample(_ context.Context, measureNow bool) (eviction.Sample, eviction.Layout, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if measureNow {
		m.record("measure")
	}
	return eviction.Sample{
		At: time.Now(), Data: "data", Machine: load.MachineSample{
			MemoryAvailable: load.Known(float64(m.memory)), MemoryTotal: load.Known(1000 * mebi),
			FileSystems: []load.FileSystem{{Name: "data", Available: load.Known(float64(m.disk)), Capacity: load.Known(1000)}},
		},
	}, eviction.OneDisk, m.sampleErr
}

func (m *machine) PodUsage(_ context.Context, pods []*v1.Pod, withDisk bool) (map[types.UID]*eviction.PodUsage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record("measure pods, disk %v", withDisk)
	if m.podsErr != nil {
		return nil, m.podsErr
	}
	usages := map[types.UID]*eviction.PodUsage{}
	for _, pod := range pods {
		used := load.Known(float64(m.usage[pod.Name]))
		usages[pod.UID] = &eviction.PodUsage{Memory: used, Volumes: eviction.Space{Bytes: used}}
	}
	return usages, nil
}

func (m *machine) ReclaimImages(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record("reclaim images")
	return nil
}

func (m *machine) reclaimContainers(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record("reclaim containers")
	return errors.New("one cannot be removed")
}

// runMachine runs the manager of a machine with the pods, which is measured every ten seconds.
func runMachine(t *testing.T, pods []*v1.Pod, test func(m *machine), configure ...func(*machine, *manager.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{
			t: t, node: &node{pods: map[string]*v1.Pod{}, killed: map[string]v1.PodStatus{}}, memory: 500 * mebi, disk: 900, usage: map[string]int64{},
		}
		for _, pod := range pods {
			m.pods[pod.Name] = pod
		}
		kill := func(ctx context.Context, pod *v1.Pod, gracePeriod time.Duration, setStatus func(*v1.PodStatus)) error {
			m.set(func() { m.record("kill %s in %v", pod.Name, gracePeriod) })
			time.Sleep(time.Millisecond)
			return m.kill(ctx, pod, gracePeriod, setStatus)
		}
		config := manager.Config{
			Pods: m.list, Volumes: m.node, Containers: m.node, Kill: kill, Events: m,
			Pressure: &manager.PressureConfig{
				Policy: eviction.DefaultPolicy(), Node: m, ReclaimContainers: m.reclaimContainers, Images: m,
				NodeReference: &v1.ObjectReference{Kind: "Node", Name: "n1"},
				IsFinished:    func(*v1.Pod) bool { m.mu.Lock(); defer m.mu.Unlock(); return !m.unfinished },
				OnChange:      func() { m.set(func() { m.changes++ }) },
				Stalls: func(ctx context.Context, wake func()) {
					m.set(func() { m.wakeStalled = wake })
					<-ctx.Done()
				},
			},
		}
		for _, change := range configure {
			change(m, &config)
		}
		var err error
		if m.Manager, err = manager.New(config); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		test(m)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// sample is a measurement of the machine by somebody else.
func (m *machine) sample(change func()) {
	m.set(change)
	m.Wake()
	time.Sleep(time.Second)
	synctest.Wait()
}

func (m *machine) requireLog(want ...string) {
	m.t.Helper()
	if diff := cmp.Diff(want, m.takeLog()); diff != "" {
		m.t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEVI1_EVI13_EVI20_EVI32_MemoryPressure(t *testing.T) {
	registry := prometheus.NewRegistry()
	pods := []*v1.Pod{heraldtest.NewPod("small"), heraldtest.NewPod("large"), heraldtest.NewPod("critical", critical)}
	runMachine(t, pods, func(m *machine) {
		m.sample(func() { m.usage["large"], m.usage["small"], m.usage["critical"] = 300*mebi, 200*mebi, 900*mebi })
		if m.requireLog(); m.changes != 0 {
			t.Errorf("got %d changes of conditions without pressure", m.changes)
		}
		// One pod goes, then another one at once, because it was not enough. Critical pods stay.
		m.sample(func() { m.memory = 90 * mebi })
		m.requireLog("measure pods, disk false", "kill large in 1s", "measure", "measure pods, disk false", "kill small in 1s",
			"measure", "measure pods, disk false")
		const message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
		status := m.killed["large"]
		if status.Phase != v1.PodFailed || status.Reason != "Evicted" || status.Message != message || len(status.Conditions) != 1 ||
			status.Conditions[0].Type != v1.DisruptionTarget {
			t.Errorf("got status %+v", status)
		}
		want := []string{
			"Warning EvictionThresholdMet : Attempting to reclaim memory", "Warning Evicted large: " + message,
			"Warning EvictionThresholdMet : Attempting to reclaim memory", "Warning Evicted small: " + message,
			"Warning EvictionThresholdMet : Attempting to reclaim memory",
		}
		if diff := cmp.Diff(want, m.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		reported, enforced := m.Conditions()
		if !slices.Equal(reported, []v1.NodeConditionType{v1.NodeMemoryPressure}) || !slices.Equal(enforced, reported) || m.changes != 1 {
			t.Errorf("got conditions %v, enforced %v, %d changes", reported, enforced, m.changes)
		}
		time.Sleep(6 * time.Minute)
		m.sample(func() { m.memory = 500 * mebi })
		time.Sleep(6 * time.Minute)
		m.sample(func() {})
		if reported, _ = m.Conditions(); len(reported) != 0 || m.changes != 2 {
			t.Errorf("after the pressure: got %v, %d changes", reported, m.changes)
		}
	}, func(_ *machine, config *manager.Config) { config.Metrics = registry })
	if n := testutil.CollectAndCount(registry, "kubelet_eviction_stats_age_seconds"); n != 1 {
		t.Errorf("got %d series of the age of statistics", n)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP kubelet_evictions Number of evicted pods.
# TYPE kubelet_evictions counter
kubelet_evictions{eviction_signal="memory.available"} 2
`), "kubelet_evictions"); err != nil {
		t.Error(err)
	}
}

func TestEVI14_ReclaimBeforeEviction(t *testing.T) {
	runMachine(t, []*v1.Pod{heraldtest.NewPod("web")}, func(m *machine) {
		m.sample(func() { m.disk = 50 })
		m.requireLog("reclaim containers", "reclaim images", "measure", "measure pods, disk true", "kill web in 1s",
			"measure", "reclaim containers", "reclaim images", "measure", "measure pods, disk true")
	})
	runMachine(t, []*v1.Pod{heraldtest.NewPod("web")}, func(m *machine) {
		m.sample(func() { m.disk = 50 })
		if len(m.killed) != 0 {
			t.Error("a pod was evicted although images were enough")
		}
		m.requireLog("reclaim containers", "measure")
	}, func(m *machine, config *manager.Config) {
		config.Pressure.Images = nil
		config.Pressure.ReclaimContainers = func(ctx context.Context) error {
			m.set(func() { m.disk = 500 })
			return m.reclaimContainers(ctx)
		}
	})
}

// While nothing helps, the node is measured often, and reclaimed every ten seconds.
func TestEVI1_NothingToEvict(t *testing.T) {
	runMachine(t, nil, func(m *machine) {
		m.sample(func() { m.memory = 50 * mebi })
		time.Sleep(time.Second)
		m.takeLog()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		var attempts int
		for _, line := range m.takeLog() {
			if strings.HasPrefix(line, "measure pods") {
				attempts++
			}
		}
		if attempts != 2 {
			t.Errorf("got %d attempts in 20 seconds, want 2", attempts)
		}
	})
}

func TestEVI1_EVI23_WaitsForVictim(t *testing.T) {
	pods := []*v1.Pod{heraldtest.NewPod("a"), heraldtest.NewPod("b")}
	runMachine(t, pods, func(m *machine) {
		m.sample(func() { m.memory, m.unfinished, m.usage["a"] = 50*mebi, true, 100 })
		time.Sleep(28 * time.Second)
		m.requireLog("measure pods, disk false", "kill a in 1s")
		m.set(func() { m.unfinished, m.memory = false, 500*mebi })
		time.Sleep(time.Second)
		synctest.Wait()
		m.requireLog("measure") // and the pressure is over
	})
	runMachine(t, pods, func(m *machine) { // it does not wait for ever
		m.sample(func() { m.memory, m.unfinished, m.usage["a"] = 50*mebi, true, 100 })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		m.requireLog("measure pods, disk false", "kill a in 1s", "measure", "measure pods, disk false", "kill b in 1s")
	})
}

// A node that is idle and far from its thresholds is not measured by the manager.
func TestPressure_Idle(t *testing.T) {
	runMachine(t, []*v1.Pod{heraldtest.NewPod("web")}, func(m *machine) {
		for range 10 {
			m.sample(func() {})
			time.Sleep(10 * time.Second)
		}
		m.requireLog()
	})
}

func TestPressure_NearThreshold(t *testing.T) {
	runMachine(t, nil, func(m *machine) {
		m.sample(func() { m.disk = 149 })
		time.Sleep(4 * time.Second)
		m.requireLog("measure", "measure")
	})
}

// Processes that stall for lack of memory are noticed before the next measurement.
func TestEVI31_BUG143_Stall(t *testing.T) {
	runMachine(t, []*v1.Pod{heraldtest.NewPod("web")}, func(m *machine) {
		m.set(func() { m.memory, m.usage["web"] = 10*mebi, 1 })
		m.wakeStalled()
		time.Sleep(time.Second)
		synctest.Wait()
		if _, killed := m.killed["web"]; !killed {
			t.Error("not evicted")
		}
	})
}

func TestEVI28_NotMeasured(t *testing.T) {
	runMachine(t, []*v1.Pod{heraldtest.NewPod("web")}, func(m *machine) {
		m.sample(func() { m.memory, m.podsErr = 50*mebi, errors.New("the runtime does not answer") })
		if len(m.killed) != 0 {
			t.Error("evicted a pod although none was measured")
		}
		m.sample(func() { m.sampleErr = errors.New("no measurement") })
		time.Sleep(10 * time.Minute)
		m.sample(func() {})
		if reported, _ := m.Conditions(); len(reported) != 1 {
			t.Errorf("got conditions %v, want those that held", reported)
		}
	})
}

func TestEVI30_Restore(t *testing.T) {
	runMachine(t, nil, func(m *machine) {
		m.Restore([]v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}})
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {4 * time.Minute, 1}, {2 * time.Minute, 0}} {
			time.Sleep(step.after)
			m.sample(func() {})
			if _, enforced := m.Conditions(); len(enforced) != step.want {
				t.Errorf("after %v: got %v", step.after, enforced)
			}
		}
	})
}

// A pod that exceeds a limit goes first; the node is looked at again before another one goes.
func TestEVI24_LimitBeforePressure(t *testing.T) {
	pods := []*v1.Pod{heraldtest.NewPod("limited", withVolume), heraldtest.NewPod("free")}
	runMachine(t, pods, func(m *machine) {
		m.set(func() { m.volumes = 2 * mebi })
		m.sample(func() { m.disk = 50 })
		m.set(func() {
			if len(m.killed) != 0 {
				t.Errorf("evicted %v while the node was reclaimed", m.killed)
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(m.killed) != 1 || !strings.HasPrefix(m.killed["limited"].Message, "Usage of EmptyDir") {
			t.Errorf("got %v, want the pod that exceeds its limit only", m.killed)
		}
	}, func(m *machine, config *manager.Config) {
		config.Pressure.ReclaimContainers = func(ctx context.Context) error {
			time.Sleep(15 * time.Second) // the limit is noticed meanwhile
			m.set(func() {
				if len(m.killed) > 0 {
					m.disk = 100
				}
			})
			return m.reclaimContainers(ctx)
		}
	})
}

func TestManager_WithoutPressure(t *testing.T) {
	run(t, nil, func(*testing.T, *node) {})
	m, err := manager.New(manager.Config{
		Pods: func() []*v1.Pod { return nil }, Volumes: &node{}, Containers: &node{},
		Kill: func(context.Context, *v1.Pod, time.Duration, func(*v1.PodStatus)) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Wake()
	m.Restore(nil)
	if reported, enforced := m.Conditions(); reported != nil || enforced != nil {
		t.Errorf("got %v, %v", reported, enforced)
	}
}
