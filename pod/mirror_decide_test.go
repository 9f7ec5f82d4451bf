package pod_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/pod"
)

func TestPM22TheDecisionForEverySituation(t *testing.T) {
	static := staticPod("web", "h1")
	right, outdated := mirrorPod("web", "m1", "h1"), mirrorPod("web", "m1", "h0")
	changed := func(pod *v1.Pod, change func(*v1.Pod)) *v1.Pod {
		pod = pod.DeepCopy()
		change(pod)
		return pod
	}
	dying := func(pod *v1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	held := func(pod *v1.Pod) {
		dying(pod)
		pod.Finalizers, pod.DeletionGracePeriodSeconds = []string{"example.com/hold"}, new(int64)
	}
	elsewhere := func(pod *v1.Pod) { pod.Spec.NodeName = "n2" }
	unowned := func(pod *v1.Pod) { pod.OwnerReferences = nil }
	othersNode := func(pod *v1.Pod) { pod.OwnerReferences[0].Name = "n2" }
	ordinary := apiPod("web", "a1")

	tests := map[string]struct {
		situation pod.MirrorSituation
		want      pod.MirrorAction
	}{
		"nothing there":                   {pod.MirrorSituation{}, pod.LeaveMirror},
		"no mirror":                       {pod.MirrorSituation{Static: static}, pod.CreateMirror},
		"no mirror, predecessor stopping": {pod.MirrorSituation{Static: static, Terminating: true}, pod.CreateMirror},
		"right mirror":                    {pod.MirrorSituation{Static: static, Mirror: right}, pod.LeaveMirror},
		"right mirror while stopping": {
			pod.MirrorSituation{Static: static, Mirror: right, Terminating: true}, pod.LeaveMirror},
		"right mirror, being deleted": {
			pod.MirrorSituation{Static: static, Mirror: changed(right, dying)}, pod.DeleteMirror},
		"right mirror, being deleted while stopping": {
			pod.MirrorSituation{Static: static, Mirror: changed(right, dying), Terminating: true}, pod.DeleteMirror},
		"right mirror, held by a finalizer": {
			pod.MirrorSituation{Static: static, Mirror: changed(right, held)}, pod.AwaitMirror},
		"right mirror without owner": {
			pod.MirrorSituation{Static: static, Mirror: changed(right, unowned)}, pod.LeaveMirror},
		"right hash on another node": {
			pod.MirrorSituation{Static: static, Mirror: changed(right, elsewhere)}, pod.ReportConflict},
		"outdated mirror": {pod.MirrorSituation{Static: static, Mirror: outdated}, pod.DeleteMirror},
		"outdated mirror, predecessor stopping (PM-25)": {
			pod.MirrorSituation{Static: static, Mirror: outdated, Terminating: true}, pod.AwaitMirror},
		"outdated dying mirror, predecessor stopping (PM-25)": {
			pod.MirrorSituation{Static: static, Mirror: changed(outdated, dying), Terminating: true}, pod.AwaitMirror},
		"outdated mirror of nobody": {
			pod.MirrorSituation{Static: static, Mirror: changed(outdated, unowned)}, pod.ReportConflict},
		"outdated mirror of another node's": {
			pod.MirrorSituation{Static: static, Mirror: changed(outdated, othersNode)}, pod.ReportConflict},
		"ordinary pod":              {pod.MirrorSituation{Static: static, Mirror: ordinary}, pod.ReportConflict},
		"ordinary pod, no static":   {pod.MirrorSituation{Mirror: ordinary, SourcesReady: true}, pod.LeaveMirror},
		"orphan":                    {pod.MirrorSituation{Mirror: right, SourcesReady: true}, pod.DeleteMirror},
		"orphan, a source is late":  {pod.MirrorSituation{Mirror: right}, pod.AwaitMirror},
		"orphan, pod stops (PM-25)": {pod.MirrorSituation{Mirror: right, SourcesReady: true, Terminating: true}, pod.AwaitMirror},
		"orphan of nobody": {
			pod.MirrorSituation{Mirror: changed(right, unowned), SourcesReady: true}, pod.LeaveMirror},
		"orphan of nobody, being deleted": {
			pod.MirrorSituation{Mirror: changed(changed(right, unowned), dying), SourcesReady: true}, pod.DeleteMirror},
		"orphan held by a finalizer": {
			pod.MirrorSituation{Mirror: changed(right, held), SourcesReady: true}, pod.AwaitMirror},
		"our write unconfirmed for too long": {
			pod.MirrorSituation{Static: static, Mirror: right, Overdue: true}, pod.LookUpMirror},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.situation.NodeName = nodeName
			if got := test.situation.Decide(); got != test.want {
				t.Errorf("decided %v, want %v", got, test.want)
			}
		})
	}
}
