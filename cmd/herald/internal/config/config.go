package config

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The identity of a configuration file.
const (
	APIVersion = "heraldnode.github.io/v1alpha1"
	Kind       = "HeraldConfiguration"
)

// Config is what `herald run` can be told. Fields that the kubelet's configuration has too have its names and its meaning.
// The comment of a field is its description in docs/config.md. A tag `flag` names the flag of a field, `is:"path"` a path, which
// begins at the folder of the file that says it, and `is:"quantity"` a quantity of Kubernetes.
type Config struct {
	// The name of this node. Default: the machine's host name.
	NodeName string `yaml:"nodeName" flag:"node-name"`
	// The kubeconfig by which the API server is reached. Default: none, the node is alone.
	Kubeconfig string `yaml:"kubeconfig" flag:"kubeconfig" is:"path"`
	// The folder of all that must survive the agent. It is made for its owner alone, one that others can write to is refused;
	// one agent can use it at a time.
	DataDir string `yaml:"dataDir" flag:"data-dir" is:"path"`
	// Where questions about the node are answered: `unix:///path`, or a loopback address like `127.0.0.1:10255`. Nobody is
	// asked who he is: whoever can reach a port of this machine can read all pods, a socket only its owner. Default:
	// `unix:///run/herald/herald.sock`, or `herald.sock` in a dataDir of your own.
	Listen string `yaml:"listen" flag:"listen"`

	// A folder of manifests of static pods, or one manifest. Default: none.
	StaticPodPath string `yaml:"staticPodPath" flag:"manifests" is:"path"`
	// A URL of manifests of static pods: https, or http on this machine. Default: none.
	StaticPodURL string `yaml:"staticPodURL" flag:"manifest-url"`
	// Headers that are sent to staticPodURL. Default: none.
	StaticPodURLHeader map[string][]string `yaml:"staticPodURLHeader"`
	// The authorities, PEM, of which one must vouch for the server of staticPodURL. Default: the system's.
	StaticPodURLCAFile string `yaml:"staticPodURLCAFile" is:"path"`
	// The certificate, PEM, that is shown to that server. Default: none.
	StaticPodURLCertFile string `yaml:"staticPodURLCertFile" is:"path"`
	// The key, PEM, of that certificate. Default: none.
	StaticPodURLKeyFile string `yaml:"staticPodURLKeyFile" is:"path"`
	// How often staticPodPath is looked at when nothing seems to happen there; changes are seen at once.
	FileCheckFrequency time.Duration `yaml:"fileCheckFrequency"`
	// How often staticPodURL is read.
	HTTPCheckFrequency time.Duration `yaml:"httpCheckFrequency"`
	// How often a pod is looked at although nothing happened; up to half of it is added.
	SyncFrequency time.Duration `yaml:"syncFrequency"`

	// `cri`: a container runtime, containerd or CRI-O. `process`: plain processes of this machine, without any isolation, see
	// [process.md](process.md).
	Runtime string `yaml:"runtime" flag:"runtime"`
	// The socket of the container runtime. Default: `unix:///run/containerd/containerd.sock`.
	ContainerRuntimeEndpoint string `yaml:"containerRuntimeEndpoint" flag:"runtime-endpoint"`
	// The socket for images. Default: that of containerRuntimeEndpoint.
	ImageServiceEndpoint string `yaml:"imageServiceEndpoint"`
	// Lets `runtime: process` run pods of the API server too. Whoever may create pods can then do on this machine what the
	// agent's user can.
	AllowAPIPods bool `yaml:"allowAPIPods" flag:"allow-api-pods"`
	// How long the container runtime may take to answer, beyond what a request itself asks for.
	RuntimeRequestTimeout time.Duration `yaml:"runtimeRequestTimeout"`
	// How many images are pulled at once; 0: as many as there are.
	MaxParallelImagePulls int `yaml:"maxParallelImagePulls"`
	// Whether containers without a seccomp profile get the runtime's instead of none.
	SeccompDefault bool `yaml:"seccompDefault"`
	// Sysctls beyond the safe ones that pods may set, like `net.core.somaxconn` or `net.core.*`. Default: none.
	AllowedUnsafeSysctls []string `yaml:"allowedUnsafeSysctls"`

	// The folder of the containers' logs. Default: `/var/log/pods`, or `logs` in dataDir with `runtime: process`.
	PodLogsDir string `yaml:"podLogsDir" is:"path"`
	// The size at which a container's log is rotated; a negative one: never.
	ContainerLogMaxSize string `yaml:"containerLogMaxSize" is:"quantity"`
	// How many files a container's log may have, at least 2.
	ContainerLogMaxFiles int `yaml:"containerLogMaxFiles"`
	// The cgroup that has those of the pods. Default: where the runtime puts them.
	CgroupRoot string `yaml:"cgroupRoot"`
	// `cgroupfs` or `systemd`. Default: what the runtime says, or `cgroupfs` when it does not.
	CgroupDriver string `yaml:"cgroupDriver"`
	// The name servers of pods with dnsPolicy ClusterFirst. Default: the machine's.
	ClusterDNS []netip.Addr `yaml:"clusterDNS"`
	// The domain of the cluster's services. Default: none.
	ClusterDomain string `yaml:"clusterDomain"`
	// The file with the machine's name servers.
	ResolvConf string `yaml:"resolvConf" is:"path"`

	// The address of this node, and of pods in its network. Default: that of the interface that leads out.
	NodeIP netip.Addr `yaml:"nodeIP" flag:"node-ip"`
	// Whether the agent creates its Node object.
	RegisterNode bool `yaml:"registerNode"`
	// Labels that the Node object is created with. Default: none but the usual.
	NodeLabels map[string]string `yaml:"nodeLabels" flag:"node-labels"`
	// Taints that the Node object is created with. Default: none.
	RegisterWithTaints []Taint `yaml:"registerWithTaints"`
	// How many pods this node runs at most.
	MaxPods int `yaml:"maxPods"`
	// How a cloud calls this machine; it is told to the Node object if nobody else has. Default: none.
	ProviderID string `yaml:"providerID"`
	// How often the machine is looked at; what changed is told at once.
	NodeStatusUpdateFrequency time.Duration `yaml:"nodeStatusUpdateFrequency"`
	// How often the status of the Node object is told although it did not change.
	NodeStatusReportFrequency time.Duration `yaml:"nodeStatusReportFrequency"`
	// After how many seconds without a renewal of its lease the node counts as lost, at least 4; it is renewed four times as often.
	NodeLeaseDurationSeconds int `yaml:"nodeLeaseDurationSeconds"`
	// What pods do not get of the machine because Kubernetes' own programs need it: of `cpu`, `memory` and `ephemeral-storage`,
	// like `{cpu: 200m, memory: 100Mi}`. Default: nothing.
	KubeReserved map[string]string `yaml:"kubeReserved" is:"quantity"`
	// What pods do not get of the machine because its other programs need it, beside kubeReserved. Default: nothing.
	SystemReserved map[string]string `yaml:"systemReserved" is:"quantity"`

	// How many requests a second the API server gets in the long run; -1: no limit.
	KubeAPIQPS int `yaml:"kubeAPIQPS"`
	// How many requests the API server gets at once.
	KubeAPIBurst int `yaml:"kubeAPIBurst"`
	// How many events a second the API server gets in the long run, which count apart from kubeAPIQPS; 0: no limit.
	EventRecordQPS int `yaml:"eventRecordQPS"`
	// How many events the API server gets at once.
	EventBurst int `yaml:"eventBurst"`

	Logging Logging `yaml:"logging"`
}

// Taint keeps pods from the node that do not tolerate it.
type Taint struct {
	// The taint's name, like `example.com/dedicated`.
	Key string `yaml:"key"`
	// Its value. Default: none.
	Value string `yaml:"value"`
	// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
	Effect v1.TaintEffect `yaml:"effect"`
}

// Logging is what the agent writes to its standard error.
type Logging struct {
	// `text` or `json`.
	Format string `yaml:"format"`
	// 0 is what an operator should see, 4 everything.
	Verbosity int `yaml:"verbosity" flag:"verbosity"`
}
