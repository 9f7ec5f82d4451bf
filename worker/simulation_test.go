package worker_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// checkedRuntime is a runtime that checks invariants whenever a container is started.
type checkedRuntime struct {
	*fakeruntime.Runtime
	sim *simulation
}

func (r checkedRuntime) StartContainer(ctx context.Context, pod *v1.Pod, sandboxID string, start plan.Start) error {
	if ctx.Err() == nil {
		r.sim.checkStart(pod)
	}
	return r.Runtime.StartContainer(ctx, pod, sandboxID, start)
}

// simulation is a node that random actions happen to.
type simulation struct {
	*harness
	generation int // distinguishes UIDs and images
	kills      sync.WaitGroup
	heals      []func()
	desired    map[string]*v1.Pod // by name, including pods that are being deleted
	capacity   int                // number of pods that the node admits

	mu         sync.Mutex // guards violations
	violations []string
}

func (sim *simulation) report(format string, args ...any) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.violations = append(sim.violations, fmt.Sprintf(format, args...))
}

// checkStart is called before a container of the pod is started.
func (sim *simulation) checkStart(pod *v1.Pod) {
	if stage := sim.stage(pod); stage != "sync" {
		sim.report("container of %s started in stage %s", pod.UID, stage)
	}
	runtimePods, err := sim.runtime.ListPods(context.Background())
	if err != nil || !podid.IsStatic(pod) {
		return
	}
	for _, other := range runtimePods {
		if other.Name == podid.FullNameOf(pod) && other.UID != podid.UID(pod.UID) && other.Running() {
			sim.report("%s started while %s of the same name is running", pod.UID, other.UID)
		}
	}
}

func (sim *simulation) admit(pod *v1.Pod) error {
	if sim.countAdmitted(podid.UID(pod.UID)) >= sim.capacity {
		return outOfMemoryError{}
	}
	return nil
}

// countAdmitted counts the other pods that are admitted or running since before this agent.
func (sim *simulation) countAdmitted(except podid.UID) int {
	admitted := map[podid.UID]bool{}
	runtimePods, _ := sim.runtime.ListPods(context.Background())
	for _, pod := range runtimePods {
		admitted[pod.UID] = pod.Running()
	}
	for _, state := range sim.Pods() {
		admitted[state.UID] = state.Stage < plan.Terminated && (state.Admitted || admitted[state.UID])
	}
	admitted[except] = false
	count := 0
	for _, isAdmitted := range admitted {
		if isAdmitted {
			count++
		}
	}
	return count
}

// newPod returns a pod with a new UID.
func (sim *simulation) newPod(name string) *v1.Pod {
	sim.generation++
	uid := fmt.Sprintf("%s-%d", name, sim.generation)
	if strings.HasPrefix(name, "static") {
		return newStaticPod(name, uid)
	}
	return newAPIPod(name, func(pod *v1.Pod) { pod.UID = types.UID(uid) })
}

// actions is what may happen to the node, by name. Each gets the name of a pod.
var actions = map[string]func(*simulation, string){
	"create": func(sim *simulation, name string) {
		if sim.desired[name] == nil {
			sim.desired[name] = sim.newPod(name)
			sim.create(sim.desired[name])
		}
	},
	"edit": func(sim *simulation, name string) {
		if pod := sim.desired[name]; pod != nil && podid.IsStatic(pod) {
			sim.remove(pod)
			sim.desired[name] = sim.newPod(name)
			sim.create(sim.desired[name])
		}
	},
	"remove": func(sim *simulation, name string) {
		if pod := sim.desired[name]; pod != nil {
			delete(sim.desired, name)
			sim.remove(pod)
		}
	},
	"remove silently": func(sim *simulation, name string) {
		if pod := sim.desired[name]; pod != nil {
			delete(sim.desired, name)
			sim.pods.RemovePod(pod)
		}
	},
	"edit in place": func(sim *simulation, name string) {
		if pod := sim.desired[name]; pod != nil && pod.DeletionTimestamp == nil {
			edited := pod.DeepCopy()
			edited.Spec.Containers[0].Image = fmt.Sprint("app:", sim.generation+2)
			sim.generation++
			sim.desired[name] = edited
			sim.update(edited, plan.OpUpdate)
		}
	},
	"rename": func(sim *simulation, name string) {
		to := map[string]string{"static-1": "static-2", "static-2": "static-1"}[name]
		if pod := sim.desired[name]; pod != nil && to != "" && sim.desired[to] == nil {
			delete(sim.desired, name)
			sim.remove(pod)
			sim.desired[to] = newStaticPod(to, string(pod.UID))
			sim.create(sim.desired[to])
		}
	},
	"re-add": func(sim *simulation, name string) {
		if pod := sim.desired[name]; pod != nil && podid.IsStatic(pod) {
			sim.remove(pod)
			sim.create(pod)
		}
	},
	"delete": func(sim *simulation, name string) {
		if pod := sim.desired[name]; pod != nil && !podid.IsStatic(pod) {
			sim.desired[name] = sim.delete(pod, int64(5+sim.generation%40))
		}
	},
	"delete by force": func(sim *simulation, name string) {
		if pod := sim.desired[name]; pod != nil && !podid.IsStatic(pod) {
			sim.desired[name] = sim.delete(pod, 0)
		}
	},
	"evict": func(sim *simulation, name string) {
		if pod := sim.desired[name]; pod != nil && !podid.IsStatic(pod) {
			evicted := func(status *v1.PodStatus) { status.Phase, status.Reason = v1.PodFailed, "Evicted" }
			workers, ctx := sim.Workers, sim.Context()
			sim.kills.Go(func() { _ = workers.KillPod(ctx, pod, plan.KillOptions{Evict: true, StatusFunc: evicted}) })
		}
	},
	"exit 0": func(sim *simulation, name string) { sim.exit(name, 0) },
	"exit 1": func(sim *simulation, name string) { sim.exit(name, 1) },
	"update": func(sim *simulation, name string) { sim.sendUpdate(name, plan.OpUpdate) },
	"sync":   func(sim *simulation, name string) { sim.sendUpdate(name, plan.OpSync) },
	"ignore SIGTERM": func(sim *simulation, _ string) {
		sim.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
	},
	"stop slowly": func(sim *simulation, _ string) {
		sim.runtime.SetScript("app", fakeruntime.Script{StopDuration: 7 * time.Second})
	},
	"pull slowly": func(sim *simulation, _ string) {
		sim.runtime.SetScript("app", fakeruntime.Script{PullDuration: 6 * time.Minute})
	},
	"slow hooks": func(sim *simulation, _ string) {
		sim.runtime.SetScript("app", fakeruntime.Script{PostStartDuration: 20 * time.Second, PreStopDuration: 9 * time.Second})
	},
	"crash": func(sim *simulation, _ string) {
		sim.runtime.SetScript("app", fakeruntime.Script{RunDuration: 3 * time.Second, ExitCode: 1})
	},
	"behave":      func(sim *simulation, _ string) { sim.runtime.SetScript("app", fakeruntime.Script{}) },
	"starts hang": func(sim *simulation, _ string) { sim.breakAll("Start", fakeruntime.Fault{Delay: 4 * time.Minute}) },
	"starts are lost": func(sim *simulation, _ string) {
		sim.breakAll("Start", fakeruntime.Fault{LostResponse: true, Err: errFake})
	},
	"stops hang": func(sim *simulation, _ string) { sim.breakAll("Stop", fakeruntime.Fault{Delay: fakeruntime.Forever}) },
	"stops are lost": func(sim *simulation, _ string) {
		sim.breakAll("Stop", fakeruntime.Fault{LostResponse: true, Err: errFake})
	},
	"stops fail":       func(sim *simulation, _ string) { sim.breakAll("Stop", fakeruntime.Fault{Err: errFake}) },
	"inspections hang": func(sim *simulation, _ string) { sim.breakAll("InspectPod", fakeruntime.Fault{Delay: 4 * time.Minute}) },
	"removals are lost": func(sim *simulation, _ string) {
		sim.breakAll("RemovePod", fakeruntime.Fault{LostResponse: true, Err: errFake})
	},
	"volumes hang":       func(sim *simulation, _ string) { sim.volumes.set(true, nil) },
	"heal":               func(sim *simulation, _ string) { sim.heal() },
	"never listed":       func(sim *simulation, _ string) { sim.cache.setNeverListed(true) },
	"restart workers":    func(sim *simulation, _ string) { sim.stopWorkers(); sim.startWorkers() },
	"restart agent":      func(sim *simulation, _ string) { sim.restart() },
	"reboot":             func(sim *simulation, _ string) { sim.runtime.Reboot(); sim.restart() },
	"API source unready": func(sim *simulation, _ string) { sim.unready[podid.API] = true },
	"API source ready":   func(sim *simulation, _ string) { sim.unready[podid.API] = false },
	"wait":               func(*simulation, string) {},
}

func (sim *simulation) exit(name string, code int) {
	if pod := sim.desired[name]; pod != nil {
		sim.runtime.ExitContainer(podid.UID(pod.UID), "app", code)
	}
}

func (sim *simulation) sendUpdate(name string, op plan.Op) {
	if pod := sim.desired[name]; pod != nil {
		sim.UpdatePod(worker.Update{Op: op, Pod: pod})
	}
}

func (sim *simulation) breakAll(methodPrefix string, fault fakeruntime.Fault) {
	matches := func(call fakeruntime.Call) bool { return strings.HasPrefix(call.Method, methodPrefix) }
	sim.heals = append(sim.heals, sim.runtime.Inject(matches, fault))
}

func (sim *simulation) heal() {
	for _, heal := range sim.heals {
		heal()
	}
	sim.heals = nil
	sim.volumes.set(false, nil)
	sim.cache.setNeverListed(false)
}

// restart restarts the agent. The API server delivers its pods again, with the statuses that it received.
func (sim *simulation) restart() {
	sim.stop()
	statuses := map[string]v1.PodStatus{}
	for name, pod := range sim.desired {
		statuses[name] = sim.status(pod)
	}
	sim.start()
	for _, name := range slices.Sorted(maps.Keys(sim.desired)) {
		if pod := sim.desired[name]; !podid.IsStatic(pod) {
			pod = pod.DeepCopy()
			pod.Status = statuses[name]
			if derive.IsTerminal(pod.Status.Phase) && sim.isRunning(pod) {
				pod.Status.Phase = v1.PodRunning // a terminal phase is not sent while containers may run
			}
			sim.desired[name] = pod
		}
		sim.create(sim.desired[name])
	}
}

// pass lets time pass with housekeeping, and with an API server that removes deleted pods once they are reclaimed.
func (sim *simulation) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		sim.advance(2 * time.Second)
		for name, pod := range sim.desired {
			if pod.DeletionTimestamp != nil && sim.PodResourcesAreReclaimed(pod, nil) {
				delete(sim.desired, name)
				sim.remove(pod)
			}
		}
		sim.housekeep()
	}
}

// settle ends all faults, waits for the node to converge and returns the violations.
func (sim *simulation) settle() []string {
	sim.heal()
	sim.runtime.SetScript("app", fakeruntime.Script{})
	sim.unready[podid.API] = false
	sim.pass(15 * time.Minute)
	sim.kills.Wait()
	desired := map[podid.UID]bool{}
	for _, pod := range sim.desired {
		desired[podid.UID(pod.UID)] = true
		sim.checkDesired(pod)
	}
	runtimePods, _ := sim.runtime.ListPods(context.Background())
	for _, pod := range runtimePods {
		if !desired[pod.UID] {
			sim.report("%s is still in the runtime", pod.UID)
		}
	}
	for _, state := range sim.Pods() {
		if !desired[state.UID] {
			sim.report("%s still has a worker: %s, %v", state.UID, state.Stage, state.Err)
		}
	}
	return append(sim.violations, sim.runtime.Violations()...)
}

// checkDesired reports a desired pod that has not converged.
func (sim *simulation) checkDesired(pod *v1.Pod) {
	status := sim.status(pod)
	isTerminal := derive.IsTerminal(status.Phase)
	switch {
	case pod.DeletionTimestamp != nil:
		sim.report("%s was deleted and still exists in stage %s", pod.UID, sim.stage(pod))
	case !isTerminal && status.Reason == (outOfMemoryError{}).RejectionReason():
		if admitted := sim.countAdmitted(podid.UID(pod.UID)); admitted < sim.capacity {
			sim.report("%s is rejected with %d of %d pods admitted", pod.UID, admitted, sim.capacity)
		}
	case isTerminal == sim.isRunning(pod):
		sim.report("%s is %s in stage %s, running %v", pod.UID, status.Phase, sim.stage(pod), sim.isRunning(pod))
	case !isTerminal && sim.runningImage(pod) != pod.Spec.Containers[0].Image:
		sim.report("%s runs image %s, want %s", pod.UID, sim.runningImage(pod), pod.Spec.Containers[0].Image)
	}
}

// step is one action, followed by a pause.
type step struct {
	Action, Pod string
	Pause       time.Duration
}

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Action: rapid.SampledFrom(slices.Sorted(maps.Keys(actions))).Draw(t, "action"),
			Pod:    rapid.SampledFrom([]string{"api-1", "api-2", "static-1", "static-2"}).Draw(t, "pod"),
			Pause:  rapid.SampledFrom([]time.Duration{0, 0, time.Second, 11 * time.Second, 2 * time.Minute}).Draw(t, "pause"),
		}
	}), 1, 40).Draw(t, "steps")
}

// TestPW15_RandomActions checks that every pod converges after random actions and that no pod runs twice.
func TestPW15_RandomActions(t *testing.T) { // PW-6, PW-9, PW-28, PW-53
	caches := map[string]func(*harness, *worker.Config){
		"fake cache": func(*harness, *worker.Config) {}, "PLEG": (*harness).usePLEG,
	}
	for name, useCache := range caches {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps, capacity := drawSteps(rt), rapid.IntRange(1, 4).Draw(rt, "capacity")
				violations, transcript := simulate(t, steps, capacity, useCache)
				if len(violations) > 0 {
					rt.Fatalf("%s\nafter %v\ntranscript:\n%s",
						strings.Join(violations, "\n"), steps, strings.Join(transcript, "\n"))
				}
			})
		})
	}
}

// simulate runs the steps and returns the violations and the runtime's transcript.
func simulate(
	t *testing.T, steps []step, capacity int, useCache func(*harness, *worker.Config),
) (violations, transcript []string) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		sim := &simulation{harness: h, desired: map[string]*v1.Pod{}, capacity: capacity}
		h.configure = func(config *worker.Config) {
			config.Runtime, config.Admit = checkedRuntime{h.runtime, sim}, sim.admit
			useCache(h, config)
		}
		h.start()
		for _, step := range steps {
			actions[step.Action](sim, step.Pod)
			sim.pass(step.Pause)
		}
		violations = sim.settle()
		transcript = h.runtime.Transcript()
		h.stop()
	})
	return violations, transcript
}

// TestF15_RandomAgentRestarts checks that a crash loop is continued across agent restarts at any time: the restart count has
// no gaps, and there is only one sandbox.
func TestF15_RandomAgentRestarts(t *testing.T) { // PW-53
	rapid.Check(t, func(rt *rapid.T) {
		lifetimes := rapid.SliceOfN(rapid.IntRange(0, 60_000), 1, 20).Draw(rt, "agent lifetimes in ms")
		var transcript, violations []string
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t)
			h.runtime.SetScript("app", fakeruntime.Script{PullDuration: 700 * time.Millisecond, RunDuration: 1300 * time.Millisecond, ExitCode: 1})
			web := newAPIPod("web")
			h.start()
			for _, ms := range lifetimes {
				h.create(web)
				h.advance(time.Duration(ms) * time.Millisecond)
				h.stop()
				web = web.DeepCopy()
				web.Status = h.status(web)
				h.start()
			}
			h.stop()
			transcript, violations = h.runtime.Transcript(), h.runtime.Violations()
		})
		starts := 0
		for _, line := range transcript {
			if line == fmt.Sprintf("start web_shop/app #%d", starts) {
				starts++
			} else if strings.HasPrefix(line, "start") {
				violations = append(violations, fmt.Sprintf("%s, after %d starts", line, starts))
			}
		}
		if len(violations) > 0 || strings.Count(strings.Join(transcript, "\n"), "sandbox") > 1 {
			rt.Fatalf("%v\ntranscript:\n%s", violations, strings.Join(transcript, "\n"))
		}
	})
}

func TestPLEG17_WorkersWithPLEG(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.configure = h.usePLEG
		h.start()
		defer func() { h.stop() }()
		web, etcd, next := newAPIPod("web"), newStaticPod("etcd", "u1"), newStaticPod("etcd", "u2")
		h.create(web)
		h.create(etcd)
		h.advance(3 * time.Second)
		h.wantPhase(web, v1.PodRunning)
		h.wantPhase(etcd, v1.PodRunning)
		h.runtime.ExitContainer(podid.UID(web.UID), "app", 1)
		h.advance(15 * time.Second)
		h.wantRunning(web, true)
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 4 * time.Second})
		h.remove(etcd)
		h.create(next)
		h.delete(web, 30)
		h.advance(10 * time.Second) // no time passes during an inspection in the bubble, so each one waits for the next relist
		h.wantStage(web, "finished")
		h.wantPhase(next, v1.PodRunning)
	})
}
