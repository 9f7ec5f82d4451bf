package manager_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/manager"
	"github.com/heraldnode/herald/podid"
)

// CGR-23
func TestCGR23_OrphansRemoved(t *testing.T) {
	for _, driver := range []string{cgroup.DriverCgroupfs, cgroup.DriverSystemd} {
		t.Run(driver, func(t *testing.T) {
			orphaned := map[podid.UID]bool{}
			h := newHarness(t, cgroup.Host{}, func(h *harness) {
				h.driver = driver
				h.mkdir = func(path string) error { return os.Mkdir(path, 0o755) } // the kernel removes files with the directory
				h.config = manager.WithSystemd(h.config, func(call string) error {
					h.units = append(h.units, call)
					return nil
				})
				h.config.IsOrphaned = func(uid podid.UID) bool { return orphaned[uid] }
			})
			for _, uid := range []string{"a-1", "b-2"} {
				h.ensure(newPod(uid, "1", ""))
				h.ensure(newPod(uid, "1", "1Gi")) // another QoS class
			}
			count := func() int {
				found, _ := filepath.Glob(filepath.Join(h.mount, "*/kubepods*/*pod[ab]*"))
				below, _ := filepath.Glob(filepath.Join(h.mount, "*/kubepods*/*/*pod[ab]*"))
				return len(found) + len(below)
			}
			before := count()
			orphaned["a-1"] = true
			if err := h.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := count(); before == 0 || after != before/2 {
				t.Errorf("got %d cgroups of %d, want half", after, before)
			}
			if driver == cgroup.DriverSystemd && !slices.Contains(h.units, "stop kubepods-burstable-poda_1.slice") {
				t.Errorf("got %q, want the slice stopped", h.units)
			}
		})
	}
}

// A pod that comes back under the same UID waits until its old cgroup is removed.
func TestCGR23_PodComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		isWanted, inRemoval, goOn := false, make(chan struct{}), make(chan struct{})
		h := newHarness(t, cgroup.Host{}, func(h *harness) {
			h.driver = cgroup.DriverSystemd
			h.mkdir = func(path string) error { return os.Mkdir(path, 0o755) }
			h.config = manager.WithSystemd(h.config, func(call string) error {
				if strings.HasPrefix(call, "stop") {
					close(inRemoval)
					<-goOn
				}
				return nil
			})
			h.config.IsOrphaned = func(podid.UID) bool { return !isWanted }
		})
		pod := newPod("a", "1", "")
		h.ensure(pod)
		refreshed := make(chan error, 1)
		go func() { refreshed <- h.Refresh(t.Context()) }()
		<-inRemoval
		isWanted = true
		created := make(chan error, 1)
		go func() { created <- h.EnsurePod(t.Context(), pod) }()
		synctest.Wait()
		if len(created) > 0 {
			t.Error("the cgroup was created during its removal")
		}
		close(goOn)
		if err := errors.Join(<-refreshed, <-created); err != nil {
			t.Fatal(err)
		}
		if found, _ := filepath.Glob(filepath.Join(h.mount, "cpu/kubepods.slice/*/*-poda.slice")); len(found) != 1 {
			t.Errorf("got cgroups %v, want one", found)
		}
	})
}

// Slice names have underscores for dashes: a UID with an underscore could be taken for another pod's.
func TestCGR4_Underscore(t *testing.T) {
	h := newHarness(t, cgroup.Host{V2: true}, func(h *harness) { h.driver = cgroup.DriverSystemd })
	if err := h.EnsurePod(t.Context(), newPod("a_b", "1", "")); err == nil || !strings.Contains(err.Error(), "underscore") {
		t.Errorf("got error %v", err)
	}
}
