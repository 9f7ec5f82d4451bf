// Package machine reads the information that a node reports about its machine: from /proc, /sys and /etc, from the file
// systems of pods and logs, and from the network interfaces.
package machine

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/node/report"
)

// Config configures a Machine.
type Config struct {
	// DataDir is a directory on the file system that pods use. Required.
	DataDir string
	// LogDir is the directory of container logs, which may not exist yet. Defaults to none: its file system is not checked.
	LogDir string
	// Hostname defaults to the machine's own.
	Hostname string
	// Addresses are the node's, the primary one first. Defaults to the addresses of the interfaces of the default routes.
	Addresses []netip.Addr
	// Version is the agent's own version.
	Version string
	// Root is the directory that contains proc, sys and etc. Defaults to "/".
	Root string
	// Interfaces lists the network interfaces. Defaults to the kernel's list.
	Interfaces func() ([]Interface, error)
}

// Machine reads information about the machine. It is stateless and safe for concurrent use.
type Machine struct{ config Config }

// New returns a Machine.
func New(config Config) (*Machine, error) {
	if config.DataDir == "" {
		return nil, errors.New("machine.Config: DataDir is required")
	}
	config.Root = cmp.Or(config.Root, "/")
	if config.Interfaces == nil {
		config.Interfaces = listInterfaces
	}
	if config.Hostname == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("machine.Config: Hostname is required: %w", err)
		}
		config.Hostname = strings.ToLower(name)
	}
	return &Machine{config: config}, nil
}

// kubeletVersion is the version of the kubelet whose behavior the agent has. Clusters draw conclusions from it.
const kubeletVersion = "v1.36.3"

// Info returns the current information about the machine. Information that is not available stays empty, such as a missing
// ID. Without memory, CPUs or the state of the file system, Info fails.
func (m *Machine) Info() (report.MachineInfo, error) {
	info := report.MachineInfo{Hostname: m.config.Hostname, System: m.system()}
	var errs [4]error
	info.CPUs, errs[0] = m.cpus()
	info.Memory, errs[1] = m.memory()
	data, err := StatFileSystem(m.config.DataDir)
	info.Storage, info.Inodes, errs[2] = data.Storage, data.Inodes, err
	info.Addresses, errs[3] = m.addresses()
	info.Logs = m.logs()
	info.PIDs = m.pids()
	info.HugePages = m.hugePages()
	info.System.Swap = m.swap()
	if err := errors.Join(errs[:]...); err != nil {
		return report.MachineInfo{}, fmt.Errorf("read machine information: %w", err)
	}
	return info, nil
}

func (m *Machine) system() v1.NodeSystemInfo {
	machineID := m.readFirst("etc/machine-id", "var/lib/dbus/machine-id")
	return v1.NodeSystemInfo{
		MachineID: machineID, SystemUUID: cmp.Or(m.readFirst("sys/class/dmi/id/product_uuid"), machineID),
		BootID:        m.readFirst("proc/sys/kernel/random/boot_id"),
		KernelVersion: m.readFirst("proc/sys/kernel/osrelease"), OSImage: m.osImage(),
		KubeletVersion:  formatVersion(m.config.Version),
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
}

// BootTime returns when the machine booted, by its present clock, or the zero time if it is not known.
func (m *Machine) BootTime() time.Time {
	for line := range strings.Lines(m.readFirst("proc/stat")) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), "btime "); found {
			if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
				return time.Unix(seconds, 0)
			}
		}
	}
	return time.Time{}
}

// formatVersion puts the agent's own version into the build metadata of the kubelet's version, which is not compared. Build
// metadata consists of dot-separated parts of letters, digits and hyphens.
func formatVersion(agentVersion string) string {
	replace := func(r rune) rune {
		if r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '-'
	}
	agentVersion = strings.Map(replace, strings.TrimPrefix(agentVersion, "v"))
	parts := strings.FieldsFunc(agentVersion, func(r rune) bool { return r == '.' })
	return strings.Join(append([]string{kubeletVersion + "+herald"}, parts...), ".")
}

func (m *Machine) osImage() string {
	for line := range strings.Lines(m.readFirst("etc/os-release", "usr/lib/os-release")) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); found {
			return strings.Trim(value, `"'`)
		}
	}
	return "Unknown"
}

// readFirst returns the content of the first file that is not empty.
func (m *Machine) readFirst(names ...string) string {
	for _, name := range names {
		content, err := os.ReadFile(m.path(name))
		if text := strings.TrimSpace(string(content)); err == nil && text != "" {
			return text
		}
	}
	return ""
}

// readInt returns the number in a file, or 0.
func (m *Machine) readInt(name string) int64 {
	value, err := strconv.ParseInt(m.readFirst(name), 10, 64)
	if err != nil {
		return 0
	}
	return value
}

// hugePages returns the bytes in huge pages by page size. Each size has a directory such as hugepages-2048kB.
func (m *Machine) hugePages() map[int64]int64 {
	const dir = "sys/kernel/mm/hugepages"
	entries, _ := os.ReadDir(m.path(dir)) // a kernel without huge pages has no directory
	pages := map[int64]int64{}
	for _, entry := range entries {
		var kilobytes int64
		if _, err := fmt.Sscanf(entry.Name(), "hugepages-%dkB", &kilobytes); err == nil {
			pages[kilobytes<<10] = m.readInt(filepath.Join(dir, entry.Name(), "nr_hugepages")) * kilobytes << 10
		}
	}
	return pages
}

// AppArmorEnabled reports whether the kernel enforces AppArmor profiles.
func (m *Machine) AppArmorEnabled() bool {
	_, err := os.Stat(m.path("sys/kernel/security/apparmor"))
	return err == nil && strings.HasPrefix(m.readFirst("sys/module/apparmor/parameters/enabled"), "Y")
}

func (m *Machine) path(name string) string { return filepath.Join(m.config.Root, name) }

// cpus counts the CPUs that are online. The file contains ranges such as 0-3,8.
func (m *Machine) cpus() (int64, error) {
	const name = "sys/devices/system/cpu/online"
	content, err := os.ReadFile(m.path(name))
	if err != nil {
		return 0, err
	}
	var count int64
	for part := range strings.SplitSeq(strings.TrimSpace(string(content)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseInt(first, 10, 32)
		to, err2 := strconv.ParseInt(last, 10, 32)
		if err != nil || err2 != nil || from < 0 || to < from {
			return 0, fmt.Errorf("%s: %q is not a range of CPUs", m.path(name), part)
		}
		count += to - from + 1
	}
	return count, nil
}

// memory returns the total memory and the kernel's estimate of what is available without swapping.
func (m *Machine) memory() (report.Amount, error) {
	if _, err := os.Stat(m.path(meminfo)); err != nil {
		return report.Amount{}, err
	}
	amount := report.Amount{Total: m.meminfo("MemTotal:"), Available: m.meminfo("MemAvailable:")}
	if amount.Total <= 0 {
		return report.Amount{}, fmt.Errorf("%s: MemTotal is missing", m.path(meminfo))
	}
	return amount, nil
}

// swap returns the size of the machine's swap, nil if there is none (RES-6).
func (m *Machine) swap() *v1.NodeSwapStatus {
	if total := m.meminfo("SwapTotal:"); total > 0 {
		return &v1.NodeSwapStatus{Capacity: &total}
	}
	return nil
}

const meminfo = "proc/meminfo"

// meminfo returns a number of /proc/meminfo in bytes, 0 if there is none.
func (m *Machine) meminfo(name string) int64 {
	for line := range strings.Lines(m.readFirst(meminfo)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == name {
			if kibibytes, err := strconv.ParseInt(fields[1], 10, 53); err == nil {
				return kibibytes << 10
			}
		}
	}
	return 0
}

// pids returns how many processes and threads can exist and can still be started. It is zero if a file cannot be read.
func (m *Machine) pids() report.Amount {
	limit := min(m.readInt("proc/sys/kernel/pid_max"), m.readInt("proc/sys/kernel/threads-max"))
	load := strings.Fields(m.readFirst("proc/loadavg"))
	if limit <= 0 || len(load) < 4 {
		return report.Amount{}
	}
	_, tasks, _ := strings.Cut(load[3], "/") // runnable/all
	used, err := strconv.ParseInt(tasks, 10, 64)
	if err != nil {
		return report.Amount{}
	}
	return report.Amount{Total: limit, Available: max(limit-used, 0)}
}

// logs returns the file system of the logs. It is zero if it cannot be read: the directory is created with the first container.
func (m *Machine) logs() report.FileSystem {
	if m.config.LogDir == "" {
		return report.FileSystem{}
	}
	logs, err := StatFileSystem(m.config.LogDir)
	if err != nil {
		return report.FileSystem{}
	}
	return logs
}

// StatFileSystem returns the space of the directory's file system. Some file systems do not count inodes.
func StatFileSystem(dir string) (report.FileSystem, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return report.FileSystem{}, fmt.Errorf("stat file system of %s: %w", dir, err)
	}
	size := int64(stat.Bsize) //nolint:unconvert // its type differs between architectures
	return report.FileSystem{
		Storage: report.Amount{Total: int64(stat.Blocks) * size, Available: int64(stat.Bavail) * size},
		Inodes:  report.Amount{Total: int64(stat.Files), Available: int64(stat.Ffree)},
	}, nil
}
