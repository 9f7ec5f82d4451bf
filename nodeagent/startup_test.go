package nodeagent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/nodeagent"
)

// slowAPI fails the first creation of a Node and needs three seconds for each.
type slowAPI struct {
	node.API
	calls int
}

func (a *slowAPI) CreateNode(_ context.Context, object *v1.Node) (*v1.Node, error) {
	time.Sleep(3 * time.Second)
	if a.calls++; a.calls == 1 {
		return nil, errors.New("not now")
	}
	return object, nil
}

func nodeWithReady(status v1.ConditionStatus) *v1.Node {
	return &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}}}
}

func TestStartupTracker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		api, observe, err := nodeagent.NewStartupTracker(&slowAPI{}, time.Now().Add(-time.Minute), registry)
		if err != nil {
			t.Fatal(err)
		}
		expect := func(preAgent, preRegistration, registration, postRegistration, total float64) {
			t.Helper()
			want := map[string]float64{
				"pre_kubelet_": preAgent, "pre_registration_": preRegistration, "registration_": registration,
				"post_registration_": postRegistration, "": total,
			}
			families, err := registry.Gather()
			if err != nil || len(families) != len(want) {
				t.Fatalf("got %v, error %v", families, err)
			}
			for _, family := range families {
				name := strings.TrimSuffix(strings.TrimPrefix(family.GetName(), "kubelet_node_startup_"), "duration_seconds")
				if got := family.GetMetric()[0].GetGauge().GetValue(); got != want[name] {
					t.Errorf("%s: got %v, want %v", family.GetName(), got, want[name])
				}
			}
		}
		time.Sleep(2 * time.Second)
		observe(nodeWithReady(v1.ConditionTrue)) // not registered yet
		for range 2 {
			_, _ = api.CreateNode(t.Context(), nodeWithReady(v1.ConditionFalse))
		}
		observe(nodeWithReady(v1.ConditionFalse))
		expect(60, 2, 6, 0, 0)
		time.Sleep(4 * time.Second)
		for range 2 { // the second time changes nothing
			observe(nodeWithReady(v1.ConditionTrue))
			expect(60, 2, 6, 4, 72)
			time.Sleep(time.Second)
		}
	})
}
