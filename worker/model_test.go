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

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// guard is the engine with somebody who watches who calls it.
type guard struct {
	*engine.Engine
	live *life
}

func (g guard) StartContainer(ctx context.Context, p *v1.Pod, sandbox string, start plan.Start) error {
	if ctx.Err() == nil {
		g.live.watch(p)
	}
	return g.Engine.StartContainer(ctx, p, sandbox, start)
}

// life is a node to which much happens.
type life struct {
	*world
	uids    int
	kills   sync.WaitGroup
	heals   []func()
	desired map[string]*v1.Pod // by name; a pod that is being deleted is still desired
	places  int                // that the node has for pods

	mu    sync.Mutex // guards wrong
	wrong []string
}

func (l *life) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// watch is asked when a container is about to be started.
func (l *life) watch(p *v1.Pod) {
	if stage := l.stage(p); stage != "sync" {
		l.blame("a container of %s was started while it was %s", p.UID, stage)
	}
	held, err := l.engine.ListPods(context.Background())
	if err != nil || !podid.IsStatic(p) {
		return
	}
	for _, other := range held {
		if other.Name == podid.FullNameOf(p) && other.UID != podid.UID(p.UID) && other.Running() {
			l.blame("%s was started while %s ran under its name", p.UID, other.UID)
		}
	}
}

// admit counts those that have a place: the admitted, and those that run since before this agent did.
func (l *life) admit(p *v1.Pod) error {
	if l.taken(podid.UID(p.UID)) >= l.places {
		return full{}
	}
	return nil
}

// taken counts the places of all pods but that one.
func (l *life) taken(but podid.UID) int {
	placed := map[podid.UID]bool{}
	held, _ := l.engine.ListPods(context.Background())
	for _, seen := range held {
		placed[seen.UID] = seen.Running()
	}
	for _, state := range l.Pods() {
		placed[state.UID] = state.Stage < plan.Terminated && (state.Admitted || placed[state.UID])
	}
	placed[but] = false
	n := 0
	for _, has := range placed {
		if has {
			n++
		}
	}
	return n
}

func (l *life) fresh(name string) *v1.Pod {
	l.uids++
	uid := fmt.Sprintf("%s-%d", name, l.uids)
	if strings.HasPrefix(name, "static") {
		return staticPod(name, uid)
	}
	return apiPod(name, func(p *v1.Pod) { p.UID = types.UID(uid) })
}

var happenings = map[string]func(*life, string){
	"create": func(l *life, name string) {
		if l.desired[name] == nil {
			l.desired[name] = l.fresh(name)
			l.create(l.desired[name])
		}
	},
	"edit": func(l *life, name string) {
		if old := l.desired[name]; old != nil && podid.IsStatic(old) {
			l.remove(old)
			l.desired[name] = l.fresh(name)
			l.create(l.desired[name])
		}
	},
	"remove": func(l *life, name string) {
		if old := l.desired[name]; old != nil {
			delete(l.desired, name)
			l.remove(old)
		}
	},
	"remove in silence": func(l *life, name string) {
		if old := l.desired[name]; old != nil {
			delete(l.desired, name)
			l.book.RemovePod(old)
		}
	},
	"edit in place": func(l *life, name string) {
		if old := l.desired[name]; old != nil && old.DeletionTimestamp == nil {
			edited := old.DeepCopy()
			edited.Spec.Containers[0].Image = fmt.Sprint("app:", l.uids+2)
			l.uids++
			l.desired[name] = edited
			l.update(edited, plan.OpUpdate)
		}
	},
	"rename": func(l *life, name string) {
		to := map[string]string{"static-1": "static-2", "static-2": "static-1"}[name]
		if old := l.desired[name]; old != nil && to != "" && l.desired[to] == nil {
			delete(l.desired, name)
			l.remove(old)
			l.desired[to] = staticPod(to, string(old.UID))
			l.create(l.desired[to])
		}
	},
	"remove and bring back": func(l *life, name string) {
		if old := l.desired[name]; old != nil && podid.IsStatic(old) {
			l.remove(old)
			l.create(old)
		}
	},
	"delete": func(l *life, name string) {
		if old := l.desired[name]; old != nil && !podid.IsStatic(old) {
			l.desired[name] = l.delete(old, int64(5+l.uids%40))
		}
	},
	"delete by force": func(l *life, name string) {
		if old := l.desired[name]; old != nil && !podid.IsStatic(old) {
			l.desired[name] = l.delete(old, 0)
		}
	},
	"evict": func(l *life, name string) {
		if old := l.desired[name]; old != nil && !podid.IsStatic(old) {
			evicted := func(s *v1.PodStatus) { s.Phase, s.Reason = v1.PodFailed, "Evicted" }
			workers, ctx := l.Workers, l.Context()
			l.kills.Go(func() { _ = workers.KillPod(ctx, old, plan.KillOptions{Evict: true, StatusFunc: evicted}) })
		}
	},
	"exit 0":          func(l *life, name string) { l.exit(name, 0) },
	"exit 1":          func(l *life, name string) { l.exit(name, 1) },
	"update":          func(l *life, name string) { l.poke(name, plan.OpUpdate) },
	"sync":            func(l *life, name string) { l.poke(name, plan.OpSync) },
	"ignores SIGTERM": func(l *life, _ string) { l.engine.Script("app", engine.Script{Ending: engine.Forever}) },
	"ends slowly":     func(l *life, _ string) { l.engine.Script("app", engine.Script{Ending: 7 * time.Second}) },
	"pulls for long":  func(l *life, _ string) { l.engine.Script("app", engine.Script{Pull: 6 * time.Minute}) },
	"has a slow hook": func(l *life, _ string) {
		l.engine.Script("app", engine.Script{PostStart: 20 * time.Second, PreStop: 9 * time.Second})
	},
	"crashes":           func(l *life, _ string) { l.engine.Script("app", engine.Script{Runs: 3 * time.Second, ExitCode: 1}) },
	"is well":           func(l *life, _ string) { l.engine.Script("app", engine.Script{}) },
	"starts hang":       func(l *life, _ string) { l.breakAll("Start", engine.Fault{Delay: 4 * time.Minute}) },
	"starts are lost":   func(l *life, _ string) { l.breakAll("Start", engine.Fault{Executes: true, Err: errBroken}) },
	"stops hang":        func(l *life, _ string) { l.breakAll("Stop", engine.Fault{Delay: engine.Forever}) },
	"stops are lost":    func(l *life, _ string) { l.breakAll("Stop", engine.Fault{Executes: true, Err: errBroken}) },
	"stops fail":        func(l *life, _ string) { l.breakAll("Stop", engine.Fault{Err: errBroken}) },
	"looks hang":        func(l *life, _ string) { l.breakAll("InspectPod", engine.Fault{Delay: 4 * time.Minute}) },
	"removals are lost": func(l *life, _ string) { l.breakAll("RemovePod", engine.Fault{Executes: true, Err: errBroken}) },
	"volumes hang":      func(l *life, _ string) { l.volumes.set(true, nil) },
	"all heals":         func(l *life, _ string) { l.heal() },
	"nobody lists":      func(l *life, _ string) { l.sight.setBlind(true) },
	"workers pause":     func(l *life, _ string) { l.pause(); l.run() },
	"agent restarts":    func(l *life, _ string) { l.restart() },
	"power fails":       func(l *life, _ string) { l.engine.Reboot(); l.restart() },
	"API source late":   func(l *life, _ string) { l.unready[podid.API] = true },
	"API source ready":  func(l *life, _ string) { l.unready[podid.API] = false },
	"time flies":        func(*life, string) {},
}

func (l *life) exit(name string, code int) {
	if p := l.desired[name]; p != nil {
		l.engine.Exit(podid.UID(p.UID), "app", code)
	}
}

func (l *life) poke(name string, op plan.Op) {
	if p := l.desired[name]; p != nil {
		l.UpdatePod(worker.Update{Op: op, Pod: p})
	}
}

func (l *life) breakAll(methods string, fault engine.Fault) {
	matches := func(c engine.Call) bool { return strings.HasPrefix(c.Method, methods) }
	l.heals = append(l.heals, l.engine.Break(matches, fault))
}

func (l *life) heal() {
	for _, heal := range l.heals {
		heal()
	}
	l.heals = nil
	l.volumes.set(false, nil)
	l.sight.setBlind(false)
}

// restart is one of the agent. The API server remembers what it was told of its pods, and tells it again.
func (l *life) restart() {
	l.stop()
	told := map[string]v1.PodStatus{}
	for name, p := range l.desired {
		told[name], _ = l.statuses.GetPodStatus(p.UID)
	}
	l.boot()
	for _, name := range slices.Sorted(maps.Keys(l.desired)) {
		if p := l.desired[name]; !podid.IsStatic(p) {
			p = p.DeepCopy()
			p.Status = told[name]
			if phase := p.Status.Phase; (phase == v1.PodFailed || phase == v1.PodSucceeded) && l.runs(p) {
				p.Status.Phase = v1.PodRunning // a terminal phase is not sent while containers may run
			}
			l.desired[name] = p
		}
		l.create(l.desired[name])
	}
}

// pass lets time pass, with housekeeping, and with an API server that lets go of what is deleted and finished.
func (l *life) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		l.after(2 * time.Second)
		for name, p := range l.desired {
			if p.DeletionTimestamp != nil && l.PodResourcesAreReclaimed(p, nil) {
				delete(l.desired, name)
				l.remove(p)
			}
		}
		l.housekeep()
	}
}

// settle ends all trouble and says what is not as it should be after a while.
func (l *life) settle() []string {
	l.heal()
	l.engine.Script("app", engine.Script{})
	l.unready[podid.API] = false
	l.pass(15 * time.Minute)
	l.kills.Wait()
	wanted := map[podid.UID]bool{}
	for name, p := range l.desired {
		wanted[podid.UID(p.UID)] = true
		status, _ := l.statuses.GetPodStatus(p.UID)
		switch ended := status.Phase == v1.PodFailed || status.Phase == v1.PodSucceeded; {
		case p.DeletionTimestamp != nil:
			l.blame("%s (%s) was deleted and is still there: %s", name, p.UID, l.stage(p))
		case !ended && status.Reason == (full{}).RejectionReason():
			if taken := l.taken(podid.UID(p.UID)); taken < l.places {
				l.blame("%s (%s) waits for a place, and %d of %d are taken", name, p.UID, taken, l.places)
			}
		case ended == l.runs(p):
			l.blame("%s (%s) is %s and %s, runs: %v", name, p.UID, status.Phase, l.stage(p), l.runs(p))
		case !ended && l.imageOf(p) != p.Spec.Containers[0].Image:
			l.blame("%s (%s) runs %s, want %s", name, p.UID, l.imageOf(p), p.Spec.Containers[0].Image)
		}
	}
	held, _ := l.engine.ListPods(context.Background())
	for _, p := range held {
		if !wanted[p.UID] {
			l.blame("%s is still in the runtime", p.UID)
		}
	}
	for _, state := range l.Pods() {
		if !wanted[state.UID] {
			l.blame("%s is still known: %s, %v", state.UID, state.Stage, state.Err)
		}
	}
	return append(l.wrong, l.engine.Misdeeds()...)
}

// event is one thing that happens, and the time until the next.
type event struct {
	What, Name string
	Then       time.Duration
}

func drawEvents(t *rapid.T) []event {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event {
		return event{
			What: rapid.SampledFrom(slices.Sorted(maps.Keys(happenings))).Draw(t, "what"),
			Name: rapid.SampledFrom([]string{"api-1", "api-2", "static-1", "static-2"}).Draw(t, "name"),
			Then: rapid.SampledFrom([]time.Duration{0, 0, time.Second, 11 * time.Second, 2 * time.Minute}).Draw(t, "then"),
		}
	}), 1, 40).Draw(t, "events")
}

func TestPW15WhateverHappensEveryPodEndsUpAsItShouldAndNoneRunsTwice(t *testing.T) { // PW-6, PW-9, PW-28, PW-53
	sights := map[string]func(*world, *worker.Config){
		"at once": func(*world, *worker.Config) {}, "by pleg": (*world).seesByPleg,
	}
	for name, sees := range sights {
		t.Run("seen "+name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				events, places := drawEvents(rt), rapid.IntRange(1, 4).Draw(rt, "places")
				wrong, transcript := liveThrough(t, events, places, sees)
				if len(wrong) > 0 {
					rt.Fatalf("%s\nafter %v\ntranscript:\n%s", strings.Join(wrong, "\n"), events, strings.Join(transcript, "\n"))
				}
			})
		})
	}
}

// liveThrough says what was not as it should be, and what the engine did.
func liveThrough(t *testing.T, events []event, places int, sees func(*world, *worker.Config)) (wrong, transcript []string) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, engine: engine.New(), unready: map[podid.Source]bool{}}
		l := &life{world: w, desired: map[string]*v1.Pod{}, places: places}
		w.configure = func(c *worker.Config) {
			c.Runtime, c.Admit = guard{w.engine, l}, l.admit
			sees(w, c)
		}
		w.boot()
		for _, e := range events {
			happenings[e.What](l, e.Name)
			l.pass(e.Then)
		}
		wrong = l.settle()
		transcript = w.engine.Transcript()
		w.stop()
	})
	return wrong, transcript
}

func TestF15AgentsThatDieAtAnyMomentCountTheRestartsOfACrashLoopWithoutGap(t *testing.T) { // PW-53
	rapid.Check(t, func(rt *rapid.T) {
		lives := rapid.SliceOfN(rapid.IntRange(0, 60_000), 1, 20).Draw(rt, "lives in ms")
		var transcript, misdeeds []string
		synctest.Test(t, func(t *testing.T) {
			w := &world{T: t, engine: engine.New(), unready: map[podid.Source]bool{}, configure: func(*worker.Config) {}}
			w.engine.Script("app", engine.Script{Pull: 700 * time.Millisecond, Runs: 1300 * time.Millisecond, ExitCode: 1})
			web := apiPod("web")
			w.boot()
			for _, ms := range lives {
				w.create(web)
				w.after(time.Duration(ms) * time.Millisecond)
				w.stop()
				web = web.DeepCopy()
				web.Status, _ = w.statuses.GetPodStatus(web.UID)
				w.boot()
			}
			w.stop()
			transcript, misdeeds = w.engine.Transcript(), w.engine.Misdeeds()
		})
		starts := 0
		for _, line := range transcript {
			if line == fmt.Sprintf("start web_shop/app #%d", starts) {
				starts++
			} else if strings.HasPrefix(line, "start") {
				misdeeds = append(misdeeds, fmt.Sprintf("%s, after %d starts", line, starts))
			}
		}
		if len(misdeeds) > 0 || strings.Count(strings.Join(transcript, "\n"), "sandbox") > 1 {
			rt.Fatalf("%v\ntranscript:\n%s", misdeeds, strings.Join(transcript, "\n"))
		}
	})
}
