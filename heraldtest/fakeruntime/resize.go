package fakeruntime

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// ResizePod changes the resources of running containers, which InspectPod then reports. The transcript has one line for each
// container and one for the pod.
func (r *Runtime) ResizePod(
	ctx context.Context, pod *v1.Pod, _ string, change resize.Change, actuated func(string, resize.Quantities) error,
) error {
	uid := podid.UID(pod.UID)
	for i := range change.Containers {
		step := &change.Containers[i]
		name := step.Spec.Name
		err := r.call(ctx, Call{Method: "ResizePod", PodUID: uid, Container: name}, func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			container := r.containerLocked(step.ID)
			if container == nil || container.observed.State != observed.Running {
				return fmt.Errorf("resize container %s: it is not running", step.ID)
			}
			container.observed.Resources = &observed.Resources{
				MilliCPURequest: &step.Desired.MilliCPURequest, MilliCPULimit: &step.Desired.MilliCPULimit, MemoryLimitBytes: &step.Desired.MemoryLimit,
			}
			r.recordLocked("resize %s/%s %s", podid.FullNameOf(pod), name, formatQuantities(step.Desired))
			r.notifyLocked(uid)
			return nil
		})
		if err != nil {
			return err
		}
		if err := actuated(name, step.Desired); err != nil {
			return err
		}
	}
	whole := resize.Of(pod)[resize.PodLevel]
	err := r.call(ctx, Call{Method: "ResizePod", PodUID: uid}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.recordLocked("resize %s %s", podid.FullNameOf(pod), formatQuantities(whole))
		return nil
	})
	if err != nil {
		return err
	}
	return actuated(resize.PodLevel, whole)
}

func formatQuantities(q resize.Quantities) string {
	return fmt.Sprintf("cpu %d/%d memory %d/%d", q.MilliCPURequest, q.MilliCPULimit, q.MemoryRequest, q.MemoryLimit)
}
