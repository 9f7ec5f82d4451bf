package nodeagent_test

import (
	"strconv"
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
