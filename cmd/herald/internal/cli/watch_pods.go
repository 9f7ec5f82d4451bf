package cli

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/view"
)

// podUpdate is an event of a watch of pods, or its interruption.
type podUpdate struct {
	event view.WatchType
	pod   view.PodView // not of a Synced event
	// err is why there is no connection. The next events begin with all pods again, up to Synced.
	err error
}

// isFinal reports that the watch has ended: the agent rejects it.
func (u *podUpdate) isFinal() bool {
	var unreachable *client.UnreachableError
	return u.err != nil && !errors.As(u.err, &unreachable)
}

// Delays between attempts to reach the agent again.
const minReconnect, maxReconnect = 50 * time.Millisecond, time.Second

// watchPods sends the events of a watch until ctx ends or the agent rejects it, and closes the channel. It connects again whenever
// the agent is restarted.
func watchPods(ctx context.Context, agent *client.Client, parameters url.Values) <-chan podUpdate {
	updates := make(chan podUpdate)
	send := func(update podUpdate) error {
		select {
		case updates <- update:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	parameters.Set("topics", "pods")
	go func() {
		defer close(updates)
		for delay := minReconnect; ctx.Err() == nil; delay = min(2*delay, maxReconnect) {
			err := agent.WatchViews(ctx, parameters, func(event view.WatchEvent) error {
				delay = minReconnect
				if event.Type == view.Synced {
					return send(podUpdate{event: event.Type})
				}
				pod, err := client.DecodePodView(event)
				if err != nil {
					return err
				}
				return send(podUpdate{event: event.Type, pod: pod})
			})
			if ctx.Err() != nil {
				return
			}
			update := podUpdate{err: err}
			if send(update) != nil || update.isFinal() {
				return
			}
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
		}
	}()
	return updates
}
