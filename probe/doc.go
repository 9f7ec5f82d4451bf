// Package probe asks running containers how they are, and tells those who need to know: the Status Manager what is ready
// and started, the workers what must be restarted.
//
// One loop knows when each probe is due; a check runs in a goroutine of its own, for at most one timeout per attempt. A
// probe has at most one check under way, so that the number of probes bounds what is open at one time, and none waits for
// another's: a limit across pods would let a pod that hangs delay the liveness of its neighbours (F24).
//
// Package probe/judge decides, package probe/check asks.
package probe
