// Package containerlog reads and follows the logs of containers for the clients of a node.
//
// It reads the files that the runtime writes, in the format of the CRI, below one directory and without following links: a pod that
// can write to the directory cannot make it read another file. All followers share one inotify instance, and learn of the end of a
// container from the node's own state, without a call to the runtime.
//
//	stream, err := logs.Open(ctx, pod, options) // *Error: the response's code and message
//	defer stream.Close()
//	err = stream.Copy(ctx, w, flush)            // after the first byte: abort the connection
//
// Logs.Serve does that for an HTTP request.
package containerlog

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/containerlog/entry"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Paths locates logs. *cri.Runtime implements it.
type Paths interface {
	// LogPath returns the path of the log of an instance of a container. attempt is the restart count of the instance.
	LogPath(pod *v1.Pod, container string, attempt int) string
	// ContainerLogPath returns the path that the runtime reports for a container.
	ContainerLogPath(ctx context.Context, id string) (string, error)
}

// Pods has the state of pods as last observed. *pleg.PLEG implements it.
type Pods interface {
	// Get never returns nil. The time of the result is zero if the pod was not observed yet.
	Get(uid podid.UID) *observed.Pod
}

// Config configures Logs.
type Config struct {
	// Dir is the directory of all logs. Required.
	Dir string
	// Paths is required.
	Paths Paths
	// Pods says whether a container runs. Defaults to none: followed logs never end.
	Pods Pods
	// Changes yields the pods whose state has changed, until ctx ends. Defaults to none: the end of a container is noticed by polling.
	Changes func(ctx context.Context) iter.Seq[podid.UID]
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger

	poll time.Duration // pollInterval; tests wait less
}

// pollInterval is how often followers look at their file if they are not notified.
const pollInterval = time.Second

// Logs serves the logs of one node. It is safe for concurrent use. Reading works without Run; following then polls.
type Logs struct {
	config  Config
	watcher *watcher
	buffers sync.Pool
	// decompressing is a semaphore: one rotated log at a time is held in memory.
	decompressing chan struct{}
}

// New returns Logs. It performs no I/O.
func New(config Config) (*Logs, error) {
	switch {
	case config.Dir == "":
		return nil, errors.New("containerlog.Config: Dir is required")
	case config.Paths == nil:
		return nil, errors.New("containerlog.Config: Paths is required")
	}
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	config.poll = cmp.Or(config.poll, pollInterval)
	logs := &Logs{config: config, watcher: newWatcher(config), decompressing: make(chan struct{}, 1)}
	logs.buffers.New = func() any { return &buffers{input: make([]byte, entry.MaxEntry)} }
	return logs, nil
}

// Run watches the directories of followed logs until ctx ends. Then all followers end with an error.
func (l *Logs) Run(ctx context.Context) error { return l.watcher.run(ctx) }

// Error is an error of a request, in the form that the kubelet answers. kube-apiserver passes codes 400, 404 and 500 on to its client, and
// the messages of 400 and 500.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// ErrStopped means that Run ended while a log was followed.
var ErrStopped = errors.New("the node agent is stopping")
