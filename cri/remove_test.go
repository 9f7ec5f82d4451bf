package cri_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cri"
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
