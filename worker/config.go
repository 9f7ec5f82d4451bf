package worker

import (
	"context"
	"errors"
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
)

// Runtime is what makes pods run. Every call returns as soon as its context ends, whatever becomes of what it began.
type Runtime interface {
	// StartSandbox makes the environment for the pod's containers and returns its ID. Asked again after a lost answer, it
	// finds the first.
	StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error)
	// StartContainer pulls the image as the policy asks, makes and starts the container and runs its postStart hook.
	StartContainer(ctx context.Context, pod *v1.Pod, sandbox string, start plan.Start) error
	// StopContainer runs the preStop hook, asks the container to end and kills it when the grace is over. pod is nil when
	// nobody knows its spec.
	StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error
	// StopSandbox ends what still runs in it and releases its network. It may be called again.
	StopSandbox(ctx context.Context, id string) error
	// RemovePod removes all that the runtime holds of a pod whose containers have ended.
	RemovePod(ctx context.Context, uid podid.UID) error
}

// PodCache is what the runtime was seen to hold. Nobody changes what it returns.
type PodCache interface {
	// Get is what was last seen of the pod, never nil. Its time is zero when nobody has looked yet.
	Get(uid podid.UID) *observed.Pod
	// GetNewerThan waits for a look at the pod that began after t.
	GetNewerThan(ctx context.Context, uid podid.UID, t time.Time) (*observed.Pod, error)
	// Refresh asks for a look at the pod as soon as possible. It does not block.
	Refresh(uid podid.UID)
	// Pods is the newest complete list, and when it was taken; zero: never.
	Pods() ([]*observed.Pod, time.Time)
}

// Statuses is the node's logbook.
type Statuses interface {
	// GetPodStatus is the newest status of the pod that was set.
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// SetPodStatus proposes a status and returns the one that is now kept.
	SetPodStatus(pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool)
	// TerminatePod tells that the pod holds nothing on the node any more.
	TerminatePod(pod *v1.Pod)
}

// Volumes are what pods find mounted.
type Volumes interface {
	// Mount sees to it that all volumes of the pod are there and up to date. It is called at each sync.
	Mount(ctx context.Context, pod *v1.Pod) error
	// Unmount sees to it that nothing of the pod is left. It may be called again.
	Unmount(ctx context.Context, uid podid.UID) error
}

// Probes look after running containers. No method blocks.
type Probes interface {
	// AddPod probes the containers of the pod from now on. It is called at each sync.
	AddPod(pod *v1.Pod)
	// StopLivenessAndStartup ends what could ask for a restart; readiness goes on (BUG-25).
	StopLivenessAndStartup(pod *v1.Pod)
	// RemovePod ends all probing of the pod.
	RemovePod(uid podid.UID)
	// Results are the newest verdicts, and of containers whose liveness or startup probe gave up the message.
	Results(uid podid.UID) (derive.ProbeResults, map[observed.ContainerID]string)
}

// Config is what Workers need. Fields without a default are required.
type Config struct {
	Runtime  Runtime
	PodCache PodCache
	Statuses Statuses
	// Volumes. Default: pods have none.
	Volumes Volumes
	// Probes. Default: nothing is probed.
	Probes Probes

	// Admit says whether the node will run the pod; an error may name its reason by RejectionReason() string. It must not
	// block. Pods of the API server are asked about inside UpdatePod, so that those win that come first (CFG-43). A static
	// pod is asked about when its name is free, and again and again until it is admitted (BUG-29). Default: every pod.
	Admit func(pod *v1.Pod) error
	// Allocated is the pod with the resources that it was allocated, not those that it wants since (PW-13). It is asked in the
	// pod's own turn. Default: the pod as it is.
	Allocated func(pod *v1.Pod) *v1.Pod
	// ResizeState returns the state of the pod's resize. It must not block. Default: no pod is resized.
	ResizeState func(uid podid.UID) derive.Resize
	// NodeInfo is what a status says about the machine. It must not block. Default: nothing.
	NodeInfo func() derive.NodeInfo
	// NetworkReady says what keeps pods from getting a network, or nil. It must not block. Default: nothing.
	NetworkReady func() error
	// OnPodStopped hears that all containers of the pod of that name have stopped: its mirror may go (PW-43). It must not
	// block. Default: nobody.
	OnPodStopped func(podid.FullName)
	// Events. Default: nobody hears them.
	Events event.Recorder
	// State is where it is written down, before it is done, what must not be done twice (BUG-41). Default: nothing is.
	State *checkpoint.Dir

	// Resync is how often a pod is looked at although nothing happened; up to half of it is added (PW-32). Default: 1 min.
	Resync time.Duration
	// Backoff is how long a pod rests after a failed step; up to half of it is added (PW-31). Default: 10 s.
	Backoff time.Duration
	// ObserveTimeout bounds the wait for a look at the runtime, after which the pod's trouble is told (BUG-31). Default: 2 min.
	ObserveTimeout time.Duration
	// VolumeTimeout bounds one attempt to mount or unmount (BUG-31). Default: 2 min.
	VolumeTimeout time.Duration
	// StopTimeout is added to the grace to bound one attempt to stop a pod. Default: 2 min.
	StopTimeout time.Duration

	// Logger. Default: silence.
	Logger *slog.Logger
	// Metrics. Default: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var err error
	require := func(field string, given bool) {
		if !given {
			err = errors.Join(err, errors.New("worker: Config."+field+" is required"))
		}
	}
	limit := func(field string, d *time.Duration, otherwise time.Duration) {
		if *d < 0 {
			err = errors.Join(err, errors.New("worker: Config."+field+" must not be negative"))
		}
		if *d == 0 {
			*d = otherwise
		}
	}
	require("Runtime", c.Runtime != nil)
	require("PodCache", c.PodCache != nil)
	require("Statuses", c.Statuses != nil)
	limit("Resync", &c.Resync, time.Minute)
	limit("Backoff", &c.Backoff, 10*time.Second)
	limit("ObserveTimeout", &c.ObserveTimeout, 2*time.Minute)
	limit("VolumeTimeout", &c.VolumeTimeout, 2*time.Minute)
	limit("StopTimeout", &c.StopTimeout, 2*time.Minute)
	return c.withSilence(), err
}

// withSilence puts something in the place of what is not there, so that nobody has to ask.
func (c Config) withSilence() Config {
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
	if c.ResizeState == nil {
		c.ResizeState = func(podid.UID) derive.Resize { return derive.Resize{} }
	}
	if c.NodeInfo == nil {
		c.NodeInfo = func() derive.NodeInfo { return derive.NodeInfo{} }
	}
	if c.NetworkReady == nil {
		c.NetworkReady = func() error { return nil }
	}
	if c.OnPodStopped == nil {
		c.OnPodStopped = func(podid.FullName) {}
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
