// Package machine finds out what a node's agent has to tell of the machine: from /proc, /sys and /etc, from the file system
// that pods write to, and from the network interfaces. It asks nobody else.
package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/node/report"
)

// Config says where to look.
type Config struct {
	// DataDir is the folder whose file system pods fill. Required.
	DataDir string
	// Hostname. Default: the machine's own.
	Hostname string
	// Addresses are the node's, the primary one first, where the operator knows better. Default: those of the interface
	// that leads out, see [Addresses].
	Addresses []netip.Addr
	// Version is the agent's own.
	Version string
	// Root is where the machine's files are. Default "/".
	Root string
	// Interfaces are the machine's. Default: as the kernel lists them.
	Interfaces func() ([]Interface, error)
}

// Machine is this one. It has no state; any goroutine may ask.
type Machine struct{ config Config }

// New checks the config.
func New(config Config) (*Machine, error) {
	if config.DataDir == "" {
		return nil, errors.New("machine.Config: DataDir is required")
	}
	if config.Root == "" {
		config.Root = "/"
	}
	if config.Interfaces == nil {
		config.Interfaces = interfaces
	}
	if config.Hostname == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("machine: no hostname: %w; set Config.Hostname", err)
		}
		config.Hostname = strings.ToLower(name)
	}
	return &Machine{config: config}, nil
}

// KubernetesVersion is the kubelet whose behaviour the agent has; what a cluster concludes from a node's version holds for
// that one.
const KubernetesVersion = "v1.36.3"

// Facts is how the machine is now. What is not there to be read stays empty, such as an ID that the machine does not have;
// without memory, CPUs or the state of the disk there are no facts.
func (m *Machine) Info() (report.MachineInfo, error) {
	facts := report.MachineInfo{Hostname: m.config.Hostname, System: m.system()}
	var errs [4]error
	facts.CPUs, errs[0] = m.cpus()
	facts.Memory, errs[1] = m.memory()
	facts.Storage, facts.Inodes, errs[2] = storage(m.config.DataDir)
	facts.Addresses, errs[3] = m.addresses()
	facts.PIDs = m.pids()
	if err := errors.Join(errs[:]...); err != nil {
		return report.MachineInfo{}, fmt.Errorf("look at the machine: %w", err)
	}
	return facts, nil
}

func (m *Machine) system() v1.NodeSystemInfo {
	id := m.first("etc/machine-id", "var/lib/dbus/machine-id")
	system := v1.NodeSystemInfo{
		MachineID: id, SystemUUID: m.first("sys/class/dmi/id/product_uuid"), BootID: m.first("proc/sys/kernel/random/boot_id"),
		KernelVersion: m.first("proc/sys/kernel/osrelease"), OSImage: m.osImage(),
		KubeletVersion:  version(m.config.Version),
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	if system.SystemUUID == "" {
		system.SystemUUID = id
	}
	return system
}

// version tells the agent's own version in the part of a semantic version that nobody compares. That has parts between
// dots, of letters, digits and hyphens.
func version(own string) string {
	plain := func(r rune) rune {
		if r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '-'
	}
	own = strings.Map(plain, strings.TrimPrefix(own, "v"))
	parts := strings.FieldsFunc(own, func(r rune) bool { return r == '.' })
	return strings.Join(append([]string{KubernetesVersion + "+herald"}, parts...), ".")
}

// first is the content of the first of these files that has any.
func (m *Machine) first(names ...string) string {
	for _, name := range names {
		content, err := os.ReadFile(m.path(name))
		if text := strings.TrimSpace(string(content)); err == nil && text != "" {
			return text
		}
	}
	return ""
}

func (m *Machine) path(name string) string { return filepath.Join(m.config.Root, name) }

func (m *Machine) osImage() string {
	for line := range strings.Lines(m.first("etc/os-release", "usr/lib/os-release")) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); found {
			return strings.Trim(value, `"'`)
		}
	}
	return "Unknown"
}
