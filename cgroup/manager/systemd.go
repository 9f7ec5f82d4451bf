package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

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

// systemdTimeout is how long systemd may take to create or stop a slice, as in the kubelet. One that hangs must not block the
// removal of pods.
const systemdTimeout = 30 * time.Second

// applySlice tells systemd the values of a slice if it does not exist or a value differs. Systemd restores the values that
// it knows, so writing files alone would not last. It knows no huge pages: the files are written afterwards.
func (m *Manager) applySlice(ctx context.Context, name cgroup.Name, resources cgroup.Resources, settings []cgroup.Setting) error {
	path := name.Path(cgroup.DriverSystemd)
	if m.exists(path) && m.isApplied(path, settings) {
		return nil
	}
	if err := m.setSlice(ctx, name.Slice(), m.sliceProperties(resources)); err != nil {
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

// quotaPerSecond returns a quota in systemd's terms: microseconds per second.
func quotaPerSecond(quota int64) uint64 {
	if quota <= 0 {
		return math.MaxUint64 // unlimited
	}
	return uint64(quota * (1_000_000 / cgroup.QuotaPeriod))
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

// setSlice and stopSlice wait for systemd at most systemdTimeout.
func (m *Manager) setSlice(ctx context.Context, slice string, properties []property) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	return m.config.systemd.setSlice(ctx, slice, properties)
}

func (m *Manager) stopSlice(ctx context.Context, slice string) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	return m.config.systemd.stopSlice(ctx, slice)
}

// systemd is the systemd of the machine. Every call has its own connection to the socket of root, because systemd drops
// connections when it executes itself again; no bus is needed.
type systemd struct {
	socket string
}

// systemdSocket accepts the connections of root.
const systemdSocket = "/run/systemd/private"

// call calls f with a connection that is closed when f returns or ctx ends.
func (s systemd) call(ctx context.Context, f func(*dbus.Conn) error) error {
	connection, err := dbus.NewConnection(func() (*godbus.Conn, error) { return s.dial(ctx) })
	if err == nil {
		defer connection.Close()
		err = f(connection)
	}
	if err != nil && ctx.Err() != nil { // the error is that of a closed connection
		return fmt.Errorf("systemd does not answer: %w", ctx.Err())
	}
	return err
}

func (s systemd) dial(ctx context.Context) (*godbus.Conn, error) {
	connection, err := godbus.Dial("unix:path="+s.socket, godbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := connection.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

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
func (s systemd) setSlice(ctx context.Context, slice string, properties []property) error {
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
	return s.call(ctx, func(connection *dbus.Conn) error {
		done := make(chan string, 1)
		_, err := connection.StartTransientUnitContext(ctx, slice, "replace", created, done)
		if isError(err, errorUnitExists) {
			return connection.SetUnitPropertiesContext(ctx, slice, true, values...)
		}
		return await(ctx, err, done)
	})
}

func (s systemd) stopSlice(ctx context.Context, slice string) error {
	return s.call(ctx, func(connection *dbus.Conn) error {
		done := make(chan string, 1)
		_, err := connection.StopUnitContext(ctx, slice, "replace", done)
		if isError(err, errorNoSuchUnit) {
			return nil
		}
		return await(ctx, err, done)
	})
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
		return ctx.Err()
	}
}

func isError(err error, name string) bool {
	var dbusError godbus.Error
	return errors.As(err, &dbusError) && dbusError.Name == name
}
