package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// sliceEnv tells a container's shim the slice in which it creates its scope. Containers do not inherit it.
const sliceEnv = "HERALD_SLICE"

// scopeTimeout bounds the creation of a scope.
const scopeTimeout = 30 * time.Second

// ServiceUnit returns the systemd service of a process, given the content of its /proc/PID/cgroup. It returns "" for a process
// of a session or a scope.
func ServiceUnit(cgroups string) string {
	hierarchies := parseCgroups(cgroups)
	for _, hierarchy := range []string{"name=systemd", ""} {
		if unit := filepath.Base(hierarchies[hierarchy]); filepath.Ext(unit) == ".service" {
			return unit
		}
	}
	return ""
}

// enterScope moves this shim, and with it the container that it starts, into a scope of its own below the slice. The limits
// and the OOM killer of the agent's unit then do not concern the container, and systemd shows and stops it separately.
func enterScope(slice, containerID string) error {
	ctx, cancel := context.WithTimeout(context.Background(), scopeTimeout)
	defer cancel()
	if err := startScope(ctx, slice, scopeName(containerID)); err != nil {
		return fmt.Errorf("create systemd scope of container %s: %w", containerID, err)
	}
	return nil
}

func scopeName(containerID string) string { return "herald-" + containerID + ".scope" }

func startScope(ctx context.Context, slice, scope string) error {
	connection, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return err
	}
	defer connection.Close()
	properties := []dbus.Property{
		dbus.PropDescription("Container of a pod that herald runs as a process"),
		dbus.PropSlice(slice), dbus.PropPids(uint32(os.Getpid())),
		{Name: "CollectMode", Value: godbus.MakeVariant("inactive-or-failed")}, // nothing else resets a failed scope
		dbus.PropAfter("network.target"),                                       // a shutdown stops it before the network
	}
	// A shutdown stops the agent first: it would restart the container, and count that.
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if agent := ServiceUnit(string(content)); agent != "" {
		properties = append(properties, dbus.PropBefore(agent))
	}
	done := make(chan string, 1)
	_, err = connection.StartTransientUnitContext(ctx, scope, "fail", properties, done)
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

// joinCgroups moves this process into the cgroups of another, so that a command in a container counts as the container. It
// moves nothing in a hierarchy that is not mounted or not writable.
func joinCgroups(pid int) {
	own, other := readCgroups("self"), readCgroups(fmt.Sprint(pid))
	for hierarchy, path := range other {
		if own[hierarchy] == path {
			continue
		}
		for _, mount := range cgroupMounts(hierarchy) {
			file, err := os.OpenFile(filepath.Join(mount, path, "cgroup.procs"), os.O_WRONLY, 0)
			if err != nil {
				continue
			}
			_, _ = file.WriteString("0") // the writer
			_ = file.Close()
			break
		}
	}
}

// readCgroups returns the cgroups of a process by the controllers of the hierarchy, "" for version 2.
func readCgroups(pid string) map[string]string {
	content, _ := os.ReadFile("/proc/" + pid + "/cgroup") // it may have exited
	return parseCgroups(string(content))
}

func parseCgroups(content string) map[string]string {
	cgroups := map[string]string{}
	for line := range strings.Lines(content) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 {
			cgroups[fields[1]] = fields[2]
		}
	}
	return cgroups
}

// cgroupMounts returns where a hierarchy may be mounted.
func cgroupMounts(hierarchy string) []string {
	const root = "/sys/fs/cgroup"
	if hierarchy == "" {
		return []string{root, filepath.Join(root, "unified")}
	}
	return []string{filepath.Join(root, strings.TrimPrefix(hierarchy, "name="))}
}
