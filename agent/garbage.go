package agent

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// GarbageCollector is a Runtime that can be tidied up. It is asked for by what it can do.
type GarbageCollector interface {
	// CollectGarbage removes what ended and nobody needs any more.
	CollectGarbage(ctx context.Context, isWanted func(podid.UID) bool) error
	// RotateLogs keeps the logs of containers from growing without end.
	RotateLogs(ctx context.Context) error
}

// The kubelet's beats.
const (
	collectEvery = time.Minute
	rotateEvery  = 10 * time.Second
)

// tidy keeps the runtime tidy.
func (a *Agent) tidy(ctx context.Context, runtime GarbageCollector) error {
	collect, rotate := time.NewTicker(collectEvery), time.NewTicker(rotateEvery)
	defer collect.Stop()
	defer rotate.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-collect.C:
			err = runtime.CollectGarbage(ctx, a.wantedNow())
		case <-rotate.C:
			err = runtime.RotateLogs(ctx)
		}
		if err != nil && ctx.Err() == nil {
			a.config.Logger.Warn("The runtime is not as tidy as it should be", "err", err)
		}
	}
}

// wantedNow tells the pods whose remains somebody may still want to see: while a source has not spoken, all of them. What is
// known is asked when it is needed, and not before: by then the runtime was listed, and what it shows may be newer.
func (a *Agent) wantedNow() func(podid.UID) bool {
	if !a.Sources.AllReady() {
		return func(podid.UID) bool { return true }
	}
	known := sync.OnceValue(a.known)
	return func(uid podid.UID) bool { return known()[types.UID(uid)] }
}
