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

const flooding = 500

// flood has many events at once, none like another.
func flood(n *nodeagent.Node) {
	for i := range flooding {
		about := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Namespace: "shop"}}
		n.Events.Event(about, v1.EventTypeNormal, "Flood", "")
	}
}

func TestAFloodOfEventsTakesNoRequestsFromStatuses(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := alone(t)
	config.API, config.AllowAPIPods = server.Config(), true
	config.API.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter() // one that is common to all would be asked by events too
	config.EventQPS, config.EventBurst = 0.001, 3
	run(t, config, func(n *nodeagent.Node) {
		flood(n)
		server.AddPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "shop"},
			Spec: v1.PodSpec{NodeName: "n1", HostNetwork: true, RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
				Name: "main", Image: "host", Command: []string{"true"},
			}}},
		})
		eventually(t, "the status is told", func() bool {
			return server.Pod(podid.FullName{Namespace: "shop", Name: "job"}).Status.Phase == v1.PodSucceeded
		})
		eventually(t, "as many events as may be are told", func() bool { return len(server.Events()) == config.EventBurst })
	})
	if told := len(server.Events()); told != config.EventBurst {
		t.Errorf("%d events", told)
	}
}

func TestEventsHaveALimitOfTheirOwn(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := alone(t)
	config.API = server.Config()
	config.API.QPS, config.API.Burst, config.EventQPS = 0.001, 1, -1
	run(t, config, func(n *nodeagent.Node) {
		flood(n)
		eventually(t, "all events are told, however few requests are left to the rest", func() bool {
			return len(server.Events()) >= flooding
		})
	})
}
