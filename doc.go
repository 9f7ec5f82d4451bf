// Package herald is the tour of the house; the code is in the rooms below it.
//
// Herald keeps a node's pods and what the cluster is told about them in agreement: the kubelet's pod-status pipeline as
// importable packages, and as an agent that one runs.
//
// The way of a pod through the house:
//
//	manifest folder ─┐
//	URL ─────────────┼─> source ──> pod ──> worker ──> derive ──> status ──> API server
//	API server ──────┘    merge     address    │ ▲                               │
//	      ▲                         book       ▼ │ pleg                          │
//	      │                                 runtime                              │
//	      └──────────── watch ──────── mirror pods <────────────────────────────┘
//
// Start with the words: [github.com/heraldnode/herald/podid] has the names by which a node knows its pods, and
// [github.com/heraldnode/herald/observed] what a runtime says about them.
//
// Pods come in through [github.com/heraldnode/herald/source], which reads a folder, a URL and the API server and merges
// them into one stream of changes. What the author of a manifest wrote becomes a pod in
// [github.com/heraldnode/herald/source/manifest], without I/O, so that it can be used alone to check manifests.
//
// [github.com/heraldnode/herald/pod] is the address book: which pods this node should run, which of them are static, and
// which object in the API server reflects each. It also keeps those reflections, the mirror pods, in being.
//
// What the API should say about a pod is computed in [github.com/heraldnode/herald/derive], as pure functions, and reported
// by [github.com/heraldnode/herald/status], one request for each change. Small state that must survive a crash is kept by
// [github.com/heraldnode/herald/checkpoint].
//
// Between them, [github.com/heraldnode/herald/worker] brings each pod from what is to what should be, step by step, as
// [github.com/heraldnode/herald/plan] decides. What runs is seen by [github.com/heraldnode/herald/pleg] and done by
// [github.com/heraldnode/herald/cri], in containerd, CRI-O or plain processes ([github.com/heraldnode/herald/process]).
//
// [github.com/heraldnode/herald/agent] is where all of them meet, [github.com/heraldnode/herald/assembly] a whole node of one
// flat configuration, and cmd/herald the program.
//
// [github.com/heraldnode/herald/kubeapi] is the API server as Herald talks to it, and
// [github.com/heraldnode/herald/heraldtest] is what you need to test your own agent: an API server in memory, and faults
// for HTTP traffic.
//
// Where a line of code belongs is written in docs/architecture.md, and checked by internal/arch. Rule and bug numbers in
// comments (PM-5, CFG-18, BUG-30) are those of docs/behaviour.md.
package herald
