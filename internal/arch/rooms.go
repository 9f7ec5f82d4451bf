// Package arch holds the plan of the house: which rooms there are, what each is for, and who may import whom. Its tests
// hold the code against the plan.
package arch

// Layer is a floor of the house. Imports go down, or stay inside a room.
type Layer string

// The floors, lowest first.
const (
	Vocabulary  Layer = "vocabulary"
	Decisions   Layer = "decisions"
	Stages      Layer = "stages"
	Composition Layer = "composition"
	Faces       Layer = "faces"
	Workshop    Layer = "workshop" // what only this repository uses: its own checks
)

// Room is one package with all that is below its folder, unless a deeper room takes it over.
type Room struct {
	Path  string
	Layer Layer
	Job   string
	// MayImport names rooms beyond what the layer allows.
	MayImport []string
	// Outside names modules or packages from elsewhere that only these rooms may use, see restricted.
	Outside []string
}

// Rooms is the plan. A package that is in no room, or an import that is not allowed here, fails the test; a better cut is
// welcome: change this table and say why in docs/adr.
var Rooms = []Room{
	{Path: ".", Layer: Faces, Job: "the tour of the house"},

	{Path: "podid", Layer: Vocabulary, Job: "UID, MirrorUID, FullName, Source: names that must never be mixed up"},
	{
		Path: "observed", Layer: Vocabulary, Job: "Pod, Sandbox, Container as a runtime reported them",
		MayImport: []string{"podid"},
	},

	{
		Path: "source/manifest", Layer: Decisions, MayImport: []string{"image", "restart"},
		Job: "a manifest's bytes -> static pods: strict decoding, defaults, validation, hash; errors with line and field",
	},

	{Path: "image", Layer: Decisions, Job: "the names of container images"},
	{Path: "restart", Layer: Decisions, Job: "whether a container that has ended is started again, by rules and policies"},
	{
		Path: "derive", Layer: Decisions, MayImport: []string{"restart"},
		Job: "desired + observed + probes + previous -> v1.PodStatus: phase, conditions, container statuses, merge, equality",
	},
	{
		Path: "plan", Layer: Decisions, MayImport: []string{"restart"},
		Job: "which sandbox and containers to start or stop now; restart back-off; the lifecycle machine of one pod",
	},
	{
		Path: "provision/resolve", Layer: Decisions,
		Job: "what references in a pod's spec stand for: fields, resources, $(NAME), services' variables, files of a volume",
	},
	{
		Path: "table", Layer: Decisions, MayImport: []string{"restart"},
		Job: "what kubectl get pods would print of a pod: the same columns, the same words",
	},
	{
		Path: "node/report", Layer: Decisions,
		Job: "facts about the machine + what the Node says -> what it should say, its lease, its events",
	},
	{
		Path: "probe/judge", Layer: Decisions, MayImport: []string{"derive"},
		Job: "one probe of one container: whether to check it now, when to look again, what results mean",
	},
	{Path: "status/patch", Layer: Decisions, Job: "the one request by which a pod's status reaches the API server"},

	{
		Path: "source", Layer: Stages, MayImport: []string{"source/manifest"},
		Job: "pods from a directory, a URL, the API server, merged into one stream of changes",
	},
	{
		Path: "pod", Layer: Stages,
		Job: "the Pod Manager: the pods that this node should run, static <-> mirror; the keeper of the mirrors",
	},
	{
		Path: "status", Layer: Stages, MayImport: []string{"status/patch", "checkpoint"},
		Job: "the Status Manager: versioned cache, priority queue, one-request writer, reconcile, final delete",
	},
	{
		Path: "worker", Layer: Stages, MayImport: []string{"checkpoint"},
		Job: "one ordered stream of steps per pod: sync, terminating, terminated",
	},
	{
		Path: "probe", Layer: Stages, MayImport: []string{"probe/check"},
		Job: "how running containers are: when each probe is due, and who hears what it found",
	},
	{
		Path: "probe/check", Layer: Stages,
		Job: "one question to one container: a command, an HTTP request, a connection, gRPC's health protocol",
	},
	{Path: "pleg", Layer: Stages, Job: "what the runtime holds of each pod: lists, inspections, events as hints"},
	{Path: "event", Layer: Stages, Job: "the events of the node's pods: told to the API server, the newest kept here"},
	{
		Path: "node", Layer: Stages, MayImport: []string{"node/report"},
		Job: "the Node object and its lease: registered, kept true, kept alive; what the machine is and has",
	},
	{Path: "checkpoint", Layer: Stages, Job: "small durable state: atomic, checksummed, versioned files"},
	{
		Path: "kubeapi", Layer: Stages,
		Job: "the API server as Herald talks to it: pods, their status, nodes, over client-go's REST client",
	},

	{
		Path: "provision", Layer: Stages, MayImport: []string{"provision/resolve"},
		Job: "what a pod's containers are given: volumes as folders, environment as variables",
	},
	{
		Path: "cri", Layer: Stages, MayImport: []string{"provision/resolve"}, Outside: []string{"k8s.io/cri-api"},
		Job: "the runtime's side of a pod: images, sandboxes, containers, logs, commands, over the container runtime interface",
	},
	{
		Path: "process", Layer: Stages, Outside: []string{"k8s.io/cri-api"},
		Job: "a small CRI server whose containers are process groups of the machine, each with a shim that outlives the server",
	},

	{
		Path: "assembly", Layer: Composition, MayImport: []string{"agent"},
		Job: "a whole node's agent of one flat configuration: sources, runtime, volumes, statuses",
	},
	{Path: "server", Layer: Composition, Job: "questions about the node over HTTP: pods, health, metrics; on this machine only"},
	{Path: "agent", Layer: Composition, Job: "Config, New, Run: the only place where stages meet"},

	{
		Path: "cmd/herald", Layer: Faces, Outside: []string{"github.com/spf13/cobra"},
		MayImport: []string{"process", "cri", "source/manifest", "checkpoint"},
		Job:       "the herald command: run, get, check, config, demo; flags, configuration file, exit statuses",
	},
	{
		Path: "heraldtest", Layer: Faces, MayImport: []string{"kubeapi"},
		Job: "the public test kit: an API server double, faults on HTTP traffic, a container runtime in memory",
	},

	{Path: "internal/arch", Layer: Workshop, Job: "this plan, and the tests that hold the code against it"},
	{Path: "internal/rules", Layer: Workshop, Job: "which rule of the specification is named by which test"},
	{Path: "internal/skips", Layer: Workshop, Job: "lists at the end of a test run what was skipped, and why"},
}

// What the rules in check.go and source.go hold against every package. Pure layers decide and never act, so what acting
// needs is forbidden there, by import and by call.
var (
	pureLayers    = []Layer{Vocabulary, Decisions}
	actingImports = []string{
		"os", "os/exec", "net", "net/http", "log", "log/slog", "sync", "sync/atomic", "syscall", "math/rand", "math/rand/v2",
	}
	actingCalls = map[string][]string{
		"time": {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick"},
	}
	vocabularyFrom = []string{"k8s.io/apimachinery/pkg/types"}
	bannedNames    = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "pkg", "lib"}
	neverImported  = []string{
		"k8s.io/kubernetes", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "sigs.k8s.io/controller-runtime",
		"k8s.io/apiserver", "k8s.io/kubectl", "github.com/google/cadvisor",
	}
	restricted      = []string{"k8s.io/cri-api", "k8s.io/cri-client", "github.com/spf13/cobra", "cel.dev/cel-go"}
	maxStructFields = 15
)

// below lists the layers that a layer may import from.
var below = map[Layer][]Layer{
	Vocabulary:  {},
	Decisions:   {Vocabulary},
	Stages:      {Vocabulary, Decisions},
	Composition: {Vocabulary, Decisions, Stages},
	Faces:       {Vocabulary, Decisions, Composition},
	Workshop:    {},
}
