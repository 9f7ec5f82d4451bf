package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// Runtime runs pods. Every call returns as soon as its context ends, even if the operation continues in the runtime. If the
// cause is plan.ErrInterrupted, a start may first complete the step that it has begun.
type Runtime interface {
	// StartSandbox creates the environment for the pod's containers and returns its ID. It is idempotent for one attempt:
	// called again after a lost response, it returns the same sandbox. Like StartContainer, it records the event of a
	// failure itself, because it knows the cause.
	StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error)
	// StartContainer pulls the image as its policy requires, creates and starts the container, and runs its postStart hook.
	StartContainer(ctx context.Context, pod *v1.Pod, sandboxID string, start plan.Start) error
	// StopContainer runs the preStop hook, waits for the container's turn, signals it and kills it when its grace period
	// ends. pod is nil if its spec is unknown.
	StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error
	// StopSandbox stops what still runs in the sandbox and releases its network. It is idempotent.
	StopSandbox(ctx context.Context, id string) error
	// RemovePod removes everything that the runtime holds of a pod whose containers have exited. An error may report by
	// OnlyRecordsLeft() bool that nothing is left but records of stopped containers. They do not delay the deletion of the
	// API object, and their removal is retried.
	RemovePod(ctx context.Context, uid podid.UID) error
}

// PodCache provides the state of pods in the runtime. Callers do not modify the pods that it returns.
type PodCache interface {
	// Get returns the cached state of the pod, never nil. Its time is zero if the pod was not observed yet.
	Get(uid podid.UID) *observed.Pod
	// GetNewerThan waits for an observation of the pod that began after minTime.
	GetNewerThan(ctx context.Context, uid podid.UID, minTime time.Time) (*observed.Pod, error)
	// Refresh requests an observation of the pod as soon as possible. It does not block.
	Refresh(uid podid.UID)
	// Pods returns the last complete list and when it was taken. The time is zero if there was none yet.
	Pods() ([]*observed.Pod, time.Time)
}

// Statuses is the status cache.
type Statuses interface {
	// GetPodStatus returns the newest cached status of the pod.
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// SetPodStatus proposes a status and returns the one that is now cached.
	SetPodStatus(pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool)
	// TerminatePod reports that the pod no longer holds resources on the node.
	TerminatePod(pod *v1.Pod)
}

// Volumes mounts and unmounts the volumes of pods.
type Volumes interface {
	// Mount ensures that all volumes of the pod are mounted and up to date. It is called in each sync.
	Mount(ctx context.Context, pod *v1.Pod) error
	// Unmount ensures that nothing of the pod is mounted. It is idempotent.
	Unmount(ctx context.Context, uid podid.UID) error
}

// Probes runs the probes of containers. No method blocks.
type Probes interface {
	// AddPod starts probing the containers of the pod. It is called in each sync.
	AddPod(pod *v1.Pod)
	// StopLivenessAndStartup stops the probes that could request a restart. Readiness probes continue (BUG-25).
	StopLivenessAndStartup(pod *v1.Pod)
	// RemovePod stops all probes of the pod.
	RemovePod(uid podid.UID)
	// Results returns the newest results, and a message for each container whose liveness or startup probe failed for good.
	Results(uid podid.UID) (derive.ProbeResults, map[observed.ContainerID]string)
}

// Resizes is the state of in-place resizes. Its pods have their allocated resources. No method but SetActuated blocks.
type Resizes interface {
	// State returns the state of the pod's resize.
	State(uid podid.UID) derive.Resize
	// Actuated returns what the runtime and the pod's cgroup last accepted, and whether all of it is as allocated.
	Actuated(pod *v1.Pod) (actuated resize.State, isAllocated bool)
	// SetActuated records what was accepted for a container, or for the pod's cgroup under resize.PodLevel. It is called before
	// a container is started with its allocated resources, and waits for the disk if that changes anything.
	SetActuated(pod *v1.Pod, name string, quantities resize.Quantities) error
	// SetInProgress reports whether a resize of the pod is in progress (RSZ-12).
	SetInProgress(pod *v1.Pod, inProgress bool)
	// SetFailed reports that a resize in progress failed. It is retried (RSZ-20).
	SetFailed(pod *v1.Pod, err error)
}

// Resizer is an optional interface of a Runtime: one without it cannot resize pods.
type Resizer interface {
	// ResizePod changes the pod's cgroup and its running containers. It calls actuated for each container that the runtime
	// accepted, and for the pod under resize.PodLevel at the end. The first error ends it.
	ResizePod(
		ctx context.Context, pod *v1.Pod, sandboxID string, change resize.Change, actuated func(string, resize.Quantities) error,
	) error
}

// Config configures Workers.
type Config struct {
	// Runtime is required.
	Runtime Runtime
	// PodCache is required.
	PodCache PodCache
	// Statuses is required.
	Statuses Statuses
	// Volumes mounts the volumes of pods. Defaults to none.
	Volumes Volumes
	// Probes probes running containers. Defaults to none.
	Probes Probes

	// Admit decides whether the node runs the pod. An error may provide its reason by RejectionReason() string. It must not
	// block. It is called for an API pod inside UpdatePod, so that the first pod wins (CFG-43). It is called for a static
	// pod once the pod's name is free, and repeatedly until it is admitted (BUG-29). It is not called for a pod that is
	// running already. Defaults to admitting every pod.
	Admit func(pod *v1.Pod) error
	// Allocated returns the pod with its allocated resources instead of the desired ones (PW-13). It is called by the pod's
	// own goroutine. Defaults to the pod as it is.
	Allocated func(pod *v1.Pod) *v1.Pod
	// Resizes is the state of resizes. Defaults to no resizes.
	Resizes Resizes
	// NodeInfo returns the node's part of a pod status. It must not block. Defaults to none.
	NodeInfo func() derive.NodeInfo
	// NetworkReady returns an error while pods cannot get a network. It must not block. Defaults to nil.
	NetworkReady func() error
	// OnPodStopped is called when all containers of the pod have stopped, so that its mirror pod may be deleted (PW-43) and its streams
	// may be closed (STR-17). It must not block. Defaults to a no-op.
	OnPodStopped func(podid.UID, podid.FullName)
	// OnContainerStop is called before an instance of a container is stopped, with the reason. It must not block. Defaults to a
	// no-op.
	OnContainerStop func(stop plan.Stop)
	// Events records events. Defaults to event.Discard.
	Events event.Recorder
	// State stores the run-once journal (BUG-41). Defaults to none: the journal is lost on restart.
	State *checkpoint.Dir

	// Resync is the interval between syncs of an unchanged pod. Up to half of it is added as jitter (PW-32). Defaults to 1m.
	Resync time.Duration
	// Backoff is the longest time until a failed sync is retried. The first retry follows after 100ms, and the time doubles
	// with each failure. Up to half is added as jitter (PW-31). Defaults to 10s.
	Backoff time.Duration
	// ObserveTimeout bounds the wait for an observation of the pod, after which an event is recorded (BUG-31). Defaults to
	// 2m.
	ObserveTimeout time.Duration
	// VolumeTimeout bounds one attempt to mount or unmount volumes (BUG-31). Defaults to 2m.
	VolumeTimeout time.Duration
	// StopTimeout is added to the grace period to bound one attempt to stop a pod. Defaults to 2m.
	StopTimeout time.Duration

	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the metrics. Defaults to none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	if err := c.validate(); err != nil {
		return c, err
	}
	c.Resync = cmp.Or(c.Resync, time.Minute)
	c.Backoff = cmp.Or(c.Backoff, 10*time.Second)
	c.ObserveTimeout = cmp.Or(c.ObserveTimeout, 2*time.Minute)
	c.VolumeTimeout = cmp.Or(c.VolumeTimeout, 2*time.Minute)
	c.StopTimeout = cmp.Or(c.StopTimeout, 2*time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c.withNoOps(), nil
}

func (c Config) validate() error {
	var errs []error
	for _, field := range []struct {
		name      string
		isMissing bool
	}{
		{"Runtime", c.Runtime == nil}, {"PodCache", c.PodCache == nil}, {"Statuses", c.Statuses == nil},
	} {
		if field.isMissing {
			errs = append(errs, fmt.Errorf("worker.Config: %s is required", field.name))
		}
	}
	for _, field := range []struct {
		name  string
		value time.Duration
	}{
		{"Resync", c.Resync}, {"Backoff", c.Backoff}, {"ObserveTimeout", c.ObserveTimeout}, {"VolumeTimeout", c.VolumeTimeout},
		{"StopTimeout", c.StopTimeout},
	} {
		if field.value < 0 {
			errs = append(errs, fmt.Errorf("worker.Config: %s must not be negative", field.name))
		}
	}
	return errors.Join(errs...)
}

// withNoOps fills optional dependencies with no-ops.
func (c Config) withNoOps() Config {
	if c.Volumes == nil {
		c.Volumes = noVolumes{}
	}
	if c.Probes == nil {
		c.Probes = noProbes{}
	}
	if c.Admit == nil {
		c.Admit = func(*v1.Pod) error { return nil }
	}
	if c.Allocated == nil {
		c.Allocated = func(pod *v1.Pod) *v1.Pod { return pod }
	}
	if c.Resizes == nil {
		c.Resizes = noResizes{}
	}
	if c.NodeInfo == nil {
		c.NodeInfo = func() derive.NodeInfo { return derive.NodeInfo{} }
	}
	if c.NetworkReady == nil {
		c.NetworkReady = func() error { return nil }
	}
	if c.OnPodStopped == nil {
		c.OnPodStopped = func(podid.UID, podid.FullName) {}
	}
	if c.OnContainerStop == nil {
		c.OnContainerStop = func(plan.Stop) {}
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	return c
}

type noVolumes struct{}

func (noVolumes) Mount(context.Context, *v1.Pod) error     { return nil }
func (noVolumes) Unmount(context.Context, podid.UID) error { return nil }

type noResizes struct{}

func (noResizes) State(podid.UID) derive.Resize                        { return derive.Resize{} }
func (noResizes) Actuated(*v1.Pod) (resize.State, bool)                { return nil, true }
func (noResizes) SetActuated(*v1.Pod, string, resize.Quantities) error { return nil }
func (noResizes) SetInProgress(*v1.Pod, bool)                          {}
func (noResizes) SetFailed(*v1.Pod, error)                             {}

type noProbes struct{}

func (noProbes) AddPod(*v1.Pod)                 {}
func (noProbes) StopLivenessAndStartup(*v1.Pod) {}
func (noProbes) RemovePod(podid.UID)            {}
func (noProbes) Results(podid.UID) (derive.ProbeResults, map[observed.ContainerID]string) {
	return nil, nil
}
