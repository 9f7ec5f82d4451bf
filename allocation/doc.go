// Package allocation is the Allocation Manager: it records the resources that each pod was allocated, and the state of
// every pod resize.
//
// A pod keeps the resources that it was allocated until a resize of it is accepted, whatever its spec asks for. The
// allocations survive a restart of the agent: a setter returns after the checkpoint was written (SM-81..87). Resize
// conditions are held in memory only, because the API server has them too: BackfillPodResizeConditions reads them back
// (SM-92).
//
// Setting a resize condition sends nothing. It reaches the API server with the next pod status, which is computed from
// ResizeState (SM-93).
package allocation
