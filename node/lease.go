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

// leaseRenewer renews the node's lease. It is owned by one goroutine.
type leaseRenewer struct {
	*Node
	lease *coordinationv1.Lease // the API server's latest known version; nil if it must be read
	// renewedAt is when the lease was renewed last, or the first attempt. isExpired is set while others see an expired lease.
	renewedAt time.Time
	isExpired bool
}

// run waits for the Node object, which owns the lease.
func (l *leaseRenewer) run(ctx context.Context) {
	if l.WaitForRegistration(ctx) != nil {
		return
	}
	backoff := l.newBackoff()
	l.renewedAt = time.Now()
	for ctx.Err() == nil {
		err := l.renew(ctx)
		pause := l.interval() + rand.N(l.interval()/25) // keeps nodes from renewing in step
		if err != nil {
			pause = backoff.Step()
			l.handleError(ctx, err, pause)
		} else {
			backoff = l.newBackoff()
		}
		l.reportExpiry(ctx, err)
		l.setRenewed(l.lease, err, pause)
		sleep(ctx, pause)
	}
}

// reportExpiry tells OnLease when the lease expires and when it is renewed again. While the Node object is deleted nobody
// expects a lease.
func (l *leaseRenewer) reportExpiry(ctx context.Context, err error) {
	switch {
	case err == nil:
		l.renewedAt = time.Now()
		if l.isExpired {
			l.isExpired = false
			l.config.OnLease(nil)
		}
	case !l.isExpired && ctx.Err() == nil && time.Since(l.renewedAt) >= l.config.LeaseDuration:
		l.isExpired = true
		l.config.OnLease(err)
	}
}

func (l *leaseRenewer) interval() time.Duration { return l.config.LeaseDuration / 4 }

func (l *leaseRenewer) newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: l.interval()}
}

// renew creates or renews the lease. After an error the lease is read again. While the Node object is deleted there is no
// lease: without an owner it would be garbage collected.
func (l *leaseRenewer) renew(ctx context.Context) error {
	node := l.Object()
	if node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.interval())
	defer cancel()
	if l.lease == nil {
		lease, err := l.config.API.GetLease(ctx, l.config.NodeName)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			l.lease = lease
		}
	}
	renewed := report.RenewedLease(l.lease, node, l.config.LeaseDuration, time.Now())
	write := l.config.API.UpdateLease
	if l.lease == nil {
		write = l.config.API.CreateLease
	}
	var err error
	if l.lease, err = write(ctx, renewed); err != nil {
		l.lease = nil
		return err
	}
	l.metrics.renewals.WithLabelValues(resultRenewed).Inc()
	return nil
}

func (l *leaseRenewer) handleError(ctx context.Context, err error, pause time.Duration) {
	if ctx.Err() != nil {
		return
	}
	l.metrics.renewals.WithLabelValues(resultFailed).Inc()
	l.config.Logger.Warn("Failed to renew node lease", "node", l.config.NodeName, "retryAfter", pause, "err", err)
	if isUnanswered(err) {
		l.config.Reconnect()
	}
}

// isUnanswered reports whether the server has not responded at all, so that the connection may be broken.
func isUnanswered(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) && !errors.Is(err, errDeleted) && !errors.Is(err, errNotRegistered)
}

// sleep returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
