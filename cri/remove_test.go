package cri_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/podid"
)

func TestRemovePod(t *testing.T) {
	links := t.TempDir()
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		other := newPod(func(pod *v1.Pod) { pod.Name, pod.UID = "other", "uid-2" })
		before := listFiles(h.T, h.root)
		c := h.startPod(pod)
		h.startPod(other)
		if got := listFiles(h.T, links); !slices.Contains(got, "shop_prod_web-"+c.ID.ID+".log") || len(got) != 2 {
			h.Errorf("got links %v", got)
		}
		if err := h.RemovePod(h.Context(), "uid-1"); err == nil {
			h.Error("running pod: got no error")
		}
		if c := h.onlyContainer(pod); c.Exit != nil {
			h.Errorf("got container %+v", c)
		}
		for _, one := range []*v1.Pod{pod, other} {
			if err := h.StopSandbox(h.Context(), h.inspect(one).Sandboxes[0].ID); err != nil {
				h.Fatal(err)
			}
		}
		h.fake.inject("RemoveContainer", fails(codes.NotFound, "gone"))
		if err := h.RemovePod(h.Context(), "uid-1"); err != nil {
			h.Fatal(err)
		}
		if len(listFiles(h.T, links)) != 1 || len(h.inspect(other).Containers) != 1 {
			h.Error("got files or containers of another pod removed")
		}
		if err := h.RemovePod(h.Context(), "uid-2"); err != nil {
			h.Fatal(err)
		}
		if after := listFiles(h.T, h.root); !slices.Equal(append(before, "logs", "pods"), after) {
			h.Errorf("got remaining files %v", after)
		}
		if pods, err := h.ListPods(h.Context()); err != nil || len(pods) > 1 {
			h.Errorf("got %+v, %v", pods, err)
		}
		if err := h.RemovePod(h.Context(), "../uid-2"); err == nil {
			h.Error("UID is a path: got no error")
		}
	}, func(config *cri.Config) { config.ContainerLogDir = links })
}

// A container that cannot be removed delays neither the others nor the pod's cgroup.
func TestRemovePod_ContainerBusy(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		container := h.startPod(pod)
		h.fake.exit(container.ID.ID, 0)
		h.fake.inject("RemoveContainer", fails(codes.Unknown, "device or resource busy"))
		uid := podid.UID(pod.UID)
		err := h.RemovePod(h.Context(), uid)
		var typed interface{ OnlyRecordsLeft() bool }
		if !errors.As(err, &typed) || !typed.OnlyRecordsLeft() || !strings.Contains(err.Error(), "device or resource busy") {
			h.Errorf("got error %v, want one that only records are left", err)
		}
		if err := h.RemovePod(h.Context(), uid); err != nil {
			h.Errorf("second attempt: got error %v", err)
		}
		if inspected := h.inspect(pod); len(inspected.Containers)+len(inspected.Sandboxes) > 0 {
			h.Errorf("got %+v, want nothing", inspected)
		}

		container = h.startPod(pod)
		h.fake.inject("ListContainers", fails(codes.Unavailable, "down"))
		if err := h.RemovePod(h.Context(), uid); err == nil || errors.As(err, &typed) {
			h.Errorf("runtime down: got error %v, want one without the hint", err)
		}
		if err := h.RemovePod(h.Context(), uid); err == nil || errors.As(err, &typed) {
			h.Errorf("container %s running: got error %v, want one without the hint", container.Name, err)
		}
	})
}
