package mirror_test

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

// step is an operation on the harness, and the time until the next one.
type step struct {
	Operation, Name string
	Wait            time.Duration
}

// String returns the step as a failure report shows it.
func (s step) String() string { return fmt.Sprintf("%s %s, wait %v", s.Operation, s.Name, s.Wait) }

// operations are all changes of a name, the cluster and the watch that the property test draws from.
var operations = map[string]func(h *harness, name string, newUID types.UID){
	"add static pod":     func(h *harness, name string, newUID types.UID) { h.replaceStaticPod(name, newUID) },
	"replace static pod": func(h *harness, name string, newUID types.UID) { h.replaceStaticPod(name, newUID) },
	"remove static pod":  func(h *harness, name string, _ types.UID) { h.removeStaticPod(name) },
	"pod is terminating": func(h *harness, name string, _ types.UID) { h.setTerminating(name, true) },
	"pod has terminated": func(h *harness, name string, _ types.UID) { h.setTerminating(name, false) },
	"graceful delete":    func(h *harness, name string, _ types.UID) { h.userDeletes(fullName(name), 30) },
	"forced delete":      func(h *harness, name string, _ types.UID) { h.userDeletes(fullName(name), 0) },
	"foreign pod":        func(h *harness, name string, _ types.UID) { h.userCreates(newUserPod(name)) },
	"foreign pod on n2":  func(h *harness, name string, _ types.UID) { h.addPodOnOtherNode(name) },
	"API server down": func(h *harness, _ string, _ types.UID) {
		h.setFaults(func(string) error { return errConnectionReset }, nil)
	},
	"API server up":       func(h *harness, _ string, _ types.UID) { h.setFaults(nil, nil) },
	"API server throttle": func(h *harness, _ string, _ types.UID) { h.setFaults(everyThird(errors.New("busy")), nil) },
	"responses lost":      func(h *harness, _ string, _ types.UID) { h.setFaults(nil, func(string) bool { return true }) },
	"node deleted":        func(h *harness, _ string, _ types.UID) { h.update(func(c *fakeCluster) { c.node = nil }) },
	"node registered":     func(h *harness, _ string, newUID types.UID) { h.registerNode(newUID) },
	"watch lags":          func(h *harness, _ string, _ types.UID) { h.setWatchLag(30 * time.Second) },
	"watch catches up":    func(h *harness, _ string, _ types.UID) { h.setWatchLag(0) },
	"sources not ready":   func(h *harness, _ string, _ types.UID) { h.setSourcesReady(false) },
	"sources ready":       func(h *harness, _ string, _ types.UID) { h.setSourcesReady(true) },
	"none":                func(*harness, string, types.UID) {},
}

func everyThird(err error) func(string) error {
	calls := 0
	return func(string) error {
		calls++
		if calls%3 == 0 {
			return err
		}
		return nil
	}
}

func (h *harness) setFaults(fail func(string) error, loseResponse func(string) bool) {
	h.update(func(c *fakeCluster) { c.fail, c.loseResponse = fail, loseResponse })
}

func (h *harness) registerNode(uid types.UID) {
	h.update(func(c *fakeCluster) { c.node = newFakeCluster().node; c.node.UID = uid })
}

func (h *harness) addPodOnOtherNode(name string) {
	foreign := newUserPod(name)
	foreign.Spec.NodeName = "n2"
	h.userCreates(foreign)
}

var anyStep = rapid.Custom(func(t *rapid.T) step {
	return step{
		Operation: rapid.SampledFrom(slices.Sorted(maps.Keys(operations))).Draw(t, "operation"),
		Name:      rapid.SampledFrom([]string{"web", "db"}).Draw(t, "name"),
		Wait:      rapid.SampledFrom([]time.Duration{0, 0, time.Second, 15 * time.Second, 3 * time.Minute}).Draw(t, "wait"),
	}
})

// TestReconciler_Converges checks that any sequence of operations ends with the right mirror pods and no further requests.
func TestReconciler_Converges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(anyStep, 1, 40).Draw(rt, "steps")
		var violations []string // reported outside the bubble: its goroutine must not end the property's
		synctest.Test(t, func(t *testing.T) { violations = execute(newHarness(t), steps) })
		if len(violations) > 0 {
			rt.Fatalf("%q", violations)
		}
	})
}

// execute runs the steps, ends all faults, and returns what is wrong afterwards.
func execute(h *harness, steps []step) (violations []string) {
	defer h.start()()
	for i, step := range steps {
		operations[step.Operation](h, step.Name, types.UID(fmt.Sprint("h", i)))
		advance(step.Wait)
	}
	before := maps.Clone(h.fakeCluster.pods)
	h.endFaults()
	advance(20 * time.Minute)
	for name, stored := range before {
		if !podid.IsMirror(stored) && h.pod(name) != stored {
			violations = append(violations, fmt.Sprintf("foreign pod %s was changed", name))
		}
	}
	for _, name := range []string{"web", "db"} {
		if stored := h.pod(fullName(name)); stored != nil && !podid.IsMirror(stored) {
			h.userDeletes(fullName(name), 0)
		}
	}
	advance(20 * time.Minute)
	h.takeRequests()
	advance(time.Hour)
	return slices.Concat(violations, h.checkSettled(), h.violations)
}

func (h *harness) endFaults() {
	h.setFaults(nil, nil)
	h.registerNode("node-uid")
	h.setWatchLag(0)
	h.setSourcesReady(true)
	for _, name := range []string{"web", "db"} {
		h.setTerminating(name, false)
	}
}

// checkSettled returns what is wrong in a harness that should be at rest.
func (h *harness) checkSettled() (violations []string) {
	for operation, count := range h.takeRequests() {
		violations = append(violations, fmt.Sprintf("%d %s requests in an idle hour", count, operation))
	}
	for _, name := range []string{"web", "db"} {
		static, watched := h.pods.GetStaticPodAndMirrorPod(fullName(name))
		stored := h.pod(fullName(name))
		switch {
		case static == nil && stored != nil:
			violations = append(violations, fmt.Sprintf("%s: orphaned mirror pod %v", name, stored.ObjectMeta))
		case static != nil && stored == nil:
			violations = append(violations, fmt.Sprintf("%s: no mirror pod", name))
		case static != nil && (!podid.IsMirrorOf(stored, static) || stored.DeletionTimestamp != nil):
			violations = append(violations, fmt.Sprintf("%s: wrong mirror pod %v", name, stored.ObjectMeta))
		case static != nil && (watched == nil || watched.UID != stored.UID):
			violations = append(violations, fmt.Sprintf("%s: the pod manager has another mirror pod", name))
		}
	}
	if conflicts := h.reconciler.Conflicts(); len(conflicts) > 0 {
		violations = append(violations, fmt.Sprintf("open conflicts: %v", conflicts))
	}
	return violations
}
