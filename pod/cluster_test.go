package pod_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

var pods = v1.Resource("pods")

// cluster is a small API server. It keeps pods and one node, admits pods as NodeRestriction does, counts requests,
// fails on demand, and reports every change of this node's pods to hear, in order.
type cluster struct {
	mu       sync.Mutex // guards all below
	node     *v1.Node   // nil: not registered
	pods     map[podid.FullName]*v1.Pod
	born     int // pods created so far: makes UIDs
	requests []string
	refuse   func(operation string) error // answered instead of doing it
	lose     func(operation string) bool  // done, but the answer is lost
	misdeeds []string                     // requests that Herald must never send
	hear     func(before, after *v1.Pod)
}

func newCluster() *cluster {
	return &cluster{
		node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}},
		pods: map[podid.FullName]*v1.Pod{},
		hear: func(_, _ *v1.Pod) {},
	}
}

var errLost = errors.New("connection reset by peer")

// serve counts one request and lets it through, or not.
func (c *cluster) serve(ctx context.Context, operation string, do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, operation)
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.refuse != nil {
		if err := c.refuse(operation); err != nil {
			return err
		}
	}
	err := do()
	if c.lose != nil && c.lose(operation) {
		return errLost
	}
	return err
}

func (c *cluster) GetNode(ctx context.Context, name string) (node *v1.Node, err error) {
	err = c.serve(ctx, "get_node", func() error {
		if c.node == nil || c.node.Name != name {
			return apierrors.NewNotFound(v1.Resource("nodes"), name)
		}
		node = c.node.DeepCopy()
		return nil
	})
	return node, err
}

func (c *cluster) GetPod(ctx context.Context, namespace, name string) (pod *v1.Pod, err error) {
	err = c.serve(ctx, "get", func() error {
		held, found := c.pods[podid.FullName{Namespace: namespace, Name: name}]
		if !found {
			return apierrors.NewNotFound(pods, name)
		}
		if held.Spec.NodeName != nodeName {
			return apierrors.NewForbidden(pods, name, errors.New("no relationship found between node and this object"))
		}
		pod = held.DeepCopy()
		return nil
	})
	return pod, err
}

func (c *cluster) CreatePod(ctx context.Context, pod *v1.Pod) (created *v1.Pod, err error) {
	err = c.serve(ctx, "create", func() error {
		if err := c.admitLocked(pod); err != nil {
			return err
		}
		created, err = c.createLocked(pod)
		return err
	})
	return created, err
}

// admitLocked is the NodeRestriction admission's view of a pod that a node creates.
func (c *cluster) admitLocked(pod *v1.Pod) error {
	owners := pod.OwnerReferences
	switch {
	case !podid.IsMirror(pod), pod.Spec.NodeName != nodeName, len(owners) != 1:
		return apierrors.NewForbidden(pods, pod.Name, errors.New("not a mirror pod of this node"))
	case c.node == nil, owners[0].UID != c.node.UID, owners[0].Kind != "Node", owners[0].Name != nodeName:
		return apierrors.NewForbidden(pods, pod.Name, errors.New("not owned by this node"))
	case owners[0].Controller == nil, !*owners[0].Controller, owners[0].BlockOwnerDeletion != nil:
		return apierrors.NewForbidden(pods, pod.Name, errors.New("owner reference is wrong"))
	case pod.UID != "", pod.ResourceVersion != "":
		c.misdeeds = append(c.misdeeds, "created a pod with a UID or version of its own")
	}
	return nil
}

func (c *cluster) createLocked(pod *v1.Pod) (*v1.Pod, error) {
	name := podid.FullNameOf(pod)
	if _, taken := c.pods[name]; taken {
		return nil, apierrors.NewAlreadyExists(pods, pod.Name)
	}
	c.born++
	made := pod.DeepCopy()
	made.UID = types.UID(fmt.Sprint("server-", c.born))
	c.pods[name] = made
	c.hear(nil, made)
	return made.DeepCopy(), nil
}

func (c *cluster) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	return c.serve(ctx, "delete", func() error {
		held, found := c.pods[podid.FullName{Namespace: namespace, Name: name}]
		switch {
		case !found:
			return apierrors.NewNotFound(pods, name)
		case uid == "":
			c.misdeeds = append(c.misdeeds, "deleted without a UID")
		case held.UID != uid:
			return apierrors.NewConflict(pods, name, errors.New("the UID in the precondition does not match"))
		case !podid.IsMirror(held) || held.DeletionTimestamp == nil && len(held.OwnerReferences) == 0:
			c.misdeeds = append(c.misdeeds, fmt.Sprintf("deleted %s/%s %s, which is not its own", namespace, name, uid))
		}
		c.deleteLocked(held, 0)
		return nil
	})
}

// deleteLocked removes the pod, or marks it when a grace period or a finalizer keeps it.
func (c *cluster) deleteLocked(held *v1.Pod, grace int64) {
	name := podid.FullNameOf(held)
	if grace == 0 && len(held.Finalizers) == 0 {
		delete(c.pods, name)
		c.hear(held, nil)
		return
	}
	marked := held.DeepCopy()
	marked.DeletionTimestamp, marked.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, &grace
	c.pods[name] = marked
	c.hear(held, marked)
}

// kubectlDelete is what somebody else does. A pod that is bound to a node outlives a graceful delete.
func (c *cluster) kubectlDelete(name podid.FullName, grace int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, found := c.pods[name]; found {
		c.deleteLocked(held, grace)
	}
}

// kubectlCreate is what somebody else does. It returns the new pod's UID, or "" when the name is taken.
func (c *cluster) kubectlCreate(pod *v1.Pod) types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, err := c.createLocked(pod)
	if err != nil {
		return ""
	}
	return made.UID
}

// kubectlEdit is what somebody else does.
func (c *cluster) kubectlEdit(name podid.FullName, edit func(*v1.Pod)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.pods[name]
	edited := held.DeepCopy()
	edit(edited)
	c.pods[name] = edited
	c.hear(held, edited)
}

func (c *cluster) pod(name podid.FullName) *v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[name]
}

// sent counts the requests since the last call, by operation.
func (c *cluster) sent() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := times(c.requests)
	c.requests = nil
	return count
}

func (c *cluster) set(change func(*cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}
