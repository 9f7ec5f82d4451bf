package action_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/remedy"
)

// TestR4_Snapshots: of many pods that fail together only some are saved, each refusal is recorded once, and alerts that go on to flap
// cause no decisions.
func TestR4_Snapshots(t *testing.T) {
	const pods = 110
	run(t, func(h *harness) {
		for i := range pods {
			h.addPod(fmt.Sprintf("web-%03d", i), nil)
		}
	}, func(h *harness) {
		actions := enforce(remedy.Snapshot)
		fire := func(state alert.State) {
			for i := range pods {
				failing := newAlert("Failing", fmt.Sprintf("web-%03d", i), 1)
				failing.State = state
				h.actor.Fired(failing, actions, nil)
				synctest.Wait()
			}
		}
		fire(alert.Firing)
		h.wait(time.Minute)
		if got := len(h.taken()); got != 10 {
			t.Fatalf("got %d snapshots, want 10", got)
		}
		before := h.lookCount()
		for range 10 {
			fire(alert.Recovering)
			h.wait(time.Second)
			fire(alert.Firing)
			h.wait(4 * time.Second)
		}
		// The breaker looks at the node once a second at most; it was suspended when most of the pods had fired.
		if got := h.lookCount() - before; got > 60 {
			t.Errorf("got %d looks at the node and its pods although nothing was due, want at most one a second", got)
		}
		refusals := map[string]int{}
		for _, record := range h.recorded() {
			if record.Decision == remedy.Refuse {
				refusals[string(record.Reason)+" "+record.Object.String()]++
			}
		}
		if len(refusals) != pods-10 || refusals["NodeLimit shop/web-109"] != 1 {
			t.Errorf("got refusals %v, want one for each of %d pods", refusals, pods-10)
		}
		for refusal, count := range refusals {
			if count != 1 {
				t.Errorf("got %d records of refusal %s, want 1", count, refusal)
			}
		}
		h.wait(10 * time.Minute)
		if got := len(h.taken()); got != 20 {
			t.Errorf("got %d snapshots after 10 more minutes, want 20", got)
		}
	})
}
