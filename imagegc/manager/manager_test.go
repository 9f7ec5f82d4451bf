package manager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/imagegc"
	"github.com/heraldnode/herald/imagegc/manager"
)

// node is a runtime with images on a file system of 1000 bytes, and the node's events.
type node struct {
	// mu guards all fields. The test holds it, except while it lets time pass.
	mu sync.Mutex

	images   []imagegc.Image
	shared   map[string]int64 // bytes that the removal of an image does not free
	delay    time.Duration    // until what was removed is free
	busy     map[string]bool  // images of containers that start
	faults   map[string]error // of removals
	listErr  error
	capacity int64
	used     int64

	removed, events []string
	prunes          int
	lists           int
	hasBegun        bool
}

func (n *node) Images(context.Context) ([]imagegc.Image, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists++
	return slices.Clone(n.images), n.listErr
}

func (n *node) RemoveImage(_ context.Context, image imagegc.Image) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy[image.ID] || n.faults[image.ID] != nil {
		return false, n.faults[image.ID]
	}
	n.removed = append(n.removed, image.ID)
	n.images = slices.DeleteFunc(n.images, func(other imagegc.Image) bool { return other.ID == image.ID })
	freed := image.Size - n.shared[image.ID]
	if n.delay == 0 {
		n.used -= freed
		return true, nil
	}
	time.AfterFunc(n.delay, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.used -= freed
	})
	return true, nil
}

func (n *node) ImageFileSystem(context.Context) (imagegc.Usage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return imagegc.Usage{Bytes: imagegc.Amount{Capacity: n.capacity, Available: n.capacity - n.used}}, nil
}

func (n *node) PrunePullRecords(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prunes++
	return nil
}

func (n *node) Event(object runtime.Object, eventType, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	reference := object.(*v1.ObjectReference)
	n.events = append(n.events, fmt.Sprintf("%s/%s %s %s: %s", reference.Kind, reference.Name, eventType, reason, message))
}

func newNode(used int64, images ...imagegc.Image) *node {
	return &node{capacity: 1000, used: used, images: images, shared: map[string]int64{}, busy: map[string]bool{}, faults: map[string]error{}}
}

func image(id string, size int64) imagegc.Image {
	return imagegc.Image{ID: id, Size: size, Names: []string{"reg.io/" + id + ":1"}}
}

// run runs the test with a manager in a bubble, where nothing but time passes between the calls.
func (n *node) run(t *testing.T, test func(m *manager.Manager), configure ...func(*manager.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, stop := n.start(t, configure...)
		test(m)
		stop()
	})
}

func (n *node) start(t *testing.T, configure ...func(*manager.Config)) (m *manager.Manager, stop func()) {
	t.Helper()
	config := manager.Config{NodeName: "n1", Runtime: n, Policy: imagegc.DefaultPolicy(), Events: n}
	for _, change := range configure {
		change(&config)
	}
	m, err := manager.New(config)
	if err != nil {
		t.Fatal(err)
	}
	n.hasBegun = false
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	n.mu.Lock()
	return m, func() {
		n.mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// passes lets time pass until the given number of further passes have ended.
func (n *node) passes(count int) {
	wait := time.Duration(count) * 5 * time.Minute
	if !n.hasBegun { // the first pass is after a minute
		wait += time.Minute + 30*time.Second - 5*time.Minute
	}
	n.hasBegun = true
	n.unlocked(func() { time.Sleep(wait) })
}

// unlocked lets the manager use the node while f runs.
func (n *node) unlocked(f func()) {
	n.mu.Unlock()
	f()
	synctest.Wait()
	n.mu.Lock()
}

// reclaim calls ReclaimImages.
func (n *node) reclaim(t *testing.T, m *manager.Manager) {
	t.Helper()
	n.unlocked(func() {
		if err := m.ReclaimImages(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func (n *node) wantRemoved(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

func TestIGC7_FreesUntilLowThreshold(t *testing.T) {
	used := image("used", 300)
	used.InUse = true
	pinned := image("pinned", 100)
	pinned.Pinned = true
	n := newNode(900, used, pinned, image("a", 60), image("b", 60), image("c", 60))
	n.run(t, func(*manager.Manager) {
		n.passes(1)
		n.wantRemoved(t) // all images are new (IGC-8)
		n.passes(1)
		n.wantRemoved(t, "a", "b")
	})
	if want := []string{"Node/n1 Normal ImagesRemoved: Removed 2 unused images (120 B) because 90% of 1000 B of the image filesystem " +
		"were used: reg.io/a:1, reg.io/b:1"}; !slices.Equal(n.events[len(n.events)-1:], want) {
		t.Errorf("got %q, want %q", n.events, want)
	}
}

func TestIGC15_Metric(t *testing.T) {
	n := newNode(900, image("a", 60), image("b", 60))
	registry := prometheus.NewRegistry()
	n.run(t, func(*manager.Manager) { n.passes(2) }, func(config *manager.Config) { config.Metrics = registry })
	expected := `
# HELP kubelet_image_garbage_collected_total Number of images that were removed, by reason: age or space.
# TYPE kubelet_image_garbage_collected_total counter
kubelet_image_garbage_collected_total{reason="space"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(expected)); err != nil {
		t.Error(err)
	}
}

// What the removal of an image frees is measured: layers that others share stay, so more images must go.
func TestBUG134_SharedLayers(t *testing.T) {
	n := newNode(900, image("a", 150), image("b", 60), image("c", 60))
	n.shared["a"] = 90
	n.run(t, func(*manager.Manager) { n.passes(2) })
	n.wantRemoved(t, "a", "b")
}

// A file system that shows late what was freed does not cost more images.
func TestBUG134_LateFileSystem(t *testing.T) {
	n := newNode(900, image("a", 60), image("b", 60), image("c", 60))
	n.delay = 500 * time.Millisecond
	n.run(t, func(*manager.Manager) { n.passes(2) })
	n.wantRemoved(t, "a", "b")
}

func TestIGC10_NotEnough(t *testing.T) {
	n := newNode(900, image("a", 60))
	n.run(t, func(*manager.Manager) { n.passes(3) })
	n.wantRemoved(t, "a")
	insufficient := func(percent int, freed int) string {
		return fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of 1000 B used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", percent, freed)
	}
	n.used = 900
	want := []string{
		"Node/n1 Warning FreeDiskSpaceFailed: " + insufficient(90, 0),
		"Node/n1 Normal ImagesRemoved: Removed 1 unused image (60 B) because 90% of 1000 B of the image filesystem were used: reg.io/a:1",
		"Node/n1 Warning FreeDiskSpaceFailed: " + insufficient(90, 60),
		"Node/n1 Warning ImageGCFailed: " + insufficient(90, 60), // the second failure in a row (IGC-12)
	}
	if diff := cmp.Diff(want, n.events); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIGC9_ErrorsDoNotStop(t *testing.T) {
	n := newNode(900, image("a", 60), image("b", 60), image("c", 60))
	n.faults["a"] = errors.New("read-only file system")
	n.run(t, func(*manager.Manager) { n.passes(2) })
	n.wantRemoved(t, "b", "c")
	n.run(t, func(*manager.Manager) { n.passes(4) }) // the file system is not full any more
	n.wantRemoved(t, "b", "c")
}

func TestIGC12_SecondFailure(t *testing.T) {
	n := newNode(100)
	n.listErr = errors.New("connection refused")
	n.run(t, func(*manager.Manager) {
		n.passes(1)
		if len(n.events) != 0 {
			t.Errorf("after the first failure: %q", n.events)
		}
		n.passes(1)
		n.listErr = nil
		n.passes(1)
		n.listErr = errors.New("connection refused")
		n.passes(1)
	})
	if want := []string{"Node/n1 Warning ImageGCFailed: connection refused"}; !slices.Equal(n.events, want) {
		t.Errorf("got %q, want %q", n.events, want)
	}
}

// Pull records are pruned after a removal, and only then.
func TestIGC17_PullRecords(t *testing.T) {
	n := newNode(900, image("a", 100))
	n.run(t, func(*manager.Manager) { n.passes(4) })
	n.wantRemoved(t, "a")
	if n.prunes != 1 {
		t.Errorf("got %d prunes of pull records, want 1", n.prunes)
	}
}

func TestIGC11_NoCapacity(t *testing.T) {
	n := newNode(0)
	n.capacity = 0
	n.run(t, func(*manager.Manager) { n.passes(1) })
	if want := []string{"Node/n1 Warning InvalidDiskCapacity: invalid capacity 0 on image filesystem"}; !slices.Equal(n.events, want) {
		t.Errorf("got %q, want %q", n.events, want)
	}
}

func TestIGC8_ContainerStarts(t *testing.T) {
	n := newNode(900, image("a", 60), image("b", 200))
	n.busy["a"] = true
	n.run(t, func(*manager.Manager) { n.passes(2) })
	n.wantRemoved(t, "b")
}

func TestIGC13_RemovesOldImages(t *testing.T) {
	used := image("used", 10)
	used.InUse = true
	n := newNode(100, used, image("a", 10))
	n.run(t, func(*manager.Manager) {
		n.passes(12)
		n.wantRemoved(t)
		n.images = append(n.images, image("new", 10))
		n.passes(2)
		n.wantRemoved(t, "a")
	}, func(config *manager.Config) { config.Policy.MaxAge = time.Hour })
	if want := []string{"Node/n1 Normal ImagesRemoved: Removed 1 unused image (10 B) because no container has used them for more than 1h0m0s: " +
		"reg.io/a:1"}; !slices.Equal(n.events, want) {
		t.Errorf("got %q, want %q", n.events, want)
	}
}

func TestIGC14_ReclaimImages(t *testing.T) {
	used := image("used", 10)
	used.InUse = true
	n := newNode(100, used, image("a", 10), image("b", 10))
	n.run(t, func(m *manager.Manager) {
		n.passes(1)
		n.unlocked(func() { time.Sleep(3 * time.Minute) })
		n.images = append(n.images, image("just-pulled", 10))
		n.reclaim(t, m)
	})
	n.wantRemoved(t, "a", "b")
	if n.prunes != 1 || len(n.events) != 1 {
		t.Errorf("got %d prunes, events %q", n.prunes, n.events)
	}
}

func TestIGC1_PolicyOff(t *testing.T) {
	n := newNode(1000, image("a", 10))
	n.run(t, func(m *manager.Manager) {
		n.passes(3)
		if n.lists != 0 {
			t.Errorf("got %d lists, want none", n.lists)
		}
		n.unlocked(func() { time.Sleep(time.Hour) })
		n.reclaim(t, m) // under pressure, though
	}, func(config *manager.Config) { config.Policy.HighThresholdPercent = 100 })
	n.wantRemoved(t)
}

// After a restart, an image that was used until then does not go before those that nobody used.
func TestBUG135_Restart(t *testing.T) {
	state, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	withState := func(config *manager.Config) { config.State = state }
	hot := image("a-hot", 100)
	hot.InUse = true
	n := newNode(100, hot, image("cold", 100), image("frozen", 100))
	synctest.Test(t, func(t *testing.T) {
		_, stop := n.start(t, withState)
		n.passes(3)
		stop()
		n.used, n.images[0].InUse = 900, false
		_, stop = n.start(t, withState)
		n.passes(1) // no image is new
		stop()
	})
	n.wantRemoved(t, "cold")
}
