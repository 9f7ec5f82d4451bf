package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// unmountTimeout bounds the removal of one pod's volumes, so that one pod does not block the others.
const unmountTimeout = time.Minute

// volumeCleaner wraps Volumes and removes those orphaned by a previous agent. A pod that is re-created under the same UID
// mounts its volumes after the removal.
type volumeCleaner struct {
	Volumes
	orphans, failures prometheus.Gauge // of the last sweep

	mu       sync.Mutex                  // guards removals
	removals map[podid.UID]chan struct{} // removals in progress; closed when done
}

func newVolumeCleaner(volumes Volumes) *volumeCleaner {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_" + name, Help: help})
	}
	return &volumeCleaner{
		Volumes: volumes, removals: map[podid.UID]chan struct{}{},
		orphans:  gauge("orphan_pod_cleaned_volumes", "Number of orphaned pods whose volumes the last sweep tried to remove."),
		failures: gauge("orphan_pod_cleaned_volumes_errors", "Number of orphaned pods whose volumes the last sweep failed to remove."),
	}
}

// Mount implements worker.Volumes.
func (c *volumeCleaner) Mount(ctx context.Context, pod *v1.Pod) error {
	c.mu.Lock()
	done, found := c.removals[podid.UID(pod.UID)]
	c.mu.Unlock()
	if found {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("wait for removal of orphaned volumes: %w", ctx.Err())
		}
	}
	return c.Volumes.Mount(ctx, pod)
}

// beginRemoval blocks mounts of the pod until end is called.
func (c *volumeCleaner) beginRemoval(uid podid.UID) (end func()) {
	done := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removals[uid] = done
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.removals, uid)
		close(done)
	}
}

// cleanUpVolumes removes orphaned volumes until ctx ends. It has its own goroutine because an unmount may take long.
func (a *Agent) cleanUpVolumes(ctx context.Context) error {
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
	uids, err := a.volumes.Pods()
	if err != nil {
		a.config.Logger.Error("Failed to list pods with volumes", "err", err)
		return
	}
	known, orphans, failures := a.knownPods(), 0, 0
	for _, uid := range uids {
		if known[types.UID(uid)] {
			continue
		}
		end := a.volumes.beginRemoval(uid) // check again afterwards: a pod that is unknown now cannot mount any more
		if a.IsOrphaned(uid) {
			orphans++
			if err := a.unmount(ctx, uid); err != nil {
				failures++
				a.config.Logger.Error("Failed to remove orphaned volumes", "podUID", uid, "err", err)
			}
		}
		end()
	}
	a.volumes.orphans.Set(float64(orphans))
	a.volumes.failures.Set(float64(failures))
}

// IsOrphaned reports whether the pod is not desired, has no worker, and is not in the runtime.
func (a *Agent) IsOrphaned(uid podid.UID) bool {
	runtimePods := a.runtimePods()
	if runtimePods == nil || !a.Sources.AllReady() || a.knownPods()[types.UID(uid)] {
		return false
	}
	return !slices.ContainsFunc(runtimePods, func(pod *observed.Pod) bool { return pod.UID == uid })
}

func (a *Agent) unmount(ctx context.Context, uid podid.UID) error {
	ctx, cancel := context.WithTimeout(ctx, unmountTimeout)
	defer cancel()
	return a.volumes.Unmount(ctx, uid)
}
