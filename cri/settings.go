package cri

import (
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

	"github.com/heraldnode/herald/event"
)

// Provisioner gives what containers find on their node. The caller has mounted the pod's volumes before.
type Provisioner interface {
	// Path is the host's folder or file behind a volume of the pod.
	Path(pod *v1.Pod, volume string) (string, error)
	// Environment is every variable of the container, resolved, in order; of a name that occurs twice the last counts.
	Environment(ctx context.Context, pod *v1.Pod, container *v1.Container, ips []netip.Addr) ([]v1.EnvVar, error)
}

// Secrets are the cluster's.
type Secrets interface {
	// GetSecret is the secret as it is now. Nobody changes what it returns.
	GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Config says which runtime to use, and how pods look in it.
type Config struct {
	// Endpoint is the runtime's socket, unix:///run/containerd/containerd.sock. Root or the agent's own user must listen on
	// it. Required.
	Endpoint string
	// ImageEndpoint is where images are kept. Default: Endpoint.
	ImageEndpoint string
	// Provisioner gives volumes and variables. Required.
	Provisioner Provisioner
	// Events hears what happens to containers. Default: nobody.
	Events event.Recorder

	// Secrets gives pods' imagePullSecrets. Default: none, images are pulled without.
	Secrets Secrets
	// MaxParallelPulls limits how many images are pulled at once. Default: no limit. The runtime has its own limit on
	// downloads, and with one here a registry that hangs would hold up the images of all others.
	MaxParallelPulls int

	// Root is the folder of the pods' folders: Root/<uid> gets the hosts file and the termination messages. Required.
	Root string
	// LogDir is where containers' logs go, LogDir/<namespace>_<pod>_<uid>/<container>/<n>.log. Default: /var/log/pods.
	LogDir string
	// ContainerLogDir gets a link <pod>_<namespace>_<container>-<id>.log to each log, for log shippers that look there.
	// Default: none is made. The kubelet's is /var/log/containers.
	ContainerLogDir string
	// ContainerLogMaxSize is the size in bytes at which a log is rotated; a negative one means never. Default: 10 MiB.
	ContainerLogMaxSize int64
	// ContainerLogMaxFiles is how many files a container's log may have, at least 2. Default: 5.
	ContainerLogMaxFiles int

	// ClusterDNS are the name servers of pods with dnsPolicy ClusterFirst. Default: none, such pods get the node's.
	ClusterDNS []netip.Addr
	// ClusterDomain is the domain of the cluster's services. Default: none.
	ClusterDomain string
	// ResolvConf is the file with the node's name servers. Default: /etc/resolv.conf.
	ResolvConf string
	// NodeIPs are the addresses of pods in the node's network, the primary one first. Default: none.
	NodeIPs func() []netip.Addr

	// RuntimeHandlers gives the runtime's handler for each runtimeClassName. Default: none, the field is refused.
	RuntimeHandlers map[string]string
	// AllowedUnsafeSysctls are sysctls beyond the safe ones that pods may set; a trailing * stands for any ending.
	AllowedUnsafeSysctls []string
	// SeccompDefault gives containers without a seccomp profile the runtime's instead of none.
	SeccompDefault bool
	// SeccompDir has the profiles of type Localhost. Default: seccomp beside Root.
	SeccompDir string

	// CgroupParent is the cgroup that has those of the pods, /kubepods. Default: the runtime puts them where it likes.
	CgroupParent string
	// CgroupDriver is cgroupfs or systemd. Default: what the runtime says, or cgroupfs when it does not.
	CgroupDriver string
	// MemoryCapacity is the machine's memory in bytes, by which burstable containers share the blame when it is used up.
	// Default: the machine's.
	MemoryCapacity int64

	// RequestTimeout bounds each call of the runtime beyond what the call itself asks for. Default: 2 minutes.
	RequestTimeout time.Duration
	// Logger gets what no caller hears of. Default: silence.
	Logger *slog.Logger
	// Metrics gets kubelet_runtime_operations_*, kubelet_started_* and kubelet_image_*. Default: none.
	Metrics prometheus.Registerer

	dial func(ctx context.Context, address string) (net.Conn, error) // dialSocket; tests stay in memory
}

const (
	driverCgroupfs = "cgroupfs"
	driverSystemd  = "systemd"
)

func (c *Config) complete() error {
	if c.ImageEndpoint == "" {
		c.ImageEndpoint = c.Endpoint
	}
	if err := c.check(); err != nil {
		return err
	}
	setDefault(&c.LogDir, "/var/log/pods")
	setDefault(&c.ContainerLogMaxSize, 10<<20)
	setDefault(&c.ContainerLogMaxFiles, 5)
	setDefault(&c.ResolvConf, "/etc/resolv.conf")
	setDefault(&c.SeccompDir, filepath.Join(filepath.Dir(c.Root), "seccomp"))
	setDefault(&c.RequestTimeout, 2*time.Minute)
	if c.MemoryCapacity == 0 {
		var machine unix.Sysinfo_t
		if err := unix.Sysinfo(&machine); err != nil {
			return fmt.Errorf("cri.Config.MemoryCapacity: asking the machine: %w", err)
		}
		c.MemoryCapacity = int64(machine.Totalram) * int64(machine.Unit)
	}
	if c.NodeIPs == nil {
		c.NodeIPs = func() []netip.Addr { return nil }
	}
	if c.dial == nil {
		c.dial = dialSocket
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (c *Config) check() error {
	const form = "unix:///run/containerd/containerd.sock"
	switch {
	case !strings.HasPrefix(c.Endpoint, "unix:///"):
		return fmt.Errorf("cri.Config.Endpoint: %q is not of the form %s", c.Endpoint, form)
	case !strings.HasPrefix(c.ImageEndpoint, "unix:///"):
		return fmt.Errorf("cri.Config.ImageEndpoint: %q is not of the form %s", c.ImageEndpoint, form)
	case c.Provisioner == nil:
		return errors.New("cri.Config.Provisioner: required")
	case !filepath.IsAbs(c.Root):
		return fmt.Errorf("cri.Config.Root: %q is not an absolute path", c.Root)
	case c.CgroupDriver != "" && c.CgroupDriver != driverCgroupfs && c.CgroupDriver != driverSystemd:
		return fmt.Errorf("cri.Config.CgroupDriver: %q is neither %s nor %s", c.CgroupDriver, driverCgroupfs, driverSystemd)
	case c.CgroupParent != "" && !filepath.IsAbs(c.CgroupParent):
		return fmt.Errorf("cri.Config.CgroupParent: %q does not begin with a slash", c.CgroupParent)
	case c.MaxParallelPulls < 0:
		return fmt.Errorf("cri.Config.MaxParallelPulls: %d is negative", c.MaxParallelPulls)
	case c.ContainerLogMaxFiles != 0 && c.ContainerLogMaxFiles < 2:
		return fmt.Errorf("cri.Config.ContainerLogMaxFiles: %d is less than 2", c.ContainerLogMaxFiles)
	case c.RequestTimeout < 0:
		return fmt.Errorf("cri.Config.RequestTimeout: %v is negative", c.RequestTimeout)
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
