package status_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// recordingJournal keeps what it receives.
type recordingJournal struct {
	mu       sync.Mutex
	versions []status.Version
	acked    map[podid.UID]uint64
}

func (j *recordingJournal) Accepted(version status.Version) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.versions = append(j.versions, version)
}

func (j *recordingJournal) Acknowledged(uid podid.UID, version uint64, _ time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.acked[uid] = version
}

func TestJournal_EveryVersion(t *testing.T) {
	journal := &recordingJournal{acked: map[podid.UID]uint64{}}
	withHarness(t, func(c *status.Config) { c.Journal = journal }, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		h.SetPodStatus(pod, runningStatus()) // unchanged
		h.SetPodStatus(pod, runningWithReason("changed"))
		synctest.Wait()
		h.TerminatePod(pod)
		synctest.Wait()
		h.RemoveOrphanedStatuses(map[types.UID]bool{})
		var got []status.Via
		for i, version := range journal.versions {
			got = append(got, version.Via)
			if i > 0 && (version.Previous != journal.versions[i-1].Version || version.Before == nil) {
				t.Errorf("%s: got previous version %d, want %d", version.Via, version.Previous, journal.versions[i-1].Version)
			}
		}
		want := []status.Via{status.ViaWorker, status.ViaWorker, status.ViaTerminate, status.ViaRemove}
		if len(got) != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		if acked := journal.acked[podid.UID(pod.UID)]; acked != journal.versions[2].Version {
			t.Errorf("got acknowledged version %d, want %d", acked, journal.versions[2].Version)
		}
	})
}

// StatusRefused and StatusNotTold are evaluated when the state of a pod's sync changes, not only at versions.
func TestOnSync_FailuresBeginAndEnd(t *testing.T) {
	var mu sync.Mutex
	var calls []podid.UID
	take := func() []podid.UID {
		mu.Lock()
		defer mu.Unlock()
		taken := calls
		calls = nil
		return taken
	}
	configure := func(c *status.Config) {
		c.OnSync = func(uid podid.UID) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, uid)
		}
	}
	withHarness(t, configure, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		if got := take(); len(got) != 0 {
			t.Errorf("got calls %v for a status that was accepted at once, want none", got)
		}
		h.server.SetDown(true)
		h.SetPodStatus(pod, runningWithReason("changed"))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := take(); len(got) != 1 || got[0] != podid.UID(pod.UID) {
			t.Errorf("got calls %v during an outage, want one", got)
		}
		h.server.SetDown(false)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := take(); len(got) != 1 {
			t.Errorf("got calls %v after the outage, want one", got)
		}
	})
}
