// Package server answers questions about one node over HTTP: which pods it has and how they are by its own knowledge, whether
// the agent is well, and its metrics.
//
//	GET /                what can be asked
//	GET /pods            a v1.PodList; with ?watch=true a stream of watch events, as the API server sends them
//	GET /healthz         "ok", or what is wrong with status 500
//	GET /metrics         for Prometheus
//
// Whoever can ask is not asked who he is. So it listens on loopback addresses and Unix sockets only, and refuses requests that a
// browser was tricked into by a foreign name for this machine. Nothing can be changed through it, and who asks too often, too
// slowly or does not read his answers harms nobody but others who ask.
package server
