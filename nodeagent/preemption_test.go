package nodeagent_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podid"
)

// asksForAllMemory makes two such pods too much for the node.
func asksForAllMemory(t *testing.T, n *nodeagent.NodeAgent, pod *v1.Pod) *v1.Pod {
	t.Helper()
	memory := n.Node.Allocatable()[v1.ResourceMemory]
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(memory.Value()*2/3, resource.BinarySI)}
	return pod
}

func hasPhase(server *heraldtest.APIServer, name podid.FullName, phase v1.PodPhase) func() bool {
	return func() bool { pod := server.Pod(name); return pod != nil && pod.Status.Phase == phase }
}

// A critical pod that lacks resources preempts another one, waits until that has terminated and runs then.
func TestADM26_Preemption(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t)
	config.API, config.AllowAPIPods = server.Config(), true
	web, critical := podid.FullName{Namespace: "shop", Name: "web"}, podid.FullName{Namespace: "shop", Name: "critical"}
	run(t, config, func(n *nodeagent.NodeAgent) {
		server.AddPod(asksForAllMemory(t, n, newAPIPod(web.Name)))
		eventually(t, "the pod to run", hasPhase(server, web, v1.PodRunning))
		pod := asksForAllMemory(t, n, newAPIPod(critical.Name))
		pod.Spec.Priority = new(int32(2_000_000_000))
		server.AddPod(pod)
		eventually(t, "the critical pod to run", hasPhase(server, critical, v1.PodRunning))
		eventually(t, "the other pod to fail", hasPhase(server, web, v1.PodFailed))
		status := server.Pod(web).Status
		if status.Reason != "Preempting" || status.Message != "Preempted in order to admit critical pod" {
			t.Errorf("got reason %q, message %q", status.Reason, status.Message)
		}
		var disruption *v1.PodCondition
		for i, condition := range status.Conditions {
			if condition.Type == v1.DisruptionTarget {
				disruption = &status.Conditions[i]
			}
		}
		if disruption == nil || disruption.Reason != v1.PodReasonTerminationByKubelet {
			t.Errorf("got condition %+v, want one that says that the node ended the pod", disruption)
		}
		server.DeletePod(critical, 1)
		eventually(t, "the pod to end", func() bool { return server.Pod(critical) == nil })
	})
}

// A pod that lacks the resources of one that is terminating is not rejected: it waits. The kubelet rejects it.
func TestADM4_WaitsForEndingPods(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t)
	config.API, config.AllowAPIPods = server.Config(), true
	old, next, third := podid.FullName{Namespace: "shop", Name: "old"}, podid.FullName{Namespace: "shop", Name: "next"},
		podid.FullName{Namespace: "shop", Name: "third"}
	run(t, config, func(n *nodeagent.NodeAgent) {
		slow := asksForAllMemory(t, n, newAPIPod(old.Name))
		slow.Spec.Containers[0].Command = []string{"sh", "-c", "trap 'sleep 3; exit 0' TERM; while true; do sleep 0.1; done"}
		slow.Spec.TerminationGracePeriodSeconds = new(int64(60))
		server.AddPod(slow)
		eventually(t, "the pod to run", hasPhase(server, old, v1.PodRunning))
		server.DeletePod(old, 60)
		eventually(t, "the pod to be ending", func() bool {
			state, found := n.Agent.Workers.Pod(podid.UID(server.Pod(old).UID))
			return found && state.StartedTerminating
		})
		server.AddPod(asksForAllMemory(t, n, newAPIPod(next.Name)))
		eventually(t, "the next pod to wait", func() bool {
			state, found := n.Agent.Workers.Pod(podid.UID(server.Pod(next).UID))
			return found && (state.Rejected != nil && strings.Contains(state.Rejected.Error(), "it waits for shop/old") || state.Admitted)
		})
		eventually(t, "the next pod to run", func() bool {
			pod := server.Pod(next)
			if pod.Status.Phase == v1.PodFailed {
				t.Fatalf("the pod was rejected: %s", pod.Status.Message)
			}
			return pod.Status.Phase == v1.PodRunning
		})
		server.AddPod(asksForAllMemory(t, n, newAPIPod(third.Name)))
		eventually(t, "the third pod to be rejected", hasPhase(server, third, v1.PodFailed))
		server.DeletePod(next, 1)
		eventually(t, "the pod to end", func() bool { return server.Pod(next) == nil })
	})
}
