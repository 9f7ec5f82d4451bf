package nodeagent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/imagegc"
)

// Values of Config.Runtime.
const (
	RuntimeCRI     = "cri"     // an existing container runtime: containerd, CRI-O
	RuntimeProcess = "process" // host processes without isolation
)

// Config configures a NodeAgent. NodeName, DataDir and at least one source of pods are required.
type Config struct {
	// NodeName is the name of the node.
	NodeName string
	// DataDir is the absolute path of the directory for all persistent state. It is created with mode 0700; a directory that
	// others can write to is rejected.
	DataDir string
	// RootDir is the absolute path of the directory whose subdirectory pods contains the pods' volumes and files, with the
	// kubelet's layout: the root directory of a kubelet lets the agent take over its pods. Pods that were started before
	// RootDir was set keep their directories in DataDir. Defaults to DataDir.
	RootDir string

	// API configures the connections to the API server. Its limits apply separately to statuses, to mirror pods, to the objects
	// that pods refer to, to their watches, and to the node. A RateLimiter applies to statuses only: the others have QPS and
	// Burst, which default to 50 and 100 then. Nil runs the node without a cluster.
	API *rest.Config
	// EventQPS and EventBurst limit the events sent to the API server, separately from the limits of API. They default to 50
	// and 100; a negative EventQPS disables the limit.
	EventQPS   float32
	EventBurst int

	// StaticPodPath is a manifest file or a folder of manifests.
	StaticPodPath string
	// StaticPodURL is the URL of a manifest. Requests carry StaticPodURLHeader.
	StaticPodURL       string
	StaticPodURLHeader http.Header
	// StaticPodURLCAFile contains the CAs that may sign the certificate of the URL's server; StaticPodURLCertFile and
	// StaticPodURLKeyFile contain the client certificate. All are PEM and are reloaded when they change. The default is the
	// system's CAs without a client certificate.
	StaticPodURLCAFile, StaticPodURLCertFile, StaticPodURLKeyFile string
	// FileCheckFrequency and HTTPCheckFrequency are the periods of a full check. They default to 20s.
	FileCheckFrequency, HTTPCheckFrequency time.Duration
	// SyncFrequency is the period at which each pod is synced without a change. Defaults to 1m.
	SyncFrequency time.Duration

	// Runtime is RuntimeCRI or RuntimeProcess. Defaults to RuntimeCRI.
	Runtime string
	// ContainerRuntimeEndpoint and ImageServiceEndpoint are the sockets of RuntimeCRI. The default is
	// unix:///run/containerd/containerd.sock for both.
	ContainerRuntimeEndpoint, ImageServiceEndpoint string
	// AllowAPIPods lets RuntimeProcess run pods of the API server, which have access to the whole machine.
	AllowAPIPods bool
	// Shim is the command that RuntimeProcess starts containers with, see process.Config. Defaults to this program.
	Shim []string
	// RuntimeRequestTimeout bounds each runtime call, in addition to the time that the call itself asks for. Defaults to 2m.
	RuntimeRequestTimeout time.Duration
	// MaxParallelImagePulls limits concurrent image pulls. Zero means no limit.
	MaxParallelImagePulls int
	// ImagePullCredentialsVerificationPolicy decides which images of the node a pod may use whatever its credentials, see
	// pullmanager.Policy. PreloadedImagesVerificationAllowlist are the patterns of NeverVerifyAllowlistedImages. They default
	// to NeverVerifyPreloadedImages and none.
	ImagePullCredentialsVerificationPolicy pullmanager.Policy
	PreloadedImagesVerificationAllowlist   []string
	// ImageGC says when unused images are removed. Defaults to imagegc.DefaultPolicy. RuntimeProcess has no images.
	ImageGC *imagegc.Policy
	// SeccompDefault gives containers without a seccomp profile the runtime's default profile.
	SeccompDefault bool
	// AllowedUnsafeSysctls lists sysctls beyond the safe ones that pods may set; a trailing * matches any suffix.
	AllowedUnsafeSysctls []string
	// AllowProbesToNodeAddresses lets probes and hooks of pods outside the host network name addresses of the node, link-local
	// addresses and metadata services as their host. The kubelet allows it.
	AllowProbesToNodeAddresses bool

	// PodLogsDir is the directory of container logs. Defaults to /var/log/pods, and to logs in DataDir for RuntimeProcess.
	PodLogsDir string
	// ContainerLogsDir is the directory of a link to each container log, which log shippers look for. Defaults to
	// /var/log/containers for RuntimeCRI, or to containers next to PodLogsDir if that is set.
	ContainerLogsDir string
	// ContainerLogMaxSize is the size in bytes at which a log is rotated; a negative size disables rotation.
	// ContainerLogMaxFiles is the number of files per container, at least 2. They default to 10 MiB and 5.
	ContainerLogMaxSize  int64
	ContainerLogMaxFiles int
	// NodeIPs are the addresses of the node and of pods in its network: one, or one of each family. The family of the first
	// is the primary one of dual-stack pods too. Defaults to the addresses of the default routes' interfaces, and to IPv4.
	NodeIPs []netip.Addr
	// NodeLabels and RegisterWithTaints are set when the Node object is created. NoRegistration disables its creation.
	NodeLabels         map[string]string
	RegisterWithTaints []v1.Taint
	NoRegistration     bool
	// ProviderID is set on the Node object unless it has one.
	ProviderID string
	// NodeStatusUpdateFrequency is the period at which the node status is computed, NodeStatusReportFrequency the period at
	// which an unchanged status is sent, NodeLeaseDuration the duration of the node lease. They default to 10s, 5m and 40s.
	NodeStatusUpdateFrequency, NodeStatusReportFrequency, NodeLeaseDuration time.Duration
	// Reserved is subtracted from the machine's capacity to get the allocatable resources.
	Reserved v1.ResourceList
	// Eviction configures when pods are evicted because the node is short of a resource. Defaults to the kubelet's thresholds.
	Eviction eviction.Settings
	// Version is the agent's version in the Node object.
	Version string
	// ClusterDNS and ClusterDomain configure the DNS of pods. The default is the host's DNS configuration.
	ClusterDNS    []netip.Addr
	ClusterDomain string
	// ResolvConf is the host's DNS configuration file. Defaults to /etc/resolv.conf.
	ResolvConf string
	// CgroupRoot is the cgroup in which kubepods, the parent of all pods, is created. Defaults to /. RuntimeProcess has no
	// cgroups.
	CgroupRoot string
	// CgroupDriver is cgroupfs or systemd, for runtimes that do not report their driver. Defaults to what the runtime's
	// configuration says, and to cgroupfs otherwise.
	CgroupDriver string
	// NoCgroupsPerQOS leaves the cgroups of pods to the runtime, which fails if its driver is systemd.
	NoCgroupsPerQOS bool
	// EnforceNodeAllocatable limits pods together to the allocatable resources if it contains "pods", and to the capacity
	// otherwise. Defaults to "pods" if it is nil.
	EnforceNodeAllocatable []string
	// PodPidsLimit is the maximum number of processes of a pod. Zero or less means no limit.
	PodPidsLimit int64
	// SingleProcessOOMKill lets the kernel kill one process of a container that runs out of memory instead of the container.
	SingleProcessOOMKill bool
	// NoCPUCFSQuota does not enforce CPU limits.
	NoCPUCFSQuota bool
	// MaxPods is the maximum number of pods. Defaults to 110.
	MaxPods int
	// NodeStatusMaxImages is the number of images in the Node's status, the largest ones. -1 is all. Defaults to 50.
	NodeStatusMaxImages *int

	// History configures the history of statuses.
	History HistoryConfig
	// Certificates configures the certificates of the node.
	Certificates CertificateConfig
	// Alerting configures alert rules and who is told.
	Alerting AlertingConfig
	// Server configures the kubelet's servers. By default there are none.
	Server ServerConfig
	// Logger receives log messages. Defaults to a logger that discards them.
	Logger *slog.Logger
	// Metrics registers the metrics of all components. Nil disables metrics. Those of API requests (rest_client_*) are counted for the
	// first NodeAgent of a process only, see kubeapi.RegisterMetrics.
	Metrics prometheus.Registerer
	// ProbeMetrics registers the metrics of probes, which have series for each container. Defaults to Metrics.
	ProbeMetrics prometheus.Registerer
}

const defaultEndpoint = "unix:///run/containerd/containerd.sock"

func (c Config) withDefaults() (Config, error) {
	var err error
	fail := func(format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("nodeagent.Config: "+format, args...))
	}
	if c.NodeName == "" {
		fail("NodeName is required")
	}
	if !filepath.IsAbs(c.DataDir) {
		fail("DataDir must be an absolute path, not %q", c.DataDir)
	}
	c.RootDir = cmp.Or(c.RootDir, c.DataDir)
	if !filepath.IsAbs(c.RootDir) {
		fail("RootDir must be an absolute path, not %q", c.RootDir)
	}
	c.Certificates.Dir = cmp.Or(c.Certificates.Dir, certificateDir(c.RootDir))
	if !filepath.IsAbs(c.Certificates.Dir) {
		fail("Certificates.Dir must be an absolute path, not %q", c.Certificates.Dir)
	}
	if c.StaticPodPath == "" && c.StaticPodURL == "" && c.API == nil {
		fail("StaticPodPath, StaticPodURL or API is required as a source of pods")
	}
	if c.MaxPods < 0 || c.EventBurst < 0 {
		fail("MaxPods and EventBurst must not be negative")
	}
	if !isOnePerFamily(c.NodeIPs) {
		fail("NodeIPs must be one address, or one of each family, not %v", c.NodeIPs)
	}
	c.Runtime = cmp.Or(c.Runtime, RuntimeCRI)
	switch c.Runtime {
	case RuntimeCRI:
		c.ContainerRuntimeEndpoint = cmp.Or(c.ContainerRuntimeEndpoint, defaultEndpoint)
		c.PodLogsDir = cmp.Or(c.PodLogsDir, "/var/log/pods")
		c.ContainerLogsDir = cmp.Or(c.ContainerLogsDir, filepath.Join(filepath.Dir(c.PodLogsDir), "containers"))
	case RuntimeProcess:
		if c.ContainerRuntimeEndpoint != "" {
			fail("ContainerRuntimeEndpoint must be empty with Runtime %s", RuntimeProcess)
		}
		c.PodLogsDir = cmp.Or(c.PodLogsDir, filepath.Join(c.DataDir, "logs"))
		if len(c.Shim) == 0 {
			c.Shim = []string{"/proc/self/exe"}
		}
	default:
		fail("Runtime must be %s or %s, not %q", RuntimeCRI, RuntimeProcess, c.Runtime)
	}
	c.ImageGC = cmp.Or(c.ImageGC, new(imagegc.DefaultPolicy()))
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{enforcePods}
	}
	for _, key := range c.EnforceNodeAllocatable {
		if key != enforcePods {
			fail("EnforceNodeAllocatable must be %s or empty, not %q", enforcePods, key)
		}
	}
	c.MaxPods = cmp.Or(c.MaxPods, 110)
	c.EventQPS = cmp.Or(c.EventQPS, 50)
	c.EventBurst = cmp.Or(c.EventBurst, 100)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

func isOnePerFamily(ips []netip.Addr) bool {
	if slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !ip.IsValid() }) {
		return false
	}
	return len(ips) <= 1 || len(ips) == 2 && ips[0].Unmap().Is4() != ips[1].Unmap().Is4()
}

// isIPv6First reports whether the IPv6 address of a dual-stack pod is its primary one.
func (c Config) isIPv6First() bool { return len(c.NodeIPs) > 0 && !c.NodeIPs[0].Unmap().Is4() }
