// Package arch describes the module's layout: its packages, what each is for, and which imports are allowed. Its tests
// check the code against that description.
package arch

// Layer groups packages by what they may do. Imports point to lower layers, or stay inside a package's folder.
type Layer string

// Layers, lowest first.
const (
	Vocabulary  Layer = "vocabulary"
	Decisions   Layer = "decisions"
	Components  Layer = "components"
	Composition Layer = "composition"
	Commands    Layer = "commands"
	Tools       Layer = "internal tools" // checks of this repository
)

// Package is an entry of the layout. It covers all folders below Path that have no entry of their own.
type Package struct {
	Path    string
	Layer   Layer
	Purpose string
	// MayImport lists packages beyond those that the layer allows.
	MayImport []string
	// Modules lists restricted modules or packages that this package may import, see restricted.
	Modules []string
}

// Layout lists every package of the module. A package without an entry, or an import that is not allowed here, fails the
// test. To change the layout, change this table and explain why in docs/adr.
var Layout = []Package{
	{Path: ".", Layer: Commands, Purpose: "module documentation"},

	{Path: "podid", Layer: Vocabulary, Purpose: "typed pod identities: UID, MirrorUID, FullName, Source"},
	{
		Path: "observed", Layer: Vocabulary, Purpose: "runtime state of a pod: Pod, Sandbox, Container",
		MayImport: []string{"podid"},
	},

	{Path: "event", Layer: Vocabulary, Purpose: "the event recorder interface", Modules: []string{"k8s.io/apimachinery/pkg/runtime"}},
	{Path: "internal/wakeup", Layer: Vocabulary, Purpose: "a level-triggered wake-up signal"},
	{
		Path: "internal/apierror", Layer: Decisions, Purpose: "classifies API server errors and caps Retry-After",
		Modules: []string{"net", "net/http", "syscall"}, // error types and status codes only
	},
	{Path: "internal/unixsocket", Layer: Decisions, Purpose: "checks the paths of unix sockets"},
	{
		Path: "source/manifest", Layer: Decisions, MayImport: []string{"internal/image", "internal/restart"},
		Purpose: "decodes manifests into static pods: strict, with defaults, validation and hash; errors name line and field",
	},

	{Path: "internal/image", Layer: Decisions, Purpose: "parses image names"},
	{Path: "internal/restart", Layer: Decisions, Purpose: "restart policies and rules: whether an exited container restarts"},
	{
		Path: "derive", Layer: Decisions, MayImport: []string{"internal/restart"},
		Purpose: "computes v1.PodStatus from spec, runtime state, probe results and the previous status",
	},
	{
		Path: "admission", Layer: Decisions, MayImport: []string{"derive", "internal/restart"},
		Purpose: "decides whether a node runs a pod, and which others end for a critical one",
	},
	{
		Path: "cgroup", Layer: Decisions, MayImport: []string{"derive"},
		Purpose: "names and values of the cgroups of pods, QoS classes and all pods",
	},
	{
		Path: "resize", Layer: Decisions, MayImport: []string{"cgroup", "derive"},
		Purpose: "decides about in-place resizes: their order, what they change, the steps that apply them",
	},
	{
		Path: "plan", Layer: Decisions, MayImport: []string{"derive", "internal/restart", "resize"},
		Purpose: "computes pod actions: containers to start and stop, restart back-off, the pod lifecycle",
	},
	{
		Path: "eviction", Layer: Decisions, MayImport: []string{"derive", "load"},
		Purpose: "decides which pods must leave the node: limits of local storage, and pressure of the node",
	},
	{Path: "imagegc", Layer: Decisions, Purpose: "decides which images a node removes: unused ones, by age and by the space that is left"},
	{
		Path: "provision/resolve", Layer: Decisions,
		Purpose: "resolves references in a pod spec: fields, resources, $(NAME), service variables, volume files",
	},
	{
		Path: "internal/table", Layer: Decisions, MayImport: []string{"derive", "internal/restart"},
		Purpose: "prints pods as kubectl get pods does",
	},
	{
		Path: "explain", Layer: Decisions, MayImport: []string{"derive", "internal/restart", "internal/table", "plan"},
		Purpose: "says why a pod is not Ready, not Running, not deleted, or restarting",
	},
	{Path: "load", Layer: Decisions, Purpose: "computes the load of a node and its pods from samples: windows, saturation, level, forecast"},
	{
		Path: "stats/summary", Layer: Decisions, MayImport: []string{"load"},
		Purpose: "builds the kubelet's /stats/summary from samples",
	},
	{
		Path: "view", Layer: Decisions,
		MayImport: []string{"alert", "derive", "explain", "internal/restart", "internal/table", "load", "plan", "transition"},
		Purpose:   "the objects of the query API: pods and the node with what only the node knows",
	},
	{
		Path: "query", Layer: Decisions,
		MayImport: []string{"explain", "expression", "view"},
		Purpose:   "selects pods and pages of the query API: selectors, expressions, cursors, times",
	},
	{
		Path: "expression", Layer: Decisions, Modules: []string{"cel.dev/cel-go"}, MayImport: []string{"alert/recent", "explain", "view"},
		Purpose: "CEL expressions over pods, containers and the node, with limits of cost",
	},
	{Path: "alert", Layer: Decisions, Purpose: "alerts, their states, matchers and silences"},
	{
		Path: "alert/engine", Layer: Decisions,
		MayImport: []string{"alert", "alert/recent", "alert/rule", "alert/state", "transition", "view"},
		Purpose:   "evaluates rules for the node, its pods and containers at changes and timers, and keeps the alerts",
	},
	{
		Path: "alert/recent", Layer: Decisions, MayImport: []string{"transition"},
		Purpose: "counts what happened to pods, containers and the node in windows of time",
	},
	{
		Path: "alert/rule", Layer: Decisions, MayImport: []string{"alert", "expression", "remedy", "view"},
		Modules: []string{"sync"}, // the environments and the default rules are created once
		Purpose: "reads alert rules: strict files, compiled expressions with limits of cost, the default rules",
	},
	{
		Path: "alert/ruletest", Layer: Decisions,
		MayImport: []string{"alert", "alert/engine", "alert/rule", "derive", "explain", "transition", "view"},
		Purpose:   "runs rules over timelines in virtual time and compares the alerts with expectations",
	},
	{Path: "alert/state", Layer: Decisions, MayImport: []string{"alert"}, Purpose: "the state machine of one alert"},
	{Path: "remedy", Layer: Decisions, Purpose: "decides whether an action that a rule asks for is carried out: limits, protection, breaker"},
	{
		Path: "transition", Layer: Decisions, MayImport: []string{"derive", "internal/table"},
		Purpose: "describes how a pod's or the node's status changed: typed changes, cause, summary",
	},
	{
		Path: "node/report", Layer: Decisions, MayImport: []string{"eviction"},
		Purpose: "computes the Node status, lease and events from machine facts",
	},
	{
		Path: "probe/judge", Layer: Decisions, MayImport: []string{"derive"},
		Purpose: "probe state machine: when a probe is due, thresholds, results",
	},
	{Path: "status/patch", Layer: Decisions, Purpose: "builds the pod status patch"},
	{Path: "auth/attributes", Layer: Decisions, Purpose: "decides which permissions a request to the node's server needs"},

	{Path: "internal/nodeaddress", Layer: Components, Purpose: "rejects probe and hook targets on the node and metadata services"},
	{Path: "internal/latency", Layer: Components, Purpose: "how long an operation took in the last 15 minutes"},
	{Path: "internal/poddir", Layer: Components, Purpose: "locates the directories of pods"},
	{Path: "internal/nolinks", Layer: Components, Purpose: "opens files below a directory without following links"},
	{Path: "internal/permission", Layer: Components, Purpose: "checks that only trusted users can modify a file"},
	{
		Path: "source", Layer: Components, MayImport: []string{"source/manifest", "internal/permission"},
		Purpose: "watches pods in a directory, a URL and the API server, and merges them into one stream of updates",
	},
	{
		Path: "pod", Layer: Components,
		Purpose: "Pod Manager: the pods assigned to this node, and the mapping between static and mirror pods",
	},
	{Path: "pod/mirror", Layer: Components, Purpose: "creates and deletes the mirror pods of static pods in the API server"},
	{
		Path: "status", Layer: Components, MayImport: []string{"status/patch", "checkpoint", "internal/latency"},
		Purpose: "Status Manager: versioned cache, priority queue, one patch per change, reconcile, final delete",
	},
	{
		Path: "allocation", Layer: Components, MayImport: []string{"checkpoint"},
		Purpose: "Allocation Manager: resources allocated to pods, and the state of their resizes",
	},
	{
		Path: "worker", Layer: Components, MayImport: []string{"checkpoint"},
		Purpose: "pod workers: sync, terminate and clean up each pod in order",
	},
	{
		Path: "probe", Layer: Components, MayImport: []string{"probe/check"},
		Purpose: "prober: schedules container probes and publishes results",
	},
	{
		Path: "probe/check", Layer: Components, MayImport: []string{"internal/nodeaddress"},
		Purpose: "probe handlers: exec, HTTP, TCP, gRPC",
	},
	{
		Path: "pleg", Layer: Components, MayImport: []string{"internal/latency"},
		Purpose: "pod lifecycle event generator: relists the runtime, caches pod state, reports changes",
	},
	{Path: "event/broadcaster", Layer: Components, Purpose: "sends events to the API server and keeps the most recent"},
	{
		Path: "node", Layer: Components, MayImport: []string{"eviction", "node/report"},
		Purpose: "registers the Node, updates its status and renews its lease",
	},
	{
		Path: "containerlog", Layer: Components, MayImport: []string{"containerlog/entry", "internal/nolinks"},
		Purpose: "reads and follows the logs of containers: instance, rotated files, one watcher for all followers",
	},
	{
		Path: "containerlog/entry", Layer: Decisions,
		Purpose: "decodes container logs: parses entries, selects lines, finds the last ones",
	},
	{
		Path: "history", Layer: Components,
		Purpose: "records every version of every pod's status and every change of the node in bounded, checksummed files",
	},
	{
		Path: "stats", Layer: Components, MayImport: []string{"checkpoint"},
		Purpose: "samples the use of resources of the machine and its pods",
	},
	{
		Path: "stats/disk", Layer: Components, MayImport: []string{"stats/summary"},
		Purpose: "measures what pods use of the node's disk when somebody asks, and remembers it",
	},
	{
		Path: "action", Layer: Components, MayImport: []string{"checkpoint"},
		Purpose: "carries out the actions of alert rules that remedy allows, and writes them down first",
	},
	{
		Path: "notify", Layer: Components, MayImport: []string{"checkpoint"},
		Purpose: "delivers alerts to Alertmanager, webhooks, Kubernetes Events and the log: at least once, firing before resolved",
	},
	{
		Path: "alert/manager", Layer: Components, MayImport: []string{"checkpoint", "internal/permission"},
		Purpose: "runs the alert rules: what happens goes in, alerts on disk come out; watches rule files",
	},
	{
		Path: "certificate", Layer: Components, MayImport: []string{"certificate/rotation", "internal/permission"},
		Purpose: "requests, renews, keeps and reloads the node's certificates and the authorities of its clients",
	},
	{
		Path: "certificate/rotation", Layer: Decisions,
		Purpose: "decides when a node needs another certificate, whether one fits, and when to ask again",
	},
	{Path: "checkpoint", Layer: Components, Purpose: "atomic, checksummed, versioned state files"},
	{
		Path: "kubeapi", Layer: Components, MayImport: []string{"internal/latency"},
		Purpose: "typed API client over client-go's REST client",
	},

	{
		Path: "auth", Layer: Components, MayImport: []string{"internal/permission"},
		Purpose: "authenticates and authorizes requests to the node's server, by the API server or by files",
	},

	{Path: "internal/httpmetrics", Layer: Components, Purpose: "counts the requests to the agent's HTTP servers"},
	{Path: "internal/streamwriter", Layer: Components, Purpose: "lets an HTTP response last as long as its client reads it"},
	{Path: "internal/stall", Layer: Components, Purpose: "tells when processes stall for lack of a resource (PSI)"},
	{Path: "internal/diskusage", Layer: Components, Purpose: "measures how much space directories take on disk"},
	{
		Path: "eviction/manager", Layer: Components, MayImport: []string{"derive", "eviction"},
		Purpose: "evicts pods that exceed limits of local storage, and pods of a node that is short of a resource",
	},
	{
		Path: "imagegc/manager", Layer: Components, MayImport: []string{"checkpoint", "imagegc"},
		Purpose: "removes images that no container uses, and remembers when each was last used",
	},
	{
		Path: "provision", Layer: Components, MayImport: []string{"provision/resolve", "internal/diskusage", "internal/poddir"},
		Purpose: "prepares volumes and container environment",
	},
	{
		Path: "cri", Layer: Components, Modules: []string{"k8s.io/cri-api"},
		MayImport: []string{
			"cgroup/host", "cgroup/usage", "cri/criconfig", "cri/pullmanager", "internal/diskusage", "internal/latency",
			"internal/nodeaddress", "internal/nolinks", "internal/permission", "internal/poddir",
		},
		Purpose: "CRI client: images, sandboxes, containers, logs, exec",
	},
	{
		Path: "stream", Layer: Components, Modules: []string{"k8s.io/cri-api"},
		Purpose: "connects clients of exec, attach and port-forward with streams of the runtime: SPDY and web sockets",
	},
	{
		Path: "cri/criconfig", Layer: Decisions, Modules: []string{"k8s.io/cri-api"},
		MayImport: []string{"admission", "cgroup", "derive", "plan", "provision/resolve", "internal/restart"},
		Purpose:   "translates a pod spec into CRI sandbox and container configurations",
	},
	{
		Path: "cri/pullmanager", Layer: Components, MayImport: []string{"internal/image"},
		Purpose: "records image pulls and decides whether a pod may use an image that the node has",
	},
	{
		Path: "cgroup/host", Layer: Components, MayImport: []string{"cgroup"},
		Purpose: "reads the machine's cgroup version and what its controllers can limit",
	},
	{
		Path: "cgroup/usage", Layer: Components, MayImport: []string{"cgroup/host"},
		Purpose: "reads what the processes of a cgroup use, from the files of versions 1 and 2",
	},
	{
		Path: "cgroup/manager", Layer: Components, MayImport: []string{"cgroup", "cgroup/host"},
		Purpose: "creates, repairs and removes the cgroups of pods, QoS classes and all pods",
	},
	{
		Path: "process", Layer: Components, Modules: []string{"k8s.io/cri-api"},
		MayImport: []string{"cgroup/host", "cgroup/usage", "internal/permission"},
		Purpose:   "CRI server that runs containers as host processes, each under a shim that outlives the server",
	},

	{
		Path: "inspect", Layer: Composition, MayImport: []string{"agent"},
		Purpose: "collects what the components know about pods and the node: views, verdicts, restarts",
	},
	{
		Path: "deed", Layer: Composition, MayImport: []string{"internal/permission"},
		Purpose: "carries out actions: snapshots, probes, restarts, evictions, cordon, webhooks, programs",
	},
	{
		Path: "nodeserver", Layer: Composition,
		Purpose: "the kubelet's HTTPS server: pods, stats, metrics, health, logs and streams of containers",
	},
	{
		Path: "nodeagent", Layer: Composition, MayImport: []string{"agent", "deed", "inspect", "nodeserver"},
		Purpose: "builds a complete node agent from one flat configuration",
	},
	{
		Path: "server/page", Layer: Composition, MayImport: []string{"server"},
		Purpose: "a web page of one node over the query API: static shell, one-time codes, tokens",
	},
	{Path: "server", Layer: Composition, Purpose: "local HTTP API: pods, health, metrics, queries"},
	{
		Path: "localapi", Layer: Composition, MayImport: []string{"internal/table"},
		Purpose: "read-only Kubernetes API of one node, for kubectl and informers without an API server",
	},
	{Path: "podsapi", Layer: Composition, Purpose: "the kubelet's Pods API: gRPC on a local socket to list, get and watch pods"},
	{Path: "agent", Layer: Composition, Purpose: "connects the components: the only package where they meet"},

	{
		Path: "cmd/herald", Layer: Commands, Modules: []string{"github.com/spf13/cobra"},
		MayImport: []string{
			"auth", "certificate", "history", "notify", "process", "source", "source/manifest", "checkpoint", "cri/pullmanager",
			"internal/permission",
		},
		Purpose: "the herald command: run, status, get, top, explain, history, check, config, demo and others",
	},
	{
		Path: "heraldtest", Layer: Commands, MayImport: []string{"kubeapi"},
		Purpose: "public test kit: in-memory API server, HTTP faults, in-memory runtime, builders",
	},

	{
		Path: "examples/virtualkubelet", Layer: Commands, Purpose: "example: a virtual-kubelet style provider",
		MayImport: []string{"kubeapi", "node", "pod", "source", "status"},
	},

	{Path: "internal/arch", Layer: Tools, Purpose: "this layout and its tests"},
	{Path: "internal/rules", Layer: Tools, Purpose: "maps rules of docs/behaviour.md and docs/node-rules.md to tests"},
	{Path: "internal/docblocks", Layer: Tools, Purpose: "finds the code blocks of documents and the commands in them, for tests"},
	{Path: "internal/testreport", Layer: Tools, Purpose: "lists failed and skipped tests with their reasons"},
}

// Rules that check.go applies to every package. Pure layers must not perform effects, so the imports and calls
// that effects need are forbidden there.
var (
	pureLayers    = []Layer{Vocabulary, Decisions}
	effectImports = []string{
		"os", "os/exec", "net", "net/http", "log", "log/slog", "sync", "sync/atomic", "syscall", "math/rand", "math/rand/v2",
	}
	effectCalls = map[string][]string{
		"time": {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick"},
	}
	vocabularyImports = []string{"k8s.io/apimachinery/pkg/types"}
	bannedNames       = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "pkg", "lib"}
	neverImported     = []string{
		"k8s.io/kubernetes", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "sigs.k8s.io/controller-runtime",
		"k8s.io/apiserver", "k8s.io/kubectl", "github.com/google/cadvisor",
	}
	restricted      = []string{"k8s.io/cri-api", "k8s.io/cri-client", "github.com/spf13/cobra", "cel.dev/cel-go"}
	maxStructFields = 15
)

// below lists the layers that each layer may import.
var below = map[Layer][]Layer{
	Vocabulary:  {},
	Decisions:   {Vocabulary},
	Components:  {Vocabulary, Decisions},
	Composition: {Vocabulary, Decisions, Components},
	Commands:    {Vocabulary, Decisions, Composition},
	Tools:       {},
}
