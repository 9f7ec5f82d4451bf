package admission

import v1 "k8s.io/api/core/v1"

// CheckResize returns why the node does not give a pod that it runs the resources of its spec, or nil. A critical pod is no exception:
// nothing is preempted for a resize.
func CheckResize(pod *v1.Pod, node Node, others []*v1.Pod) *Rejection {
	if rejection := Check(pod, node, others); rejection != nil {
		return rejection
	}
	ordinary := *pod
	ordinary.Spec.Priority, ordinary.Annotations = nil, nil
	return checkResources(&ordinary, node, others)
}
