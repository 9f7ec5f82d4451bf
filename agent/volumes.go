package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// volumes are the node's, with one more who removes some: what an earlier agent left of pods that nobody knows any more. A
// pod that comes back under such a UID mounts nothing before that is done.
type volumes struct {
	Volumes

	mu      sync.Mutex                  // guards removed
	removed map[podid.UID]chan struct{} // those that are being removed; closed when it is done
}

// Mount implements worker.Volumes.
func (v *volumes) Mount(ctx context.Context, pod *v1.Pod) error {
	v.mu.Lock()
	done, busy := v.removed[podid.UID(pod.UID)]
	v.mu.Unlock()
	if busy {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("wait until the volumes of an earlier pod are removed: %w", ctx.Err())
		}
	}
	return v.Volumes.Mount(ctx, pod)
}

// claim keeps the pod from mounting until it is released.
func (v *volumes) claim(uid podid.UID) (release func()) {
	done := make(chan struct{})
	v.mu.Lock()
	defer v.mu.Unlock()
	v.removed[uid] = done
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.removed, uid)
		close(done)
	}
}

// unmountTimeout bounds one attempt to remove what is left of a pod, so that one folder does not keep all others.
const unmountTimeout = time.Minute

// removeVolumes looks after the orphaned volumes at short intervals, apart from all else: a volume may take its time.
func (a *Agent) removeVolumes(ctx context.Context) error {
	ticker := time.NewTicker(a.config.HousekeepingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			a.removeOrphanedVolumes(ctx)
		}
	}
}

func (a *Agent) removeOrphanedVolumes(ctx context.Context) {
	left, err := a.volumes.Pods()
	if err != nil {
		a.config.Logger.Error("Folders of pods cannot be listed", "err", err)
		return
	}
	known := a.known()
	for _, uid := range left {
		if known[types.UID(uid)] {
			continue
		}
		release := a.volumes.claim(uid) // and only then ask again: a pod that is not known now cannot mount any more
		if a.isOrphaned(uid) {
			a.unmount(ctx, uid)
		}
		release()
	}
}

// isOrphaned reports whether nobody wants the pod, no worker drives it, and the runtime holds nothing of it.
func (a *Agent) isOrphaned(uid podid.UID) bool {
	held := a.held()
	if held == nil || !a.Sources.AllReady() || a.known()[types.UID(uid)] {
		return false
	}
	for _, p := range held {
		if p.UID == uid {
			return false
		}
	}
	return true
}

func (a *Agent) unmount(ctx context.Context, uid podid.UID) {
	ctx, cancel := context.WithTimeout(ctx, unmountTimeout)
	defer cancel()
	if err := a.volumes.Unmount(ctx, uid); err != nil {
		a.config.Logger.Error("The folder of a pod that is gone cannot be removed", "uid", uid, "err", err)
	}
}
