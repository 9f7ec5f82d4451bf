// Package nodeserver serves a node to its cluster: the kubelet's HTTPS server on port 10250 and its health server on 10248.
//
//	GET /healthz, /healthz/NAME          ok, or 500; ?verbose lists the checks, ?exclude=NAME leaves one out
//	GET /pods                            a v1.PodList with the node's own statuses; ?watch=true streams changes
//	GET /runningpods/                    the pods that run in the container runtime
//	GET, POST /stats/summary             use of resources
//	GET /metrics, /metrics/resource, /metrics/probes, /metrics/slis
//	GET /configz                         the configuration as a KubeletConfiguration
//	GET /containerLogs/NAMESPACE/POD/CONTAINER
//	GET, POST /exec, /attach, /portForward; POST /run
//	GET /logs/                           files of /var/log
//	GET /debug/pprof/
//
// Paths, status codes and bodies are the kubelet's. The differences are these: every request is authenticated and authorized before it
// is routed; a port that is taken does not stop the agent; short requests, streams and connections are limited separately; /pods has no
// null items and can be watched; /logs does not follow links that leave its directory. docs/server.md explains them.
//
// A Server does not authenticate by itself: Config.Require is the filter that does, package auth has one. NewContainerHandler serves the
// paths of containers without authentication, for callers that have done it.
package nodeserver
