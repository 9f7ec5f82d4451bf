package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/internal/diskusage"
	"github.com/heraldnode/herald/podid"
)

// ContainerUsage returns the space in bytes that the logs and writable layers of the pod's containers take, by name, and that of
// the hosts file and the termination messages. Layers of exited containers are left out. With an error, it is the space that
// was found until then.
func (r *Runtime) ContainerUsage(ctx context.Context, pod *v1.Pod) (containers map[string]int64, files int64, err error) {
	containers, err = r.layerUsage(ctx, podid.UID(pod.UID))
	errs := []error{err}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		logs, err := r.logUsage(ctx, filepath.Join(r.generator.PodLogDir(pod), container.Name))
		containers[container.Name] += logs
		errs = append(errs, err)
	}
	dir := r.podDir(podid.UID(pod.UID))
	hosts, hostsErr := diskusage.File(filepath.Join(dir, hostsFileName))
	messages, messagesErr := diskusage.Dir(ctx, filepath.Join(dir, messagesDirName))
	return containers, hosts + messages, errors.Join(append(errs, hostsErr, messagesErr)...)
}

// logUsage returns the space that a directory of logs takes.
func (r *Runtime) logUsage(ctx context.Context, dir string) (int64, error) {
	root, name, err := r.openLogRoot(dir)
	if err == nil {
		defer root.Close()
		root, err = root.OpenRoot(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	return diskusage.Root(ctx, root)
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
