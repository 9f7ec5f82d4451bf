package manager_test

import (
	"errors"
	"io/fs"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/podid"
)

// One value of a pod's cgroup changes at a time, and the weight of its class with the pod's.
func TestRSZ16_UpdatePod(t *testing.T) {
	for version, files := range map[string][]string{
		"1": {"cpu/kubepods/burstable/poda/cpu.cfs_quota_us", "100000", "200000", "cpu/kubepods/burstable/poda/cpu.shares", "1024", "2048", "cpu/kubepods/burstable/cpu.shares"},
		"2": {"kubepods/burstable/poda/cpu.max", "100000 100000", "200000 100000", "kubepods/burstable/poda/cpu.weight", "39", "79", "kubepods/burstable/cpu.weight"},
	} {
		t.Run("version "+version, func(t *testing.T) {
			h := newHarness(t, cgroup.Host{V2: version == "2"})
			h.pods = []*v1.Pod{newPod("a", "1", "")}
			h.ensure(h.pods[0])
			resized := newPod("a", "2", "")
			current, desired, err := h.ReadPod(t.Context(), resized)
			if err != nil || *current.CPUQuota != 100_000 || *desired.CPUQuota != 200_000 || *current.CPUShares >= *desired.CPUShares {
				t.Fatalf("got %+v, %+v, %v", current, desired, err)
			}
			if err := h.UpdatePod(t.Context(), resized, cgroup.Resources{CPUQuota: desired.CPUQuota}); err != nil {
				t.Fatal(err)
			}
			h.want(files[0], files[2])
			h.want(files[3], files[4])
			h.pods = []*v1.Pod{resized}
			if err := h.UpdatePod(t.Context(), resized, cgroup.Resources{CPUShares: desired.CPUShares}); err != nil {
				t.Fatal(err)
			}
			h.want(files[3], files[5])
			h.want(files[6], files[5])
			current, desired, err = h.ReadPod(t.Context(), resized)
			if err != nil || *current.CPUShares != *desired.CPUShares || *current.CPUQuota != *desired.CPUQuota {
				t.Errorf("got %+v, %+v, %v", current, desired, err)
			}
		})
	}
}

// The periodic repair does not touch a pod whose resize is in progress: it knows no order.
func TestRSZ16_NoRepair(t *testing.T) {
	isResizing := true
	h := newHarness(t, cgroup.Host{V2: true}, func(h *harness) { h.config.IsResizing = func(podid.UID) bool { return isResizing } })
	h.ensure(newPod("a", "1", "64Mi"))
	h.pods = []*v1.Pod{newPod("a", "1", "32Mi")}
	for _, want := range []string{"67108864", "33554432"} {
		if err := h.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.want("kubepods/poda/memory.max", want)
		isResizing = false
	}
}

func TestReadPod_NoCgroup(t *testing.T) {
	h := newHarness(t, cgroup.Host{V2: true})
	if _, _, err := h.ReadPod(t.Context(), newPod("a", "1", "")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that there is no cgroup", err)
	}
}
