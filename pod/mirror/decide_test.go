package mirror_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/pod/mirror"
)

func TestPM22_Decide(t *testing.T) {
	static := newStaticPod("web", "h1")
	current, outdated := newMirrorPod("web", "m1", "h1"), newMirrorPod("web", "m1", "h0")
	with := func(pod *v1.Pod, mutate ...func(*v1.Pod)) *v1.Pod {
		pod = pod.DeepCopy()
		for _, change := range mutate {
			change(pod)
		}
		return pod
	}
	deleted := func(pod *v1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	finalizing := func(pod *v1.Pod) {
		deleted(pod)
		pod.Finalizers, pod.DeletionGracePeriodSeconds = []string{"example.com/hold"}, new(int64)
	}
	otherNode := func(pod *v1.Pod) { pod.Spec.NodeName = "n2" }
	unowned := func(pod *v1.Pod) { pod.OwnerReferences = nil }
	otherOwner := func(pod *v1.Pod) { pod.OwnerReferences[0].Name = "n2" }
	apiPod := newAPIPod("web", "a1")

	tests := map[string]struct {
		state mirror.State
		want  mirror.Action
	}{
		"no pods":                           {mirror.State{}, mirror.ActionNone},
		"no mirror":                         {mirror.State{Static: static}, mirror.ActionCreate},
		"no mirror, terminating":            {mirror.State{Static: static, Terminating: true}, mirror.ActionCreate},
		"current":                           {mirror.State{Static: static, Mirror: current}, mirror.ActionNone},
		"current, terminating":              {mirror.State{Static: static, Mirror: current, Terminating: true}, mirror.ActionNone},
		"current, deleted":                  {mirror.State{Static: static, Mirror: with(current, deleted)}, mirror.ActionDelete},
		"current, deleted, terminating":     {mirror.State{Static: static, Mirror: with(current, deleted), Terminating: true}, mirror.ActionDelete},
		"current, finalizing":               {mirror.State{Static: static, Mirror: with(current, finalizing)}, mirror.ActionWait},
		"current, unowned":                  {mirror.State{Static: static, Mirror: with(current, unowned)}, mirror.ActionNone},
		"current hash, other node":          {mirror.State{Static: static, Mirror: with(current, otherNode)}, mirror.ActionReportConflict},
		"outdated":                          {mirror.State{Static: static, Mirror: outdated}, mirror.ActionDelete},
		"PM-25 outdated, terminating":       {mirror.State{Static: static, Mirror: outdated, Terminating: true}, mirror.ActionWait},
		"PM-25 outdated, deleted, stopping": {mirror.State{Static: static, Mirror: with(outdated, deleted), Terminating: true}, mirror.ActionWait},
		"outdated, unowned":                 {mirror.State{Static: static, Mirror: with(outdated, unowned)}, mirror.ActionReportConflict},
		"outdated, other owner":             {mirror.State{Static: static, Mirror: with(outdated, otherOwner)}, mirror.ActionReportConflict},
		"API pod":                           {mirror.State{Static: static, Mirror: apiPod}, mirror.ActionReportConflict},
		"API pod, no static pod":            {mirror.State{Mirror: apiPod, SourcesReady: true}, mirror.ActionNone},
		"orphan":                            {mirror.State{Mirror: current, SourcesReady: true}, mirror.ActionDelete},
		"orphan, sources not ready":         {mirror.State{Mirror: current}, mirror.ActionWait},
		"PM-25 orphan, terminating":         {mirror.State{Mirror: current, SourcesReady: true, Terminating: true}, mirror.ActionWait},
		"orphan, unowned":                   {mirror.State{Mirror: with(current, unowned), SourcesReady: true}, mirror.ActionNone},
		"orphan, unowned, deleted":          {mirror.State{Mirror: with(current, unowned, deleted), SourcesReady: true}, mirror.ActionDelete},
		"orphan, finalizing":                {mirror.State{Mirror: with(current, finalizing), SourcesReady: true}, mirror.ActionWait},
		"own write overdue":                 {mirror.State{Static: static, Mirror: current, Overdue: true}, mirror.ActionGet},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.state.NodeName = nodeName
			if got := test.state.Decide(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
