package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/heraldnode/herald/cgroup"
)

// property is a property of a unit, with the type that systemd has for it.
type property struct {
	name  string
	value any
}

// unitManager is what the Manager needs of systemd. Tests replace it.
type unitManager interface {
	// isRunning reports whether systemd runs.
	isRunning() bool
	// setSlice creates a slice with these properties, or sets those of a slice that exists.
	setSlice(ctx context.Context, slice string, properties []property) error
	// stopSlice stops a slice and all units in it. It is no error if there is none.
	stopSlice(ctx context.Context, slice string) error
}

// applySlice tells systemd the values of a slice if it does not exist or a value differs. Systemd restores the values that
// it knows, so writing files alone would not last. It knows no huge pages, and rounds CPU quotas: the files are written
// afterwards.
func (m *Manager) applySlice(ctx context.Context, name cgroup.Name, resources cgroup.Resources, settings []cgroup.Setting) error {
	path := name.Path(cgroup.DriverSystemd)
	if m.exists(path) && m.isApplied(path, settings) {
		return nil
	}
	if err := m.config.systemd.setSlice(ctx, name.Slice(), m.sliceProperties(resources)); err != nil {
		return fmt.Errorf("set up %s: %w", name.Slice(), err)
	}
	return nil
}

// sliceProperties returns the values that systemd knows.
func (m *Manager) sliceProperties(resources cgroup.Resources) []property {
	var properties []property
	add := func(name string, value uint64) { properties = append(properties, property{name, value}) }
	weight, memory := "CPUShares", "MemoryLimit"
	if m.host.V2 {
		weight, memory = "CPUWeight", "MemoryMax"
	}
	if shares := resources.CPUShares; shares != nil {
		value := *shares
		if m.host.V2 {
			value = cgroup.CPUWeight(value)
		}
		add(weight, uint64(value))
	}
	if quota := resources.CPUQuota; quota != nil {
		add("CPUQuotaPerSecUSec", quotaPerSecond(*quota))
	}
	if limit := resources.Memory; limit != nil && *limit > 0 {
		add(memory, uint64(*limit))
	}
	if limit := resources.PIDs; limit != nil {
		add("TasksMax", uint64(*limit))
	}
	return properties
}

// quotaPerSecond returns a quota in systemd's terms: microseconds per second in steps of ten milliseconds.
func quotaPerSecond(quota int64) uint64 {
	const step = 10_000
	if quota <= 0 {
		return math.MaxUint64 // unlimited
	}
	perSecond := quota * (1_000_000 / cgroup.QuotaPeriod)
	return uint64((perSecond + step - 1) / step * step)
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

// systemd is the systemd of the machine. Every call has its own connection to the socket of root, because systemd drops
// connections when it executes itself again; no bus is needed.
type systemd struct{}

// isRunning is the check of sd_booted(3).
func (systemd) isRunning() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// Errors of systemd's D-Bus interface.
const (
	errorUnitExists = "org.freedesktop.systemd1.UnitExists"
	errorNoSuchUnit = "org.freedesktop.systemd1.NoSuchUnit"
)

// setSlice creates a transient slice: systemd keeps its values in files that it removes with the slice. For other units it
// would keep them until the next boot.
func (systemd) setSlice(ctx context.Context, slice string, properties []property) error {
	connection, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return err
	}
	defer connection.Close()
	var values []dbus.Property
	for _, p := range properties {
		values = append(values, dbus.Property{Name: p.name, Value: godbus.MakeVariant(p.value)})
	}
	// Without default dependencies, a shutdown stops the containers and not the slices above them. Accounting enables the
	// controllers, also without a value.
	created := append([]dbus.Property{dbus.PropDescription("Pods of Kubernetes")}, values...)
	for name, value := range map[string]bool{
		"DefaultDependencies": false, "CPUAccounting": true, "MemoryAccounting": true, "TasksAccounting": true,
	} {
		created = append(created, dbus.Property{Name: name, Value: godbus.MakeVariant(value)})
	}
	done := make(chan string, 1)
	_, err = connection.StartTransientUnitContext(ctx, slice, "replace", created, done)
	if isError(err, errorUnitExists) {
		return connection.SetUnitPropertiesContext(ctx, slice, true, values...)
	}
	return await(ctx, err, done)
}

func (systemd) stopSlice(ctx context.Context, slice string) error {
	connection, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return err
	}
	defer connection.Close()
	done := make(chan string, 1)
	_, err = connection.StopUnitContext(ctx, slice, "replace", done)
	if isError(err, errorNoSuchUnit) {
		return nil
	}
	return await(ctx, err, done)
}

// await waits for the result of a job unless it could not be started.
func await(ctx context.Context, err error, done <-chan string) error {
	if err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("result of the systemd job: %s", result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the systemd job: %w", ctx.Err())
	}
}

func isError(err error, name string) bool {
	var dbusError godbus.Error
	return errors.As(err, &dbusError) && dbusError.Name == name
}
