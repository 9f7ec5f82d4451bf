package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/podid"
)

// removeOrphans removes the cgroups of pods that disappeared while no agent ran, or whose removal was interrupted (CGR-23).
func (m *Manager) removeOrphans(ctx context.Context, driver string) error {
	if m.isDisabled() {
		return nil
	}
	uids, err := m.podsWithCgroup(driver)
	errs := []error{err}
	for uid := range uids {
		if !m.config.IsOrphaned(uid) {
			continue
		}
		end := m.beginRemoval(uid) // check again afterwards: a pod that is unknown now cannot create its cgroup any more
		if m.config.IsOrphaned(uid) {
			m.config.Logger.Info("Removing cgroup of orphaned pod", "podUID", uid)
			errs = append(errs, m.RemovePod(ctx, uid))
		}
		end()
	}
	return errors.Join(errs...)
}

// podsWithCgroup returns the pods that have a cgroup in any hierarchy.
func (m *Manager) podsWithCgroup(driver string) (map[podid.UID]bool, error) {
	uids := map[podid.UID]bool{}
	var errs []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		parent := cgroup.QOSName(m.node, class)
		for _, hierarchy := range m.hierarchies() {
			entries, err := os.ReadDir(filepath.Join(hierarchy, parent.Path(driver)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			for _, entry := range entries {
				if uid, isPod := parent.PodUID(entry.Name(), driver); isPod && entry.IsDir() && checkUID(uid) == nil {
					uids[uid] = true
				}
			}
		}
	}
	return uids, errors.Join(errs...)
}

// beginRemoval blocks EnsurePod of the pod until end is called.
func (m *Manager) beginRemoval(uid podid.UID) (end func()) {
	done := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removals[uid] = done
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.removals, uid)
		close(done)
	}
}

func (m *Manager) awaitRemoval(ctx context.Context, uid podid.UID) error {
	m.mu.Lock()
	done, found := m.removals[uid]
	m.mu.Unlock()
	if !found {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the removal of its previous cgroup: %w", ctx.Err())
	}
}
