package e2e_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

func TestBUG2APodsLifeIsOneRequestForEachChangeAndIsSeenWithKubectl(t *testing.T) {
	r := openReporter(t, "life")
	p := r.bind("life")
	r.faults.ClearRequests()
	r.SetPodStatus(p, running(v1.ConditionFalse))
	r.Await("life", "running", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning && !isReady(p) })
	r.SetPodStatus(p, running(v1.ConditionTrue))
	r.Await("life", "ready", isReady)
	if got := kubectl(t, "get", "pod", "life", "--no-headers"); got[:len("life   1/1   Running")] != "life   1/1   Running" {
		t.Fatalf("kubectl prints %q", got)
	}
	kubectl(t, "delete", "pod", "life", "--wait=false")
	recorder.Eventually(t, "the deletion on the node", func() (string, bool) { return "unknown", r.known(p.UID).DeletionTimestamp != nil })
	r.TerminatePod(r.known(p.UID))
	r.AwaitDeleted("life")
	trace := r.faults.Requests()
	if patches, gets := len(trace.Filter("PATCH", "/pods/life/status")), len(trace.Filter("get", "/pods/life")); patches != 3 || gets != 0 {
		t.Fatalf("three changes took %d patches and %d gets", patches, gets)
	}
}

func TestI7WhatOthersWriteSurvivesThousandsOfUpdates(t *testing.T) {
	r := openReporter(t, "foreign")
	p := r.bind("foreign", v1.PodReadinessGate{ConditionType: "example.com/gate"})
	if err := r.foreignStatus("foreign", 1, `{"conditions":[{"type":"example.com/gate","status":"True","reason":"Theirs"}]}`); err != nil {
		t.Fatal(err)
	}
	if err := r.foreignLabel("foreign", 2, "team", "shop"); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		r.SetPodStatus(p, restarted(p, i))
	}
	got := r.Await("foreign", "with its last status", hasRestarted(1999))
	gate := recorder.PodCondition(&got.Status, "example.com/gate")
	if got.Labels["team"] != "shop" || gate.Status != v1.ConditionTrue || gate.Reason != "Theirs" {
		t.Fatalf("labels %v, gate %+v", got.Labels, gate)
	}
}

func TestF31APhaseThatSomebodyElseWroteIsPutRight(t *testing.T) {
	r := openReporter(t, "drift")
	p := r.bind("drift")
	r.SetPodStatus(p, running(v1.ConditionTrue))
	r.Await("drift", "ready", isReady)
	if err := r.foreignStatus("drift", 1, `{"phase":"Pending"}`); err != nil {
		t.Fatal(err)
	}
	r.Await("drift", "as somebody else wrote it", func(p *v1.Pod) bool { return p.Annotations[recorder.ForeignWriteAnnotation] == "1" })
	r.Await("drift", "running again", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
}

func TestF13APodThatIsRecreatedNeverShowsTheOldOnesStatus(t *testing.T) { // I9
	r := openReporter(t, "recreated")
	for range 20 {
		p := r.bind("recreated")
		r.SetPodStatus(p, restarted(p, 1)) // may still be under way when the pod is gone
		if err := r.Admin.CoreV1().Pods("default").Delete(t.Context(), "recreated", atOnce()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestF1AfterTheAPIServersDeathEveryPodShowsItsNewestStatus(t *testing.T) {
	r := openReporter(t, "after")
	pods := r.bindMany(20)
	for _, p := range pods {
		r.SetPodStatus(p, restarted(p, 0))
	}
	r.faults.ClearRequests()
	start := time.Now()
	if err := cluster.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		for _, p := range pods {
			r.SetPodStatus(p, restarted(p, 1+round))
		}
	}
	if err := cluster.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		r.Await(p.Name, "with its newest status", hasRestarted(5))
	}
	const alive = 3 // one that was under way, one that the end of the outage woke, one that succeeded
	for path, requests := range r.faults.Requests().Filter("PATCH", "/pods/").ByPath() {
		if most := alive + backedOff(time.Since(start)); len(requests) > most {
			t.Errorf("%s took %d requests, want %d at most", path, len(requests), most)
		}
	}
}
