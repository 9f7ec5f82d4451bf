package summary

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/load"
)

// wholeFileSystem returns a file system with everything that is on it. It returns nil if the file system was not measured.
func wholeFileSystem(at time.Time, fileSystem *load.FileSystem) *statsapi.FsStats {
	if fileSystem == nil {
		return nil
	}
	return usedFileSystem(&Usage{At: at, Bytes: fileSystem.Used, Inodes: fileSystem.InodeUsed}, fileSystem)
}

// usedFileSystem returns what something uses of a file system. Without a use there is nothing to show.
func usedFileSystem(usage *Usage, fileSystem *load.FileSystem) *statsapi.FsStats {
	if usage == nil {
		return nil
	}
	stats := &statsapi.FsStats{Time: metav1.NewTime(usage.At), UsedBytes: unsigned(usage.Bytes), InodesUsed: unsigned(usage.Inodes)}
	if fileSystem != nil {
		stats.AvailableBytes, stats.CapacityBytes = unsigned(fileSystem.Available), unsigned(fileSystem.Capacity)
		stats.Inodes, stats.InodesFree = unsigned(fileSystem.Inodes), unsigned(minus(fileSystem.Inodes, fileSystem.InodeUsed))
	}
	return stats
}

func volumeStats(volume Volume) statsapi.VolumeStats {
	return statsapi.VolumeStats{Name: volume.Name, FsStats: *usedFileSystem(&volume.Usage, &volume.FileSystem)}
}

// ephemeralStorage returns what the pod uses of the node's own disk: layers, logs, local volumes, other files (RES-24). It
// returns nil unless logs and volumes were measured: a sum without them would look like a pod within its limits.
func ephemeralStorage(in *Input, p *Pod, containers []statsapi.ContainerStats) *statsapi.FsStats {
	if p.Disk == nil {
		return nil
	}
	total := Usage{At: p.Disk.Files.At, Bytes: load.Known(0), Inodes: load.Known(0)}
	add := func(at time.Time, bytes, inodes *uint64) {
		if at.After(total.At) {
			total.At = at
		}
		if bytes != nil {
			total.Bytes = total.Bytes.Plus(load.Known(float64(*bytes)))
		}
		if inodes != nil {
			total.Inodes = total.Inodes.Plus(load.Known(float64(*inodes)))
		}
	}
	for i := range containers {
		for _, stats := range []*statsapi.FsStats{containers[i].Rootfs, containers[i].Logs} {
			if stats != nil {
				add(stats.Time.Time, stats.UsedBytes, stats.InodesUsed)
			}
		}
	}
	for _, volume := range p.Disk.Volumes {
		if volume.IsLocal {
			add(volume.At, unsigned(volume.Bytes), unsigned(volume.Inodes))
		}
	}
	add(p.Disk.Files.At, unsigned(p.Disk.Files.Bytes), unsigned(p.Disk.Files.Inodes))
	return usedFileSystem(&total, in.fileSystem(in.FileSystems.Data))
}
