package eviction

// Layout is where the runtime keeps what it writes (EVI-8).
type Layout string

// Layouts. Until the layout is known, nothing is done about disks; conditions are reported.
const (
	LayoutUnknown Layout = ""
	// OneDisk has images and containers with the data of the node.
	OneDisk Layout = "one disk"
	// ImagesApart has images and containers on a disk of their own.
	ImagesApart Layout = "images and containers apart"
	// OnlyImagesApart has images on a disk of their own, and containers with the data, or on a third disk.
	OnlyImagesApart Layout = "only images apart"
)

// NewLayout returns the layout for the devices of the file systems.
func NewLayout(data, images, containers uint64) Layout {
	switch {
	case images == data && containers == data:
		return OneDisk
	case images == containers:
		return ImagesApart
	default:
		return OnlyImagesApart
	}
}

// Reclaim is something that frees space without the end of a pod.
type Reclaim string

// Values of Reclaim.
const (
	ReclaimContainers Reclaim = "containers" // remove containers that have exited
	ReclaimImages     Reclaim = "images"     // remove images that no container uses
)

// reclaims returns what frees space for the signal, in the order in which it is tried (EVI-14).
func (l Layout) reclaims(signal Signal) []Reclaim {
	onNodeFS := signal == NodeFSAvailable || signal == NodeFSInodesFree
	onImageFS := signal == ImageFSAvailable || signal == ImageFSInodesFree
	onContainerFS := signal == ContainerFSAvailable || signal == ContainerFSInodesFree
	switch {
	case !onNodeFS && !onImageFS && !onContainerFS:
		return nil
	case l == OnlyImagesApart && onImageFS:
		return []Reclaim{ReclaimImages}
	case l == OnlyImagesApart:
		return []Reclaim{ReclaimContainers}
	case l == ImagesApart && onNodeFS:
		return nil
	default:
		return []Reclaim{ReclaimContainers, ReclaimImages}
	}
}

// parts are what pods write to disks.
type parts struct{ layers, logs, volumes bool }

// parts returns what of a pod is on the disk of the signal (EVI-16). Images belong to no pod: where they are alone, pods differ by their
// priority only.
func (l Layout) parts(signal Signal) parts {
	onNodeFS := signal == NodeFSAvailable || signal == NodeFSInodesFree
	onImageFS := signal == ImageFSAvailable || signal == ImageFSInodesFree
	switch {
	case l == ImagesApart && onNodeFS:
		return parts{logs: true, volumes: true}
	case l == ImagesApart:
		return parts{layers: true}
	case l == OnlyImagesApart && onImageFS:
		return parts{}
	default:
		return parts{layers: true, logs: true, volumes: true}
	}
}

// source returns the signal whose thresholds a derived signal has (EVI-7). Others have their own.
func (l Layout) source(signal Signal) Signal {
	switch {
	case signal == LogFSAvailable, signal == ContainerFSAvailable && l != ImagesApart:
		return NodeFSAvailable
	case signal == LogFSInodesFree, signal == ContainerFSInodesFree && l != ImagesApart:
		return NodeFSInodesFree
	case signal == ContainerFSAvailable:
		return ImageFSAvailable
	case signal == ContainerFSInodesFree:
		return ImageFSInodesFree
	default:
		return signal
	}
}

// thresholdsFor returns the thresholds of the policy and those that follow from them. The file system of logs is only reported: other
// programs write to it too, and its figures say nothing about pods.
func (p *Policy) thresholdsFor(layout Layout) []Threshold {
	all := make([]Threshold, 0, len(p.Thresholds)*2)
	for _, threshold := range p.Thresholds {
		for _, info := range signals {
			if layout.source(info.signal) != threshold.Signal {
				continue
			}
			derived := threshold
			derived.Signal = info.signal
			derived.ReportOnly = threshold.ReportOnly || info.signal == LogFSAvailable || info.signal == LogFSInodesFree
			all = append(all, derived)
		}
	}
	return all
}
