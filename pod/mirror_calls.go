package pod

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// callTimeout ends a request that a black-holed connection swallowed (F3).
const callTimeout = 10 * time.Second

// calls is the API server with a deadline and a count for each request.
type calls struct {
	api   MirrorAPI
	total *prometheus.CounterVec
}

func newCallsTotal() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "herald_mirror_operations_total",
		Help: "Number of requests to the API server for the sake of mirror pods, by operation and result.",
	}, []string{"operation", "result"})
}

func (c calls) getPod(ctx context.Context, name podid.FullName) (*v1.Pod, error) {
	return call(ctx, c, "get", func(ctx context.Context) (*v1.Pod, error) { return c.api.GetPod(ctx, name.Namespace, name.Name) })
}

func (c calls) createPod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	return call(ctx, c, "create", func(ctx context.Context) (*v1.Pod, error) { return c.api.CreatePod(ctx, pod) })
}

func (c calls) deletePod(ctx context.Context, name podid.FullName, uid types.UID) error {
	_, err := call(ctx, c, "delete", func(ctx context.Context) (*v1.Pod, error) {
		return nil, c.api.DeletePod(ctx, name.Namespace, name.Name, uid)
	})
	return err
}

func (c calls) getNode(ctx context.Context, name string) (*v1.Node, error) {
	return call(ctx, c, "get_node", func(ctx context.Context) (*v1.Node, error) { return c.api.GetNode(ctx, name) })
}

func call[T any](ctx context.Context, c calls, operation string, send func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := send(ctx)
	c.total.WithLabelValues(operation, resultOf(err)).Inc()
	return answer, err
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsNotFound(err):
		return "not_found"
	case apierrors.IsAlreadyExists(err):
		return "already_exists"
	case apierrors.IsConflict(err):
		return "conflict"
	case apierrors.IsTooManyRequests(err):
		return "throttled"
	case isRefusal(err):
		return "refused"
	default:
		return "error"
	}
}

// isRefusal reports whether the server understood the request and will not do it, however often it is asked.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}
