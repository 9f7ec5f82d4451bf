package view_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

var now = time.Date(2026, 11, 15, 14, 1, 3, 344_000_000, time.UTC)

// crashLooping returns the facts of a static pod whose container waits for its next start.
func crashLooping() explain.Facts {
	pod := heraldtest.NewPod("cart-n1", heraldtest.Static(podid.File), heraldtest.OnNode("n1"), heraldtest.WithContainers(
		v1.Container{Name: "web", Image: "example.test/web:1"},
	))
	pod.Labels = map[string]string{"app": "cart"}
	pod.Spec.InitContainers = []v1.Container{
		{Name: "migrate", Image: "example.test/migrate"},
		{Name: "proxy", Image: "example.test/proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)},
	}
	pod.Spec.Priority = new(int32(7))
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n1", Controller: new(true)}}
	pod.Status = v1.PodStatus{
		Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "web", RestartCount: 14, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		}},
	}
	return explain.Facts{
		Now: now, Name: podid.FullNameOf(pod), Pod: pod, Source: explain.Source{Name: podid.File},
		Sync: explain.Sync{
			State: explain.SyncWaiting, Version: 913, At: now, SyncedVersion: 911, SyncedAt: now.Add(-163 * time.Second),
			Synced: &v1.PodStatus{Phase: v1.PodRunning, Conditions: pod.Status.Conditions}, ResourceVersion: "88121",
			Took: 38 * time.Millisecond, Behind: 2, Since: now.Add(-161244 * time.Millisecond), Reason: "connection refused",
			Failures: 9, NextTry: now.Add(12 * time.Second),
		},
		Worker: explain.Worker{
			Known: true, Stage: plan.Syncing, Trouble: errors.New("volume tls is missing"), Failures: 3, RetryAt: now.Add(time.Second),
			Starts: map[string]explain.Start{
				"web":   {Reason: "CrashLoopBackOff", Message: "back-off 5m0s", At: now.Add(5 * time.Minute), Failures: 14, Delay: 5 * time.Minute},
				"proxy": {Reason: "ErrImagePull"},
			},
			Stopping: []explain.Stopping{{Container: "old", Reason: plan.StopLivenessProbe, Since: now, KillAt: now.Add(time.Second)}},
		},
		Probes: []explain.Probe{
			{Container: "web", Kind: explain.Readiness, Target: "http-get :8080/ready", Threshold: 3, Next: now.Add(time.Second)},
			{
				Container: "web", Kind: explain.Liveness, Result: explain.Failing, Streak: 4, StreakFailed: true, Threshold: 3,
				Last: explain.Answer{At: now, Took: 12 * time.Millisecond, Message: "HTTP 503"},
			},
		},
	}
}

func TestNewPod(t *testing.T) {
	v := view.NewPod(crashLooping())
	encoded, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"kind": "PodView"`, `"name": "cart-n1"`, `"app": "cart"`, `"ownerKind": "Node"`, `"source": "file"`, `"static": true`, `"priority": 7`,
		`"version": 913`, `"at": "2026-11-15T14:01:03.344Z"`, `"summary": "CrashLoopBackOff 0/2 (14 restarts)"`,
		`"resourceVersion": "88121"`, `"state": "waiting"`, `"sinceMs": 161244`, `"tookMs": 38`, `"nextTry": "2026-11-15T14:01:15.344Z"`,
		`"stage": "sync"`, `"trouble": "volume tls is missing"`, `"verdict": "undecided"`, `"message": "HTTP 503"`,
		`"until": "2026-11-15T14:06:03.344Z"`, `"delayMs": 300000`, `"reason": "LivenessProbe"`,
	} {
		if !strings.Contains(string(encoded), want) {
			t.Errorf("%s is missing in %s", want, encoded)
		}
	}
	if v.Why.OK || v.Why.Code == "" || !strings.Contains(v.Why.Text, "proxy") {
		t.Errorf("got why %+v, want what is wrong first", v.Why)
	}
	kinds := ""
	for _, container := range v.Spec.Containers {
		kinds += container.Name + ":" + container.Kind + " "
	}
	if kinds != "migrate:init proxy:sidecar web:regular " {
		t.Errorf("got containers %s", kinds)
	}
	if len(v.Waiting) != 2 || v.Waiting[0].Container != "web" || v.Waiting[1].Reason != "ErrImagePull" || v.Waiting[1].Until != nil {
		t.Errorf("got waiting %+v", v.Waiting)
	}
	if v.Probes[0].Last != nil || v.Probes[1].Last == nil {
		t.Errorf("got probes %+v, want an answer of the second only", v.Probes)
	}
}

// TestNewPod_UnknownFacts checks that what is not known is absent.
func TestNewPod_UnknownFacts(t *testing.T) {
	v := view.NewPod(explain.Facts{Now: now, Name: podid.FullName{Namespace: "shop", Name: "gone"}})
	if v.Metadata.Namespace != "shop" || v.Metadata.Name != "gone" || v.Synced != nil || v.Local.At != nil || v.Worker.Stage != "" {
		t.Errorf("got %+v", v)
	}
	if v.Spec.Containers == nil {
		t.Error("containers are null in JSON")
	}
}

// TestNewPod_ClockSetBack checks that a lag is never negative.
func TestNewPod_ClockSetBack(t *testing.T) {
	f := crashLooping()
	f.Sync.Since = now.Add(time.Hour)
	if lag := view.NewPod(f).Lag; lag.SinceMs != 0 {
		t.Errorf("got %d ms, want 0", lag.SinceMs)
	}
}

func TestCountPods(t *testing.T) {
	ready, succeeded, starting := heraldtest.NewPod("ready"), heraldtest.NewPod("succeeded"), heraldtest.NewPod("starting")
	ready.Status = v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	succeeded.Status = v1.PodStatus{Phase: v1.PodSucceeded}
	starting.Status = v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{
		Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}}}
	pods := []view.PodView{view.NewPod(crashLooping())}
	for _, pod := range []*v1.Pod{ready, succeeded, starting} {
		pods = append(pods, view.NewPod(explain.Facts{Now: now, Name: podid.FullNameOf(pod), Pod: pod}))
	}
	if got, want := view.CountPods(pods), (view.PodCounts{Total: 4, Ready: 1, Ended: 1, Starting: 1, NotWell: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNewNode(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}}}
	node.Status.Allocatable = v1.ResourceList{v1.ResourcePods: resource.MustParse("110")}
	v := view.NewNode(view.NodeFacts{
		Node: node, At: now, Synced: &v1.NodeStatus{}, SyncedAt: now, Pods: []view.PodView{view.NewPod(crashLooping())},
		Lag: view.Lag{State: explain.SyncSynced}, Agent: view.Agent{Version: "v0.4.0"},
	})
	if v.Kind != "NodeView" || v.Metadata.Name != "n1" || v.Pods != (view.PodCounts{Total: 1, Max: 110, NotWell: 1}) ||
		v.Synced == nil || v.Sources == nil || v.Agent.Version != "v0.4.0" {
		t.Errorf("got %+v", v)
	}
	if v := view.NewNode(view.NodeFacts{}); v.Synced != nil || v.Pods.Max != 0 {
		t.Errorf("got %+v of no node", v)
	}
}

// TestTime checks the format of times in JSON, and that clients can decode them.
func TestTime(t *testing.T) {
	encoded, err := json.Marshal(view.NewTime(now.In(time.FixedZone("CET", 3600))))
	if err != nil || string(encoded) != `"2026-11-15T14:01:03.344Z"` {
		t.Errorf("got %s, %v", encoded, err)
	}
	var decoded view.Time
	if err := json.Unmarshal(encoded, &decoded); err != nil || !decoded.Equal(now) {
		t.Errorf("got %v, %v", decoded, err)
	}
	if view.NewTime(time.Time{}) != nil {
		t.Error("the zero time has a value")
	}
}
