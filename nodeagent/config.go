package nodeagent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// The runtimes.
const (
	RuntimeCRI     = "cri"     // a container runtime that is there already: containerd, CRI-O
	RuntimeProcess = "process" // processes of this machine, without any isolation
)

// Config says what a node is to be. Fields without a default are required.
type Config struct {
	// NodeName is the name of the node.
	NodeName string
	// DataDir is where everything is kept that must survive the agent, an absolute path. It is made for its owner alone;
	// one that others can write to is refused.
	DataDir string

	// API is how to reach the API server. Default: there is none, the node is alone.
	API *rest.Config
	// EventQPS and EventBurst limit how many events the API server gets a second, and at once; they count apart from the
	// limits of API. Default 50 and 100; a negative EventQPS is no limit.
	EventQPS   float32
	EventBurst int

	// StaticPodPath is a folder of manifests, or one. Default: none.
	StaticPodPath string
	// StaticPodURL is where a manifest is read from, with StaticPodURLHeader. Default: none.
	StaticPodURL       string
	StaticPodURLHeader http.Header
	// StaticPodURLCAFile has the authorities that may vouch for the URL's server; StaticPodURLCertFile and
	// StaticPodURLKeyFile are what the agent shows it. All are PEM, and read again when they change. Default: the system's
	// authorities, and nothing is shown.
	StaticPodURLCAFile, StaticPodURLCertFile, StaticPodURLKeyFile string
	// FileCheckFrequency and HTTPCheckFrequency are how often they are looked at when nothing seems to happen. Default 20 s.
	FileCheckFrequency, HTTPCheckFrequency time.Duration
	// SyncFrequency is how often a pod is looked at although nothing happened. Default 1 min.
	SyncFrequency time.Duration

	// Runtime is RuntimeCRI or RuntimeProcess. Default RuntimeCRI.
	Runtime string
	// ContainerRuntimeEndpoint and ImageServiceEndpoint are the sockets of a RuntimeCRI. Default
	// unix:///run/containerd/containerd.sock, and the same.
	ContainerRuntimeEndpoint, ImageServiceEndpoint string
	// AllowAPIPods lets a RuntimeProcess run pods of the API server, which nothing keeps from the whole machine. Default:
	// they are refused.
	AllowAPIPods bool
	// Shim is the command that a RuntimeProcess starts containers with, see process.Config. Default: this program.
	Shim []string
	// RuntimeRequestTimeout bounds each call of the runtime beyond what the call itself asks for. Default 2 min.
	RuntimeRequestTimeout time.Duration
	// MaxParallelImagePulls is how many images are pulled at once. Default: no limit.
	MaxParallelImagePulls int
	// SeccompDefault gives containers without a seccomp profile the runtime's instead of none.
	SeccompDefault bool
	// AllowedUnsafeSysctls are sysctls beyond the safe ones that pods may set; a trailing * stands for any ending.
	AllowedUnsafeSysctls []string

	// PodLogsDir is where containers' logs go. Default: /var/log/pods, or logs in DataDir for a RuntimeProcess.
	PodLogsDir string
	// ContainerLogMaxSize is the size in bytes at which a log is rotated, never if it is negative; ContainerLogMaxFiles is
	// how many files a container's log may have, at least 2. Default 10 MiB and 5.
	ContainerLogMaxSize  int64
	ContainerLogMaxFiles int
	// NodeIP is the node's address, and that of pods in its network. Default: that of the interface that leads out.
	NodeIP netip.Addr
	// NodeLabels and RegisterWithTaints are given to the Node object when it is made. NoRegistration leaves that to others.
	NodeLabels         map[string]string
	RegisterWithTaints []v1.Taint
	NoRegistration     bool
	// ProviderID is told to the Node object once, if nobody else has. Default: none.
	ProviderID string
	// NodeStatusUpdateFrequency is how often the machine is looked at, NodeStatusReportFrequency how often a status is told
	// that did not change, NodeLeaseDuration after how long without a renewal the node counts as lost. Default 10 s, 5 min, 40 s.
	NodeStatusUpdateFrequency, NodeStatusReportFrequency, NodeLeaseDuration time.Duration
	// Reserved is what pods do not get of the machine. Default: nothing is.
	Reserved v1.ResourceList
	// Version is the agent's own, for the Node object.
	Version string
	// ClusterDNS and ClusterDomain are for the pods' name resolution. Default: none, pods use the machine's.
	ClusterDNS    []netip.Addr
	ClusterDomain string
	// ResolvConf is the file with the machine's name servers. Default /etc/resolv.conf.
	ResolvConf string
	// CgroupRoot has the cgroups of the pods. Default: where the runtime puts them.
	CgroupRoot string
	// CgroupDriver is cgroupfs or systemd. Default: what the runtime says, or cgroupfs when it does not.
	CgroupDriver string
	// MaxPods is how many pods the node runs. Default 110.
	MaxPods int

	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

const defaultEndpoint = "unix:///run/containerd/containerd.sock"

func (c Config) withDefaults() (Config, error) {
	var err error
	complain := func(format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("nodeagent.Config: "+format, args...))
	}
	if c.NodeName == "" {
		complain("NodeName is required")
	}
	if !filepath.IsAbs(c.DataDir) {
		complain("DataDir is %q: give an absolute path", c.DataDir)
	}
	if c.StaticPodPath == "" && c.StaticPodURL == "" && c.API == nil {
		complain("no source of pods: give StaticPodPath, StaticPodURL or API")
	}
	setDefault(&c.Runtime, RuntimeCRI)
	switch c.Runtime {
	case RuntimeCRI:
		setDefault(&c.ContainerRuntimeEndpoint, defaultEndpoint)
		setDefault(&c.PodLogsDir, "/var/log/pods")
	case RuntimeProcess:
		if c.ContainerRuntimeEndpoint != "" {
			complain("ContainerRuntimeEndpoint is for the runtime %s, not %s", RuntimeCRI, RuntimeProcess)
		}
		setDefault(&c.PodLogsDir, filepath.Join(c.DataDir, "logs"))
		if len(c.Shim) == 0 {
			c.Shim = []string{"/proc/self/exe"}
		}
	default:
		complain("Runtime is %q: want %s or %s", c.Runtime, RuntimeCRI, RuntimeProcess)
	}
	if c.MaxPods < 0 || c.EventBurst < 0 {
		complain("MaxPods and EventBurst must not be negative")
	}
	setDefault(&c.MaxPods, 110)
	setDefault(&c.EventQPS, 50)
	setDefault(&c.EventBurst, 100)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
