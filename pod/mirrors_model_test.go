package pod_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/podid"
)

// step is one thing that happens to a node, and the time until the next.
type step struct {
	What, Name string
	Then       time.Duration
}

func (s step) String() string { return fmt.Sprintf("%s %s, %v later", s.What, s.Name, s.Then) }

// happenings is all that can befall a name, a cluster or a watch.
var happenings = map[string]func(w *world, name string, fresh types.UID){
	"add a static pod":        func(w *world, name string, fresh types.UID) { w.editStatic(name, fresh) },
	"edit it":                 func(w *world, name string, fresh types.UID) { w.editStatic(name, fresh) },
	"remove it":               func(w *world, name string, _ types.UID) { w.removeStatic(name) },
	"its pod begins to stop":  func(w *world, name string, _ types.UID) { w.setTerminating(name, true) },
	"its pod has stopped":     func(w *world, name string, _ types.UID) { w.setTerminating(name, false) },
	"kubectl delete":          func(w *world, name string, _ types.UID) { w.kubectlDelete(fullName(name), 30) },
	"kubectl delete --force":  func(w *world, name string, _ types.UID) { w.kubectlDelete(fullName(name), 0) },
	"a stranger comes":        func(w *world, name string, _ types.UID) { w.kubectlCreate(newPod(name, "")) },
	"a far stranger comes":    func(w *world, name string, _ types.UID) { w.addFarStranger(name) },
	"API server goes down":    func(w *world, _ string, _ types.UID) { w.fail(func(string) error { return errLost }, nil) },
	"API server comes back":   func(w *world, _ string, _ types.UID) { w.fail(nil, nil) },
	"API server throttles":    func(w *world, _ string, _ types.UID) { w.fail(everyThird(errors.New("busy")), nil) },
	"answers are lost":        func(w *world, _ string, _ types.UID) { w.fail(nil, func(string) bool { return true }) },
	"node is deleted":         func(w *world, _ string, _ types.UID) { w.set(func(c *cluster) { c.node = nil }) },
	"node registers":          func(w *world, _ string, fresh types.UID) { w.registerNode(fresh) },
	"watch begins to lag":     func(w *world, _ string, _ types.UID) { w.setLag(30 * time.Second) },
	"watch catches up":        func(w *world, _ string, _ types.UID) { w.setLag(0) },
	"a source gets late":      func(w *world, _ string, _ types.UID) { w.setSourcesReady(false) },
	"all sources were heard":  func(w *world, _ string, _ types.UID) { w.setSourcesReady(true) },
	"nothing, but time flies": func(*world, string, types.UID) {},
}

func everyThird(err error) func(string) error {
	asked := 0
	return func(string) error {
		asked++
		if asked%3 == 0 {
			return err
		}
		return nil
	}
}

func (w *world) fail(refuse func(string) error, lose func(string) bool) {
	w.set(func(c *cluster) { c.refuse, c.lose = refuse, lose })
}

func (w *world) registerNode(uid types.UID) {
	w.set(func(c *cluster) { c.node = newCluster().node; c.node.UID = uid })
}

func (w *world) addFarStranger(name string) {
	stranger := newPod(name, "")
	stranger.Spec.NodeName = "n2"
	w.kubectlCreate(stranger)
}

func (w *world) setTerminating(name string, yes bool) {
	with(w, func() any { w.terminating[fullName(name)] = yes; return nil })
}

func (w *world) setLag(lag time.Duration) { with(w, func() any { w.lag = lag; return nil }) }

func (w *world) setSourcesReady(yes bool) { with(w, func() any { w.sourcesReady = yes; return nil }) }

var anyStep = rapid.Custom(func(t *rapid.T) step {
	return step{
		What: rapid.SampledFrom(slices.Sorted(maps.Keys(happenings))).Draw(t, "what"),
		Name: rapid.SampledFrom([]string{"web", "db"}).Draw(t, "name"),
		Then: rapid.SampledFrom([]time.Duration{0, 0, time.Second, 15 * time.Second, 3 * time.Minute}).Draw(t, "then"),
	}
})

func TestWhateverHappensTheMirrorsAreRightInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(anyStep, 1, 40).Draw(rt, "steps")
		var wrong []string // the bubble's goroutine must not end the property's
		synctest.Test(t, func(t *testing.T) { wrong = live(newWorld(t), steps) })
		if len(wrong) > 0 {
			rt.Fatalf("%q", wrong)
		}
	})
}

// live goes through the steps, lets the world calm down, and returns all that is not as it should be.
func live(w *world, steps []step) (wrong []string) {
	defer w.start()()
	for i, step := range steps {
		happenings[step.What](w, step.Name, types.UID(fmt.Sprint("h", i)))
		pass(step.Then)
	}
	before := maps.Clone(w.cluster.pods)
	w.calmDown()
	pass(20 * time.Minute)
	for name, held := range before {
		if !podid.IsMirror(held) && w.pod(name) != held {
			wrong = append(wrong, fmt.Sprintf("the stranger %s was touched", name))
		}
	}
	for _, name := range []string{"web", "db"} {
		if held := w.pod(fullName(name)); held != nil && !podid.IsMirror(held) {
			w.kubectlDelete(fullName(name), 0)
		}
	}
	pass(20 * time.Minute)
	w.sent()
	pass(time.Hour)
	return append(append(wrong, w.faults()...), w.misdeeds...)
}

func (w *world) calmDown() {
	w.fail(nil, nil)
	w.registerNode("node-uid")
	w.setLag(0)
	w.setSourcesReady(true)
	with(w, func() any { clear(w.terminating); return nil })
}

// faults lists what is not as it should be in a world at rest.
func (w *world) faults() (wrong []string) {
	for operation, count := range w.sent() {
		wrong = append(wrong, fmt.Sprintf("%d times %s in an hour at rest", count, operation))
	}
	for _, name := range []string{"web", "db"} {
		static, watched := w.pods.GetStaticPodAndMirrorPod(fullName(name))
		mirror := w.pod(fullName(name))
		switch {
		case static == nil && mirror != nil:
			wrong = append(wrong, fmt.Sprintf("%s: orphaned mirror %v", name, mirror.ObjectMeta))
		case static != nil && mirror == nil:
			wrong = append(wrong, fmt.Sprintf("%s: no mirror", name))
		case static != nil && (!podid.Reflects(mirror, static) || mirror.DeletionTimestamp != nil):
			wrong = append(wrong, fmt.Sprintf("%s: wrong mirror %v", name, mirror.ObjectMeta))
		case static != nil && (watched == nil || watched.UID != mirror.UID):
			wrong = append(wrong, fmt.Sprintf("%s: the Manager shows another mirror", name))
		}
	}
	if left := w.mirrors.Conflicts(); len(left) > 0 {
		wrong = append(wrong, fmt.Sprintf("conflicts stay: %v", left))
	}
	return wrong
}
