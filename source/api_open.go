package source

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// open opens a watch. One that is to begin with a list is tried again here when the server does not answer or has too much
// to do: the reflector would do the same, but then sleeps for up to a minute whatever becomes of ctx.
func (c *apiConnection) open(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streaming := options.SendInitialEvents != nil
	if streaming && !c.paced(ctx) {
		return nil, errEnding()
	}
	for pause := retries(); ; {
		stream, err := c.ask(ctx, options)
		if !streaming || !apierrors.IsInvalid(err) {
			c.desk.requested("watch", err) // a server that cannot stream a list is asked for an ordinary one
		}
		if !streaming || (!utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err)) {
			return stream, err
		}
		select {
		case <-ctx.Done():
			return nil, errEnding()
		case <-time.After(max(pause.Step(), patienceOf(err))):
		}
	}
}

// errEnding is the one answer after which the reflector looks whether it is to end, before it asks for a list.
func errEnding() error { return apierrors.NewResourceExpired("the agent ends") }

// paced waits before a list is streamed again of which nothing came, and reports whether ctx goes on: the reflector by
// itself asks again at once, for ever, when lists are cut short or no version is right.
func (c *apiConnection) paced(ctx context.Context) bool {
	if c.again == (wait.Backoff{}) {
		c.again = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 5 * time.Second}
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(c.again.Step()):
		return true
	}
}

// ask opens a watch, unless the server takes longer to begin it than it may be silent in it.
func (c *apiConnection) ask(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	impatience := time.AfterFunc(c.idle, cancel)
	stream, err := c.server.WatchWithContext(ctx, options)
	inTime := impatience.Stop()
	switch {
	case err == nil && inTime:
		return &openWatch{stream, cancel}, nil
	case err == nil:
		stream.Stop()
	}
	cancel()
	if !inTime {
		err = errSilent
	}
	return nil, err
}

// openWatch ends its request when it is stopped.
type openWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop implements watch.Interface.
func (w *openWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
}
