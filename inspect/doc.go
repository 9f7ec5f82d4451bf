// Package inspect answers questions about the pods of a node agent: it collects what the agent's components and the history know
// about a pod, and turns it into views and verdicts.
//
//	pod manager, status manager, workers, prober, PLEG, sources, history
//	         └── explain.Facts ──> view.NewPod, explain.Pod
//
// Lists read memory only, once per component. The history is read when one pod is to be explained.
package inspect
