// Package agent makes one node's agent of the stages: it is the only place where they meet.
//
//	sources ──> address book ──> workers ──> runtime
//	               │                ▲  │
//	            mirrors       lists │  └──> statuses ──> API server
//	                               pleg
//
// An [Agent] runs with or without an API server, and with any runtime that has the methods of [Runtime]. Ending it leaves
// the containers running; the next one finds them and goes on.
package agent
