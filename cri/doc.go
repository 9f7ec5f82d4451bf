// Package cri runs pods in a container runtime that serves the container runtime interface v1: containerd, CRI-O or package
// process. It manages sandboxes, containers, images, logs and commands.
//
// Package criconfig translates pod specs; this package performs the calls. Labels, annotations, log paths, events and
// metrics are the kubelet's, so either agent can take over a node without restarting a container (PW-53).
//
// Images are pulled but never removed; image garbage collection is left to the runtime or its operator. An image on the
// machine is available to every pod, regardless of whose credentials pulled it, unless imagePullPolicy is Always.
// CollectGarbage removes the remains of exited containers and RotateLogs rotates logs; both run only when called.
//
// The connection is plain gRPC: every call takes its caller's context and has a deadline of its own, a call after a restart
// of the runtime reconnects, and New performs no I/O.
package cri
