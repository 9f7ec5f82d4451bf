package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/status"
)

// foreignWritesAnnotation is raised by another writer with each write, so that the recorder can tell its writes apart.
const foreignWritesAnnotation = "example.com/foreign-writes"

// recorder watches every version of every pod, past all faults, and records each change that violates an invariant
// (I1..I7).
type recorder struct {
	mu         sync.Mutex // guards all below
	last       map[types.UID]*v1.Pod
	violations []string
	// extraCheck returns further violations of a change that no other writer made.
	extraCheck func(before, after *v1.Pod) []string
}

// record watches the server until the test ends.
func record(t *testing.T, server *heraldtest.APIServer) *recorder {
	t.Helper()
	r := &recorder{last: map[types.UID]*v1.Pod{}, extraCheck: func(_, _ *v1.Pod) []string { return nil }}
	client, err := kubeapi.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	pods, isListWatch := client.PodsOnNode(nodeName).(*cache.ListWatch)
	if !isListWatch {
		t.Fatal("PodsOnNode: got no ListWatch")
	}
	go r.run(t.Context(), pods)
	return r
}

func (r *recorder) run(ctx context.Context, pods *cache.ListWatch) {
	resourceVersion := "1" // before all others
	for ctx.Err() == nil {
		if err := r.watch(ctx, pods, &resourceVersion); err == nil {
			continue
		}
		if list, err := pods.ListWithContext(ctx, metav1.ListOptions{}); err == nil { // compacted while disconnected
			resourceVersion = r.replace(list.(*v1.PodList))
		}
		sleep(ctx)
	}
}

// sleep waits for a second. After the end of a test no time passes any more.
func sleep(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

var errWatch = errors.New("watch reported an error")

// watch returns nil if the watch was cut and can continue at resourceVersion.
func (r *recorder) watch(ctx context.Context, pods *cache.ListWatch, resourceVersion *string) error {
	events, err := pods.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: *resourceVersion})
	if err != nil {
		sleep(ctx)
		return nil
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		pod, isPod := event.Object.(*v1.Pod)
		if !isPod {
			return errWatch
		}
		*resourceVersion = pod.ResourceVersion
		r.observe(event.Type, pod)
	}
	return nil
}

func (r *recorder) replace(list *v1.PodList) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
	for i := range list.Items {
		r.last[list.Items[i].UID] = &list.Items[i]
	}
	return list.ResourceVersion
}

func (r *recorder) observe(event watch.EventType, pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last[pod.UID]
	if event == watch.Deleted {
		delete(r.last, pod.UID)
		return
	}
	r.last[pod.UID] = pod
	if before == nil || before.Annotations[foreignWritesAnnotation] != pod.Annotations[foreignWritesAnnotation] {
		return
	}
	for _, violation := range append(podViolations(before, pod), r.extraCheck(before, pod)...) {
		r.violations = append(r.violations, fmt.Sprintf("pod %s %s at version %s: %s", pod.Name, pod.UID, pod.ResourceVersion, violation))
	}
}

// recorded returns the violations so far.
func (r *recorder) recorded() []string {
	time.Sleep(2 * time.Second) // the watch may have been cut
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// check fails the test for each violation.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	for _, violation := range r.recorded() {
		t.Error(violation)
	}
}

// podViolations returns the invariants that a change from one version of a pod to the next violates.
func podViolations(before, after *v1.Pod) (violations []string) {
	report := func(rule string, was, is any) {
		violations = append(violations, fmt.Sprintf("%s: %v became %v", rule, was, is))
	}
	was, is := &before.Status, &after.Status
	if derive.IsTerminal(was.Phase) && is.Phase != was.Phase {
		report("I1 phase", was.Phase, is.Phase)
	}
	for i := range was.ContainerStatuses {
		if i < len(is.ContainerStatuses) {
			checkContainer(before, &was.ContainerStatuses[i], &is.ContainerStatuses[i], report)
		}
	}
	if was.StartTime != nil && !was.StartTime.Equal(is.StartTime) {
		report("I4 start time", was.StartTime, is.StartTime)
	}
	if is.ObservedGeneration < was.ObservedGeneration {
		report("I5 observed generation", was.ObservedGeneration, is.ObservedGeneration)
	}
	for _, condition := range was.Conditions {
		checkCondition(condition, conditionOf(*is, condition.Type), report)
	}
	if fmt.Sprint(before.Labels, before.Annotations) != fmt.Sprint(after.Labels, after.Annotations) {
		report("I7 metadata", before.Labels, after.Labels)
	}
	if was.NominatedNodeName != is.NominatedNodeName || len(was.ResourceClaimStatuses) != len(is.ResourceClaimStatuses) {
		report("I7 foreign fields", was.NominatedNodeName, is.NominatedNodeName)
	}
	return violations
}

func checkContainer(pod *v1.Pod, was, is *v1.ContainerStatus, report func(string, any, any)) {
	if is.RestartCount < was.RestartCount {
		report("I3 restart count", was.RestartCount, is.RestartCount)
	}
	terminated := was.State.Terminated
	if terminated == nil || pod.Spec.RestartPolicy == v1.RestartPolicyAlways {
		return
	}
	if now := is.State.Terminated; now == nil || now.ExitCode != terminated.ExitCode || !now.FinishedAt.Equal(&terminated.FinishedAt) {
		report("I2 terminated container", terminated, now)
	}
}

func checkCondition(was, is v1.PodCondition, report func(string, any, any)) {
	isResize := was.Type == v1.PodResizePending || was.Type == v1.PodResizeInProgress
	switch {
	case !derive.IsOwnedCondition(was.Type) && was != is && was.Type != v1.DisruptionTarget:
		report("I7 foreign condition", was, is)
	case isResize || is.Type == "":
	case was.Status == is.Status && !was.LastTransitionTime.Equal(&is.LastTransitionTime):
		report("I6 transition time without transition", was, is)
	case is.LastTransitionTime.Before(&was.LastTransitionTime):
		report("I6 transition time moved back", was, is)
	}
}

// checkedAPI records requests that no manager may make (I8, I9, I12, I13). After kill it rejects all requests, as the death
// of the process would.
type checkedAPI struct {
	status.API
	checkDelete func(types.UID) error

	mu         sync.Mutex // guards all below
	inFlight   map[types.UID]int
	deleted    map[types.UID]bool
	killed     bool
	violations []string
}

func newCheckedAPI(api status.API, checkDelete func(types.UID) error) *checkedAPI {
	return &checkedAPI{API: api, checkDelete: checkDelete, inFlight: map[types.UID]int{}, deleted: map[types.UID]bool{}}
}

var errKilled = errors.New("process was killed")

func (c *checkedAPI) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*metav1.PartialObjectMetadata, error) {
	var sent struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &sent); err != nil {
		c.report("patch of %s is not JSON: %v", name, err)
	}
	uid := sent.Metadata.UID
	if uid == "" {
		c.report("I9: patch of %s has no UID", name)
	}
	if err := c.begin(uid); err != nil {
		return nil, err
	}
	defer c.end(uid)
	return c.API.PatchPodStatus(ctx, namespace, name, patch)
}

func (c *checkedAPI) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	if c.isKilled() {
		return nil, errKilled
	}
	return c.API.GetPod(ctx, namespace, name)
}

func (c *checkedAPI) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	if err := c.begin(uid); err != nil {
		return err
	}
	defer c.end(uid)
	if err := c.checkDelete(uid); err != nil {
		c.report("I12, I13: delete of %s %s: %v", name, uid, err)
	}
	err := c.API.DeletePod(ctx, namespace, name, uid)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deleted[uid] = true
	}
	return err
}

func (c *checkedAPI) begin(uid types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		return errKilled
	}
	if c.inFlight[uid]++; c.inFlight[uid] > 1 {
		c.violations = append(c.violations, fmt.Sprintf("I8: %d requests in flight for %s", c.inFlight[uid], uid))
	}
	if c.deleted[uid] {
		c.violations = append(c.violations, fmt.Sprintf("I8: request for %s after its deletion", uid))
	}
	return nil
}

func (c *checkedAPI) end(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight[uid]--
}

func (c *checkedAPI) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
}

func (c *checkedAPI) isKilled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

func (c *checkedAPI) report(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

func (c *checkedAPI) recorded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}
