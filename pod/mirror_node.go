package pod

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	nodeIsFreshFor  = 10 * time.Second
	nodeRetryAtOnce = 100 * time.Millisecond // as often as the kubelet asks (PM-24), at first
	nodeRetryAtMost = 5 * time.Second
)

// owner makes the owner reference to this node that every mirror carries (PM-18). No mirror is made before the Node
// object can be read, nor while it is being deleted (PM-23), so all names share one question and one back-off: during
// an outage the server hears of one request every few seconds, however many static pods there are, and as soon as it
// answers, all of them get their mirrors (PM-24).
type owner struct {
	nodeName string
	get      func(context.Context, string) (*v1.Node, error)
	log      *slog.Logger
	stale    atomic.Bool // set when the server refused a mirror: the node may have been registered anew

	// turn has room for one token. Whoever put it in asks, and owns the fields below; the others wait for the answer.
	turn       chan struct{}
	reference  metav1.OwnerReference
	freshUntil time.Time
	failure    error
	failures   int
	retryAt    time.Time
}

// nodeUnreadyError says that the node cannot own mirrors now, and when to ask again.
type nodeUnreadyError struct {
	cause error
	after time.Duration
}

func (e *nodeUnreadyError) Error() string { return e.cause.Error() }
func (e *nodeUnreadyError) Unwrap() error { return e.cause }

// ask returns the reference, or a *nodeUnreadyError, or the context's error.
func (o *owner) ask(ctx context.Context) (metav1.OwnerReference, error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return metav1.OwnerReference{}, ctx.Err()
	}
	now := time.Now()
	if o.stale.Swap(false) {
		o.freshUntil = time.Time{}
	}
	if now.Before(o.freshUntil) {
		return o.reference, nil
	}
	if now.Before(o.retryAt) {
		return metav1.OwnerReference{}, &nodeUnreadyError{cause: o.failure, after: o.retryAt.Sub(now)}
	}
	switch err := o.read(ctx); {
	case ctx.Err() != nil:
		return metav1.OwnerReference{}, ctx.Err()
	case err != nil:
		return metav1.OwnerReference{}, o.failed(err)
	default:
		return o.reference, nil
	}
}

func (o *owner) read(ctx context.Context) error {
	node, err := o.get(ctx, o.nodeName)
	switch {
	case err != nil:
		return err
	case node.UID == "":
		return errors.New("node " + o.nodeName + " has no UID")
	case node.DeletionTimestamp != nil:
		return errors.New("node " + o.nodeName + " is being deleted")
	}
	if o.failures > 0 {
		o.log.Info("Node can own mirror pods again", "node", o.nodeName)
	}
	o.reference = nodeReference(node)
	o.freshUntil, o.failures, o.retryAt = time.Now().Add(nodeIsFreshFor), 0, time.Time{}
	return nil
}

func (o *owner) failed(err error) error {
	if o.failures == 0 {
		o.log.Warn("No mirror pods: the node cannot own them", "node", o.nodeName, "err", err)
	}
	delay := min(nodeRetryAtOnce<<min(o.failures, 10), nodeRetryAtMost)
	delay = max(jitter(delay, o.nodeName, o.failures), suggestedDelay(err))
	o.failure, o.failures, o.retryAt = err, o.failures+1, time.Now().Add(delay)
	return &nodeUnreadyError{cause: err, after: delay}
}

// nodeReference does not block the Node's deletion: a node's agent may not ask for that.
func nodeReference(node *v1.Node) metav1.OwnerReference {
	isController := true
	return metav1.OwnerReference{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &isController,
	}
}
