package diff_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubelet "k8s.io/kubernetes/pkg/kubelet/eviction"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/heraldnode/herald/node/report"
)

// diskLayout is a node with scripted statistics and a layout of its file systems.
type diskLayout struct {
	oneDisk
	imagesApart, containersApart bool // images are not with the data, containers not with the images
}

func (d *diskLayout) HasDedicatedImageFs(context.Context) (bool, error) { return d.imagesApart, nil }
func (d *diskLayout) HasDedicatedContainerFs(context.Context) (bool, error) {
	return d.containersApart, nil
}

// around returns an amount whose available part is around a threshold of total in percent.
func around(random *rand.Rand, total, percent int64) report.Amount {
	return report.Amount{Total: total, Available: total/100*percent + []int64{-total / 100, -1, 0, 1, total / 10, total / 2}[random.IntN(6)]}
}

// randomFileSystem is rarely short of space: otherwise a node with three file systems always is.
func randomFileSystem(random *rand.Rand, storagePercent int64) report.FileSystem {
	healthy := report.Amount{Total: 1_000_000, Available: 900_000}
	fileSystem := report.FileSystem{Storage: healthy, Inodes: healthy}
	switch random.IntN(6) {
	case 0:
		fileSystem.Storage = around(random, 1_000_000, storagePercent)
	case 1:
		fileSystem.Inodes = around(random, 1_000_000, 5)
	}
	return fileSystem
}

// set sets the same machine for both.
func (d *diskLayout) set(random *rand.Rand, now time.Time) report.MachineInfo {
	memory := report.Amount{Total: 8 << 30, Available: 4 << 30}
	if random.IntN(4) == 0 {
		memory.Available = 100<<20 + []int64{-1 << 20, -1, 0, 1}[random.IntN(4)]
	}
	data := randomFileSystem(random, 10)
	images, containers := data, data
	machine := report.MachineInfo{Memory: memory, Storage: data.Storage, Inodes: data.Inodes}
	if d.imagesApart {
		images = randomFileSystem(random, 15)
	}
	if machine.ImageFS = images; d.containersApart {
		machine.ContainerFS = containers
	} else {
		containers = images
	}
	stats := func(fileSystem report.FileSystem) *statsapi.FsStats {
		return &statsapi.FsStats{
			Time: metav1.NewTime(now), AvailableBytes: new(uint64(fileSystem.Storage.Available)), CapacityBytes: new(uint64(fileSystem.Storage.Total)),
			InodesFree: new(uint64(fileSystem.Inodes.Available)), Inodes: new(uint64(fileSystem.Inodes.Total)),
		}
	}
	d.Node = statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{
			Time: metav1.NewTime(now), AvailableBytes: new(uint64(memory.Available)), WorkingSetBytes: new(uint64(memory.Total - memory.Available)),
		},
		Fs: stats(data), Runtime: &statsapi.RuntimeStats{ImageFs: stats(images), ContainerFs: stats(containers)},
	}
	return machine
}

// The kubelet's eviction manager, with its default thresholds, and Herald see the same machine over time: which conditions of pressure
// do they report? EVI-3, EVI-5, EVI-7, EVI-12
func TestEVI12_SamePressures(t *testing.T) {
	for name, node := range map[string]*diskLayout{
		"one disk":                        {},
		"images and containers elsewhere": {imagesApart: true},
		"only images elsewhere":           {imagesApart: true, containersApart: true},
	} {
		t.Run(name, func(t *testing.T) { comparePressures(t, node) })
	}
}

func comparePressures(t *testing.T, node *diskLayout) {
	const steps = 500
	thresholds, err := kubelet.ParseThresholdConfig(nil, kubelet.DefaultEvictionHard, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC))
	config := kubelet.Config{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute}
	kill := func(*v1.Pod, bool, *int64, func(*v1.PodStatus)) error { return nil }
	manager, _ := kubelet.NewManager(node, config, kill, node, node, &record.FakeRecorder{}, &v1.ObjectReference{}, clock, true)

	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible on purpose
	var pressures report.Pressures
	seen := map[string]int{}
	done, step := make(chan struct{}), 0
	compare := func() {
		want := fmt.Sprint("memory ", manager.IsUnderMemoryPressure(), ", disk ", manager.IsUnderDiskPressure())
		_, memory := pressures[v1.NodeMemoryPressure]
		_, disk := pressures[v1.NodeDiskPressure]
		if got := fmt.Sprint("memory ", memory, ", disk ", disk); got != want {
			t.Errorf("step %d: got %s, the kubelet has %s", step, got, want)
		}
		seen[want]++
	}
	// The kubelet asks for the pods at the start of each pass: what it decided in the one before is known then.
	manager.Start(klog.NewContext(t.Context(), logr.Discard()), node, func() []*v1.Pod {
		// In its first pass, the kubelet does not know the thresholds of containers yet.
		if step > 1 {
			compare()
		}
		if step++; step > steps {
			close(done)
			runtime.Goexit() // the kubelet's loop never ends
		}
		clock.Step(time.Duration(random.IntN(240)) * time.Second)
		pressures = pressures.Update(node.set(random, clock.Now()), nil, clock.Now())
		return nil
	}, func(*v1.Pod) bool { return true }, 0)
	<-done
	if len(seen) != 4 {
		t.Errorf("got only the conditions %v", seen)
	}
}
