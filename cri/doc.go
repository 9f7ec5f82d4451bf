// Package cri is the runtime's side of a pod: sandboxes, containers, images, logs and commands, over the container
// runtime interface v1, as containerd, CRI-O and the process room serve it.
//
// What a pod's spec means in the runtime's terms is decided by pure functions (config_*.go); what is done about it is in
// the files named after the deed (sandbox.go, container.go, stop.go, remove.go). Labels, annotations, log paths, events
// and metrics are the kubelet's, so that a node can change hands without restarting a container (PW-53).
//
// Images are pulled (image*.go), and removed by nobody: that is left to the runtime or its operator. An image that is on
// the machine is open to every pod, whosever credentials fetched it, unless its imagePullPolicy is Always. What ended
// containers leave is collected (garbage*.go), and logs are rotated (rotate*.go), whenever the caller asks for it.
//
// The runtime is spoken to over gRPC directly: every call takes its caller's context and has a deadline of its own, a
// runtime that restarts is found again by the next call, and New touches nothing.
package cri
