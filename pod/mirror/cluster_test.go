package mirror_test

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

var podResource = v1.Resource("pods")

// fakeCluster is a small API server. It stores pods and one node, admits pods like NodeRestriction, records requests, fails
// on demand, and passes every change of a pod to onChange, in order.
type fakeCluster struct {
	mu           sync.Mutex // guards all below
	node         *v1.Node   // nil if not registered
	pods         map[podid.FullName]*v1.Pod
	createdPods  int // source of UIDs
	requests     []string
	fail         func(operation string) error // returned instead of executing the request
	loseResponse func(operation string) bool  // the request is executed, but the caller gets errConnectionReset
	violations   []string                     // requests that must never be sent
	onChange     func(before, after *v1.Pod)
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		node:     &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}},
		pods:     map[podid.FullName]*v1.Pod{},
		onChange: func(_, _ *v1.Pod) {},
	}
}

var errConnectionReset = errors.New("connection reset by peer")

// handle records a request and executes it, unless fail returns an error.
func (c *fakeCluster) handle(ctx context.Context, operation string, execute func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, operation)
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.fail != nil {
		if err := c.fail(operation); err != nil {
			return err
		}
	}
	err := execute()
	if c.loseResponse != nil && c.loseResponse(operation) {
		return errConnectionReset
	}
	return err
}

func (c *fakeCluster) GetNode(ctx context.Context, name string) (node *v1.Node, err error) {
	err = c.handle(ctx, "get_node", func() error {
		if c.node == nil || c.node.Name != name {
			return apierrors.NewNotFound(v1.Resource("nodes"), name)
		}
		node = c.node.DeepCopy()
		return nil
	})
	return node, err
}

func (c *fakeCluster) GetPod(ctx context.Context, namespace, name string) (pod *v1.Pod, err error) {
	err = c.handle(ctx, "get", func() error {
		stored, found := c.pods[podid.FullName{Namespace: namespace, Name: name}]
		if !found {
			return apierrors.NewNotFound(podResource, name)
		}
		if stored.Spec.NodeName != nodeName {
			return apierrors.NewForbidden(podResource, name, errors.New("no relationship found between node and this object"))
		}
		pod = stored.DeepCopy()
		return nil
	})
	return pod, err
}

func (c *fakeCluster) CreatePod(ctx context.Context, pod *v1.Pod) (created *v1.Pod, err error) {
	err = c.handle(ctx, "create", func() error {
		if err := c.admitLocked(pod); err != nil {
			return err
		}
		created, err = c.createLocked(pod)
		return err
	})
	return created, err
}

// admitLocked applies the rules of the NodeRestriction admission plugin.
func (c *fakeCluster) admitLocked(pod *v1.Pod) error {
	owners := pod.OwnerReferences
	switch {
	case !podid.IsMirror(pod), pod.Spec.NodeName != nodeName, len(owners) != 1:
		return apierrors.NewForbidden(podResource, pod.Name, errors.New("not a mirror pod of this node"))
	case c.node == nil, owners[0].UID != c.node.UID, owners[0].Kind != "Node", owners[0].Name != nodeName:
		return apierrors.NewForbidden(podResource, pod.Name, errors.New("not owned by this node"))
	case owners[0].Controller == nil, !*owners[0].Controller, owners[0].BlockOwnerDeletion != nil:
		return apierrors.NewForbidden(podResource, pod.Name, errors.New("invalid owner reference"))
	case pod.UID != "", pod.ResourceVersion != "":
		c.violations = append(c.violations, "created a pod with a UID or resource version")
	}
	return nil
}

func (c *fakeCluster) createLocked(pod *v1.Pod) (*v1.Pod, error) {
	name := podid.FullNameOf(pod)
	if _, found := c.pods[name]; found {
		return nil, apierrors.NewAlreadyExists(podResource, pod.Name)
	}
	c.createdPods++
	created := pod.DeepCopy()
	created.UID = types.UID(fmt.Sprint("server-", c.createdPods))
	c.pods[name] = created
	c.onChange(nil, created)
	return created.DeepCopy(), nil
}

func (c *fakeCluster) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	return c.handle(ctx, "delete", func() error {
		stored, found := c.pods[podid.FullName{Namespace: namespace, Name: name}]
		switch {
		case !found:
			return apierrors.NewNotFound(podResource, name)
		case uid == "":
			c.violations = append(c.violations, "deleted without a UID")
		case stored.UID != uid:
			return apierrors.NewConflict(podResource, name, errors.New("the UID in the precondition does not match"))
		case !podid.IsMirror(stored) || stored.DeletionTimestamp == nil && len(stored.OwnerReferences) == 0:
			c.violations = append(c.violations, fmt.Sprintf("deleted foreign pod %s/%s %s", namespace, name, uid))
		}
		c.deleteLocked(stored, 0)
		return nil
	})
}

// deleteLocked removes the pod, or only marks it deleted if it has a grace period or a finalizer.
func (c *fakeCluster) deleteLocked(stored *v1.Pod, grace int64) {
	name := podid.FullNameOf(stored)
	if grace == 0 && len(stored.Finalizers) == 0 {
		delete(c.pods, name)
		c.onChange(stored, nil)
		return
	}
	marked := stored.DeepCopy()
	marked.DeletionTimestamp, marked.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, &grace
	c.pods[name] = marked
	c.onChange(stored, marked)
}

// userDeletes deletes the pod on behalf of a user. A pod that is bound to a node outlives a graceful delete.
func (c *fakeCluster) userDeletes(name podid.FullName, grace int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stored, found := c.pods[name]; found {
		c.deleteLocked(stored, grace)
	}
}

// userCreates creates the pod on behalf of a user. It returns the new pod's UID, or "" if the name is taken.
func (c *fakeCluster) userCreates(pod *v1.Pod) types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	created, err := c.createLocked(pod)
	if err != nil {
		return ""
	}
	return created.UID
}

// userEdits changes the pod on behalf of a user.
func (c *fakeCluster) userEdits(name podid.FullName, edit func(*v1.Pod)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := c.pods[name]
	edited := stored.DeepCopy()
	edit(edited)
	c.pods[name] = edited
	c.onChange(stored, edited)
}

func (c *fakeCluster) pod(name podid.FullName) *v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[name]
}

// takeRequests returns the number of requests since the last call, by operation.
func (c *fakeCluster) takeRequests() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := map[string]int{}
	for _, operation := range c.requests {
		counts[operation]++
	}
	c.requests = nil
	return counts
}

// update changes the cluster under its lock.
func (c *fakeCluster) update(change func(*fakeCluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}
