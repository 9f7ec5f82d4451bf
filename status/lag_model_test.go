package status_test

import (
	"fmt"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// checkSyncs checks for each pod that Sync says synced if and only if what the node owns is equal in the cached status and in the
// API object, at the version that Sync names (Q3). That version is compared with the server's if it is the newest, and with what
// Sync returns otherwise: the agent cannot know what a broken watch did not deliver.
func (m *model) checkSyncs() {
	synctest.Wait()
	syncs := m.Syncs()
	for _, pod := range m.allPods() {
		uid := podid.UID(pod.pod.UID)
		sync, found := syncs[uid]
		cached, cachedFound := m.GetPodStatus(pod.pod.UID)
		if found != cachedFound {
			m.violations = append(m.violations, fmt.Sprintf("Q3: %s has a Sync: %v, a status: %v", pod.pod.Name, found, cachedFound))
		}
		if !found {
			continue
		}
		report := func(format string, args ...any) {
			m.violations = append(m.violations, fmt.Sprintf("Q3: pod %s %s is %s: ", pod.pod.Name, uid, sync.State)+fmt.Sprintf(format, args...))
		}
		if (sync.State == status.SyncSynced) != (sync.Behind == 0) {
			report("%d versions behind", sync.Behind)
		}
		if sync.Synced == nil {
			if sync.State == status.SyncSynced {
				report("with an unknown object")
			}
			continue
		}
		known := *sync.Synced
		object := m.server.Pod(podid.FullNameOf(pod.pod))
		if object != nil && m.staticUID(object.UID) == pod.pod.UID && object.ResourceVersion == sync.ResourceVersion {
			known = object.Status
		}
		if derive.IsTerminal(cached.Phase) && known.Phase == cached.Phase && conditionOf(known, v1.PodReady).Status == v1.ConditionFalse {
			cached = *cached.DeepCopy() // the model's workers leave it ready (SM-70)
			setReadyConditions(&cached, conditionOf(known, v1.PodReady).Reason)
		}
		diff := heraldtest.DiffOwnedStatus(&known, &cached)
		switch {
		case sync.State == status.SyncSynced && diff != "":
			report("but %s", diff)
		case sync.State != status.SyncSynced && sync.State != status.SyncGone && diff == "" && !m.mayBeUnsettled(sync):
			report("with equal statuses, reason %q", sync.Reason)
		}
	}
}

// mayBeUnsettled reports whether a request of the pod may still change the object: one that failed, or one under way.
func (m *model) mayBeUnsettled(sync status.Sync) bool {
	return sync.Failures > 0 || sync.State == status.SyncSending
}
