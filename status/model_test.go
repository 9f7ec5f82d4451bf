package status_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
)

// step is one thing that happens, to one name, in one of its variants, and the time until the next.
type step struct {
	What, Name string
	Variant    int
	Then       time.Duration
}

func (s step) String() string {
	return fmt.Sprintf("%s %s (%d), %v later", s.What, s.Name, s.Variant, s.Then)
}

// happenings is all that can befall a pod, an agent, or what is between it and the API server.
var happenings = map[string]func(w *world, s step){
	"a pod is bound":         func(w *world, s step) { w.appear(s) },
	"its container goes on":  func(w *world, s step) { w.each(s, func(p *worked) { w.goOn(p, int32(s.Variant%2)) }) },
	"its container goes  on": func(w *world, s step) { w.each(s, func(p *worked) { w.goOn(p, int32(s.Variant%2)) }) },
	"its worker resyncs":     func(w *world, s step) { w.each(s, func(p *worked) { w.set(p, p.status) }) },
	"its worker errs":        func(w *world, s step) { w.each(s, w.goBack) },
	"readiness is probed":    func(w *world, s step) { w.each(s, func(p *worked) { w.probe(p, s.Variant) }) },
	"it ends":                func(w *world, s step) { w.each(s, w.end) },
	"nothing of it runs":     func(w *world, s step) { w.each(s, func(p *worked) { w.cleanup.setRunning(p.pod.UID, false) }) },
	"its volumes linger":     func(w *world, s step) { w.each(s, func(p *worked) { w.cleanup.setHeld(p.pod.UID, true) }) },
	"its volumes are gone":   func(w *world, s step) { w.each(s, func(p *worked) { w.cleanup.setHeld(p.pod.UID, false) }) },
	"kubectl delete":         func(w *world, s step) { w.server.DeletePod(podid.FullName{Namespace: "shop", Name: s.Name}, 30) },
	"kubectl delete --force": func(w *world, s step) { w.server.DeletePod(podid.FullName{Namespace: "shop", Name: s.Name}, 0) },
	"somebody interferes":    func(w *world, s step) { w.interfere(s.Name, interference[s.Variant%len(interference)]) },
	"requests fail":          func(w *world, s step) { w.fail(s) },
	"requests  fail":         func(w *world, s step) { w.fail(s) },
	"the watch is cut":       func(w *world, _ step) { w.server.CutWatches() },
	"the watch stalls":       func(w *world, _ step) { w.script(fault.On("watch", "/pods").Times(1).Stall()) },
	"etcd is compacted":      func(w *world, _ step) { w.server.Compact() },
	"the API server is down": func(w *world, _ step) { w.server.SetDown(true) },
	"the API server is back": func(w *world, _ step) { w.server.SetDown(false) },
	"the agent restarts":     func(w *world, _ step) { w.stop(); w.start(); w.resync() },
	"the agent is killed":    func(w *world, _ step) { w.crash(); w.start(); w.resync() },
	"housekeeping":           func(w *world, _ step) { w.housekeeping() },
	"time passes":            func(*world, step) {},
}

// names are those of two ordinary pods and a static one.
var names = []string{"web", "job", "etcd-n1"}

func (w *world) appear(s step) {
	switch s.Name {
	case "web":
		w.bind(s.Name, v1.RestartPolicyAlways)
	case "job":
		w.bind(s.Name, v1.RestartPolicyNever)
	default:
		w.place(s.Name)
	}
	synctest.Wait()
}

// each does something with the newest pod of the step's name, or, in some variants, with one before it.
func (w *world) each(s step, do func(*worked)) {
	if pods := w.pods[s.Name]; len(pods) > 0 {
		if p := pods[len(pods)-1-min(s.Variant/6, len(pods)-1)]; w.hasWorker(p) {
			do(p)
		}
	}
}

func (w *world) probe(p *worked, variant int) {
	if p.status.ContainerStatuses[0].State.Running == nil {
		return
	}
	id := containerID(p.status.ContainerStatuses[0].ContainerID[len("test://"):])
	if variant%2 == 0 {
		w.node.SetContainerStartup(p.pod.UID, id, true)
	}
	w.node.SetContainerReadiness(p.pod.UID, id, variant%3 == 0)
}

// interference is what other writers do to a pod. None of them leaves a terminal phase: that would be their misdeed.
var interference = []func(*v1.Pod){
	func(p *v1.Pod) { setCondition(p, "example.com/gate", v1.ConditionTrue) },
	func(p *v1.Pod) { setCondition(p, "example.com/gate", v1.ConditionFalse) },
	func(p *v1.Pod) { setCondition(p, v1.PodReady, v1.ConditionFalse) },
	func(p *v1.Pod) { setCondition(p, v1.DisruptionTarget, v1.ConditionTrue) },
	func(p *v1.Pod) { p.Labels = map[string]string{"app": "changed"} },
	func(p *v1.Pod) { p.Status.NominatedNodeName = "n2" },
	func(p *v1.Pod) {
		if !isEnd(p.Status.Phase) {
			p.Status.Phase = v1.PodPending
		}
	},
	func(p *v1.Pod) {
		if !isEnd(p.Status.Phase) {
			p.Status.Phase, p.Status.Reason = v1.PodFailed, "NodeLost"
		}
	},
}

func setCondition(p *v1.Pod, kind v1.PodConditionType, value v1.ConditionStatus) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			if c.Status != value {
				c.LastTransitionTime = now
			}
			c.Status, c.Message = value, "theirs"
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: value, LastTransitionTime: now})
}

// fail breaks one to three of the next requests of a kind.
func (w *world) fail(s step) {
	verb := []string{"PATCH", "PATCH", "DELETE", "get"}[s.Variant%4]
	next := fault.On(verb, "/pods/").Times(1 + s.Variant/4%3)
	rules := []*fault.Rule{
		next.Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)),
		next.Reply(http.StatusInternalServerError),
		next.Reply(http.StatusServiceUnavailable),
		next.Refuse(),
		next.Reset(),
		next.LoseReply(),
		next.Delay(15 * time.Second), // longer than a client waits; a Hang of a request that is held as well would never end
		next.HoldFor(30 * time.Second),
		next.HoldFor(3 * time.Second),
		next.Duplicate(),
		next.Delay(2 * time.Second),
		next.CutAfter(20),
		fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusConflict),
		next.Reply(http.StatusNotFound, fault.Body("text/html", []byte("<html>no such page</html>"))),
		next.Reply(http.StatusOK, fault.Body("application/json", []byte("{}"))),
	}
	w.script(rules[s.Variant%len(rules)])
}

func (w *world) script(r *fault.Rule) { w.heal = append(w.heal, w.node.faults.Add(r)) }

var anyStep = rapid.Custom(func(t *rapid.T) step {
	return step{
		What:    rapid.SampledFrom(slices.Sorted(maps.Keys(happenings))).Draw(t, "what"),
		Name:    rapid.SampledFrom(names).Draw(t, "name"),
		Variant: rapid.IntRange(0, 167).Draw(t, "variant"),
		Then: rapid.SampledFrom([]time.Duration{
			0, 0, 0, time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 11 * time.Second, time.Minute,
		}).Draw(t, "then"),
	}
})

func TestWhateverHappensTheClusterIsToldTheTruthAndNothingBefore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(anyStep, 1, 60).Draw(rt, "steps")
		var wrong []string // the bubble's goroutine must not end the property's
		synctest.Test(t, func(t *testing.T) { wrong = live(newWorld(t), steps) })
		if len(wrong) > 0 {
			rt.Fatalf("%q", wrong)
		}
	})
}

// live goes through the steps, lets the world come to rest, and returns all that is not as it should be.
func live(w *world, steps []step) []string {
	defer w.stop()
	for _, name := range names {
		w.appear(step{Name: name})
	}
	for _, s := range steps {
		happenings[s.What](w, s)
		time.Sleep(s.Then)
	}
	return w.rest()
}
