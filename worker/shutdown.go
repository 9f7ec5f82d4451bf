package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// stopAll stops all containers of the pod in their order, then all its sandboxes. One attempt takes no longer than the
// grace and StopTimeout.
func (w *Workers) stopAll(ctx context.Context, t *turn, seen *observed.Pod, grace time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, grace+w.config.StopTimeout, errStopSlow)
	defer cancel()
	if err := joined(w.endEach(ctx, t, plan.TerminationOrder(t.life.Pod, seen, grace))); err != nil {
		return err
	}
	for _, s := range seen.Sandboxes {
		if err := w.config.Runtime.StopSandbox(ctx, s.ID); err != nil {
			return fmt.Errorf("stop sandbox %s of pod %s: %w", s.ID, t.identity(), err)
		}
	}
	return nil
}

var errStopSlow = errors.New("the containers took longer to stop than their grace allows")

// endEach stops the instances, each when those have ended that it waits for or when its grace is over (PW-25). It returns
// what went wrong with each.
func (w *Workers) endEach(ctx context.Context, t *turn, endings []plan.OrderedStop) map[observed.ContainerID]error {
	ended := map[observed.ContainerID]chan struct{}{}
	for _, ending := range endings {
		ended[ending.Stop.ID] = make(chan struct{})
	}
	failures := make([]error, len(endings))
	var all sync.WaitGroup
	for i, ending := range endings {
		all.Go(func() {
			began := time.Now()
			await(ctx, ending, ended)
			stop := ending.Stop
			if spent := time.Since(began); spent > 0 {
				stop = stop.AfterWaiting(spent)
			}
			failures[i] = w.config.Runtime.StopContainer(ctx, t.life.Pod, stop)
			if failures[i] == nil {
				close(ended[ending.Stop.ID])
			}
		})
	}
	all.Wait()
	failed := map[observed.ContainerID]error{}
	for i, err := range failures {
		if err != nil {
			id := endings[i].Stop.ID
			failed[id] = fmt.Errorf("stop container %s of pod %s: %w", id, t.identity(), err)
		}
	}
	return failed
}

// await waits until all that the instance comes after have ended, or its grace is over.
func await(ctx context.Context, ending plan.OrderedStop, ended map[observed.ContainerID]chan struct{}) {
	if len(ending.After) == 0 {
		return
	}
	patience := time.NewTimer(ending.Stop.Grace)
	defer patience.Stop()
	for _, id := range ending.After {
		select {
		case <-ended[id]:
		case <-patience.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func joined(failures map[observed.ContainerID]error) error {
	all := make([]error, 0, len(failures))
	for _, err := range failures {
		all = append(all, err)
	}
	return errors.Join(all...)
}
