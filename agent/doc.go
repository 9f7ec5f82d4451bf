// Package agent composes the components into a node agent. Components do not import each other; this package connects
// them.
//
//	sources ──> pod manager ──> workers ──> runtime
//	               │                ▲  │
//	            mirrors      changes│  └──> status manager ──> API server
//	                               PLEG
//
// An [Agent] runs with or without an API server, and with any [Runtime]. Stopping it leaves the containers running; the next
// agent adopts them.
package agent
