package status

import (
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

// API is what the manager asks of an API server. Errors are those of apimachinery's api/errors, possibly wrapped.
type API interface {
	// PatchPodStatus applies a strategic merge patch to the pod's status and returns the object's new metadata.
	PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error)
	// GetPod reads the pod's newest state.
	GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	// DeletePod deletes the object at once, if it still has that UID.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
}

// Pods is what the manager asks of the node's address book. What it returns is never modified.
type Pods interface {
	// GetPodByUID finds a pod that this node should run, with the API server's newest known copy of its status.
	GetPodByUID(uid podid.UID) (*v1.Pod, bool)
	// GetMirrorPodByPod finds the mirror of a static pod.
	GetMirrorPodByPod(pod *v1.Pod) (*v1.Pod, bool)
	// TranslatePodUID turns a mirror's UID into that of its static pod and leaves any other as it is.
	TranslatePodUID(uid types.UID) podid.UID
}

// DeletionSafety says what a pod still holds on the node. It can express both of the kubelet's eras: an agent that only
// stops containers answers the second question with true.
type DeletionSafety interface {
	// PodCouldHaveRunningContainers reports whether a container of the pod runs or may still be started. While it is
	// true, no terminal phase is reported (SM-67).
	PodCouldHaveRunningContainers(uid podid.UID) bool
	// PodResourcesAreReclaimed reports whether all that must be gone before the API object is gone: containers stopped
	// and removed, volumes and cgroups cleaned up (SM-76).
	PodResourcesAreReclaimed(pod *v1.Pod, status *v1.PodStatus) bool
}

// Allocations records the resources allocated to pods.
type Allocations interface {
	// RemovePod removes everything recorded for the pod. It must not block.
	RemovePod(uid podid.UID)
}

type noAllocations struct{}

func (noAllocations) RemovePod(podid.UID) {}

// Config is what a Manager needs. Pods is required, and Deletion where API is set.
type Config struct {
	// API is the API server. Nil: none, everything but sending works (SM-1).
	API      API
	Pods     Pods
	Deletion DeletionSafety
	// Allocations drops the resources allocated to a pod whose status is removed. Optional.
	Allocations Allocations
	// State keeps over a restart what was not sent yet, allocations and, without an API server, every status. Nil:
	// nothing is kept.
	State *checkpoint.Dir
	// Workers is how many requests may be in flight at once; a quarter of them for changes that nobody waits for. Default
	// 16, by measurement (docs/benchmarks.md): 32 make bursts a third shorter, and a readiness change in a busy hour a
	// fifth later.
	Workers int
	// SyncPeriod is how often every pod is compared with what the API server says. Default 10 s.
	SyncPeriod time.Duration
	// RequestTimeout bounds each request. Default 10 s.
	RequestTimeout time.Duration
	// FlushTimeout bounds how long a stopping manager goes on sending. Default 5 s.
	FlushTimeout time.Duration
	// Logger is where the manager speaks. Nil: silence.
	Logger *slog.Logger
	// Metrics is where the manager counts. Nil: nowhere.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var err error
	if c.Pods == nil {
		err = errors.Join(err, errors.New("status.Config: Pods is required"))
	}
	if c.API != nil && c.Deletion == nil {
		err = errors.Join(err, errors.New("status.Config: Deletion is required with an API server"))
	}
	if c.Workers < 0 || c.SyncPeriod < 0 || c.RequestTimeout < 0 || c.FlushTimeout < 0 {
		err = errors.Join(err, errors.New("status.Config: Workers and durations must not be negative"))
	}
	c.Workers = orDefault(c.Workers, 16)
	c.SyncPeriod = orDefault(c.SyncPeriod, 10*time.Second)
	c.RequestTimeout = orDefault(c.RequestTimeout, 10*time.Second)
	c.FlushTimeout = orDefault(c.FlushTimeout, 5*time.Second)
	if c.Allocations == nil {
		c.Allocations = noAllocations{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
