package cri

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// podCgroup is the cgroup that has the pod's containers: <parent>/<quality of service>/pod<uid>, guaranteed pods right
// below the parent, in the form that the driver wants; "" leaves it to the runtime.
func (c *Config) podCgroup(pod *v1.Pod, driver string) string {
	if c.CgroupParent == "" {
		return ""
	}
	elements := cgroupElements(c.CgroupParent)
	if class := derive.QOSClass(pod); class != v1.PodQOSGuaranteed {
		elements = append(elements, strings.ToLower(string(class)))
	}
	return cgroupName(append(elements, "pod"+string(pod.UID)), driver)
}

// podCgroups are all that the pod could have, for whoever knows its UID alone.
func (c *Config) podCgroups(uid string, driver string) []string {
	if c.CgroupParent == "" {
		return nil
	}
	var all []string
	for _, class := range []string{"", "burstable", "besteffort"} {
		elements := cgroupElements(c.CgroupParent)
		if class != "" {
			elements = append(elements, class)
		}
		all = append(all, cgroupName(append(elements, "pod"+uid), driver))
	}
	return all
}

func cgroupElements(parent string) []string {
	return strings.Split(strings.Trim(path.Clean(parent), "/"), "/")
}

// cgroupName writes the path as the driver wants it. For systemd a dash means a level of its own.
func cgroupName(elements []string, driver string) string {
	if driver != driverSystemd {
		return "/" + path.Join(elements...)
	}
	escaped := make([]string, len(elements))
	for i, element := range elements {
		escaped[i] = strings.ReplaceAll(element, "-", "_")
	}
	return strings.Join(escaped, "-") + ".slice"
}
