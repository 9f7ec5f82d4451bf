// Package assembly makes a whole node's agent of one flat configuration: sources, runtime, volumes, statuses, queries. It is
// what `herald run` runs, and what a program that only wants to be a node imports; whoever wants other parts puts an
// agent.Agent together by hand, as New does it.
package nodeagent
