package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/host"
	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/podid"
)

// Provisioner provides volumes and environment variables. The caller of StartContainer mounts the pod's volumes first.
type Provisioner interface {
	// Path returns the directory or file on the host behind a volume of the pod.
	Path(pod *v1.Pod, volume string) (string, error)
	// PrepareEnvironment is called before a sandbox is started. It may request what Environment needs, but must not block.
	PrepareEnvironment(pod *v1.Pod)
	// Environment returns the container's variables, resolved and in order. The last value of a name wins.
	Environment(ctx context.Context, pod *v1.Pod, container *v1.Container, ips []netip.Addr) ([]v1.EnvVar, error)
}

// Secrets reads secrets of the cluster.
type Secrets interface {
	// GetSecret returns the current secret, which callers must not modify.
	GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// RuntimeClasses resolves runtime classes of the cluster.
type RuntimeClasses interface {
	// RuntimeHandler returns the handler of the runtime class that the pod names.
	RuntimeHandler(ctx context.Context, pod *v1.Pod) (string, error)
}

// Cgroups manages the cgroups of pods; cgroup/manager implements it.
type Cgroups interface {
	// EnsurePod creates the pod's cgroup, or repairs its values.
	EnsurePod(ctx context.Context, pod *v1.Pod) error
	// KillContainers kills the processes that are left of exited containers of the pod.
	KillContainers(ctx context.Context, uid podid.UID, containerIDs []string) error
	// RemovePod removes the pod's cgroup and kills the processes in it.
	RemovePod(ctx context.Context, uid podid.UID) error
	// ReadPod returns the CPU and memory values that the pod's cgroup has, and those that the pod's resources ask for. Both are
	// empty if pods have no cgroups of their own.
	ReadPod(ctx context.Context, pod *v1.Pod) (current, desired cgroup.Resources, err error)
	// UpdatePod writes CPU and memory values of the pod's cgroup. Those that are nil stay as they are.
	UpdatePod(ctx context.Context, pod *v1.Pod, values cgroup.Resources) error
}

// Config configures a Runtime.
type Config struct {
	// Endpoint is the runtime's socket, unix:///run/containerd/containerd.sock. Its listener must be root or the agent's own
	// user. Required.
	Endpoint string
	// ImageEndpoint is the socket of the image service. Defaults to Endpoint.
	ImageEndpoint string
	// Provisioner provides volumes and variables. Required.
	Provisioner Provisioner
	// Events receives events about pods and containers. Defaults to event.Discard.
	Events event.Recorder

	// Secrets reads imagePullSecrets. Default: none, images are pulled without credentials.
	Secrets Secrets
	// MaxParallelPulls limits concurrent image pulls. Default: no limit. Runtimes limit downloads themselves, and with a
	// limit here a registry that hangs delays the images of all others.
	MaxParallelPulls int
	// ImageVerification configures which pods may use an image that the node has. Its Dir defaults to the directory
	// image_manager next to Root, its Logger to Logger.
	ImageVerification pullmanager.Config

	// Root is the directory of the pods' directories: Root/<uid> holds the hosts file and the termination messages. Required.
	Root string
	// FormerRoot is the directory of pods that were started with another Root, where their files stay. Default: none.
	FormerRoot string
	// LogDir is the directory of container logs, LogDir/<namespace>_<pod>_<uid>/<container>/<n>.log. Defaults to
	// /var/log/pods.
	LogDir string
	// ContainerLogDir receives a symlink <pod>_<namespace>_<container>-<id>.log to each log, for log shippers that look
	// there. Default: none. The kubelet's is /var/log/containers.
	ContainerLogDir string
	// ContainerLogMaxSize is the size in bytes at which a log is rotated. Defaults to 10 MiB. Negative disables rotation.
	ContainerLogMaxSize int64
	// ContainerLogMaxFiles is the number of files that a container's log may have, at least 2. Defaults to 5.
	ContainerLogMaxFiles int

	// ClusterDNS are the name servers of pods with dnsPolicy ClusterFirst. Default: none, such pods use the node's.
	ClusterDNS []netip.Addr
	// ClusterDomain is the domain of the cluster's services. Default: none.
	ClusterDomain string
	// ResolvConf is the node's resolver configuration file. Defaults to /etc/resolv.conf.
	ResolvConf string
	// NodeIPs returns the addresses of pods in the host network, the primary one first. Default: none.
	NodeIPs func() []netip.Addr
	// IPv6First makes the IPv6 address of a dual-stack pod its primary one. Default: the IPv4 address.
	IPv6First bool

	// RuntimeClasses resolves the runtime classes of pods. Default: none, a runtimeClassName is the name of a handler that the
	// runtime reports.
	RuntimeClasses RuntimeClasses
	// AllowedUnsafeSysctls are sysctls beyond the safe ones that pods may set; a trailing * matches any suffix.
	AllowedUnsafeSysctls []string
	// AllowNodeAddresses lets hooks of pods outside the host network name addresses of the node, link-local addresses and
	// metadata services as their host. The kubelet allows it. Defaults to false.
	AllowNodeAddresses bool
	// SeccompDefault applies the runtime's seccomp profile to containers without one. Default: unconfined.
	SeccompDefault bool
	// SeccompDir is the directory of Localhost seccomp profiles. Defaults to the directory seccomp next to Root.
	SeccompDir string

	// CgroupParent is the parent cgroup of the pods in the form of cgroupfs, /kubepods. Default: the runtime chooses, which
	// fails if its driver is systemd.
	CgroupParent string
	// CgroupDriver is cgroupfs or systemd, for runtimes that do not report their driver. Defaults to what the runtime's
	// configuration says, or cgroupfs (CGR-1).
	CgroupDriver string
	// Cgroups manages the cgroups of pods below CgroupParent. Default: the runtime creates them, and nothing removes them.
	Cgroups Cgroups
	// CgroupHost is what the machine can limit. Default: read from the machine.
	CgroupHost *cgroup.Host
	// SingleProcessOOMKill lets the kernel kill one process of a container that runs out of memory instead of the container
	// (CGR-27).
	SingleProcessOOMKill bool
	// NoCPUQuota does not enforce the CPU limits of containers.
	NoCPUQuota bool
	// MemoryCapacity is the machine's memory in bytes, from which OOM scores of burstable containers are computed. Defaults
	// to the machine's memory.
	MemoryCapacity int64

	// RequestTimeout bounds each call to the runtime except for image pulls, in addition to the time that the call itself asks
	// for. Defaults to 2 minutes.
	RequestTimeout time.Duration
	// Logger receives errors that are not returned to a caller. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers kubelet_runtime_operations_*, kubelet_started_* and kubelet_image_*. Default: not registered.
	Metrics prometheus.Registerer

	dial        func(ctx context.Context, address string) (net.Conn, error) // dialSocket; tests connect in memory
	cgroupMount string                                                      // host.Mount; tests use their own
}

// complete validates the configuration and sets defaults.
func (c *Config) complete() error {
	c.ImageEndpoint = cmp.Or(c.ImageEndpoint, c.Endpoint)
	if err := c.validate(); err != nil {
		return err
	}
	c.LogDir = cmp.Or(c.LogDir, "/var/log/pods")
	c.ContainerLogMaxSize = cmp.Or(c.ContainerLogMaxSize, 10<<20)
	c.ContainerLogMaxFiles = cmp.Or(c.ContainerLogMaxFiles, 5)
	c.ResolvConf = cmp.Or(c.ResolvConf, "/etc/resolv.conf")
	c.SeccompDir = cmp.Or(c.SeccompDir, filepath.Join(filepath.Dir(c.Root), "seccomp"))
	c.ImageVerification.Dir = cmp.Or(c.ImageVerification.Dir, filepath.Join(filepath.Dir(c.Root), "image_manager"))
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 2*time.Minute)
	c.Events = cmp.Or(c.Events, event.Discard)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.ImageVerification.Logger = cmp.Or(c.ImageVerification.Logger, c.Logger)
	if c.MemoryCapacity == 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return fmt.Errorf("cri.Config: read MemoryCapacity of the machine: %w", err)
		}
		c.MemoryCapacity = int64(info.Totalram) * int64(info.Unit)
	}
	if c.CgroupHost == nil {
		machine, err := host.Read(host.Paths{})
		if err != nil {
			return fmt.Errorf("cri.Config: CgroupHost: %w", err)
		}
		c.CgroupHost = &machine
	}
	if c.NodeIPs == nil {
		c.NodeIPs = func() []netip.Addr { return nil }
	}
	if c.dial == nil {
		c.dial = dialSocket
	}
	return nil
}

func (c *Config) validate() error {
	var errs []error
	reject := func(condition bool, message string) {
		if condition {
			errs = append(errs, errors.New("cri.Config: "+message))
		}
	}
	const socketForm = " must be of the form unix:///run/containerd/containerd.sock"
	reject(!strings.HasPrefix(c.Endpoint, "unix:///"), "Endpoint"+socketForm)
	reject(c.ImageEndpoint != c.Endpoint && !strings.HasPrefix(c.ImageEndpoint, "unix:///"), "ImageEndpoint"+socketForm)
	reject(c.Provisioner == nil, "Provisioner is required")
	reject(!filepath.IsAbs(c.Root), "Root must be an absolute path")
	reject(c.CgroupDriver != "" && c.CgroupDriver != cgroup.DriverCgroupfs && c.CgroupDriver != cgroup.DriverSystemd,
		"CgroupDriver must be "+cgroup.DriverCgroupfs+" or "+cgroup.DriverSystemd)
	reject(c.CgroupParent != "" && !filepath.IsAbs(c.CgroupParent), "CgroupParent must be an absolute path")
	reject(c.MaxParallelPulls < 0, "MaxParallelPulls must not be negative")
	reject(c.ContainerLogMaxFiles != 0 && c.ContainerLogMaxFiles < 2, "ContainerLogMaxFiles must be at least 2")
	reject(c.RequestTimeout < 0, "RequestTimeout must not be negative")
	return errors.Join(errs...)
}

// thermalThrottlePaths returns the paths below root whose counters reveal the load of other containers.
func thermalThrottlePaths(root string) []string {
	paths, _ := filepath.Glob(root + "/cpu[0-9]*/thermal_throttle") // the pattern is valid
	return paths
}

func (c *Config) generator() *criconfig.Generator {
	return &criconfig.Generator{
		LogDir: c.LogDir, ClusterDNS: c.ClusterDNS, ClusterDomain: c.ClusterDomain,
		AllowedUnsafeSysctls: c.AllowedUnsafeSysctls, SeccompDefault: c.SeccompDefault, SeccompDir: c.SeccompDir,
		ThermalThrottlePaths: thermalThrottlePaths("/sys/devices/system/cpu"),
		CgroupParent:         c.CgroupParent, CgroupHost: *c.CgroupHost, SingleProcessOOMKill: c.SingleProcessOOMKill, NoCPUQuota: c.NoCPUQuota,
		MemoryCapacity: c.MemoryCapacity,
	}
}
