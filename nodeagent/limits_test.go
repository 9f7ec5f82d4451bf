package nodeagent_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/nodeagent"
)

// closedLimiter lets nothing pass until open is closed.
type closedLimiter struct{ open chan struct{} }

func (l *closedLimiter) TryAccept() bool { return false }
func (l *closedLimiter) Accept()         { <-l.open }
func (l *closedLimiter) Stop()           {}
func (l *closedLimiter) QPS() float32    { return 1 }

func (l *closedLimiter) Wait(ctx context.Context) error {
	select {
	case <-l.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestNodeAgent_RateLimiter checks that a limiter that holds statuses back does not hold back what containers need.
func TestNodeAgent_RateLimiter(t *testing.T) {
	server := heraldtest.NewAPIServer()
	limiter := &closedLimiter{open: make(chan struct{})}
	config := newConfig(t)
	config.API, config.AllowAPIPods = server.Config(), true
	config.API.RateLimiter = limiter
	server.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Data: map[string]string{"colour": "red"}})
	server.AddPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "shop"},
		Spec: v1.PodSpec{
			NodeName: "n1", HostNetwork: true, RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{Name: "main", Image: "host", Command: []string{"true"}}},
			Volumes: []v1.Volume{{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "web"},
			}}}},
		},
	})
	run(t, config, func(n *nodeagent.NodeAgent) {
		defer close(limiter.open)
		eventually(t, "the pod to end", func() bool {
			pods := n.Agent.LocalPods()
			return len(pods) == 1 && pods[0].Status.Phase == v1.PodSucceeded
		})
		for _, request := range server.Requests("patch") {
			if request.Resource == "pods" {
				t.Error("a status was sent through a closed limiter")
			}
		}
	})
}
