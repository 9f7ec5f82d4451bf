package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/source/manifest"
)

// adoption lets static pods of files keep the UIDs under which another agent has started them. A kubelet computes other UIDs
// than this agent, and a pod with another UID would be restarted. A pod keeps its UID if its file has not been touched since
// that agent read it.
//
// The goroutine of the file source owns all fields.
type adoption struct {
	listPods func(context.Context) ([]*observed.Pod, error)
	store    *checkpoint.Store[adoptedUIDs]
	logger   *slog.Logger
	stopping <-chan struct{}

	adopted adoptedUIDs
	gaveUp  bool // the runtime did not respond in time
}

// adoptedUIDs maps computed UIDs to adopted ones. They outlive the records of the runtime.
type adoptedUIDs map[types.UID]types.UID

// staticPodDecoder returns the decoder of manifest files, or nil for the default.
func (n *NodeAgent) staticPodDecoder() (source.Decoder, error) {
	if n.config.Runtime == RuntimeProcess { // no other agent uses it
		return nil, nil
	}
	store, err := checkpoint.NewStore[adoptedUIDs](n.state, "adopted", 1)
	if err != nil {
		return nil, err
	}
	adopted, err := store.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the store has set a corrupt file aside
		n.config.Logger.Error("Failed to load adopted UIDs of static pods", "err", err)
	}
	if adopted == nil {
		adopted = adoptedUIDs{}
	}
	a := &adoption{listPods: n.runtime.ListPods, store: store, logger: n.config.Logger, stopping: n.stopping, adopted: adopted}
	return a.decode, nil
}

// decode decodes a manifest file.
func (a *adoption) decode(data []byte, origin manifest.Origin) ([]*v1.Pod, error) {
	pods, err := manifest.Decode(data, origin)
	if err != nil || len(pods) == 0 {
		return pods, err
	}
	changed, err := changeTime(origin.Location)
	if err != nil {
		return nil, fmt.Errorf("examine manifest: %w", err)
	}
	running := a.runtimePods()
	for _, pod := range pods {
		a.adopt(pod, running, changed)
	}
	return pods, nil
}

// changeTime returns when the file was last written, replaced or renamed.
func changeTime(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(info.Sys().(*syscall.Stat_t).Ctim.Unix()), nil
}

// adopt gives the pod its UID. What the runtime holds decides, then an earlier decision.
func (a *adoption) adopt(pod *v1.Pod, running []*observed.Pod, changed time.Time) {
	computed := pod.UID
	uid, found := findStarted(podid.FullNameOf(pod), running, changed)
	if !found {
		uid, found = a.adopted[computed]
	}
	if !found || uid == computed || !manifest.SetUID(pod, uid) || a.adopted[computed] == uid {
		return
	}
	a.adopted[computed] = uid
	a.logger.Info("Adopted static pod", "pod", podid.FullNameOf(pod).Key(), "podUID", uid)
	if err := a.store.Save(a.adopted); err != nil { // it can be decided again as long as the runtime holds the pod
		a.logger.Error("Failed to save adopted UIDs of static pods", "err", err)
	}
}

// findStarted returns the UID of the pod that an agent has started from the file's current content: the newest one that was
// seen after the last change of the file.
func findStarted(name podid.FullName, running []*observed.Pod, changed time.Time) (uid types.UID, found bool) {
	var seenAt time.Time
	for _, pod := range running {
		if pod.Name == name && pod.Source == podid.File && pod.SeenAt.After(changed) && pod.SeenAt.After(seenAt) {
			uid, seenAt, found = types.UID(pod.UID), pod.SeenAt, true
		}
	}
	return uid, found
}

// runtimeWait is how long static pods wait for the list of the runtime's pods. Without a runtime no pod starts anyway.
const runtimeWait = 10 * time.Second

// runtimePods returns the pods that the runtime holds, or none if it does not respond.
func (a *adoption) runtimePods() []*observed.Pod {
	if a.gaveUp {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), runtimeWait)
	defer cancel()
	for {
		pods, err := a.listPods(ctx)
		if err == nil {
			return pods
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-a.stopping:
			return nil
		case <-ctx.Done():
			a.gaveUp = true
			a.logger.Warn("Failed to list pods of the runtime, static pods that another agent started may be restarted", "err", err)
			return nil
		}
	}
}
