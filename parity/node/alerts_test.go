package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest"
)

const cordonRule = `apiVersion: heraldnode.github.io/v1alpha1
kind: AlertRules
groups:
- name: test
  rules:
  - alert: Cordoned
    on: node
    expr: node.unschedulable
    condition: {type: Cordoned, reason: SomebodyCordoned}
    annotations: {summary: nothing is scheduled here}
`

// awaitCondition waits until the Node has the condition with this status, or none if it is empty.
func (h *harness) awaitCondition(conditionType v1.NodeConditionType, status v1.ConditionStatus) (found v1.NodeCondition) {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		node, err := h.Admin.CoreV1().Nodes().Get(h.t.Context(), h.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		found = v1.NodeCondition{}
		for _, condition := range node.Status.Conditions {
			if condition.Type == conditionType {
				found = condition
			}
		}
		if found.Status != status {
			return fmt.Errorf("condition %s: got %q, want %q in %+v", conditionType, found.Status, status, node.Status.Conditions)
		}
		return nil
	})
	return found
}

func (h *harness) setUnschedulable(value bool) {
	h.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, value)
	_, err := h.Admin.CoreV1().Nodes().Patch(h.t.Context(), h.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestA9_NodeCondition sets and removes a condition of the Node with the permissions of a node: NodeRestriction allows it. It survives a
// kill of the agent.
func TestA9_NodeCondition(t *testing.T) {
	h := newOwnNode(t, "conditions")
	folder := filepath.Join(filepath.Dir(h.configFile()), "alerts.d")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "a.yaml")
	if err := os.WriteFile(file, []byte(cordonRule), 0o600); err != nil {
		t.Fatal(err)
	}
	h.awaitCondition("Cordoned", v1.ConditionFalse)
	h.awaitCondition("ContainerRuntimeUnhealthy", v1.ConditionFalse) // of a default rule
	h.setUnschedulable(true)
	first := h.awaitCondition("Cordoned", v1.ConditionTrue)
	if first.Reason != "SomebodyCordoned" || first.Message != "nothing is scheduled here" {
		t.Errorf("got %+v", first)
	}
	if err := h.stopAgent(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := h.startAgent(); err != nil {
		t.Fatal(err)
	}
	if again := h.awaitCondition("Cordoned", v1.ConditionTrue); !again.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("got transition %v after a restart, want %v", again.LastTransitionTime, first.LastTransitionTime)
	}
	h.setUnschedulable(false)
	h.awaitCondition("Cordoned", v1.ConditionFalse)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	h.awaitCondition("Cordoned", "")
	h.awaitCondition(v1.NodeReady, v1.ConditionTrue)
}
