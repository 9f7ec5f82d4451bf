package pod

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/podid"
)

// MirrorAPI is the API server as Mirrors needs it. Errors answer to apierrors.IsNotFound and its kin, and no method
// repeats a request on its own account.
type MirrorAPI interface {
	// GetPod reads the pod as it is now, not as a cache had it.
	GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	// CreatePod creates the pod, leaves its argument as it is, and returns what the server keeps, with its UID.
	CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error)
	// DeletePod removes the pod at once, if it has that UID; if it has another, the error is a conflict.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
	// GetNode reads the Node object.
	GetNode(ctx context.Context, name string) (*v1.Node, error)
}

// MirrorConfig is what NewMirrors needs. Fields without a default are required.
type MirrorConfig struct {
	// NodeName is the name of this node's Node object, which owns the mirrors.
	NodeName string

	// Pods holds the static pods, and the mirrors as the watch shows them.
	Pods *Manager

	// API is the API server. Default: none, and nothing to keep (PM-17).
	API MirrorAPI

	// Terminating reports whether a static pod of that name was started and is still being stopped. Its mirror outlives
	// it (PM-25, PW-43). It must not block. Wake the name when the answer turns to no; otherwise it is noticed within a
	// second.
	Terminating func(podid.FullName) bool

	// StaticSourcesReady reports whether every file and URL source has delivered its first set. Before that a mirror
	// without static pod may only be early, and is left alone. The mirror itself cannot tell which source to ask for:
	// what the API server delivers is marked as coming from it. It must not block.
	StaticSourcesReady func() bool

	// Events hears of mirrors that cannot be made. Default: nobody.
	Events event.Recorder

	// Logger. Default: silence.
	Logger *slog.Logger

	// Metrics registers herald_mirror_operations_total and herald_mirror_conflicts. Default: none.
	Metrics prometheus.Registerer

	// Workers is how many names are looked after at a time, and so the most requests in flight. Default: 4, which makes
	// mirrors for a hundred static pods in less than a second at 20 ms a request.
	Workers int

	// Resync is the time between two looks at all names, which make up for a wake-up that nobody sent. Default: 10 s, the
	// beat of the status manager's own full pass. Such a look sends no request unless something differs.
	Resync time.Duration

	// ConfirmAfter is how long the watch may fail to show what we wrote before the server is asked about it, once; then
	// twice as long, and so on up to 32 times as long. Default: 10 s.
	ConfirmAfter time.Duration
}

func (c MirrorConfig) withDefaults() (MirrorConfig, error) {
	switch {
	case c.NodeName == "":
		return c, errors.New("pod: MirrorConfig.NodeName is empty: give the name of this node's Node object")
	case c.Pods == nil:
		return c, errors.New("pod: MirrorConfig.Pods is nil: give the Manager")
	case c.Terminating == nil:
		return c, errors.New("pod: MirrorConfig.Terminating is nil: mirrors must outlive their pods' shutdown")
	case c.StaticSourcesReady == nil:
		return c, errors.New("pod: MirrorConfig.StaticSourcesReady is nil: a late source's mirrors would be deleted")
	case c.Workers < 0 || c.Resync < 0 || c.ConfirmAfter < 0:
		return c, errors.New("pod: MirrorConfig.Workers, Resync and ConfirmAfter must not be negative")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.Resync == 0 {
		c.Resync = 10 * time.Second
	}
	if c.ConfirmAfter == 0 {
		c.ConfirmAfter = 10 * time.Second
	}
	return c, nil
}
