package sidebyside_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// act is what somebody does to a pod.
type act func(ctx context.Context, s *side, pod *v1.Pod) error

// deletes is kubectl delete, with the pod's own grace if there is no other.
func deletes(grace *int64) act {
	return func(ctx context.Context, s *side, p *v1.Pod) error {
		return s.Admin.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
	}
}

func patches(patch string, subresources ...string) act {
	return func(ctx context.Context, s *side, p *v1.Pod) error {
		_, err := s.Admin.CoreV1().Pods(p.Namespace).Patch(
			ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func opens(gate string) act {
	return patches(fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True"}]}}`, gate), "status")
}

// labels sets a label, and says to the recorder that it was not the agent's doing.
func labels(name string) act {
	return patches(fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"},"annotations":{%q:"1"}}}`, name, recorder.ForeignMark))
}

func exchanges(container, image string) act {
	return patches(fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q}]}}`, container, image))
}

// debugs is what kubectl debug does.
func debugs(ctx context.Context, s *side, p *v1.Pod) error {
	p = p.DeepCopy()
	for name, args := range map[string][]string{"shell": {"pause"}, "once": {"exit", "3"}} {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: name, Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Args: args,
			},
		})
	}
	_, err := s.Admin.CoreV1().Pods(p.Namespace).UpdateEphemeralContainers(ctx, p.Name, p, metav1.UpdateOptions{})
	return err
}
