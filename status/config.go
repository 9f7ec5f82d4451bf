package status

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
)

// API is the part of the API server that the Manager needs. kubeapi.Client implements it. Errors are those of
// k8s.io/apimachinery/pkg/api/errors, possibly wrapped.
type API interface {
	// PatchPodStatus applies a strategic merge patch to the pod's status and returns the new metadata of the object.
	PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error)
	// GetPod returns the newest version of the pod.
	GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	// DeletePod deletes the object without a grace period if it has that UID.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
}

// Pods is the part of the Pod Manager that the Manager needs. It does not modify the pods that it gets.
type Pods interface {
	// GetPodByUID returns a pod assigned to this node, with the newest version that the watch delivered.
	GetPodByUID(uid podid.UID) (*v1.Pod, bool)
	// GetMirrorPodByPod returns the mirror pod of a static pod.
	GetMirrorPodByPod(pod *v1.Pod) (*v1.Pod, bool)
	// TranslatePodUID returns the UID of the static pod if uid is its mirror pod's, and uid itself otherwise.
	TranslatePodUID(uid types.UID) podid.UID
}

// DeletionSafety reports what a pod still holds on the node. An agent that only stops containers returns true from
// PodResourcesAreReclaimed.
type DeletionSafety interface {
	// PodCouldHaveRunningContainers reports whether a container of the pod is running or may still be started. No
	// terminal phase is sent while it is true (SM-67).
	PodCouldHaveRunningContainers(uid podid.UID) bool
	// PodResourcesAreReclaimed reports whether the API object may be deleted: containers are stopped, volumes and
	// cgroups are cleaned up (SM-76).
	PodResourcesAreReclaimed(pod *v1.Pod, status *v1.PodStatus) bool
}

// Allocations is the part of the Allocation Manager that the Manager needs.
type Allocations interface {
	// RemovePod removes the resources allocated to the pod. It must not block.
	RemovePod(uid podid.UID)
}

// Journal receives every version of every status, for a history. Its methods are called with the manager's lock held: they must
// not block, and must not call the manager.
type Journal interface {
	// Accepted is called for each new version of a pod's status, in order, and when the status is removed.
	Accepted(version Version)
	// Acknowledged is called when the API server is known to have this version of the pod's status, and with it all older ones.
	Acknowledged(uid podid.UID, version uint64, at time.Time)
}

// Config configures a Manager. Pods is required, and Deletion if API is set.
type Config struct {
	// API is the API server. Nil runs without one: statuses are cached but not sent (SM-1).
	API API
	// Pods provides the pods assigned to this node.
	Pods Pods
	// Deletion decides when terminal phases are sent and objects are deleted.
	Deletion DeletionSafety
	// Allocations is notified of each pod whose status is removed (SM-86). Optional.
	Allocations Allocations
	// Journal receives every version of every status. Optional.
	Journal Journal
	// OnSync is called when requests for a pod begin or cease to fail, and when the API server gets a terminal phase that was withheld:
	// when Sync changes without a new version or an acknowledgement. It is called with the manager's lock held: it must neither block
	// nor call the manager. Optional.
	OnSync func(uid podid.UID)
	// State stores unsent statuses across restarts and, without an API server, all of them. Nil stores nothing.
	State *checkpoint.Dir
	// Workers is the number of concurrent requests. At most a quarter of them are for changes of normal priority. Defaults
	// to 16, by measurement (docs/benchmarks.md): 32 shorten bursts by a third and delay a readiness change under load by a
	// fifth.
	Workers int
	// Delays is how long changes wait for the next one of the same pod. Defaults to none: no change waits.
	Delays Delays
	// SyncPeriod is how often every pod is compared with the API server. Defaults to 10s.
	SyncPeriod time.Duration
	// RequestTimeout bounds each request. Defaults to 10s.
	RequestTimeout time.Duration
	// FlushTimeout bounds how long Run continues to send after its context is done. Defaults to 5s.
	FlushTimeout time.Duration
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the Manager's metrics. Nil registers none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	if err := c.validate(); err != nil {
		return c, err
	}
	c.Workers = cmp.Or(c.Workers, 16)
	c.Delays = c.Delays.withDefaults()
	c.SyncPeriod = cmp.Or(c.SyncPeriod, 10*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.FlushTimeout = cmp.Or(c.FlushTimeout, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Allocations == nil {
		c.Allocations = noAllocations{}
	}
	if c.Journal == nil {
		c.Journal = noJournal{}
	}
	if c.OnSync == nil {
		c.OnSync = func(podid.UID) {}
	}
	return c, nil
}

func (c Config) validate() error {
	var errs []error
	if c.Pods == nil {
		errs = append(errs, errors.New("status.Config: Pods is required"))
	}
	if c.API != nil && c.Deletion == nil {
		errs = append(errs, errors.New("status.Config: Deletion is required with API"))
	}
	if c.Workers < 0 {
		errs = append(errs, errors.New("status.Config: Workers must not be negative"))
	}
	errs = append(errs, c.Delays.validate())
	if c.SyncPeriod < 0 {
		errs = append(errs, errors.New("status.Config: SyncPeriod must not be negative"))
	}
	if c.RequestTimeout < 0 {
		errs = append(errs, errors.New("status.Config: RequestTimeout must not be negative"))
	}
	if c.FlushTimeout < 0 {
		errs = append(errs, errors.New("status.Config: FlushTimeout must not be negative"))
	}
	return errors.Join(errs...)
}

// noAllocations is the default of Config.Allocations.
type noAllocations struct{}

func (noAllocations) RemovePod(podid.UID) {}

// noJournal is the default of Config.Journal.
type noJournal struct{}

func (noJournal) Accepted(Version) {}

func (noJournal) Acknowledged(podid.UID, uint64, time.Time) {}
