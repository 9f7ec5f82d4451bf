package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

// reporter is the status half of an agent: a watch that feeds the address book, and the Status Manager, with a node's own
// rights. What runs on the node is what the test says.
type reporter struct {
	*status.Manager
	t      *testing.T
	node   string
	book   *pod.Manager
	faults *fault.Script
}

// released is a node on which nothing ever runs or is held.
type released struct{}

func (released) PodCouldHaveRunningContainers(podid.UID) bool             { return false }
func (released) PodResourcesAreReclaimed(_ *v1.Pod, _ *v1.PodStatus) bool { return true }

func openReporter(t *testing.T, node string) *reporter {
	t.Helper()
	if _, err := cluster.CreateNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	r := &reporter{t: t, node: node, book: pod.NewManager(), faults: fault.NewScript()}
	config := cluster.NodeConfig(node)
	config.Wrap(r.faults.Wrap)
	client, err := kubeapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: client.PodsOnNode(node), Node: node})
	if err != nil {
		t.Fatal(err)
	}
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{api}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Manager, err = status.New(status.Config{API: client, Pods: r.book, Deletion: released{}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = mux.Run(ctx) })
	all.Go(func() { _ = r.Run(ctx) })
	all.Go(func() { r.consume(mux) })
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	return r
}

func (r *reporter) consume(mux *source.Mux) {
	for update := range mux.Updates() {
		for _, p := range update.Pods {
			if update.Op == source.OpRemove {
				r.book.RemovePod(p)
				continue
			}
			r.book.UpdatePod(p)
			r.Reconcile(p)
		}
		update.Taken()
	}
}

// bind creates a pod that is bound to this node, as a scheduler would, and waits until the node knows it.
func (r *reporter) bind(name string, gates ...v1.PodReadinessGate) *v1.Pod {
	r.t.Helper()
	created, err := admin(r.t).CoreV1().Pods("default").Create(r.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{NodeName: r.node, ReadinessGates: gates, Containers: []v1.Container{{Name: "main", Image: "web"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.known(created.UID)
}

func (r *reporter) known(uid types.UID) *v1.Pod {
	r.t.Helper()
	var found *v1.Pod
	eventually(r.t, "the pod on its node", func() (string, bool) {
		var is bool
		found, is = r.book.GetPodByUID(podid.UID(uid))
		return "unknown", is
	})
	return found
}

// shows waits until the API server says so.
func (r *reporter) shows(p *v1.Pod, what string, is func(*v1.Pod) bool) {
	r.t.Helper()
	eventually(r.t, what, func() (string, bool) {
		now, err := admin(r.t).CoreV1().Pods("default").Get(r.t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%+v", now.Status), is(now)
	})
}

func running(ready v1.ConditionStatus) v1.PodStatus {
	started := true
	return v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.9.0.7", PodIPs: []v1.PodIP{{IP: "10.9.0.7"}},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}, {Type: v1.ContainersReady, Status: ready}},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", Image: "web", ImageID: "web", ContainerID: "test://1", Started: &started, Ready: ready == v1.ConditionTrue,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Truncate(time.Second))}},
		}},
	}
}

func isReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func TestBUG2APodsLifeIsOneRequestForEachChangeAndIsSeenWithKubectl(t *testing.T) {
	r := openReporter(t, "life")
	p := r.bind("life")
	r.faults.Forget()
	r.SetPodStatus(p, running(v1.ConditionFalse))
	r.shows(p, "the pod", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning && !isReady(p) })
	r.SetPodStatus(p, running(v1.ConditionTrue))
	r.shows(p, "the pod", isReady)
	if got := kubectl(t, "get", "pod", "life", "--no-headers"); got[:len("life   1/1   Running")] != "life   1/1   Running" {
		t.Fatalf("kubectl prints %q", got)
	}
	kubectl(t, "delete", "pod", "life", "--wait=false")
	eventually(t, "the deletion on the node", func() (string, bool) { return "unknown", r.known(p.UID).DeletionTimestamp != nil })
	r.TerminatePod(r.known(p.UID))
	eventually(t, "the object of a pod that has ended", func() (string, bool) {
		_, err := admin(t).CoreV1().Pods("default").Get(t.Context(), "life", metav1.GetOptions{})
		return "there", apierrors.IsNotFound(err)
	})
	trace := r.faults.Requests()
	if patches, gets := len(trace.Of("PATCH", "/pods/life/status")), len(trace.Of("get", "/pods/life")); patches != 3 || gets != 0 {
		t.Fatalf("three changes took %d patches and %d gets", patches, gets)
	}
}

func TestI7WhatOthersWriteSurvivesThousandsOfUpdates(t *testing.T) {
	r := openReporter(t, "foreign")
	p := r.bind("foreign", v1.PodReadinessGate{ConditionType: "example.com/gate"})
	client := admin(t).CoreV1().Pods("default")
	gate := []byte(`{"status":{"conditions":[{"type":"example.com/gate","status":"True","reason":"Theirs"}]}}`)
	if _, err := client.Patch(t.Context(), p.Name, types.StrategicMergePatchType, gate, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	label := []byte(`{"metadata":{"labels":{"team":"shop"}}}`)
	if _, err := client.Patch(t.Context(), p.Name, types.StrategicMergePatchType, label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		s := running(v1.ConditionTrue)
		s.Message = fmt.Sprint(i)
		r.SetPodStatus(p, s)
	}
	r.shows(p, "the last update", func(p *v1.Pod) bool {
		kept := p.Labels["team"] == "shop"
		for _, c := range p.Status.Conditions {
			if c.Type == "example.com/gate" {
				return kept && p.Status.Message == "1999" && c.Status == v1.ConditionTrue && c.Reason == "Theirs"
			}
		}
		return false
	})
}

func TestF31APhaseThatSomebodyElseWroteIsPutRight(t *testing.T) {
	r := openReporter(t, "drift")
	p := r.bind("drift")
	r.SetPodStatus(p, running(v1.ConditionTrue))
	r.shows(p, "the pod", isReady)
	wrong := []byte(`{"status":{"phase":"Pending"}}`)
	if _, err := admin(t).CoreV1().Pods("default").Patch(t.Context(), p.Name, types.StrategicMergePatchType, wrong, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	r.shows(p, "the pod", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
}

func TestF13APodThatIsRecreatedNeverShowsTheOldOnesStatus(t *testing.T) {
	r := openReporter(t, "recreated")
	seen, err := admin(t).CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=recreated"})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	var last types.UID
	for range 20 {
		p := r.bind("recreated")
		last = p.UID
		s := running(v1.ConditionTrue)
		s.Message = string(p.UID)
		r.SetPodStatus(p, s) // may still be under way when the pod is gone
		atOnce := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		if err := admin(t).CoreV1().Pods("default").Delete(t.Context(), "recreated", atOnce); err != nil {
			t.Fatal(err)
		}
	}
	for event := range seen.ResultChan() {
		p, isPod := event.Object.(*v1.Pod)
		if isPod && p.Status.Message != "" && p.Status.Message != string(p.UID) {
			t.Fatalf("I9: pod %s shows the status of %s", p.UID, p.Status.Message)
		}
		if isPod && event.Type == watch.Deleted && p.UID == last {
			return
		}
	}
}

func TestF1AfterTheAPIServersDeathEveryPodShowsItsNewestStatus(t *testing.T) {
	r := openReporter(t, "after")
	var pods []*v1.Pod
	for i := range 20 {
		p := r.bind(fmt.Sprintf("after-%d", i))
		r.SetPodStatus(p, running(v1.ConditionFalse))
		pods = append(pods, p)
	}
	if err := cluster.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		for _, p := range pods {
			s := running(v1.ConditionTrue)
			s.Message = fmt.Sprint(round)
			r.SetPodStatus(p, s)
		}
	}
	if err := cluster.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		r.shows(p, "pod "+p.Name, func(p *v1.Pod) bool { return isReady(p) && p.Status.Message == "4" })
	}
}
