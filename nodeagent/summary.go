package nodeagent

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats"
	"github.com/heraldnode/herald/stats/disk"
	"github.com/heraldnode/herald/stats/summary"
)

// summarizer builds the summary of the node for /stats/summary.
type summarizer struct {
	disks      *disk.Meter
	incomplete *prometheus.CounterVec // by part
}

// Parts of a summary that can be missing.
const (
	partMachine = "machine"
	partPods    = "pods"
	partImages  = "images"
	partDisk    = "disk"
)

func (n *NodeAgent) newSummarizer() (err error) {
	n.summarizer.incomplete = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "herald_stats_summary_incomplete_total",
		Help: "Number of summaries of the node that lacked a part because it could not be measured.",
	}, []string{"part"})
	for _, part := range []string{partMachine, partPods, partImages, partDisk} {
		n.summarizer.incomplete.WithLabelValues(part)
	}
	if n.config.Metrics != nil {
		if err := n.config.Metrics.Register(n.summarizer.incomplete); err != nil {
			return err
		}
	}
	n.summarizer.disks, err = disk.New(disk.Config{Volumes: n.volumes, Logs: n.runtime})
	return err
}

// summaryTimeout bounds what a summary asks of the runtime.
const summaryTimeout = 5 * time.Second

// Summary returns the use of resources of the node and its pods in the form of the kubelet's /stats/summary. A part that cannot be
// measured is left out and counted in herald_stats_summary_incomplete_total (RES-29). With onlyCPUAndMemory, disks are left out and
// not measured (RES-30).
func (n *NodeAgent) Summary(ctx context.Context, onlyCPUAndMemory bool) *statsapi.Summary {
	in := summary.Input{
		NodeName: n.config.NodeName, Cores: n.Stats.Node().Cores, OnlyCPUAndMemory: onlyCPUAndMemory,
		FileSystems: summary.FileSystems{
			Data: stats.DataFileSystem, Logs: stats.LogsFileSystem, Images: stats.ImagesFileSystem, Containers: stats.ContainersFileSystem,
		},
	}
	if in.Machine, in.MachineAt = n.Stats.Machine(); in.MachineAt.IsZero() {
		n.reportIncomplete(partMachine, errors.New("no recent measurement"))
	}
	samples, sampledAt := n.Stats.PodSamples()
	if sampledAt.IsZero() {
		n.reportIncomplete(partPods, errors.New("no recent measurement"))
	}
	if usage, exists := n.runtime.AllPodsUsage(ctx); exists {
		in.AllPods = &usage
	}
	var disks map[podid.UID]*summary.Disk
	if !onlyCPUAndMemory {
		n.addImageUsage(ctx, &in.FileSystems)
		disks = n.measureDisks(ctx)
	}
	for _, sample := range samples {
		pod := summary.Pod{Sample: sample, SampledAt: sampledAt, Disk: disks[sample.UID]}
		pod.Load, _ = n.Stats.Pod(sample.UID)
		n.addCreationTimes(&pod)
		in.Pods = append(in.Pods, pod)
	}
	return summary.Build(in)
}

func (n *NodeAgent) addImageUsage(ctx context.Context, fileSystems *summary.FileSystems) {
	ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
	defer cancel()
	var err error
	if fileSystems.ImageUsage, fileSystems.ContainerUsage, err = n.runtime.ImageUsage(ctx); err != nil {
		n.reportIncomplete(partImages, err)
	}
}

func (n *NodeAgent) measureDisks(ctx context.Context) map[podid.UID]*summary.Disk {
	var running []*v1.Pod
	for _, pod := range n.Agent.LocalPods() {
		if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			running = append(running, pod)
		}
	}
	disks, err := n.summarizer.disks.Measure(ctx, running)
	if err != nil {
		n.reportIncomplete(partDisk, err)
	}
	return disks
}

// addCreationTimes adds what the last inspection of the pod says.
func (n *NodeAgent) addCreationTimes(pod *summary.Pod) {
	seen := n.Agent.PLEG.Get(pod.Sample.UID)
	if len(seen.Sandboxes) > 0 {
		pod.CreatedAt = seen.Sandboxes[0].CreatedAt
	}
	pod.ContainersCreatedAt = make(map[string]time.Time, len(seen.Containers))
	for i := range seen.Containers {
		pod.ContainersCreatedAt[seen.Containers[i].ID.ID] = seen.Containers[i].CreatedAt
	}
}

func (n *NodeAgent) reportIncomplete(part string, err error) {
	n.summarizer.incomplete.WithLabelValues(part).Inc()
	n.config.Logger.Debug("Summary of the node lacks a part", "part", part, "err", err)
}

// ResourceMetrics returns a collector of /metrics/resource. A container starts when it is created, as with the kubelet.
func (n *NodeAgent) ResourceMetrics() prometheus.Collector {
	return n.Stats.ResourceMetrics(func(uid podid.UID, containerID string) time.Time {
		for _, container := range n.Agent.PLEG.Get(uid).Containers {
			if container.ID.ID == containerID {
				return container.CreatedAt
			}
		}
		return time.Time{}
	})
}
