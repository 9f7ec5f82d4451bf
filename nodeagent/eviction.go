package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/eviction/manager"
	"github.com/heraldnode/herald/internal/stall"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats"
	"github.com/heraldnode/herald/stats/summary"
)

// pressureConfig configures evictions while the node is short of a resource.
func (n *NodeAgent) pressureConfig() *manager.PressureConfig {
	return &manager.PressureConfig{
		Policy: n.policy, Node: nodeMeter{n}, Images: n.imageReclaimer(),
		NodeReference: &v1.ObjectReference{Kind: "Node", Name: n.config.NodeName, UID: types.UID(n.config.NodeName)},
		OnChange:      func() { n.Node.Refresh() },
		Stalls:        n.watchStalls,
	}
}

// evictionPolicy returns the policy of the settings. Without the limit of all pods, there is nothing to evict pods for (EVI-6).
func (c Config) evictionPolicy() (eviction.Policy, error) {
	settings := c.Eviction
	settings.IgnoreAllocatable = settings.IgnoreAllocatable || !slices.Contains(c.EnforceNodeAllocatable, enforcePods)
	policy, err := eviction.NewPolicy(settings)
	if err != nil {
		return policy, fmt.Errorf("nodeagent.Config: Eviction: %w", err)
	}
	return policy, nil
}

// imageReclaimer returns what removes images under pressure of a disk, or nil.
func (n *NodeAgent) imageReclaimer() manager.ImageReclaimer {
	if n.imageCollector == nil {
		return nil
	}
	return n.imageCollector
}

// stallThreshold is how long processes must wait for memory within two seconds before the node is looked at.
const stallThreshold = 150 * time.Millisecond

// watchStalls wakes the manager of evictions when memory gets short between two measurements (BUG-143).
func (n *NodeAgent) watchStalls(ctx context.Context, wake func()) {
	if err := stall.Watch(ctx, stall.Memory, stallThreshold, wake); err != nil {
		n.config.Logger.Info("Memory that gets short is noticed only every ten seconds", "err", err)
	}
}

// pressures returns the conditions that the Node reports.
func (n *NodeAgent) pressures() []v1.NodeConditionType {
	reported, _ := n.Agent.Evictions.Conditions()
	return reported
}

// nodeChanged is told about each version of the Node.
func (n *NodeAgent) nodeChanged(before, after *v1.Node) {
	n.restorePressures(before, after)
	n.recordNode(before, after)
}

// restorePressures lets what an earlier agent has reported hold for a while, when the Node is first seen.
func (n *NodeAgent) restorePressures(before, after *v1.Node) {
	if before == nil && after != nil {
		n.Agent.Evictions.Restore(after.Status.Conditions)
	}
}

// nodeMeter measures the node for evictions.
type nodeMeter struct{ node *NodeAgent }

// Sample implements manager.NodeMeter.
func (m nodeMeter) Sample(ctx context.Context, measureNow bool) (eviction.Sample, eviction.Layout, error) {
	n := m.node
	sample := eviction.Sample{Data: stats.DataFileSystem, Images: stats.ImagesFileSystem, Containers: stats.ContainersFileSystem}
	if measureNow {
		var err error
		sample.Machine, err = n.meter.Sample(n.statsFileSystems())
		sample.At = time.Now()
		if !sample.Machine.MemoryAvailable.IsKnown() && len(sample.Machine.FileSystems) == 0 {
			return sample, eviction.LayoutUnknown, fmt.Errorf("measure machine: %w", err)
		}
	} else if sample.Machine, sample.At = n.Stats.Machine(); sample.At.IsZero() {
		return sample, eviction.LayoutUnknown, errors.New("no recent measurement of the machine")
	}
	if usage, exists := n.runtime.AllPodsUsage(ctx); exists {
		sample.AllPods = usage
	}
	layout, logsApart := n.diskLayout()
	if logsApart {
		sample.Logs = stats.LogsFileSystem
	}
	return sample, layout, nil
}

// diskLayout returns where the runtime keeps images and containers, and whether logs have a file system of their own (EVI-8).
func (n *NodeAgent) diskLayout() (layout eviction.Layout, logsApart bool) {
	data, err := deviceOf(n.config.RootDir)
	if err != nil {
		return eviction.LayoutUnknown, false
	}
	logs, err := deviceOf(n.config.PodLogsDir)
	logsApart = err == nil && logs != data
	dirs := n.imageDirs.Load()
	if dirs == nil {
		return eviction.LayoutUnknown, logsApart
	}
	if len(*dirs) == 0 {
		return eviction.OneDisk, logsApart
	}
	images, err := deviceOf((*dirs)[0])
	containers, containersErr := deviceOf((*dirs)[len(*dirs)-1])
	if errors.Join(err, containersErr) != nil {
		return eviction.LayoutUnknown, logsApart
	}
	return eviction.NewLayout(data, images, containers), logsApart
}

func deviceOf(dir string) (uint64, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(dir, &stat); err != nil {
		return 0, fmt.Errorf("stat %s: %w", dir, err)
	}
	return stat.Dev, nil
}

// maxDiskAge is how old the measured disks of pods may be when one of them must go.
const maxDiskAge = 5 * time.Second

// PodUsage implements manager.NodeMeter.
func (m nodeMeter) PodUsage(ctx context.Context, pods []*v1.Pod, withDisk bool) (map[types.UID]*eviction.PodUsage, error) {
	samples, err := m.node.runtime.ListPodStats(ctx)
	var disks map[podid.UID]*summary.Disk
	if withDisk {
		var diskErr error
		disks, diskErr = m.node.summarizer.disks.MeasureWithin(ctx, pods, maxDiskAge)
		err = errors.Join(err, diskErr)
	}
	usages := make(map[types.UID]*eviction.PodUsage, len(samples))
	for i := range samples {
		usages[types.UID(samples[i].UID)] = podUsage(&samples[i], disks[samples[i].UID])
	}
	return usages, err
}

// podUsage returns what the ranking of pods needs. disk is nil if it was not measured.
func podUsage(sample *load.PodSample, disk *summary.Disk) *eviction.PodUsage {
	usage := &eviction.PodUsage{Memory: sample.Usage.WorkingSet, PIDs: sample.PIDs}
	for _, container := range sample.Containers {
		used := eviction.ContainerUsage{
			Name: container.Name, Memory: container.Usage.WorkingSet,
			Layer: eviction.Space{Bytes: container.WritableLayer, Inodes: container.WritableInodes},
		}
		if disk != nil {
			logs := disk.Logs[container.Name]
			used.Logs = eviction.Space{Bytes: logs.Bytes, Inodes: logs.Inodes}
		}
		usage.Containers = append(usage.Containers, used)
	}
	if disk == nil {
		return usage
	}
	usage.Volumes = eviction.Space{Bytes: load.Known(0), Inodes: load.Known(0)}
	for _, volume := range disk.Volumes {
		if volume.IsLocal && volume.Bytes.IsKnown() && volume.Inodes.IsKnown() {
			usage.Volumes.Bytes = usage.Volumes.Bytes.Plus(volume.Bytes)
			usage.Volumes.Inodes = usage.Volumes.Inodes.Plus(volume.Inodes)
		}
	}
	return usage
}
