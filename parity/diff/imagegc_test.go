package diff_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/images"

	"github.com/heraldnode/herald/imagegc"
	"github.com/heraldnode/herald/imagegc/manager"
)

const imageDisk = 2600 // bytes, more than all images and other data together

// imageHistory is what happens on both nodes: images appear one after the other, are used and pinned, and other data comes and goes.
type imageHistory struct {
	images []imagegc.Image
	other  int64 // bytes of other data
}

func (h *imageHistory) step(g *generator) {
	if len(h.images) < 12 && g.chance(60) { // at most one in a pass: the kubelet has no order between two of the same pass
		id := fmt.Sprint("image-", g.IntN(1_000_000_000))
		h.images = append(h.images, imagegc.Image{ID: id, Names: []string{id}, Size: int64(20 + g.IntN(150)), InUse: g.chance(50), Pinned: g.chance(10)})
	}
	if len(h.images) > 0 && g.chance(60) {
		image := &h.images[g.IntN(len(h.images))]
		image.InUse = !image.InUse
	}
	h.other = int64(g.IntN(400))
}

func (h *imageHistory) used() int64 {
	used := h.other
	for _, image := range h.images {
		used += image.Size
	}
	return used
}

func (h *imageHistory) remove(id string) {
	h.images = slices.DeleteFunc(h.images, func(image imagegc.Image) bool { return image.ID == id })
}

func (h *imageHistory) ids() []string {
	var ids []string
	for _, image := range h.images {
		ids = append(ids, image.ID)
	}
	return ids
}

// heraldImages is Herald's runtime.
type heraldImages struct {
	*imageHistory
	warnings []string
}

func (n *heraldImages) Images(context.Context) ([]imagegc.Image, error) {
	return slices.Clone(n.images), nil
}

func (n *heraldImages) RemoveImage(_ context.Context, image imagegc.Image) (bool, error) {
	n.remove(image.ID)
	return true, nil
}

func (n *heraldImages) ImageFileSystem(context.Context) (imagegc.Usage, error) {
	return imagegc.Usage{Bytes: imagegc.Amount{Capacity: imageDisk, Available: imageDisk - n.used()}}, nil
}

func (n *heraldImages) PrunePullRecords(context.Context) error { return nil }

func (n *heraldImages) Event(_ runtime.Object, eventType, reason, message string) {
	if eventType == v1.EventTypeWarning && reason != "ImageGCFailed" { // which the kubelet's caller records
		n.warnings = append(n.warnings, fmt.Sprintf("%s %s %s", eventType, reason, message))
	}
}

// kubeletImages is the kubelet's runtime and file system.
type kubeletImages struct {
	containertest.FakeRuntime
	*imageHistory
}

func (n *kubeletImages) ListImages(context.Context) (list []kubecontainer.Image, _ error) {
	for _, image := range n.images {
		list = append(list, kubecontainer.Image{ID: image.ID, Size: image.Size, Pinned: image.Pinned})
	}
	return list, nil
}

func (n *kubeletImages) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) {
	pod := &kubecontainer.Pod{ID: "pod"}
	for _, image := range n.images {
		if image.InUse {
			pod.Containers = append(pod.Containers, &kubecontainer.Container{ID: kubecontainer.ContainerID{ID: image.ID}, ImageID: image.ID})
		}
	}
	return []*kubecontainer.Pod{pod}, nil
}

func (n *kubeletImages) GetContainerStatus(context.Context, types.UID, kubecontainer.ContainerID) (*kubecontainer.Status, error) {
	return &kubecontainer.Status{}, nil
}

func (n *kubeletImages) RemoveImage(_ context.Context, image kubecontainer.ImageSpec) error {
	n.remove(image.Image)
	return nil
}

func (n *kubeletImages) ImageFsStats(context.Context) (image, container *statsapi.FsStats, _ error) {
	return &statsapi.FsStats{CapacityBytes: new(uint64(imageDisk)), AvailableBytes: new(uint64(imageDisk - n.used()))}, nil, nil
}

// TestIGC_SameRemovals compares which images are removed for space, and the events about it: IGC-3, IGC-4, IGC-6, IGC-7, IGC-8, IGC-9,
// IGC-10. All sizes are freed in full and no image expires, since Herald deviates there (BUG-132, BUG-134).
func TestIGC_SameRemovals(t *testing.T) {
	const histories, passes = 200, 40
	removals, warnings := 0, 0
	for seed := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) {
			removed, warned := compareImageGC(t, seed, passes)
			removals, warnings = removals+removed, warnings+warned
		})
	}
	t.Logf("%d removals, %d warnings", removals, warnings)
	if removals < histories || warnings < histories/10 {
		t.Errorf("got %d removals and %d warnings; the histories are too quiet", removals, warnings)
	}
}

func compareImageGC(t *testing.T, seed uint64, passes int) (removals, warnings int) {
	const interval, high, low, minAge = 5 * time.Minute, 40, 25, 12 * time.Minute
	theirs, ours := &kubeletImages{imageHistory: &imageHistory{}}, &heraldImages{imageHistory: &imageHistory{}}
	recorder := record.NewFakeRecorder(passes)
	kubelet, err := images.NewImageGCManager(theirs, theirs, nil, recorder, &v1.ObjectReference{},
		images.ImageGCPolicy{HighThresholdPercent: high, LowThresholdPercent: low, MinAge: minAge}, noop.NewTracerProvider())
	if err != nil {
		t.Fatal(err)
	}
	herald, err := manager.New(manager.Config{
		NodeName: "n1", Runtime: ours, Interval: interval, Events: ours,
		Policy: imagegc.Policy{HighThresholdPercent: high, LowThresholdPercent: low, MinAge: minAge},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- herald.Run(ctx) }()
	time.Sleep(time.Minute - time.Second) // before the first pass
	theirGenerator, ourGenerator := newGenerator(seed), newGenerator(seed)
	for pass := range passes {
		theirs.step(theirGenerator)
		ours.step(ourGenerator)
		before := len(ours.images)
		_ = kubelet.GarbageCollect(ctx, time.Time{})
		var theirWarnings []string
		for len(recorder.Events) > 0 {
			theirWarnings = append(theirWarnings, <-recorder.Events)
		}
		ours.warnings = nil
		time.Sleep(interval)
		synctest.Wait()
		if !slices.Equal(theirs.ids(), ours.ids()) || !slices.Equal(theirWarnings, ours.warnings) {
			t.Fatalf("seed %d, pass %d: the kubelet leaves %v (%s), Herald %v (%s)", seed, pass, theirs.ids(), strings.Join(theirWarnings, "; "),
				ours.ids(), strings.Join(ours.warnings, "; "))
		}
		removals, warnings = removals+before-len(ours.images), warnings+len(ours.warnings)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return removals, warnings
}
