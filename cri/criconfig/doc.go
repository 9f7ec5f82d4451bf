// Package criconfig translates a pod spec into the sandbox and container configurations of the container runtime interface:
// labels, annotations, mounts, DNS, hostname, hosts file, security context, resources, cgroup and namespaces.
//
// All functions are pure. The caller reads resolv.conf and /etc/hosts, resolves volumes, variables and image users, and
// passes the results in. Labels, annotations and log paths are the kubelet's, so either agent can take over a node without
// restarting a container (PW-53).
package criconfig
