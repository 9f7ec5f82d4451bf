package agent

import v1 "k8s.io/api/core/v1"

// PodsWithStatus are the pods that this node should run, in no order, each with the newest status that the node has of it:
// on a node alone too, and never older than what the API server shows (PM-16). They must not be modified.
func (a *Agent) PodsWithStatus() []*v1.Pod {
	pods := a.Pods.GetPods()
	for i, p := range pods {
		status, known := a.Statuses.GetPodStatus(p.UID)
		if !known {
			continue
		}
		shown := *p
		shown.Status = status
		pods[i] = &shown
	}
	return pods
}
