package status_test

import (
	"context"
	"errors"
	"fmt"
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
)

// foreignMark is an annotation that a foreign writer raises with each write, so that the recorder knows whose it was.
const foreignMark = "example.com/foreign-writes"

// recorder sees every version of every pod that the API server ever shows, past all faults, and notes each step that no
// agent may cause (I1..I7).
type recorder struct {
	mu    sync.Mutex // guards all below
	last  map[types.UID]*v1.Pod
	wrong []string
	// more is asked about each step of a pod that is not a foreign writer's.
	more func(before, after *v1.Pod) []string
}

// record watches the server until the test ends.
func record(t *testing.T, server *heraldtest.APIServer) *recorder {
	t.Helper()
	r := &recorder{last: map[types.UID]*v1.Pod{}, more: func(_, _ *v1.Pod) []string { return nil }}
	client, err := kubeapi.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	pods, isListWatch := client.PodsOnNode(nodeName).(*cache.ListWatch)
	if !isListWatch {
		t.Fatal("no ListWatch")
	}
	go r.run(t.Context(), pods)
	return r
}

func (r *recorder) run(ctx context.Context, pods *cache.ListWatch) {
	version := "1" // before everything
	for ctx.Err() == nil {
		if err := r.follow(ctx, pods, &version); err == nil {
			continue
		}
		if list, err := pods.ListWithContext(ctx, metav1.ListOptions{}); err == nil { // compacted while cut off
			version = r.restart(list.(*v1.PodList))
		}
		patiently(ctx)
	}
}

// patiently waits a moment; after the end of a test no time passes any more.
func patiently(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

var errWatch = errors.New("the watch reported an error")

// follow returns nil when the watch was cut and can go on from version.
func (r *recorder) follow(ctx context.Context, pods *cache.ListWatch, version *string) error {
	events, err := pods.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: *version})
	if err != nil {
		patiently(ctx)
		return nil
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		pod, isPod := event.Object.(*v1.Pod)
		if !isPod {
			return errWatch
		}
		*version = pod.ResourceVersion
		r.see(event.Type, pod)
	}
	return nil
}

func (r *recorder) restart(list *v1.PodList) (version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
	for i := range list.Items {
		r.last[list.Items[i].UID] = &list.Items[i]
	}
	return list.ResourceVersion
}

func (r *recorder) see(kind watch.EventType, pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last[pod.UID]
	if kind == watch.Deleted {
		delete(r.last, pod.UID)
		return
	}
	r.last[pod.UID] = pod
	if before == nil || before.Annotations[foreignMark] != pod.Annotations[foreignMark] {
		return
	}
	for _, what := range append(misdeeds(before, pod), r.more(before, pod)...) {
		r.wrong = append(r.wrong, fmt.Sprintf("pod %s %s at version %s: %s", pod.Name, pod.UID, pod.ResourceVersion, what))
	}
}

// misses is what went wrong so far.
func (r *recorder) misses() []string {
	time.Sleep(2 * time.Second) // it may have been cut off
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.wrong...)
}

// mustBeClean fails the test for each misdeed.
func (r *recorder) mustBeClean(t *testing.T) {
	t.Helper()
	for _, what := range r.misses() {
		t.Error(what)
	}
}

// misdeeds lists the invariants that a step from one version of a pod to the next breaks.
func misdeeds(before, after *v1.Pod) (wrong []string) {
	say := func(rule string, was, is any) { wrong = append(wrong, fmt.Sprintf("%s: %v became %v", rule, was, is)) }
	was, is := &before.Status, &after.Status
	if (was.Phase == v1.PodSucceeded || was.Phase == v1.PodFailed) && is.Phase != was.Phase {
		say("I1 phase", was.Phase, is.Phase)
	}
	for i := range was.ContainerStatuses {
		if i < len(is.ContainerStatuses) {
			containerMisdeeds(before, &was.ContainerStatuses[i], &is.ContainerStatuses[i], say)
		}
	}
	if was.StartTime != nil && !was.StartTime.Equal(is.StartTime) {
		say("I4 start time", was.StartTime, is.StartTime)
	}
	if is.ObservedGeneration < was.ObservedGeneration {
		say("I5 observed generation", was.ObservedGeneration, is.ObservedGeneration)
	}
	for _, old := range was.Conditions {
		conditionMisdeeds(old, conditionOf(*is, old.Type), say)
	}
	if fmt.Sprint(before.Labels, before.Annotations) != fmt.Sprint(after.Labels, after.Annotations) {
		say("I7 metadata", before.Labels, after.Labels)
	}
	if was.NominatedNodeName != is.NominatedNodeName || len(was.ResourceClaimStatuses) != len(is.ResourceClaimStatuses) {
		say("I7 others' fields", was.NominatedNodeName, is.NominatedNodeName)
	}
	return wrong
}

func containerMisdeeds(pod *v1.Pod, was, is *v1.ContainerStatus, say func(string, any, any)) {
	if is.RestartCount < was.RestartCount {
		say("I3 restart count", was.RestartCount, is.RestartCount)
	}
	end := was.State.Terminated
	if end == nil || pod.Spec.RestartPolicy == v1.RestartPolicyAlways {
		return
	}
	if now := is.State.Terminated; now == nil || now.ExitCode != end.ExitCode || !now.FinishedAt.Equal(&end.FinishedAt) {
		say("I2 terminated container", end, now)
	}
}

func conditionMisdeeds(was, is v1.PodCondition, say func(string, any, any)) {
	isResize := was.Type == v1.PodResizePending || was.Type == v1.PodResizeInProgress
	switch {
	case !derive.IsOwnedCondition(was.Type) && was != is && was.Type != v1.DisruptionTarget:
		say("I7 foreign condition", was, is)
	case isResize || is.Type == "":
	case was.Status == is.Status && !was.LastTransitionTime.Equal(&is.LastTransitionTime):
		say("I6 transition time without transition", was, is)
	case is.LastTransitionTime.Before(&was.LastTransitionTime):
		say("I6 transition time moved back", was, is)
	}
}
