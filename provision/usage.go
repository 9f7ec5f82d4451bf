package provision

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/diskusage"
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
		usage[volume.Name], err = diskusage.Dir(ctx, dir)
		errs = append(errs, err)
	}
	return usage, errors.Join(errs...)
}
