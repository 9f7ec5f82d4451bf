// Package config defines the configuration of 'herald run' and loads it from a file, a directory of drop-ins and flags.
//
// Loading is strict. It reports all errors at once, each with the file and line or the flag, the field, and the expected value.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/imagegc"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podsapi"
)

// The apiVersion and kind of a configuration file.
const (
	APIVersion = "heraldnode.github.io/v1alpha1"
	Kind       = "HeraldConfiguration"
)

// Config is the configuration of 'herald run'. Fields that KubeletConfiguration has too have the same name and meaning.
//
// The comment of a field is its description in docs/config.md. Tags: flag is the name of the field's flag; format is "path",
// which is relative to the file that sets it, or "quantity".
type Config struct {
	// Name of this node. Default: the host name.
	NodeName string `yaml:"nodeName" flag:"node-name"`
	// Kubeconfig file for the API server. Default: none, the node runs without a cluster.
	Kubeconfig string `yaml:"kubeconfig" flag:"kubeconfig" format:"path"`
	// Kubeconfig file with a bootstrap token, with which the node asks for a client certificate when it has none that is valid; see
	// [server.md](server.md#certificates). The kubeconfig then need not exist: it is written, and names the certificate. Default: none.
	BootstrapKubeconfig string `yaml:"bootstrapKubeconfig" flag:"bootstrap-kubeconfig" format:"path"`
	// Requests the next client certificate from the API server before the current one expires.
	RotateCertificates bool `yaml:"rotateCertificates"`
	// Requests the certificate of the HTTPS server from the API server. Somebody must approve it; a self-signed one is used until then.
	ServerTLSBootstrap bool `yaml:"serverTLSBootstrap"`
	// Directory of certificates, in the kubelet's layout. It is created with mode 0700 and rejected if other users can write to it.
	// Default: `pki` in rootDir.
	CertDir string `yaml:"certDir" flag:"cert-dir" format:"path"`
	// Allows an API server that is not authenticated: an http URL, or `insecure-skip-tls-verify` in the kubeconfig. An attacker
	// on the network can then start any pod.
	AllowInsecureAPI bool `yaml:"allowInsecureAPI" flag:"allow-insecure-api"`
	// Directory for state that must survive a restart of the agent. It is created with mode 0700 and rejected if other users can
	// write to it. Only one agent can use it at a time.
	DataDir string `yaml:"dataDir" flag:"data-dir" format:"path"`
	// Directory whose subdirectory `pods` has the volumes and files of pods, in the kubelet's layout. `/var/lib/kubelet` lets
	// Herald take over the pods of a kubelet, see [handover.md](handover.md). It is rejected if other users can write to it.
	// Default: dataDir.
	RootDir string `yaml:"rootDir" flag:"root-dir" format:"path"`
	// Address of the local server: `unix:///path`, or a loopback address like `127.0.0.1:10255`. There is no authentication:
	// any local process that can reach the port can read all pods; a socket is accessible only to its owner. Default:
	// `unix:///run/herald/herald.sock`, or `herald.sock` in dataDir if dataDir is set.
	Listen string `yaml:"listen" flag:"listen"`
	// Loopback address at which kubectl reads this node's pods, events and Node, and uses logs, exec, attach, cp and port-forward, like
	// `127.0.0.1:10260`. Requests need the token of the kubeconfig that `herald kubeconfig` prints, whose owner can run commands in
	// containers. Default: none, no port is opened.
	KubectlListen string `yaml:"kubectlListen" flag:"kubectl-listen"`
	// Serves the kubelet's Pods API, which is gRPC, at the socket `pods-api/pods-api.sock` in rootDir; see [server.md](server.md). Only
	// the agent's user and root can connect. The kubelet has the feature gate `PodsAPI` for it.
	PodsAPI bool `yaml:"podsAPI"`

	// IP address at which the node's HTTPS server listens, see [server.md](server.md). Default: `0.0.0.0` with a kubeconfig, none
	// without.
	Address string `yaml:"address"`
	// Port of the node's HTTPS server. 0 switches it off. Default: 10250 with a kubeconfig, 0 without.
	Port int `yaml:"port" flag:"port"`
	// PEM file of the certificate of the HTTPS server, with its intermediates. Requires tlsPrivateKeyFile. It is read again when it
	// changes. Default: none, the agent makes a certificate of its own.
	TLSCertFile string `yaml:"tlsCertFile" format:"path"`
	// PEM file of the private key of tlsCertFile. Default: none.
	TLSPrivateKeyFile string `yaml:"tlsPrivateKeyFile" format:"path"`
	// Least version of TLS: `VersionTLS12` or `VersionTLS13`.
	TLSMinVersion string `yaml:"tlsMinVersion"`
	// Cipher suites of TLS 1.2, like `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`. Default: those of Go.
	TLSCipherSuites []string       `yaml:"tlsCipherSuites"`
	Authentication  Authentication `yaml:"authentication"`
	Authorization   Authorization  `yaml:"authorization"`
	// Serves logs, exec, attach, port-forward, running pods, the configuration, `/logs` and profiles.
	EnableDebuggingHandlers bool `yaml:"enableDebuggingHandlers"`
	// Serves the files of `/var/log` at `/logs/`, if enableDebuggingHandlers does not forbid it.
	EnableSystemLogHandler bool `yaml:"enableSystemLogHandler"`
	// Serves profiles of the agent at `/debug/pprof/`, if enableDebuggingHandlers does not forbid it.
	EnableProfilingHandler bool `yaml:"enableProfilingHandler"`
	// Port of the health server, which has no authentication. 0 switches it off. Default: 10248 with a kubeconfig, 0 without.
	HealthzPort int `yaml:"healthzPort" flag:"healthz-port"`
	// IP address of the health server.
	HealthzBindAddress string `yaml:"healthzBindAddress"`

	// Directory of static pod manifests, or a single manifest file. Default: none.
	StaticPodPath string `yaml:"staticPodPath" flag:"manifests" format:"path"`
	// URL of static pod manifests: https, a socket of root or the agent's user like `unix:///run/pods.sock`, or http with a
	// loopback address and a port below 1024, which no other user can serve. Default: none.
	StaticPodURL string `yaml:"staticPodURL" flag:"manifest-url"`
	// HTTP headers of requests to staticPodURL. Default: none.
	StaticPodURLHeader map[string][]string `yaml:"staticPodURLHeader"`
	// PEM file of the certificate authorities that are trusted for staticPodURL. Default: the system's.
	StaticPodURLCAFile string `yaml:"staticPodURLCAFile" format:"path"`
	// PEM file of the client certificate for staticPodURL. Requires staticPodURLKeyFile. Default: none.
	StaticPodURLCertFile string `yaml:"staticPodURLCertFile" format:"path"`
	// PEM file of the private key of staticPodURLCertFile. Default: none.
	StaticPodURLKeyFile string `yaml:"staticPodURLKeyFile" format:"path"`
	// Interval between full scans of staticPodPath. Changes are usually noticed at once, without a scan.
	FileCheckFrequency time.Duration `yaml:"fileCheckFrequency"`
	// Interval between requests to staticPodURL.
	HTTPCheckFrequency time.Duration `yaml:"httpCheckFrequency"`
	// Interval between syncs of a pod without changes, plus up to 50% jitter.
	SyncFrequency time.Duration `yaml:"syncFrequency"`

	// `cri` runs containers in containerd or CRI-O. `process` runs host processes without isolation, see
	// [process.md](process.md).
	Runtime string `yaml:"runtime" flag:"runtime"`
	// Socket of the container runtime. Default: `unix:///run/containerd/containerd.sock`.
	ContainerRuntimeEndpoint string `yaml:"containerRuntimeEndpoint" flag:"runtime-endpoint"`
	// Socket of the image service. Default: containerRuntimeEndpoint.
	ImageServiceEndpoint string `yaml:"imageServiceEndpoint"`
	// Allows pods from the API server with `runtime: process`. Anyone who can create pods can then run any command as the
	// agent's user.
	AllowAPIPods bool `yaml:"allowAPIPods" flag:"allow-api-pods"`
	// Timeout of requests to the container runtime, in addition to the timeout that a request itself has.
	RuntimeRequestTimeout time.Duration `yaml:"runtimeRequestTimeout"`
	// Maximum number of concurrent image pulls. 0 means no limit.
	MaxParallelImagePulls int `yaml:"maxParallelImagePulls"`
	// Which images of this node a pod may use without the credentials they were pulled with: `NeverVerify` all,
	// `NeverVerifyPreloadedImages` those that the agent did not pull, `NeverVerifyAllowlistedImages` those of
	// preloadedImagesVerificationAllowlist, `AlwaysVerify` none. Other images are pulled again with the pod's own credentials.
	ImagePullCredentialsVerificationPolicy string `yaml:"imagePullCredentialsVerificationPolicy"`
	// Images of the policy `NeverVerifyAllowlistedImages`: names without a tag, or prefixes like `registry.example.com/team/*`.
	// Default: none.
	PreloadedImagesVerificationAllowlist []string `yaml:"preloadedImagesVerificationAllowlist"`
	// Percentage of the image file system from which on unused images are removed, the longest unused first. 100 switches it off, unless
	// imageMaximumGCAge is set. Inodes count like bytes.
	ImageGCHighThresholdPercent int `yaml:"imageGCHighThresholdPercent"`
	// Percentage of the image file system down to which unused images are removed. Less than imageGCHighThresholdPercent.
	ImageGCLowThresholdPercent int `yaml:"imageGCLowThresholdPercent"`
	// How long an image stays on the node at least, after the agent has noticed it.
	ImageMinimumGCAge time.Duration `yaml:"imageMinimumGCAge"`
	// Removes images that no container has used for this long, however full the file system is. 0 keeps them.
	ImageMaximumGCAge time.Duration `yaml:"imageMaximumGCAge"`
	// Uses the runtime's default seccomp profile, instead of none, for containers that do not specify one.
	SeccompDefault bool `yaml:"seccompDefault"`
	// Unsafe sysctls that pods may set: names like `net.core.somaxconn` or prefixes like `net.core.*`. Default: none.
	AllowedUnsafeSysctls []string `yaml:"allowedUnsafeSysctls"`
	// Allows probes and hooks of pods outside the host network to name addresses of the node, link-local addresses and metadata
	// services as their host, as the kubelet does.
	AllowProbesToNodeAddresses bool `yaml:"allowProbesToNodeAddresses"`

	// Directory of container logs. Default: `/var/log/pods`, or `logs` in dataDir with `runtime: process`.
	PodLogsDir string `yaml:"podLogsDir" format:"path"`
	// Size at which a container log is rotated. A negative size disables rotation.
	ContainerLogMaxSize string `yaml:"containerLogMaxSize" format:"quantity"`
	// Maximum number of log files per container, at least 2.
	ContainerLogMaxFiles int `yaml:"containerLogMaxFiles"`
	// Cgroup in which `kubepods`, the parent of all pods, is created. Default: `/`.
	CgroupRoot string `yaml:"cgroupRoot"`
	// `cgroupfs` or `systemd`, for container runtimes that do not report their driver. Default: as in the runtime's
	// configuration, or `cgroupfs`.
	CgroupDriver string `yaml:"cgroupDriver"`
	// Creates cgroups for pods and their QoS classes. `false` leaves them to the container runtime, which must not use the
	// driver `systemd` then.
	CgroupsPerQOS bool `yaml:"cgroupsPerQOS"`
	// `[pods]` limits all pods together to the allocatable resources, `[]` to the capacity of the machine.
	EnforceNodeAllocatable []string `yaml:"enforceNodeAllocatable"`
	// Maximum number of processes per pod. -1 means no limit.
	PodPidsLimit int `yaml:"podPidsLimit"`
	// Kills one process instead of all processes of a container that runs out of memory, with cgroup v2.
	SingleProcessOOMKill bool `yaml:"singleProcessOOMKill"`
	// Enforces CPU limits. `false` leaves the CPU time of containers and pods to their requests.
	CPUCFSQuota bool `yaml:"cpuCFSQuota"`
	// Name servers of pods with dnsPolicy ClusterFirst. Default: the host's.
	ClusterDNS []netip.Addr `yaml:"clusterDNS"`
	// DNS domain of the cluster. Default: none.
	ClusterDomain string `yaml:"clusterDomain"`
	// resolv.conf file with the host's DNS configuration.
	ResolvConf string `yaml:"resolvConf" format:"path"`

	// IP address of this node and of its host network pods, or one of each family like fd00::7,10.0.0.7. The family of the first is
	// the primary one of dual-stack pods too. Default: the addresses of the interfaces with the default routes.
	NodeIP NodeIPs `yaml:"nodeIP" flag:"node-ip"`
	// Creates the Node object if it does not exist.
	RegisterNode bool `yaml:"registerNode"`
	// Labels of the Node object when it is created, in addition to the well-known labels. Default: none.
	NodeLabels map[string]string `yaml:"nodeLabels" flag:"node-labels"`
	// Taints of the Node object when it is created. Default: none.
	RegisterWithTaints []Taint `yaml:"registerWithTaints"`
	// Maximum number of pods on this node.
	MaxPods int `yaml:"maxPods"`
	// Cloud provider ID of this machine. It is set on the Node object unless the object already has one. Default: none.
	ProviderID string `yaml:"providerID"`
	// Interval between computations of the node status. Changes are reported at once.
	NodeStatusUpdateFrequency time.Duration `yaml:"nodeStatusUpdateFrequency"`
	// Interval between reports of an unchanged node status.
	NodeStatusReportFrequency time.Duration `yaml:"nodeStatusReportFrequency"`
	// Maximum number of images in the node status, the largest ones. `-1` reports all images, 0 none.
	NodeStatusMaxImages int `yaml:"nodeStatusMaxImages"`
	// Duration of the node lease in seconds, at least 4. The lease is renewed four times per duration.
	NodeLeaseDurationSeconds int `yaml:"nodeLeaseDurationSeconds"`
	// Resources reserved for Kubernetes system daemons: `cpu`, `memory` and `ephemeral-storage`, like
	// `{cpu: 200m, memory: 100Mi}`. Default: none.
	KubeReserved map[string]string `yaml:"kubeReserved" format:"quantity"`
	// Resources reserved for other system daemons, in addition to kubeReserved. Default: none.
	SystemReserved map[string]string `yaml:"systemReserved" format:"quantity"`

	// Thresholds below which pods are evicted at once, by signal: `memory.available`, `nodefs.available`, `nodefs.inodesFree`,
	// `imagefs.available`, `imagefs.inodesFree` and `pid.available`, as quantities or percentages; see
	// [node-rules.md](node-rules.md#eviction-evi). Default: `{memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%,
	// imagefs.available: 15%, imagefs.inodesFree: 5%}`.
	EvictionHard map[string]string `yaml:"evictionHard"`
	// Adds the default thresholds that evictionHard does not have.
	MergeDefaultEvictionSettings bool `yaml:"mergeDefaultEvictionSettings"`
	// Thresholds below which pods are evicted after a grace period, by signal. Default: none.
	EvictionSoft map[string]string `yaml:"evictionSoft"`
	// Grace periods of evictionSoft, by signal, like `{memory.available: 1m30s}`. Default: none.
	EvictionSoftGracePeriod map[string]string `yaml:"evictionSoftGracePeriod"`
	// How much must become available beyond a threshold that was met, by signal. Default: none.
	EvictionMinimumReclaim map[string]string `yaml:"evictionMinimumReclaim"`
	// Maximum grace period in seconds of pods that are evicted for evictionSoft. 0 means one second, a negative number the pod's own.
	EvictionMaxPodGracePeriod int `yaml:"evictionMaxPodGracePeriod"`
	// How long the Node reports a pressure after it was last observed.
	EvictionPressureTransitionPeriod time.Duration `yaml:"evictionPressureTransitionPeriod"`

	// Maximum rate of requests to the API server, per second. -1 means no limit.
	KubeAPIQPS int `yaml:"kubeAPIQPS"`
	// Maximum burst of requests to the API server.
	KubeAPIBurst int `yaml:"kubeAPIBurst"`
	// Maximum rate of events to the API server, per second. Events do not count towards kubeAPIQPS. 0 means no limit.
	EventRecordQPS int `yaml:"eventRecordQPS"`
	// Maximum burst of events to the API server.
	EventBurst int `yaml:"eventBurst"`

	History  History  `yaml:"history"`
	Alerting Alerting `yaml:"alerting"`
	Logging  Logging  `yaml:"logging"`
}

// Taint is a taint of the Node object.
type Taint struct {
	// Key of the taint, like `example.com/dedicated`.
	Key string `yaml:"key"`
	// Value of the taint. Default: none.
	Value string `yaml:"value"`
	// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
	Effect v1.TaintEffect `yaml:"effect"`
}

// History configures the history of pod statuses, see docs/history.md.
type History struct {
	// Maximum size of the history of pod statuses on disk, at least 512Ki; see [history.md](history.md). 0 keeps it in memory.
	MaxDisk string `yaml:"maxDisk" format:"quantity"`
	// How long the history is kept.
	MaxAge time.Duration `yaml:"maxAge"`
	// Maximum number of last log lines that are kept with the end of a failed container. They may contain secrets; 0 keeps none.
	LogLines int `yaml:"logLines"`
	// Maximum size of these lines.
	LogBytes string `yaml:"logBytes" format:"quantity"`
	// How much of the history a power failure may cost. A longer time spares flash memory.
	Sync time.Duration `yaml:"sync"`
}

// Alerting configures alert rules and who is told of alerts, see docs/alerts.md.
type Alerting struct {
	// Evaluates alert rules; see [alerts.md](alerts.md).
	Enabled bool `yaml:"enabled"`
	// Files with alert rules, and folders of them. They are read again when they change, and rejected if other users can write to them.
	// Default: the folder `alerts.d` beside the configuration file, which need not exist.
	RuleFiles []string `yaml:"ruleFiles" format:"path"`
	// Uses the default rules. A rule of the same name in a file replaces a default one.
	Defaults bool `yaml:"defaults"`
	// Names of rules that are not used. Default: none.
	Disable []string `yaml:"disable"`
	// URL at which people reach this agent's local server, for links in alerts. Default: none, alerts have no links.
	ExternalURL string `yaml:"externalURL"`
	// Emits Kubernetes events for alerts.
	Events bool `yaml:"events"`
	// Alertmanagers that are told of alerts: all replicas. Default: none.
	Alertmanagers []Alertmanager `yaml:"alertmanagers"`
	// Webhooks that are told of alerts, in the format of Alertmanager. Default: none.
	Webhooks []Webhook `yaml:"webhooks"`
	// Makes every action that changes something a dry-run, whatever its rule says; see [actions.md](actions.md).
	DryRun bool `yaml:"dryRun"`
	// Programs that actions of the type `run` may name. Default: none.
	Programs []Program `yaml:"programs"`
}

// Program is a program that an action of an alert rule may run.
type Program struct {
	// Name of the program in rules.
	Name string `yaml:"name"`
	// Absolute path. The file and the directories above it must not be writable for other users.
	Path string `yaml:"path" format:"path"`
	// Arguments. Default: none.
	Args []string `yaml:"args"`
	// User that it runs as, if the agent runs as root. Default: nobody.
	User string `yaml:"user"`
}

// Alertmanager is a replica of Alertmanager.
type Alertmanager struct {
	// URL without `/api/v2/alerts`, like `https://alertmanager.example.com:9093`.
	URL string `yaml:"url"`
	// User name for basic authentication. Requires passwordFile. Default: none.
	Username string `yaml:"username"`
	// File with the password for basic authentication.
	PasswordFile string `yaml:"passwordFile" format:"path"`
	// File with a bearer token. Default: none.
	TokenFile string `yaml:"tokenFile" format:"path"`
	// PEM file of the certificate authorities that are trusted. Default: the system's.
	CAFile string `yaml:"caFile" format:"path"`
	// PEM file of the client certificate. Requires keyFile. Default: none.
	CertFile string `yaml:"certFile" format:"path"`
	// PEM file of the private key of certFile.
	KeyFile string `yaml:"keyFile" format:"path"`
	// Timeout of a request. Default: 10s.
	Timeout time.Duration `yaml:"timeout"`
}

// Webhook is a webhook that is told of alerts.
type Webhook struct {
	// Name of the webhook in messages, metrics and commands.
	Name string `yaml:"name"`
	// URL: https, or http with a loopback address.
	URL string `yaml:"url"`
	// File with the secret that messages are signed with; two lines during a rotation. Default: none, messages are not signed.
	SecretFile string `yaml:"secretFile" format:"path"`
	// File with a bearer token. Default: none.
	TokenFile string `yaml:"tokenFile" format:"path"`
	// PEM file of the certificate authorities that are trusted. Default: the system's.
	CAFile string `yaml:"caFile" format:"path"`
	// PEM file of the client certificate. Requires keyFile. Default: none.
	CertFile string `yaml:"certFile" format:"path"`
	// PEM file of the private key of certFile.
	KeyFile string `yaml:"keyFile" format:"path"`
	// Timeout of a request. Default: 10s.
	Timeout time.Duration `yaml:"timeout"`
}

// Logging configures the log, which is written to the standard error.
type Logging struct {
	// `text` or `json`.
	Format string `yaml:"format"`
	// 0 logs what an operator needs; 4 and above logs everything.
	Verbosity int `yaml:"verbosity" flag:"verbosity"`
}

// DefaultListen is the default address of the local server.
const DefaultListen = "unix:///run/herald/herald.sock"

const defaultDataDir = "/var/lib/herald"

// Default returns the default configuration.
func Default() Config {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "" // validation then requires nodeName
	}
	return Config{
		NodeName:                               strings.ToLower(strings.TrimSpace(hostname)),
		DataDir:                                defaultDataDir,
		TLSMinVersion:                          "VersionTLS12",
		Authentication:                         Authentication{Webhook: WebhookAuthentication{CacheTTL: 2 * time.Minute}},
		Authorization:                          newAuthorization(),
		EnableDebuggingHandlers:                true,
		EnableSystemLogHandler:                 true,
		EnableProfilingHandler:                 true,
		HealthzBindAddress:                     "127.0.0.1",
		FileCheckFrequency:                     20 * time.Second,
		HTTPCheckFrequency:                     20 * time.Second,
		SyncFrequency:                          time.Minute,
		Runtime:                                nodeagent.RuntimeCRI,
		RuntimeRequestTimeout:                  2 * time.Minute,
		ContainerLogMaxSize:                    "10Mi",
		ContainerLogMaxFiles:                   5,
		CgroupsPerQOS:                          true,
		ImagePullCredentialsVerificationPolicy: string(pullmanager.NeverVerifyPreloadedImages),
		ImageGCHighThresholdPercent:            85,
		ImageGCLowThresholdPercent:             80,
		ImageMinimumGCAge:                      2 * time.Minute,
		EnforceNodeAllocatable:                 []string{"pods"},
		PodPidsLimit:                           -1,
		CPUCFSQuota:                            true,
		ResolvConf:                             "/etc/resolv.conf",
		RegisterNode:                           true,
		MaxPods:                                110,
		NodeStatusUpdateFrequency:              10 * time.Second,
		NodeStatusReportFrequency:              5 * time.Minute,
		NodeStatusMaxImages:                    50,
		NodeLeaseDurationSeconds:               40,
		EvictionPressureTransitionPeriod:       5 * time.Minute,
		KubeAPIQPS:                             50,
		KubeAPIBurst:                           100,
		EventRecordQPS:                         50,
		EventBurst:                             100,
		History:                                newHistory(),
		Alerting:                               Alerting{Enabled: true, Defaults: true, Events: true},
		Logging:                                Logging{Format: "text"},
	}
}

func newHistory() History {
	return History{MaxDisk: "64Mi", MaxAge: 720 * time.Hour, LogLines: 50, LogBytes: "8Ki", Sync: time.Second}
}

// ListenAddress returns the address of the local server.
func (c *Config) ListenAddress() string {
	switch {
	case c.Listen != "":
		return c.Listen
	case c.DataDir == defaultDataDir:
		return DefaultListen
	default:
		return "unix://" + filepath.Join(c.DataDir, "herald.sock")
	}
}

// PodsAPISocket returns the path of the socket of the Pods API.
func (c *Config) PodsAPISocket() string {
	return filepath.Join(cmp.Or(c.RootDir, c.DataDir), podsapi.Socket)
}

// KubectlDir returns the directory of the credentials for kubectl.
func (c *Config) KubectlDir() string { return filepath.Join(c.DataDir, "kubectl") }

func (c *Config) imageGCPolicy() *imagegc.Policy {
	return &imagegc.Policy{
		HighThresholdPercent: c.ImageGCHighThresholdPercent, LowThresholdPercent: c.ImageGCLowThresholdPercent,
		MinAge: c.ImageMinimumGCAge, MaxAge: c.ImageMaximumGCAge,
	}
}

// NodeAgentConfig converts a valid configuration to that of the node agent. It fails if the kubeconfig cannot be read.
func (c *Config) NodeAgentConfig() (nodeagent.Config, error) {
	logMaxSize := resource.MustParse(c.ContainerLogMaxSize)
	node := nodeagent.Config{
		NodeName: c.NodeName, DataDir: c.DataDir, RootDir: c.RootDir,
		StaticPodPath: c.StaticPodPath, StaticPodURL: c.StaticPodURL, StaticPodURLHeader: http.Header(c.StaticPodURLHeader),
		StaticPodURLCAFile: c.StaticPodURLCAFile, StaticPodURLCertFile: c.StaticPodURLCertFile, StaticPodURLKeyFile: c.StaticPodURLKeyFile,
		FileCheckFrequency: c.FileCheckFrequency, HTTPCheckFrequency: c.HTTPCheckFrequency, SyncFrequency: c.SyncFrequency,
		Runtime: c.Runtime, ContainerRuntimeEndpoint: c.ContainerRuntimeEndpoint, ImageServiceEndpoint: c.ImageServiceEndpoint,
		AllowAPIPods: c.AllowAPIPods, RuntimeRequestTimeout: c.RuntimeRequestTimeout, MaxParallelImagePulls: c.MaxParallelImagePulls,
		ImagePullCredentialsVerificationPolicy: pullmanager.Policy(c.ImagePullCredentialsVerificationPolicy),
		PreloadedImagesVerificationAllowlist:   c.PreloadedImagesVerificationAllowlist,
		ImageGC:                                c.imageGCPolicy(),
		SeccompDefault:                         c.SeccompDefault, AllowedUnsafeSysctls: c.AllowedUnsafeSysctls,
		AllowProbesToNodeAddresses: c.AllowProbesToNodeAddresses,
		PodLogsDir:                 c.PodLogsDir, ContainerLogMaxSize: logMaxSize.Value(), ContainerLogMaxFiles: c.ContainerLogMaxFiles,
		CgroupRoot: c.CgroupRoot, CgroupDriver: c.CgroupDriver, NoCgroupsPerQOS: !c.CgroupsPerQOS, PodPidsLimit: int64(c.PodPidsLimit),
		EnforceNodeAllocatable: append([]string{}, c.EnforceNodeAllocatable...), SingleProcessOOMKill: c.SingleProcessOOMKill,
		NoCPUCFSQuota: !c.CPUCFSQuota,
		ClusterDNS:    c.ClusterDNS, ClusterDomain: c.ClusterDomain, ResolvConf: c.ResolvConf,
		NodeIPs: c.NodeIP, NoRegistration: !c.RegisterNode, NodeLabels: c.NodeLabels, MaxPods: c.MaxPods, ProviderID: c.ProviderID,
		NodeStatusUpdateFrequency: c.NodeStatusUpdateFrequency, NodeStatusReportFrequency: c.NodeStatusReportFrequency,
		NodeStatusMaxImages: &c.NodeStatusMaxImages,
		NodeLeaseDuration:   time.Duration(c.NodeLeaseDurationSeconds) * time.Second, Reserved: c.reserved(),
		EventQPS: float32(c.EventRecordQPS), EventBurst: c.EventBurst,
	}
	node.Eviction = c.evictionSettings()
	node.History, node.Alerting, node.Server = c.History.nodeAgentConfig(), c.Alerting.nodeAgentConfig(), c.serverConfig()
	if c.EventRecordQPS == 0 { // no limit, as for the kubelet
		node.EventQPS = -1
	}
	for _, taint := range c.RegisterWithTaints {
		node.RegisterWithTaints = append(node.RegisterWithTaints, v1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	var err error
	node.Certificates = c.certificateConfig()
	node.API, err = c.restConfig(time.Now())
	return node, err
}

func (h *History) nodeAgentConfig() nodeagent.HistoryConfig {
	maxDisk, logBytes := resource.MustParse(h.MaxDisk), resource.MustParse(h.LogBytes)
	converted := nodeagent.HistoryConfig{
		MaxDisk: maxDisk.Value(), MaxAge: h.MaxAge, LogLines: h.LogLines, LogBytes: int(logBytes.Value()), Sync: h.Sync,
	}
	if converted.MaxDisk == 0 {
		converted.MaxDisk = -1 // in memory
	}
	if converted.LogLines == 0 {
		converted.LogLines = -1 // none
	}
	return converted
}

// checkAPIFiles returns an error if other users can modify a file that the kubeconfig refers to, or read a secret. A missing file
// is reported when it is used.
func checkAPIFiles(api *rest.Config, kubeconfig string) error {
	secrets := []string{api.KeyFile, api.BearerTokenFile}
	if len(api.KeyData) > 0 && api.KeyFile == "" || api.BearerToken != "" && api.BearerTokenFile == "" || api.Password != "" {
		secrets = append(secrets, kubeconfig) // they are in the kubeconfig itself
	}
	var errs []error
	check := func(files []string, check func(string) error) {
		for _, file := range files {
			if file == "" {
				continue
			}
			if err := check(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	check([]string{api.CAFile, api.CertFile}, permissions.CheckFile)
	check(secrets, permissions.CheckSecret)
	if api.ExecProvider != nil {
		check([]string{api.ExecProvider.Command}, permissions.CheckCommand)
	}
	return errors.Join(errs...)
}

// checkAPIServer returns an error if the API server, which decides what runs on this node, is not authenticated.
func (c *Config) checkAPIServer(api *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(api)
	switch {
	case err != nil:
		return err
	case c.AllowInsecureAPI:
		return nil
	case server.Scheme != "https":
		return fmt.Errorf("server %s must be an https URL: an attacker on the network could start any pod; use https, or set "+
			"--allow-insecure-api", server.Host)
	case api.Insecure:
		return fmt.Errorf("insecure-skip-tls-verify must not be set: an attacker on the network could start any pod; set "+
			"certificate-authority, or --allow-insecure-api (server %s)", server.Host)
	default:
		return nil
	}
}

// reserved returns the sum of kubeReserved and systemReserved.
func (c *Config) reserved() v1.ResourceList {
	sum := v1.ResourceList{}
	for _, list := range []map[string]string{c.KubeReserved, c.SystemReserved} {
		for name, quantity := range list {
			total := sum[v1.ResourceName(name)]
			total.Add(resource.MustParse(quantity))
			sum[v1.ResourceName(name)] = total
		}
	}
	return sum
}
