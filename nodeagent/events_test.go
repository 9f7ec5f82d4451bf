package nodeagent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podid"
)

const floodSize = 500

// recordFlood records many distinct events.
func recordFlood(n *nodeagent.NodeAgent) {
	for i := range floodSize {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Namespace: "shop"}}
		n.Events.Event(pod, v1.EventTypeNormal, "Flood", "")
	}
}

func TestNodeAgent_EventFloodDoesNotDelayStatuses(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t)
	config.API, config.AllowAPIPods = server.Config(), true
	config.API.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter() // a shared limiter would apply to events too
	config.EventQPS, config.EventBurst = 0.001, 3
	run(t, config, func(n *nodeagent.NodeAgent) {
		recordFlood(n)
		server.AddPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "shop"},
			Spec: v1.PodSpec{NodeName: "n1", HostNetwork: true, RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
				Name: "main", Image: "host", Command: []string{"true"},
			}}},
		})
		eventually(t, "the status", func() bool {
			return server.Pod(podid.FullName{Namespace: "shop", Name: "job"}).Status.Phase == v1.PodSucceeded
		})
		eventually(t, "a burst of events", func() bool { return len(server.Events()) == config.EventBurst })
	})
	if got := len(server.Events()); got != config.EventBurst {
		t.Errorf("got %d events, want %d", got, config.EventBurst)
	}
}

func TestNodeAgent_EventLimits(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t)
	config.API = server.Config()
	config.API.QPS, config.API.Burst, config.EventQPS = 0.001, 1, -1
	run(t, config, func(n *nodeagent.NodeAgent) {
		recordFlood(n)
		eventually(t, "all events, despite the limits of other requests", func() bool {
			return len(server.Events()) >= floodSize
		})
	})
}

// TestNodeAgent_ObjectFloodDoesNotDelayStatuses checks that reads of the objects that pods refer to exhaust neither the limit
// of statuses nor that of mirror pods.
func TestNodeAgent_ObjectFloodDoesNotDelayStatuses(t *testing.T) {
	const burst = 30
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t)
	config.API, config.AllowAPIPods, config.MaxPods = server.Config(), true, 5
	config.API.QPS, config.API.Burst = 0.001, burst
	finish := filepath.Join(t.TempDir(), "finish")
	newPod := func(name, script string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
			Spec: v1.PodSpec{NodeName: "n1", HostNetwork: true, RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
				Name: "main", Image: "host", Command: []string{"sh", "-c", script},
			}}},
		}
	}
	worker := podid.FullName{Namespace: "shop", Name: "worker"}
	// It also ends if the test is aborted.
	server.AddPod(newPod(worker.Name, fmt.Sprintf("while kill -0 %d && ! [ -e %s ]; do sleep 0.01; done", os.Getpid(), finish)))
	run(t, config, func(*nodeagent.NodeAgent) {
		eventually(t, "the first pod to run", func() bool { return server.Pod(worker).Status.Phase == v1.PodRunning })
		greedy := newPod("greedy", "true")
		for i := range 2 * burst {
			name := "c" + strconv.Itoa(i)
			server.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}})
			greedy.Spec.Volumes = append(greedy.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}},
			}})
		}
		server.AddPod(greedy)
		eventually(t, "the limit of objects to be exhausted", func() bool {
			reads := 0
			for _, request := range server.Requests("get") {
				if request.Resource == "configmaps" {
					reads++
				}
			}
			return reads >= burst/2
		})
		if err := os.WriteFile(finish, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the status", func() bool { return server.Pod(worker).Status.Phase == v1.PodSucceeded })
		manifest := strings.Replace(job, "name: job", "name: static", 1)
		if err := os.WriteFile(filepath.Join(config.StaticPodPath, "static.yaml"), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the mirror pod", func() bool {
			return server.Pod(podid.FullName{Namespace: "default", Name: "static-n1"}) != nil
		})
	})
}
