// Package herald documents the module; see the subpackages.
//
// Herald is the kubelet's pod-status pipeline as importable packages and as a node agent. A pod passes through it like this:
//
//	manifest folder ─┐
//	URL ─────────────┼─> source ──> pod ──> worker ──> derive ──> status ──> API server
//	API server ──────┘                        │ ▲                               │
//	      ▲                                   ▼ │ pleg                          │
//	      │                                runtime                              │
//	      └──────────── watch ──────── mirror pods <────────────────────────────┘
//
// # Vocabulary
//
// Package [github.com/heraldnode/herald/podid] defines typed pod identities, and package
// [github.com/heraldnode/herald/observed] the runtime state of a pod.
//
// # Decisions
//
// Pure packages map values to values. [github.com/heraldnode/herald/source/manifest] decodes manifests into static pods.
// [github.com/heraldnode/herald/derive] computes the status of a pod, and [github.com/heraldnode/herald/plan] the containers
// to start and stop.
//
// # Components
//
// [github.com/heraldnode/herald/source] merges the pods of a folder, a URL and the API server into one stream of updates.
// [github.com/heraldnode/herald/pod] is the pod manager, and [github.com/heraldnode/herald/pod/mirror] maintains mirror pods.
// [github.com/heraldnode/herald/worker] syncs each pod, [github.com/heraldnode/herald/pleg] observes the runtime,
// [github.com/heraldnode/herald/cri] drives containerd, CRI-O or host processes ([github.com/heraldnode/herald/process]), and
// [github.com/heraldnode/herald/probe] runs probes. [github.com/heraldnode/herald/status] is the status manager, which sends
// one request per change. [github.com/heraldnode/herald/allocation] keeps allocated resources,
// [github.com/heraldnode/herald/checkpoint] stores state on disk, [github.com/heraldnode/herald/kubeapi] is the API client.
//
// # Composition
//
// [github.com/heraldnode/herald/agent] connects the components, [github.com/heraldnode/herald/nodeagent] builds a complete
// node from a flat configuration, and cmd/herald is the program. [github.com/heraldnode/herald/heraldtest] helps to test
// agents: an in-memory API server, an in-memory runtime, and HTTP faults.
//
// docs/architecture.md says where code belongs, and internal/arch checks it. Rule and bug numbers in comments (PM-5, CFG-18,
// BUG-30) refer to docs/behaviour.md.
package herald
