package view

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// NodeView is the node as its agent sees it, beside what the API server has.
type NodeView struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // NodeView
	Metadata   Metadata `json:"metadata"`
	// Spec is that of the Node object.
	Spec v1.NodeSpec `json:"spec"`
	// Local and Synced are statuses of the Node object. Synced is absent without an API server.
	Local   NodeStatus  `json:"local"`
	Synced  *NodeStatus `json:"synced,omitempty"`
	Lag     Lag         `json:"lag"`
	Pods    PodCounts   `json:"pods"`
	Agent   Agent       `json:"agent"`
	Runtime Runtime     `json:"runtime"`
	Connection
	Sources []Source `json:"sources"`
	History History  `json:"history"`
	// Load is absent if the agent does not measure it.
	Load *NodeLoad `json:"load,omitempty"`
	// Alerting is absent if the agent evaluates no rules.
	Alerting *Alerting `json:"alerting,omitempty"`
}

// Connection is that to the API server.
type Connection struct {
	// Cluster is the URL of the API server. Empty without one.
	Cluster string `json:"cluster,omitempty"`
	Lease   *Lease `json:"lease,omitempty"`
	// CertificateExpires is when the certificate ends with which the agent authenticates to the API server. Absent without one.
	CertificateExpires *Time `json:"certificateExpires,omitempty"`
	// CertificateProblem is what keeps the node from having valid certificates, and what to do about it. Empty if there is none.
	CertificateProblem string `json:"certificateProblem,omitempty"`
}

// Alerting is the state of rules, alerts and actions.
type Alerting struct {
	// Rules counts the rules. RulesBroken counts those whose last evaluation failed, RulesUnknown those with an answer that has been
	// unknown for 10 minutes.
	Rules        int `json:"rules"`
	RulesBroken  int `json:"rulesBroken"`
	RulesUnknown int `json:"rulesUnknown"`
	Firing       int `json:"firing"`
	Pending      int `json:"pending"`
	// Suppressed counts alerts that do not exist because of the limits of their number.
	Suppressed int `json:"suppressed"`
	// SinksFailing counts receivers of alerts that have not accepted one for 10 minutes although there are some to deliver.
	SinksFailing int `json:"sinksFailing"`
	// FilesBroken counts rule files whose last good version is used instead.
	FilesBroken int `json:"filesBroken"`
	// RemediesExhausted counts objects for which an action did not help twice in a row. ActionsSuspended is set while too many pods
	// fail at once for any of them to be acted upon.
	RemediesExhausted int  `json:"remediesExhausted"`
	ActionsSuspended  bool `json:"actionsSuspended"`
}

// NodeStatus is a status of the Node object.
type NodeStatus struct {
	At     *Time         `json:"at,omitempty"`
	Status v1.NodeStatus `json:"status"`
}

// Lease is the node's lease.
type Lease struct {
	RenewedAt  *Time  `json:"renewedAt,omitempty"`
	DurationMs int64  `json:"durationMs"`
	Problem    string `json:"problem,omitempty"`
}

// PodCounts counts the pods of the node. Total is the sum of the others.
type PodCounts struct {
	Total    int   `json:"total"`
	Max      int64 `json:"max"`
	Ready    int   `json:"ready"`
	Starting int   `json:"starting"`
	// Ended counts pods that have succeeded, or that are being deleted without a problem.
	Ended   int `json:"ended"`
	NotWell int `json:"notWell"`
}

// Agent is the agent itself.
type Agent struct {
	Version   string `json:"version"`
	StartedAt *Time  `json:"startedAt"`
	RSSBytes  int64  `json:"rssBytes,omitempty"`
	// CPU is the share of a core since the start.
	CPU       float64   `json:"cpu,omitempty"`
	Latencies Latencies `json:"latencies"`
}

// Latencies are times that 99 of 100 operations of the last 15 minutes did not exceed. Those without an operation are absent.
type Latencies struct {
	// StatusLagP99Ms is the time from a change of a pod's status until the API server had it, OldestUnsentMs the age of the oldest change
	// that it does not have. Both are absent without an API server.
	StatusLagP99Ms *int64 `json:"statusLagP99Ms,omitempty"`
	OldestUnsentMs *int64 `json:"oldestUnsentMs,omitempty"`
	// APIP99Ms is that of requests to the API server, RuntimeP99Ms of calls to the runtime that do not wait for something else, RelistP99Ms
	// of listing all pods of the runtime.
	APIP99Ms     *int64 `json:"apiP99Ms,omitempty"`
	RuntimeP99Ms *int64 `json:"runtimeP99Ms,omitempty"`
	RelistP99Ms  *int64 `json:"relistP99Ms,omitempty"`
}

// NewLatency returns a duration in milliseconds, rounded up, or nil if it is not known.
func NewLatency(duration time.Duration, known bool) *int64 {
	if !known {
		return nil
	}
	return new((duration + time.Millisecond - 1).Milliseconds())
}

// Runtime is the container runtime.
type Runtime struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Problem string `json:"problem,omitempty"`
	Network string `json:"network,omitempty"` // the problem of the network
	// RelistedAt is when the runtime was last observed completely.
	RelistedAt *Time `json:"relistedAt,omitempty"`
	// Stale is set if it was not observed for so long that the states of containers are not known.
	Stale bool `json:"stale,omitempty"`
}

// Source is a source of pods.
type Source struct {
	Name string `json:"name"` // file, http or api
	// State is ok, waiting or error.
	State      string    `json:"state"`
	Origin     string    `json:"origin"` // the path or URL
	Pods       int       `json:"pods"`
	LastChange *Time     `json:"lastChange,omitempty"`
	Problems   []Problem `json:"problems,omitempty"`
	// Ignored has files of the folder that are no manifests, with the reason.
	Ignored []string `json:"ignored,omitempty"`
}

// Problem is a manifest or a source that cannot be used.
type Problem struct {
	// Pod is namespace and name, if known.
	Pod     string `json:"pod,omitempty"`
	Message string `json:"message"`
	Since   *Time  `json:"since,omitempty"`
	// LastGood is when the version that runs instead was read.
	LastGood *Time `json:"lastGood,omitempty"`
}

// History is the history of statuses.
type History struct {
	Bytes   int64  `json:"bytes"`
	Oldest  *Time  `json:"oldest,omitempty"`
	LastSeq uint64 `json:"lastSeq"`
	Problem string `json:"problem,omitempty"`
}
