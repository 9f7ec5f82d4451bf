package manager

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heraldnode/herald/cgroup"
)

// applySlice creates the slice and tells systemd its values if it does not exist or a value differs. Systemd restores the
// values that it knows, so writing files alone would not last. It knows no huge pages, and rounds CPU quotas: the files are
// written afterwards.
func (m *Manager) applySlice(ctx context.Context, name cgroup.Name, resources cgroup.Resources, settings []cgroup.Setting) error {
	path := name.Path(cgroup.DriverSystemd)
	if m.exists(path) && m.isApplied(path, settings) {
		return nil
	}
	if err := m.config.systemd(ctx, "start", name.Slice()); err != nil {
		return err
	}
	properties := m.sliceProperties(resources)
	if len(properties) == 0 {
		return nil
	}
	return m.config.systemd(ctx, append([]string{"set-property", "--runtime", name.Slice()}, properties...)...)
}

// sliceProperties returns the values that systemd knows.
func (m *Manager) sliceProperties(resources cgroup.Resources) []string {
	var properties []string
	add := func(name string, value any) { properties = append(properties, fmt.Sprint(name, "=", value)) }
	weight, memory := "CPUShares", "MemoryLimit"
	if m.host.V2 {
		weight, memory = "CPUWeight", "MemoryMax"
	}
	if shares := resources.CPUShares; shares != nil {
		value := *shares
		if m.host.V2 {
			value = cgroup.CPUWeight(value)
		}
		add(weight, value)
	}
	if quota := resources.CPUQuota; quota != nil && *quota > 0 {
		const onePercent = cgroup.QuotaPeriod / 100
		add("CPUQuota", fmt.Sprint((*quota+onePercent-1)/onePercent, "%"))
	}
	if limit := resources.Memory; limit != nil && *limit > 0 {
		add(memory, *limit)
	}
	if limit := resources.PIDs; limit != nil {
		add("TasksMax", *limit)
	}
	return properties
}

// isApplied reports whether all files that exist have their values.
func (m *Manager) isApplied(path string, settings []cgroup.Setting) bool {
	return !slices.ContainsFunc(settings, func(setting cgroup.Setting) bool {
		dir := filepath.Join(m.config.Mount, path)
		if !m.host.V2 {
			dir = filepath.Join(m.config.Mount, setting.Controller, path)
		}
		current, err := os.ReadFile(filepath.Join(dir, setting.File))
		return err == nil && !setting.IsApplied(string(current), int64(os.Getpagesize()))
	})
}

// systemctl runs the program of this name. It needs no connection that could break when systemd is reloaded.
func systemctl(ctx context.Context, arguments ...string) error {
	if output, err := exec.CommandContext(ctx, "systemctl", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(arguments, " "), err, output)
	}
	return nil
}

// isSystemdBooted reports whether systemd runs, as sd_booted(3) does.
func isSystemdBooted() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}
