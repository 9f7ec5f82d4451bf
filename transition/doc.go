// Package transition describes how the status of a pod or of the node changed: typed changes between two statuses, what caused
// them, and a one-line summary of each status. It is pure.
//
//	changes := transition.AppendPod(nil, before, after)
//	cause := transition.PodCause(transition.PodFacts{Via: via, Pod: pod, After: after, Changes: changes})
package transition
