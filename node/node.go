package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/node/report"
	"github.com/heraldnode/herald/observed"
)

// API is the API server. apierrors must recognize its errors.
type API interface {
	NodeAPI
	LeaseAPI
}

// NodeAPI reads and writes the Node object.
type NodeAPI interface {
	// GetNode reads the newest version.
	GetNode(ctx context.Context, name string) (*v1.Node, error)
	// CreateNode fails if a node of that name exists.
	CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error)
	// PatchNode applies a strategic merge patch to everything except the status.
	PatchNode(ctx context.Context, name string, patch []byte) (*v1.Node, error)
	// PatchNodeStatus applies a strategic merge patch to the status.
	PatchNodeStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error)
}

// LeaseAPI reads and writes the node's lease in the namespace kube-node-lease.
type LeaseAPI interface {
	GetLease(ctx context.Context, node string) (*coordinationv1.Lease, error)
	CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// UpdateLease fails with a conflict if the lease has another resource version.
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// Config configures a Node. NodeName and MachineInfo are required.
type Config struct {
	// NodeName is the name of the Node object.
	NodeName string
	// MachineInfo describes the machine: machine.Machine.Info. It is called every UpdateFrequency.
	MachineInfo func() (report.MachineInfo, error)

	// API is used by the node only, see the package comment. Defaults to none: there is no cluster.
	API API
	// Reconnect makes the next request of API use a new connection: kubeapi.Client.CloseConnections. It is called when a
	// request gets no response. Defaults to doing nothing.
	Reconnect func()
	// Ready returns why the node cannot run pods, or nil. It must not block. Defaults to nil.
	Ready func() error
	// NetworkReady returns why pods cannot have a network, or nil. It must not block. Defaults to nil.
	NetworkReady func() error
	// RuntimeVersion is cri.Runtime's Version. Defaults to none: no runtime version is reported.
	RuntimeVersion func(ctx context.Context) (name, version string, err error)
	// RuntimeFeatures returns the runtime's handlers and features: cri.Runtime's NodeFeatures. It must not block. Defaults to none:
	// nothing is reported about them.
	RuntimeFeatures func() ([]v1.NodeRuntimeHandler, *v1.NodeFeatures)
	// ImageFileSystems returns the file system of the runtime's images, and that of the containers' own layers if it is another.
	// Defaults to none: they are not checked.
	ImageFileSystems func(ctx context.Context) (images, containers report.FileSystem, err error)
	// Images lists the runtime's images: cri.Runtime's ListImages. Defaults to none: no images are reported.
	Images func(ctx context.Context) ([]observed.StoredImage, error)
	// MaxImages is how many images are reported, the largest ones (nodeStatusMaxImages). Negative reports all. Defaults to 50.
	MaxImages int
	// Port is the port of the agent's kubelet API. Defaults to none.
	Port int32
	// Features are the declared features of the agent's kubelet API, such as ExtendWebSocketsToKubelet: with it the API server passes web
	// sockets of exec, attach and port-forward on as they are. Defaults to none.
	Features []string

	// NoRegistration disables the creation of the Node object (registerNode: false).
	NoRegistration bool
	// Labels and Taints are set at registration only. Afterwards they belong to the cluster.
	Labels map[string]string
	Taints []v1.Taint
	// ProviderID is set once, if it is not set already.
	ProviderID string

	// MaxPods is the pod capacity of the node. Defaults to 110.
	MaxPods int64
	// Reserved is subtracted from the capacity to get the allocatable resources. Defaults to none.
	Reserved v1.ResourceList
	// Eviction determines what of the machine is kept free, and without Pressures, when the Node reports a pressure. Defaults to
	// eviction.DefaultPolicy.
	Eviction *eviction.Policy
	// Pressures returns the conditions of pressure that hold: those of manager.Manager, which evicts pods. It must not block. Call Refresh
	// when they change. Defaults to none: they are computed from MachineInfo and ImageFileSystems.
	Pressures func() []v1.NodeConditionType
	// UpdateFrequency is how often the machine is checked (nodeStatusUpdateFrequency). Defaults to 10s.
	UpdateFrequency time.Duration
	// ReportFrequency is how often an unchanged status is reported (nodeStatusReportFrequency). Defaults to 5m.
	ReportFrequency time.Duration
	// LeaseDuration is how long the node counts as alive after a renewal (nodeLeaseDurationSeconds). The lease is renewed
	// after a quarter of it. Defaults to 40s.
	LeaseDuration time.Duration

	// Conditions returns conditions of the Node beyond those of the kubelet: types, statuses, reasons and messages. One with an empty
	// status is removed from the Node. It must not block. Call Refresh when they change. Defaults to none.
	Conditions func() []v1.NodeCondition
	// OnSync is called when the state of Sync changes, and when reports or renewals of the lease begin or cease to fail. It must not
	// block. Defaults to none.
	OnSync func()
	// OnChange is called with each new version of the Node object, which must not be modified. before is nil for the first one.
	// It must not block. Defaults to doing nothing.
	OnChange func(before, after *v1.Node)
	// OnLease is called with the last error when the lease has expired because it could not be renewed for LeaseDuration, and
	// with nil when it was renewed again. It must not block. Defaults to none.
	OnLease func(err error)
	// Events records events of the node. Defaults to event.Discard.
	Events event.Recorder
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the node's metrics. Defaults to none.
	Metrics prometheus.Registerer
}

// minLeaseDuration keeps the renewal interval at one second or more.
const minLeaseDuration = 4 * time.Second

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("node.Config: NodeName is required"))
	}
	if c.MachineInfo == nil {
		errs = append(errs, errors.New("node.Config: MachineInfo is required"))
	}
	if c.MaxPods < 0 {
		errs = append(errs, errors.New("node.Config: MaxPods must not be negative"))
	}
	if c.UpdateFrequency < 0 {
		errs = append(errs, errors.New("node.Config: UpdateFrequency must not be negative"))
	}
	if c.ReportFrequency < 0 {
		errs = append(errs, errors.New("node.Config: ReportFrequency must not be negative"))
	}
	if c.LeaseDuration != 0 && c.LeaseDuration < minLeaseDuration {
		errs = append(errs, fmt.Errorf("node.Config: LeaseDuration must be at least %s, got %s", minLeaseDuration, c.LeaseDuration))
	}
	if c.Eviction == nil {
		c.Eviction = new(eviction.DefaultPolicy())
	}
	c.MaxPods = cmp.Or(c.MaxPods, 110)
	c.MaxImages = cmp.Or(c.MaxImages, 50)
	c.UpdateFrequency = cmp.Or(c.UpdateFrequency, 10*time.Second)
	c.ReportFrequency = cmp.Or(c.ReportFrequency, 5*time.Minute)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 40*time.Second)
	return c.withNoOps(), errors.Join(errs...)
}

// withNoOps fills optional dependencies with no-ops.
func (c Config) withNoOps() Config {
	if c.Reconnect == nil {
		c.Reconnect = func() {}
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.NetworkReady == nil {
		c.NetworkReady = func() error { return nil }
	}
	if c.Conditions == nil {
		c.Conditions = func() []v1.NodeCondition { return nil }
	}
	if c.OnSync == nil {
		c.OnSync = func() {}
	}
	if c.OnChange == nil {
		c.OnChange = func(_, _ *v1.Node) {}
	}
	if c.OnLease == nil {
		c.OnLease = func(error) {}
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Node keeps the Node object of this machine. Run must be called only once. All other methods are safe for concurrent use,
// before, during and after Run.
type Node struct {
	config     Config
	metrics    *metrics
	registered chan struct{} // closed when the object was first seen in the API server
	refresh    wakeup.Signal // set when the status is to be reported at once

	mu      sync.Mutex // guards all below
	machine report.MachineInfo
	// object is the latest known Node: the API server's, or without a cluster, what would be reported.
	object   *v1.Node
	watchers map[wakeup.Signal]struct{}
	sync     syncState
}

// New returns a Node. It reads the machine's information, so that the addresses are known before Run.
func New(config Config) (*Node, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	machine, err := config.MachineInfo()
	if err != nil {
		return nil, err
	}
	if err := report.CheckReserved(machine, config.Reserved, config.Eviction); err != nil {
		return nil, fmt.Errorf("node.Config: Reserved (kubeReserved and systemReserved together): %w", err)
	}
	n := &Node{config: config, registered: make(chan struct{}), refresh: wakeup.New(), machine: machine}
	n.metrics, err = newMetrics(config.Metrics, config.NodeName)
	return n, err
}

// Run reports the status and renews the lease until ctx ends. Failed requests are retried for as long as it takes.
func (n *Node) Run(ctx context.Context) error {
	n.recordEvents(report.Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting herald."})
	var running sync.WaitGroup
	running.Go(func() { (&statusReporter{Node: n}).run(ctx) })
	if n.config.API != nil {
		running.Go(func() { (&leaseRenewer{Node: n}).run(ctx) })
	}
	running.Wait()
	return nil
}

// Refresh reports the status soon, if it has changed. It does not block.
func (n *Node) Refresh() { n.refresh.Set() }

// WaitForRegistration returns when the Node object exists in the API server, or with the cause of ctx when that ends first.
func (n *Node) WaitForRegistration(ctx context.Context) error {
	select {
	case <-n.registered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Registered returns a channel that is closed when the Node object exists in the API server.
func (n *Node) Registered() <-chan struct{} { return n.registered }

// HostIPs returns the node's addresses, the primary one first, at most one of each family.
func (n *Node) HostIPs() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return report.HostIPs(n.machine.Addresses)
}

// Capacity returns the resources of the machine.
func (n *Node) Capacity() v1.ResourceList { return n.resources().Capacity }

// Allocatable returns the resources that the node offers to pods: the capacity without what is reserved and without the
// eviction thresholds.
func (n *Node) Allocatable() v1.ResourceList { return n.resources().Allocatable }

func (n *Node) resources() *v1.NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	return report.Status(report.StatusInput{
		Machine: n.machine, MaxPods: n.config.MaxPods, Reserved: n.config.Reserved, Eviction: *n.config.Eviction,
	})
}

// Addresses returns all addresses of the node: the machine's, then those that others have set in the API server.
func (n *Node) Addresses() []v1.NodeAddress {
	n.mu.Lock()
	defer n.mu.Unlock()
	var previous *v1.NodeStatus
	if n.object != nil {
		previous = &n.object.Status
	}
	return report.Status(report.StatusInput{Machine: n.machine, Previous: previous}).Addresses
}

// Object returns a copy of the latest known Node: the API server's, or without a cluster, what would be reported. It returns
// nil before the first report, and after the Node was deleted.
func (n *Node) Object() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.object.DeepCopy()
}

// Watch yields what Object returns, and again whenever it changes, until ctx ends. A slow reader misses versions in between.
func (n *Node) Watch(ctx context.Context) iter.Seq[*v1.Node] {
	return func(yield func(*v1.Node) bool) {
		changed := wakeup.New()
		n.mu.Lock()
		if n.watchers == nil {
			n.watchers = map[wakeup.Signal]struct{}{}
		}
		n.watchers[changed] = struct{}{}
		n.mu.Unlock()
		defer func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.watchers, changed)
		}()
		for yield(n.Object()) {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// MemoryAvailable returns the machine's available memory in bytes, as of the last check.
func (n *Node) MemoryAvailable() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.machine.Memory.Available
}

func (n *Node) setMachine(machine report.MachineInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machine = machine
}

// setObject stores the latest version of the object and returns the previous one.
func (n *Node) setObject(object *v1.Node) *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	previous := n.object
	n.object = object
	if object != nil {
		n.config.OnChange(previous, object)
	}
	for watcher := range n.watchers {
		watcher.Set()
	}
	return previous
}

// recordEvents records events about the node. As in the kubelet, the UID is the node's name: events start before the real
// UID is known, and kubectl describe finds both.
func (n *Node) recordEvents(events ...report.Event) {
	reference := &v1.ObjectReference{Kind: "Node", Name: n.config.NodeName, UID: types.UID(n.config.NodeName)}
	for _, e := range events {
		n.config.Events.Event(reference, e.Type, e.Reason, e.Message)
	}
}

type metrics struct {
	reports, renewals *prometheus.CounterVec
}

// Results of status reports and lease renewals.
const (
	resultReported  = "reported"
	resultUnchanged = "unchanged"
	resultConflict  = "conflict"
	resultRenewed   = "renewed"
	resultFailed    = "failed"
)

func newMetrics(registry prometheus.Registerer, nodeName string) (*metrics, error) {
	m := &metrics{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_node_status_reports_total",
			Help: "Attempts to report the Node's status, by result: reported, unchanged, failed, conflict.",
		}, []string{"result"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_node_lease_renewals_total",
			Help: "Attempts to renew the node's lease, by result: renewed, failed.",
		}, []string{"result"}),
	}
	if registry == nil {
		return m, nil
	}
	name := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubelet_node_name", Help: "The node's name. The count is always 1.", ConstLabels: prometheus.Labels{"node": nodeName},
	})
	name.Set(1)
	for _, collector := range []prometheus.Collector{m.reports, m.renewals, name} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("node: register metrics: %w", err)
		}
	}
	return m, nil
}
