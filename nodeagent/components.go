package nodeagent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/inspect"
	"github.com/heraldnode/herald/internal/permission"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/machine"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/process"
	"github.com/heraldnode/herald/provision"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

func (n *NodeAgent) path(parts ...string) string {
	return filepath.Join(append([]string{n.config.DataDir}, parts...)...)
}

// podsDir returns the directory of the pods' directories.
func (n *NodeAgent) podsDir() string { return filepath.Join(n.config.RootDir, "pods") }

// formerPodsDir returns the directory of the directories of pods that were started without RootDir, or "".
func (n *NodeAgent) formerPodsDir() string {
	if n.config.RootDir == n.config.DataDir {
		return ""
	}
	return n.path("pods")
}

func (n *NodeAgent) openDataDir() (err error) {
	for _, dir := range []string{n.config.DataDir, n.podsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create data directory: %w", err)
		}
	}
	for _, dir := range []string{n.config.DataDir, n.config.RootDir} {
		if err := permission.New("modify the agent's state and the volumes of pods").CheckFile(dir); err != nil {
			return fmt.Errorf("data directory %w, or choose another directory", err)
		}
	}
	n.state, err = checkpoint.Open(n.path("state"), checkpoint.Options{})
	return err
}

// newClients creates a client for each kind of request. Clients share neither connections nor limits, so that a flood of one
// kind does not delay another: statuses are sent in the order of their priority, and nothing else waits in front of them.
// Watches have a client of their own because they fill connections: an API server allows 100 requests at a time on each.
func (n *NodeAgent) newClients() (err error) {
	if n.config.API == nil {
		return nil
	}
	if n.config.Metrics != nil {
		if err := kubeapi.RegisterMetrics(n.config.Metrics); err != nil {
			return err
		}
	}
	if err := n.newCertificates(); err != nil {
		return err
	}
	if n.clients.statuses, err = n.newClient(n.config.API); err != nil {
		return err
	}
	for _, client := range []**kubeapi.Client{&n.clients.mirrors, &n.clients.objects, &n.clients.watches} {
		if *client, err = n.newClient(n.config.separateLimits()); err != nil {
			return err
		}
	}
	return nil
}

// separateLimits returns the configuration of a client that must not wait for others. A RateLimiter would be shared with them.
func (c Config) separateLimits() *rest.Config {
	config := rest.CopyConfig(c.API)
	if config.RateLimiter != nil {
		config.RateLimiter, config.QPS, config.Burst = nil, cmp.Or(config.QPS, 50), cmp.Or(config.Burst, 100)
	}
	return config
}

// newEvents gives events a separate client with separate limits, so that a flood of events does not delay statuses.
func (n *NodeAgent) newEvents() (err error) {
	config := broadcaster.Config{
		NodeName: n.config.NodeName, Scheme: kubeapi.NewScheme(), Journal: n.History,
		Logger: n.config.Logger, Metrics: n.config.Metrics,
	}
	if n.config.API != nil {
		limited := rest.CopyConfig(n.config.API)
		limited.QPS, limited.Burst, limited.RateLimiter = n.config.EventQPS, n.config.EventBurst, nil
		if config.API, err = n.newClient(limited); err != nil {
			return err
		}
	}
	n.Events, err = broadcaster.New(config)
	return err
}

// newNode gives the Node object and its lease a separate client, so that a flood of statuses does not delay heartbeats.
func (n *NodeAgent) newNode() error {
	machineConfig := machine.Config{
		DataDir: n.config.RootDir, LogDir: n.config.PodLogsDir, Version: n.config.Version,
		Addresses: n.config.NodeIPs, Hostname: n.config.NodeName, // one name for the node, as with the kubelet's --hostname-override
	}
	var err error
	if n.host, err = machine.New(machineConfig); err != nil {
		return err
	}
	if n.policy, err = n.config.evictionPolicy(); err != nil {
		return err
	}
	config := node.Config{
		NodeName: n.config.NodeName, MachineInfo: n.host.Info, MaxPods: int64(n.config.MaxPods),
		Labels: n.config.NodeLabels, Taints: n.config.RegisterWithTaints, NoRegistration: n.config.NoRegistration,
		Port: n.config.Server.port(), ProviderID: n.config.ProviderID, Reserved: n.config.Reserved,
		UpdateFrequency: n.config.NodeStatusUpdateFrequency,
		ReportFrequency: n.config.NodeStatusReportFrequency, LeaseDuration: n.config.NodeLeaseDuration,
		Ready:            func() error { return n.Agent.Healthy() },
		NetworkReady:     func() error { return n.Agent.NetworkReady() },
		RuntimeVersion:   func(ctx context.Context) (string, string, error) { return n.runtime.Version(ctx) },
		RuntimeFeatures:  func() ([]v1.NodeRuntimeHandler, *v1.NodeFeatures) { return n.runtime.NodeFeatures() },
		ImageFileSystems: n.imageFileSystems, MaxImages: ptr.Deref(n.config.NodeStatusMaxImages, 0),
		Eviction: &n.policy, Pressures: n.pressures,
		OnChange:   n.nodeChanged,
		OnLease:    n.recordLease,
		OnSync:     n.refreshAlerting,
		Conditions: n.nodeConditions,
		Events:     n.Events, Logger: n.config.Logger, Metrics: n.config.Metrics,
	}
	if ptr.Deref(n.config.NodeStatusMaxImages, 1) != 0 {
		config.Images = func(ctx context.Context) ([]observed.StoredImage, error) { return n.runtime.ListImages(ctx) }
	}
	config.Features = n.config.Server.features()
	if n.config.Runtime != RuntimeProcess {
		config.Features = append(config.Features, resizeFeatures...)
	}
	if n.config.API != nil {
		client, err := n.newClient(n.config.separateLimits())
		if err != nil {
			return err
		}
		startup, err := newStartupTracker(client, n.host.BootTime(), n.config.Metrics)
		if err != nil {
			return err
		}
		config.API, config.Reconnect = startup, client.CloseConnections
		config.OnChange = func(before, after *v1.Node) {
			startup.observe(after)
			n.refreshCertificates()
			n.nodeChanged(before, after)
		}
	}
	n.Node, err = node.New(config)
	return err
}

// resizeFeatures are what the API server requires of a node before it lets resources of init containers be changed (RES-9). Resizes of the
// pod level are not declared: they are not tested on a real node yet.
var resizeFeatures = []string{"InPlacePodVerticalScalingInitContainers"}

func (n *NodeAgent) newVolumes() (err error) {
	config := provision.Config{
		Root: n.podsDir(), FormerRoot: n.formerPodsDir(), Events: n.Events, Logger: n.config.Logger, Metrics: n.config.Metrics,
		NodeInfo: func() provision.NodeInfo {
			return provision.NodeInfo{HostIPs: n.Node.HostIPs(), Allocatable: n.Node.Allocatable()}
		},
	}
	if n.clients.objects != nil {
		config.API, config.Watcher = n.clients.objects, n.clients.watches
	}
	n.volumes, err = provision.New(config)
	return err
}

func (n *NodeAgent) newProcessServer() (err error) {
	if n.config.Runtime != RuntimeProcess {
		return nil
	}
	socket := n.path("process.sock")
	n.config.ContainerRuntimeEndpoint = "unix://" + socket
	n.server, err = process.New(process.Config{
		Root: n.path("process"), Socket: socket, Shim: n.config.Shim, PodsRoot: n.podsDir(), Slice: scopeSlice(), Logger: n.config.Logger,
	})
	return err
}

func (n *NodeAgent) newRuntime() (err error) {
	config := cri.Config{
		Endpoint: n.config.ContainerRuntimeEndpoint, ImageEndpoint: n.config.ImageServiceEndpoint,
		Provisioner: n.volumes, Events: n.Events, Root: n.podsDir(), FormerRoot: n.formerPodsDir(),
		LogDir: n.config.PodLogsDir, ContainerLogDir: n.config.ContainerLogsDir,
		ClusterDNS: n.config.ClusterDNS, ClusterDomain: n.config.ClusterDomain, NodeIPs: n.Node.HostIPs, IPv6First: n.config.isIPv6First(),
		ContainerLogMaxSize: n.config.ContainerLogMaxSize, ContainerLogMaxFiles: n.config.ContainerLogMaxFiles,
		ResolvConf: n.config.ResolvConf, SeccompDefault: n.config.SeccompDefault, AllowedUnsafeSysctls: n.config.AllowedUnsafeSysctls,
		AllowNodeAddresses: n.config.AllowProbesToNodeAddresses,
		MaxParallelPulls:   n.config.MaxParallelImagePulls, RequestTimeout: n.config.RuntimeRequestTimeout,
		ImageVerification: pullmanager.Config{
			Policy: n.config.ImagePullCredentialsVerificationPolicy, Allowlist: n.config.PreloadedImagesVerificationAllowlist,
		},
		CgroupDriver: n.config.CgroupDriver, SingleProcessOOMKill: n.config.SingleProcessOOMKill, NoCPUQuota: n.config.NoCPUCFSQuota,
		Logger: n.config.Logger, Metrics: n.config.Metrics,
	}
	if n.config.RootDir != n.config.DataDir {
		config.ImageVerification.FormerDir = n.path("image_manager")
	}
	if n.cgroups != nil {
		config.Cgroups = n.cgroups
		config.CgroupParent = cgroup.NodeName(cgroup.ParseName(n.config.CgroupRoot)).Path(cgroup.DriverCgroupfs)
	}
	if n.clients.objects != nil {
		config.Secrets, config.RuntimeClasses = n.clients.objects, n.volumes
	}
	n.runtime, err = cri.New(config)
	return err
}

// statusDelays lets a container that starts and is ready at once, a pod that starts soon, and one that stops soon after its deletion take
// fewer requests (ADR 19).
var statusDelays = status.Delays{
	Change: 50 * time.Millisecond, Start: time.Second, Sandbox: 5 * time.Second, Deletion: 5 * time.Second,
}

func (n *NodeAgent) newAgent() error {
	sources, err := n.sources()
	if err != nil {
		return err
	}
	if n.preemptions, err = newPreemptions(n.config.Metrics); err != nil {
		return err
	}
	tally := inspect.NewTally()
	config := agent.Config{
		NodeName: n.config.NodeName, Sources: sources, Runtime: n.runtime, Events: n.Events, Volumes: n.volumes,
		Journal: historyJournal{n.History, tally, n.Alerts}, OnSourceProblem: n.recordProblem, OnRuntimeHealth: n.tellRuntimeHealth,
		OnKnownPods: n.tellKnownPods, State: n.state, Admit: n.admit, AdmitResize: n.admitResize, Pressure: n.pressureConfig(),
		NodeInfo: n.nodeInfo,
		BootTime: n.host.BootTime(), AllowNodeAddresses: n.config.AllowProbesToNodeAddresses, Resync: n.config.SyncFrequency,
		StatusDelays: statusDelays,
		Logger:       n.config.Logger, Metrics: n.config.Metrics, ProbeMetrics: n.config.ProbeMetrics,
		OnPodStopped: func(uid podid.UID) { n.Streams.PodTerminated(uid) },
		OnContainerStop: func(stop plan.Stop) {
			tally.Stopping(stop.ID.String(), string(stop.Reason))
			n.recordStop(stop)
		},
	}
	if n.Alerts != nil {
		config.OnSync, config.OnProbeAnswer = n.Alerts.PodSynced, n.Alerts.PodProbed
	}
	if n.clients.statuses != nil {
		config.API, config.MirrorAPI = n.clients.statuses, n.clients.mirrors
	}
	if n.Agent, err = agent.New(config); err != nil {
		return err
	}
	return n.newInspector(tally)
}

func (n *NodeAgent) newInspector(tally *inspect.Tally) (err error) {
	config := inspect.Config{Agent: n.Agent, Node: n.Node, History: n.History, Tally: tally, Stats: n.Stats, Version: n.config.Version}
	config.RuntimeLatency, config.Alerting = n.runtime.CallP99, n.alertingState
	if n.config.API != nil {
		config.Cluster, config.APILatency = n.config.API.Host, n.clients.statuses.RequestP99
		config.CertificateExpires, config.CertificateProblem = n.clients.expires, n.CertificateProblem
	}
	config.RuntimeVersion = func() (string, string) {
		object := n.Node.Object()
		if object == nil {
			return "", ""
		}
		name, version, _ := strings.Cut(object.Status.NodeInfo.ContainerRuntimeVersion, "://")
		return name, version
	}
	n.Inspector, err = inspect.New(config)
	return err
}

func (n *NodeAgent) nodeInfo() derive.NodeInfo {
	return derive.NodeInfo{
		HostIPs: n.Node.HostIPs(), IPv6First: n.config.isIPv6First(), RecursiveReadOnly: n.runtime.RecursiveReadOnly(),
	}
}

func (n *NodeAgent) sources() ([]source.Source, error) {
	var sources []source.Source
	if n.config.StaticPodPath != "" {
		decode, err := n.staticPodDecoder()
		if err != nil {
			return nil, err
		}
		files, err := source.NewFile(source.FileConfig{
			Path: n.config.StaticPodPath, NodeName: n.config.NodeName, Period: n.config.FileCheckFrequency, Decode: decode,
			Logger: n.config.Logger,
		})
		if err != nil {
			return nil, err
		}
		sources = append(sources, files)
	}
	if n.config.StaticPodURL != "" {
		url, err := source.NewHTTP(source.HTTPConfig{
			URL: n.config.StaticPodURL, NodeName: n.config.NodeName, Header: n.config.StaticPodURLHeader, Period: n.config.HTTPCheckFrequency,
			CAFile: n.config.StaticPodURLCAFile, CertFile: n.config.StaticPodURLCertFile, KeyFile: n.config.StaticPodURLKeyFile,
		})
		if err != nil {
			return nil, err
		}
		sources = append(sources, url)
	}
	if n.clients.statuses != nil {
		assigned, err := source.NewAPI(source.APIConfig{
			ListerWatcher: n.clients.statuses.PodsOnNode(n.config.NodeName), NodeName: n.config.NodeName, Logger: n.config.Logger,
			WaitForNode: n.Node.WaitForRegistration, Server: n.config.API.Host,
		})
		if err != nil {
			return nil, err
		}
		sources = append(sources, assigned)
	}
	return sources, nil
}
