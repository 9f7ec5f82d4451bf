// Package resize decides about in-place resizes: changes of the CPU and memory of running pods.
//
// A pod's resources exist three times (RSZ-1): desired by its spec, allocated by the node, and actuated by the runtime and the
// pod's cgroup. A resize is pending while desired and allocated resources differ, and in progress while allocated and actuated
// ones do.
//
//	desired ── Compare, Verdict ──> allocated ── Changed, Steps ──> actuated
package resize
