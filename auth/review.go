package auth

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/heraldnode/herald/internal/apierror"
)

const (
	// maxTries, firstDelay and the factor of 1.5 between delays are the kubelet's.
	maxTries   = 5
	firstDelay = 500 * time.Millisecond
	// tryTimeout bounds one request to the API server.
	tryTimeout = 10 * time.Second
	// maxRequests bounds the concurrent requests of each kind, so that strangers with many invalid tokens do not make this node flood
	// the API server.
	maxRequests = 16
)

// reviewer sends reviews of one kind to the API server.
type reviewer struct {
	slots   chan struct{}
	metrics requestMetrics
	failure rate.Sometimes // limits log messages
	logger  *slog.Logger
}

func newReviewer(logger *slog.Logger, metrics requestMetrics) *reviewer {
	return &reviewer{
		slots: make(chan struct{}, maxRequests), metrics: metrics, logger: logger, failure: rate.Sometimes{First: 1, Interval: time.Minute},
	}
}

// review sends a request, up to five times if the API server is busy, fails or does not answer. Retry-After is obeyed if it leaves
// time for another try. An API server that refuses connections or the request is not asked again. SRV-12
func review[T any](ctx context.Context, r *reviewer, send func(context.Context) (T, error)) (T, error) {
	delay := firstDelay
	for try := 1; ; try++ {
		answer, err := sendOnce(ctx, r, send)
		if err == nil {
			return answer, nil
		}
		pause := max(delay+rand.N(delay/5), apierror.RetryAfter(err)) //nolint:gosec // spreads load, not security-relevant
		deadline, hasDeadline := ctx.Deadline()
		isLate := hasDeadline && time.Until(deadline) <= pause
		if try == maxTries || isLate || !isTemporary(err) || ctx.Err() != nil {
			if !errors.Is(ctx.Err(), context.Canceled) {
				r.failure.Do(func() { r.logger.Warn("Failed to ask the API server about a request to the node's server", "err", err) })
			}
			return answer, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return answer, err
		}
		delay = delay * 3 / 2
	}
}

func sendOnce[T any](ctx context.Context, r *reviewer, send func(context.Context) (T, error)) (answer T, err error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	start := time.Now()
	answer, err = send(ctx)
	r.metrics.observe(codeOf(err), time.Since(start))
	return answer, err
}

func isTemporary(err error) bool {
	class := apierror.Classify(err)
	return class == apierror.Throttled || class == apierror.Ambiguous || apierror.RetryAfter(err) > 0
}

// codeOf returns the status code of the response as the kubelet's metrics name it.
func codeOf(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return strconv.Itoa(http.StatusCreated)
	case errors.As(err, &status):
		return strconv.Itoa(int(status.Status().Code))
	default:
		return "<error>"
	}
}
