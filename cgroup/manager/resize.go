package manager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// ReadPod returns the CPU and memory values that the pod's cgroup has, and those that the pod's resources ask for. Both are empty if
// pods have no cgroups of their own.
func (m *Manager) ReadPod(ctx context.Context, pod *v1.Pod) (current, desired cgroup.Resources, err error) {
	path, driver, err := m.podPath(ctx, pod)
	if err != nil || m.isDisabled() || driver == cgroup.DriverSystemd && !m.config.systemd.isRunning() {
		return cgroup.Resources{}, cgroup.Resources{}, err
	}
	if !m.exists(path) {
		return cgroup.Resources{}, cgroup.Resources{}, fmt.Errorf("read cgroup of pod %s: %w", podid.FullNameOf(pod).Key(), os.ErrNotExist)
	}
	current = cgroup.ParseResources(m.host, func(controller, file string) (string, bool) { return m.read(path, controller, file) })
	desired = m.podResources(pod).Normalized(m.host)
	desired.HugePages, desired.PIDs = nil, nil
	if driver == cgroup.DriverSystemd && desired.CPUQuota != nil {
		desired.CPUQuota = new(cgroup.SystemdCPUQuota(*desired.CPUQuota))
	}
	return current, desired, nil
}

// UpdatePod writes CPU and memory values of the pod's cgroup; those that are nil stay as they are. The weight of the QoS class
// follows when the pod's does.
func (m *Manager) UpdatePod(ctx context.Context, pod *v1.Pod, values cgroup.Resources) error {
	_, driver, err := m.podPath(ctx, pod)
	if err != nil {
		return err
	}
	all := m.podResources(pod)
	values.HugePages, values.PIDs = all.HugePages, all.PIDs
	name := cgroup.PodName(m.node, derive.QOSClass(pod), podid.UID(pod.UID))
	if err := m.apply(ctx, driver, name, values); m.isFatal(err) {
		return fmt.Errorf("update cgroup of pod %s: %w", podid.FullNameOf(pod).Key(), err)
	}
	if values.CPUShares != nil {
		if err := m.ensureShared(ctx, driver); m.isFatal(err) && ctx.Err() == nil { // Run retries it
			m.config.Logger.Error("Failed to update cgroups", "err", err)
		}
	}
	return nil
}

func (m *Manager) podPath(ctx context.Context, pod *v1.Pod) (path, driver string, err error) {
	if err := checkUID(podid.UID(pod.UID)); err != nil {
		return "", "", err
	}
	if driver, err = m.config.Driver(ctx); err != nil {
		return "", "", err
	}
	return cgroup.PodName(m.node, derive.QOSClass(pod), podid.UID(pod.UID)).Path(driver), driver, nil
}

// read returns the content of a file of the cgroup, and false if it cannot be read.
func (m *Manager) read(path, controller, file string) (string, bool) {
	dir := filepath.Join(m.config.Mount, path)
	if !m.host.V2 {
		dir = filepath.Join(m.config.Mount, controller, path)
	}
	content, err := os.ReadFile(filepath.Join(dir, file))
	return string(content), err == nil
}
