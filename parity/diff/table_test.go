package diff_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/heraldnode/herald/internal/table"
)

var kubectlTable = printers.NewTableGenerator().With(internalversion.AddHandlers)

// kubectlRow returns what kubectl prints of a pod.
func kubectlRow(pod *v1.Pod) ([]any, error) {
	var internal core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &internal, nil); err != nil {
		return nil, err
	}
	printed, err := kubectlTable.GenerateTable(&internal, printers.GenerateOptions{Wide: true})
	if err != nil {
		return nil, err
	}
	return printed.Rows[0].Cells, nil
}

func heraldRow(pod *v1.Pod) []any {
	r := table.NewRow(pod, time.Now())
	return []any{r.Name, r.Ready, r.Status, r.Restarts, r.Age, r.IP, r.Node, r.NominatedNode, r.ReadinessGates}
}

var compareTable = newComparison(
	func(g *generator) *v1.Pod {
		pod := generatePod(g)
		pod.Status = *generateStatus(g, pod)
		pod.Status.NominatedNodeName = oneOf(g, "", "n2")
		if len(pod.Status.PodIPs) == 0 {
			pod.Status.PodIP = "" // as the API server stores it
		}
		if g.chance(20) {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		pod.Status.Reason = oneOf(g, "", "", "Evicted", "NodeLost")
		if g.chance(5) {
			pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Reason: v1.PodReasonSchedulingGated})
		}
		return pod
	},
	func(pod *v1.Pod) string {
		theirs, err := kubectlRow(pod)
		if err != nil {
			return err.Error()
		}
		if ours := heraldRow(pod); !slices.Equal(theirs, ours) {
			return fmt.Sprintf("kubectl: %q\nours:    %q", theirs, ours)
		}
		return ""
	},
)

func TestTable_SameRows(t *testing.T) { compareTable.run(t) }
