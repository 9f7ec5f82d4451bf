package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/diskusage"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/stats/summary"
)

// VolumeUsage returns the space in bytes that the pod's volumes take on disk, by name. Volumes in memory and hostPaths are left
// out. With an error, it is the space that was found until then.
func (p *Provisioner) VolumeUsage(ctx context.Context, pod *v1.Pod) (map[string]int64, error) {
	usage := map[string]int64{}
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		dir, err := p.volumeDir(pod, volume)
		if err != nil || volume.HostPath != nil {
			continue // not mounted, or not the pod's
		}
		if inMemory, err := isTmpfs(dir); err != nil || inMemory {
			continue // not mounted yet
		}
		space, err := diskusage.Dir(ctx, dir)
		usage[volume.Name] = space.Bytes
		errs = append(errs, err)
	}
	return usage, errors.Join(errs...)
}

// VolumeStats measures the pod's volumes for the summary of the node, also those in memory. HostPaths are left out, as are volumes that
// could not be measured (RES-23, RES-29).
func (p *Provisioner) VolumeStats(ctx context.Context, pod *v1.Pod) ([]summary.Volume, error) {
	var volumes []summary.Volume
	var errs []error
	for i := range pod.Spec.Volumes {
		source := &pod.Spec.Volumes[i]
		dir, err := p.volumeDir(pod, source)
		if err != nil || source.HostPath != nil {
			continue // not mounted, or not the pod's
		}
		fileSystem, err := statFileSystem(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not mounted yet
		}
		space, walkErr := diskusage.Dir(ctx, dir)
		if err := errors.Join(err, walkErr); err != nil {
			errs = append(errs, fmt.Errorf("measure volume %s: %w", source.Name, err))
			continue
		}
		volumes = append(volumes, summary.Volume{
			Name: source.Name, FileSystem: fileSystem, IsLocal: isLocal(source),
			Usage: summary.Usage{At: time.Now(), Bytes: load.Known(float64(space.Bytes)), Inodes: load.Known(float64(space.Inodes))},
		})
	}
	return volumes, errors.Join(errs...)
}

// isLocal reports whether the kubelet counts the volume as ephemeral storage of the pod (RES-24).
func isLocal(volume *v1.Volume) bool {
	return volume.ConfigMap != nil || volume.EmptyDir != nil && volume.EmptyDir.Medium == v1.StorageMediumDefault
}

func statFileSystem(dir string) (load.FileSystem, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return load.FileSystem{}, fmt.Errorf("read file system of %s: %w", dir, err)
	}
	size := float64(stat.Bsize)
	return load.FileSystem{
		Capacity: load.Known(float64(stat.Blocks) * size), Available: load.Known(float64(stat.Bavail) * size),
		Inodes: load.Known(float64(stat.Files)), InodeUsed: load.Known(float64(stat.Files - stat.Ffree)),
	}, nil
}
