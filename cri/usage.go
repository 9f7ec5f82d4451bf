package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/internal/diskusage"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats/summary"
)

// ContainerUsage returns the space in bytes that the logs and writable layers of the pod's containers take, by name, and that of
// the hosts file and the termination messages. Layers of exited containers are left out. With an error, it is the space that
// was found until then.
func (r *Runtime) ContainerUsage(ctx context.Context, pod *v1.Pod) (containers map[string]int64, files int64, err error) {
	containers, err = r.layerUsage(ctx, podid.UID(pod.UID))
	errs := []error{err}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		logs, err := r.logUsage(ctx, filepath.Join(r.generator.PodLogDir(pod), container.Name))
		containers[container.Name] += logs.Bytes
		errs = append(errs, err)
	}
	otherFiles, err := r.fileUsage(ctx, podid.UID(pod.UID))
	return containers, otherFiles.Bytes, errors.Join(append(errs, err)...)
}

// fileUsage returns the space of the pod's hosts file and termination messages.
func (r *Runtime) fileUsage(ctx context.Context, uid podid.UID) (diskusage.Usage, error) {
	dir := r.podDir(uid)
	hosts, hostsErr := diskusage.File(filepath.Join(dir, hostsFileName))
	messages, messagesErr := diskusage.Dir(ctx, filepath.Join(dir, messagesDirName))
	return hosts.Plus(messages), errors.Join(hostsErr, messagesErr)
}

// LogStats measures the logs of the pod's containers, by name, and its other files on the node, for the summary of the node. What could
// not be measured is left out (RES-20, RES-29).
func (r *Runtime) LogStats(ctx context.Context, pod *v1.Pod) (logs map[string]summary.Usage, files summary.Usage, err error) {
	logs = map[string]summary.Usage{}
	var errs []error
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		space, err := r.logUsage(ctx, filepath.Join(r.generator.PodLogDir(pod), container.Name))
		if err != nil {
			errs = append(errs, fmt.Errorf("measure logs of container %s: %w", container.Name, err))
			continue
		}
		logs[container.Name] = summaryUsage(space)
	}
	space, err := r.fileUsage(ctx, podid.UID(pod.UID))
	return logs, summaryUsage(space), errors.Join(append(errs, err)...)
}

func summaryUsage(space diskusage.Usage) summary.Usage {
	return summary.Usage{At: time.Now(), Bytes: load.Known(float64(space.Bytes)), Inodes: load.Known(float64(space.Inodes))}
}

// ImageUsage returns what images take of the disk, and what writable layers take, nil if the runtime does not tell them apart (RES-26).
func (r *Runtime) ImageUsage(ctx context.Context) (images, containers *summary.Usage, err error) {
	response, err := r.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("cri: get image file systems: %w", err)
	}
	return firstUsage(response.GetImageFilesystems()), firstUsage(response.GetContainerFilesystems()), nil
}

func firstUsage(fileSystems []*runtimeapi.FilesystemUsage) *summary.Usage {
	if len(fileSystems) == 0 {
		return nil
	}
	first := fileSystems[0]
	return &summary.Usage{
		At: time.Unix(0, first.GetTimestamp()), Bytes: uintValue(first.GetUsedBytes()), Inodes: uintValue(first.GetInodesUsed()),
	}
}

// logUsage returns the space that the files in a directory of logs take. As with the kubelet, the directory does not count (RES-20).
func (r *Runtime) logUsage(ctx context.Context, dir string) (diskusage.Usage, error) {
	root, name, err := r.openLogRoot(dir)
	if err == nil {
		defer root.Close()
		root, err = root.OpenRoot(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return diskusage.Usage{}, nil
	}
	if err != nil {
		return diskusage.Usage{}, err
	}
	defer root.Close()
	return diskusage.Files(ctx, root)
}

// layerUsage returns the size of the writable layers of the pod's running containers, by name. It is never nil. Runtimes that do
// not implement it have no layers to limit.
func (r *Runtime) layerUsage(ctx context.Context, uid podid.UID) (map[string]int64, error) {
	usage := map[string]int64{}
	response, err := r.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{criconfig.LabelPodUID: string(uid)}},
	})
	if err != nil && !isUnimplemented(err) {
		return usage, fmt.Errorf("cri: list container stats: %w", err)
	}
	for _, stats := range response.GetStats() {
		usage[stats.GetAttributes().GetMetadata().GetName()] += int64(stats.GetWritableLayer().GetUsedBytes().GetValue())
	}
	return usage, nil
}
