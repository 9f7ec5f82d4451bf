package node_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// leftovers is what pods that are gone still have on the machine.
func (m *machine) leftovers() []string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var left []string
	pods, err := m.runtime.ListPods(ctx)
	if err != nil {
		left = append(left, err.Error())
	}
	for _, p := range pods {
		left = append(left, fmt.Sprintf("pod %s in containerd", p.Name))
	}
	folder := m.containerd.Dir()
	for kind, pattern := range map[string]string{
		"folder of a pod":      m.settings.pods() + "/*",
		"logs of a pod":        m.settings.Logs + "/*",
		"network namespace":    folder + "/state/*.cri/netns/*",
		"network namespace ":   folder + "/state/netns/*",
		"address of a pod":     folder + "/addresses/*/10.*",
		"cgroup of a pod":      "/sys/fs/cgroup" + m.settings.CgroupParent + "/*/pod*",
		"cgroup of a pod (v1)": "/sys/fs/cgroup/*" + m.settings.CgroupParent + "/*/pod*",
	} {
		found, _ := filepath.Glob(pattern) // the pattern is right
		for _, one := range found {
			left = append(left, kind+" "+one)
		}
	}
	left = append(left, m.mounts()...)
	if m.runtimeKilled {
		left = slices.DeleteFunc(left, func(what string) bool {
			return strings.HasPrefix(what, "network") || strings.HasPrefix(what, "address") || strings.Contains(what, "/netns/")
		})
	}
	return left
}

// mounts is what is mounted for pods.
func (m *machine) mounts() (found []string) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(content)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, m.containerd.Dir()+"/") {
			found = append(found, "mount "+point)
		}
	}
	return found
}

// removeCgroups removes what pods of one machine share, in every hierarchy.
func removeCgroups(parent string) error {
	var errs []error
	for _, pattern := range []string{"/sys/fs/cgroup" + parent, "/sys/fs/cgroup/*" + parent} {
		found, _ := filepath.Glob(pattern) // the pattern is right
		for _, dir := range found {
			for _, below := range []string{"burstable", "besteffort", "."} {
				if err := os.Remove(filepath.Join(dir, below)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}
