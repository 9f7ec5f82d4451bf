package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// Cgroup drivers: who creates cgroups, and therefore how they are named. The container runtime and the agent must use the
// same one.
const (
	DriverCgroupfs = "cgroupfs"
	DriverSystemd  = "systemd"
)

const (
	nodeElement     = "kubepods"
	podPrefix       = "pod"
	sliceSuffix     = ".slice"
	escapedInSlices = "-" // separates levels in the name of a slice
)

// Name identifies a cgroup independently of the driver by its elements from the root, such as kubepods, burstable,
// pod<UID>. The empty Name is the root.
type Name []string

// ParseName returns the Name of a path in the form of the cgroupfs driver.
func ParseName(cgroupfsPath string) Name {
	trimmed := strings.Trim(path.Clean("/"+cgroupfsPath), "/")
	if trimmed == "" {
		return nil
	}
	return strings.Split(trimmed, "/")
}

// NodeName returns the parent of all pods below root, the kubelet's cgroupRoot (CGR-3).
func NodeName(root Name) Name { return root.Child(nodeElement) }

// QOSName returns the parent of the pods of a class. Guaranteed pods are directly below node, the result of NodeName.
func QOSName(node Name, class v1.PodQOSClass) Name {
	if class == v1.PodQOSGuaranteed {
		return node
	}
	return node.Child(strings.ToLower(string(class)))
}

// PodName returns the cgroup of a pod.
func PodName(node Name, class v1.PodQOSClass, uid podid.UID) Name {
	return QOSName(node, class).Child(podPrefix + string(uid))
}

// PodNames returns every cgroup that a pod with the UID may have, one for each QoS class.
func PodNames(node Name, uid podid.UID) []Name {
	return []Name{
		PodName(node, v1.PodQOSGuaranteed, uid), PodName(node, v1.PodQOSBurstable, uid), PodName(node, v1.PodQOSBestEffort, uid),
	}
}

// PodUID returns the pod whose cgroup is the directory of this name below n, the cgroup of a QoS class.
func (n Name) PodUID(dir, driver string) (podid.UID, bool) {
	prefix, suffix := podPrefix, ""
	if driver == DriverSystemd {
		prefix, suffix = strings.TrimSuffix(n.Slice(), sliceSuffix)+escapedInSlices+podPrefix, sliceSuffix
	}
	uid, hasPrefix := strings.CutPrefix(dir, prefix)
	uid, hasSuffix := strings.CutSuffix(uid, suffix)
	if driver == DriverSystemd {
		uid = strings.ReplaceAll(uid, "_", escapedInSlices)
	}
	return podid.UID(uid), hasPrefix && hasSuffix && uid != ""
}

// IsContainer reports whether a cgroup directly below a pod's is that of a container. Runtimes name it <ID> or <prefix>-<ID>.scope.
// CRI-O's monitor of the container has one, too.
func IsContainer(dir, containerID string) bool {
	name := strings.TrimSuffix(dir, ".scope")
	isNamed := name == containerID || strings.HasSuffix(name, "-"+containerID)
	return containerID != "" && isNamed && !strings.Contains(name, "conmon")
}

// Child returns the cgroup element below n.
func (n Name) Child(element string) Name {
	return append(append(make(Name, 0, len(n)+1), n...), element)
}

// Path returns the cgroup's path below the mount of a hierarchy, which is also the form of the CRI's cgroup_parent for both
// drivers: runtimes that use systemd take the last element (CGR-5).
func (n Name) Path(driver string) string {
	if driver != DriverSystemd {
		return "/" + path.Join(n...)
	}
	slices := "/"
	for i := range n {
		slices = path.Join(slices, n[:i+1].Slice())
	}
	return slices
}

// Slice returns the cgroup's systemd unit. A dash separates levels, so dashes in elements become underscores (CGR-4).
func (n Name) Slice() string {
	if len(n) == 0 {
		return "-" + sliceSuffix
	}
	elements := make([]string, len(n))
	for i, element := range n {
		elements[i] = strings.ReplaceAll(element, escapedInSlices, "_")
	}
	return strings.Join(elements, "-") + sliceSuffix
}
