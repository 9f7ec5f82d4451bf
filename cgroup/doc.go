// Package cgroup computes the cgroups of a node's pods as the kubelet does: their names under both drivers, and the values
// that the cgroups of all pods, of a QoS class and of one pod have. It performs no I/O: cgroup/manager applies the values.
package cgroup
