package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heraldnode/herald/node/report"
)

// tenant renews the lease. One goroutine owns it.
type tenant struct {
	*Node
	held *coordinationv1.Lease // as the API server last had it; nil: to be read
}

// run waits for the Node, which is to own the lease.
func (t *tenant) run(ctx context.Context) {
	if t.WaitForRegistration(ctx) != nil {
		return
	}
	pause := t.backoff()
	for ctx.Err() == nil {
		err := t.renew(ctx)
		next := t.interval() + rand.N(t.interval()/25) // so that nodes do not stay in step
		if err != nil {
			next = pause.Step()
			t.failed(ctx, err, next)
		} else {
			pause = t.backoff()
		}
		sleep(ctx, next)
	}
}

func (t *tenant) interval() time.Duration { return t.config.LeaseDuration / 4 }

func (t *tenant) backoff() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: t.interval()}
}

func (t *tenant) failed(ctx context.Context, err error, next time.Duration) {
	if ctx.Err() != nil {
		return
	}
	t.metrics.renewals.WithLabelValues("failed").Inc()
	t.config.Logger.Warn("The node's lease is not renewed", "node", t.config.NodeName, "again", next, "err", err)
	if unanswered(err) {
		t.config.Reconnect()
	}
}

// unanswered reports whether the server has said nothing at all, so that the connection may be to blame.
func unanswered(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) && !errors.Is(err, errDeleted) && !errors.Is(err, errNotRegistered)
}

// renew leaves the lease renewed, or says why it is not; after an error nothing is taken for known any more. A lease
// without a Node would be collected as garbage, so that there is none while that is deleted.
func (t *tenant) renew(ctx context.Context) error {
	node := t.Object()
	if node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.interval())
	defer cancel()
	if t.held == nil {
		found, err := t.config.API.GetLease(ctx, t.config.NodeName)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			t.held = found
		}
	}
	wanted := report.Lease(t.held, node, t.config.LeaseDuration, time.Now())
	write := t.config.API.UpdateLease
	if t.held == nil {
		write = t.config.API.CreateLease
	}
	var err error
	if t.held, err = write(ctx, wanted); err != nil {
		t.held = nil
		return err
	}
	t.metrics.renewals.WithLabelValues("renewed").Inc()
	return nil
}

// sleep ends early with ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
