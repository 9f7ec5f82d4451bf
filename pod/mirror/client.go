package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/podid"
)

// API is the part of the Kubernetes API that a Reconciler needs. Errors satisfy apierrors.IsNotFound and the like, wrapped
// or not. Methods must not retry on their own.
type API interface {
	// GetPod reads the pod from the API server, not from a cache.
	GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	// CreatePod creates the pod without modifying its argument, and returns the stored object with its UID.
	CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error)
	// DeletePod deletes the pod without grace period if it has this UID, and fails with a conflict if it has another.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
	// GetNode reads the Node object.
	GetNode(ctx context.Context, name string) (*v1.Node, error)
}

// requestTimeout bounds each request, for example on a black-holed connection (F3).
const requestTimeout = 10 * time.Second

// client adds a deadline and a counter to each request.
type client struct {
	api      API
	requests *prometheus.CounterVec
}

func newClient(api API) client {
	return client{api: api, requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "herald_mirror_operations_total",
		Help: "Number of API requests for mirror pods, by operation and result.",
	}, []string{"operation", "result"})}
}

func (c client) getPod(ctx context.Context, name podid.FullName) (*v1.Pod, error) {
	return send(ctx, c, "get", func(ctx context.Context) (*v1.Pod, error) { return c.api.GetPod(ctx, name.Namespace, name.Name) })
}

func (c client) createPod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	return send(ctx, c, "create", func(ctx context.Context) (*v1.Pod, error) { return c.api.CreatePod(ctx, pod) })
}

func (c client) deletePod(ctx context.Context, name podid.FullName, uid types.UID) error {
	_, err := send(ctx, c, "delete", func(ctx context.Context) (*v1.Pod, error) {
		return nil, c.api.DeletePod(ctx, name.Namespace, name.Name, uid)
	})
	return err
}

func (c client) getNode(ctx context.Context, name string) (*v1.Node, error) {
	return send(ctx, c, "get_node", func(ctx context.Context) (*v1.Node, error) { return c.api.GetNode(ctx, name) })
}

func send[T any](ctx context.Context, c client, operation string, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := request(ctx)
	c.requests.WithLabelValues(operation, resultLabel(err)).Inc()
	return response, err
}

func resultLabel(err error) string {
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
	case apierror.IsInvalidRequest(err):
		return "rejected"
	default:
		return "error"
	}
}

const (
	nodeCacheTTL     = 10 * time.Second
	nodeRetryInitial = 100 * time.Millisecond // the kubelet's interval (PM-24)
	nodeRetryMax     = 5 * time.Second
)

// nodeOwner provides the owner reference to this node that every mirror pod carries (PM-18). No mirror pod is created
// unless the Node object is readable and not being deleted (PM-23). All names share one cached read and one backoff: during
// an outage the API server receives one request every few seconds, however many static pods there are, and as soon as it
// responds, all of them get their mirror pods (PM-24).
type nodeOwner struct {
	nodeName string
	get      func(context.Context, string) (*v1.Node, error)
	logger   *slog.Logger
	isStale  atomic.Bool // set when the API server rejected a mirror pod: the node may have registered again

	// sem has capacity 1 and is held during a read, so that concurrent callers share its result. It guards the fields below.
	sem        chan struct{}
	reference  metav1.OwnerReference
	freshUntil time.Time
	err        error
	failures   int
	retryAt    time.Time
}

func newNodeOwner(nodeName string, client client, logger *slog.Logger) *nodeOwner {
	return &nodeOwner{nodeName: nodeName, get: client.getNode, logger: logger, sem: make(chan struct{}, 1)}
}

// nodeNotReadyError reports that the node cannot own mirror pods at the moment.
type nodeNotReadyError struct {
	cause      error
	retryAfter time.Duration
}

// Error returns the cause's message.
func (e *nodeNotReadyError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *nodeNotReadyError) Unwrap() error { return e.cause }

// ownerReference returns the reference, a *nodeNotReadyError, or the context's error.
func (o *nodeOwner) ownerReference(ctx context.Context) (metav1.OwnerReference, error) {
	select {
	case o.sem <- struct{}{}:
		defer func() { <-o.sem }()
	case <-ctx.Done():
		return metav1.OwnerReference{}, ctx.Err()
	}
	now := time.Now()
	if o.isStale.Swap(false) {
		o.freshUntil = time.Time{}
	}
	if now.Before(o.freshUntil) {
		return o.reference, nil
	}
	if now.Before(o.retryAt) {
		return metav1.OwnerReference{}, &nodeNotReadyError{cause: o.err, retryAfter: o.retryAt.Sub(now)}
	}
	switch err := o.refreshLocked(ctx); {
	case ctx.Err() != nil:
		return metav1.OwnerReference{}, ctx.Err()
	case err != nil:
		return metav1.OwnerReference{}, o.backOffLocked(err)
	default:
		return o.reference, nil
	}
}

func (o *nodeOwner) refreshLocked(ctx context.Context) error {
	node, err := o.get(ctx, o.nodeName)
	switch {
	case err != nil:
		return err
	case node.UID == "":
		return fmt.Errorf("node %s: %w", o.nodeName, errNoNodeUID)
	case node.DeletionTimestamp != nil:
		return fmt.Errorf("node %s: %w", o.nodeName, errNodeDeleted)
	}
	if o.failures > 0 {
		o.logger.Info("Node can own mirror pods again", "node", o.nodeName)
	}
	o.reference = newOwnerReference(node)
	o.freshUntil, o.failures, o.retryAt = time.Now().Add(nodeCacheTTL), 0, time.Time{}
	return nil
}

var (
	errNoNodeUID   = errors.New("has no UID")
	errNodeDeleted = errors.New("is being deleted")
)

func (o *nodeOwner) backOffLocked(err error) error {
	if o.failures == 0 {
		o.logger.Warn("Cannot create mirror pods: node is not ready to own them", "node", o.nodeName, "err", err)
	}
	delay := min(nodeRetryInitial<<min(o.failures, 10), nodeRetryMax)
	delay = max(addJitter(delay, o.nodeName, o.failures), apierror.RetryAfter(err))
	o.err, o.failures, o.retryAt = err, o.failures+1, time.Now().Add(delay)
	return &nodeNotReadyError{cause: err, retryAfter: delay}
}

// newOwnerReference leaves blockOwnerDeletion unset: NodeRestriction rejects it.
func newOwnerReference(node *v1.Node) metav1.OwnerReference {
	isController := true
	return metav1.OwnerReference{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &isController,
	}
}
