package view

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
)

// APIVersion is the version of all objects of this package.
const APIVersion = "heraldnode.github.io/v1alpha1"

// PodView is a pod as the node sees it, beside what the API server has.
type PodView struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // PodView
	Metadata   Metadata `json:"metadata"`
	// Source is where the pod comes from: file, http or api.
	Source string `json:"source"`
	Spec   Spec   `json:"spec"`
	Local  Status `json:"local"`
	// Synced is the status of the API object. It is absent without an API server, and until the API server has one.
	Synced *Status `json:"synced,omitempty"`
	Lag    Lag     `json:"lag"`
	Worker Worker  `json:"worker"`
	Probes []Probe `json:"probes,omitempty"`
	// Waiting has the containers that wait for a start.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Stopping has the containers that are being stopped.
	Stopping []Stopping `json:"stopping,omitempty"`
	Why      Why        `json:"why"`
	// Load is absent unless it was asked for, and for a pod that was not measured yet.
	Load *PodLoad `json:"load,omitempty"`
}

// Metadata identifies an object.
type Metadata struct {
	Namespace         string            `json:"namespace,omitempty"`
	Name              string            `json:"name"`
	UID               string            `json:"uid,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	CreationTimestamp *Time             `json:"creationTimestamp,omitempty"`
	DeletionTimestamp *Time             `json:"deletionTimestamp,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	// OwnerKind is the kind of the controller.
	OwnerKind string `json:"ownerKind,omitempty"`
}

// Spec has what a reader of the status needs of the spec.
type Spec struct {
	NodeName      string      `json:"nodeName,omitempty"`
	RestartPolicy string      `json:"restartPolicy,omitempty"`
	Priority      int32       `json:"priority,omitempty"`
	HostNetwork   bool        `json:"hostNetwork,omitempty"`
	Static        bool        `json:"static,omitempty"`
	Containers    []Container `json:"containers"`
}

// Container is a container of the spec.
type Container struct {
	Name string `json:"name"`
	// Kind is init, sidecar, regular or ephemeral.
	Kind  string `json:"kind"`
	Image string `json:"image"`
}

// Status is one version of a pod's status.
type Status struct {
	// Version rises with each change, for one run of the agent.
	Version uint64 `json:"version,omitempty"`
	At      *Time  `json:"at,omitempty"`
	// Summary is the columns STATUS, READY and RESTARTS of `herald get pods`, such as "Running 1/1 r0".
	Summary string `json:"summary"`
	// ResourceVersion is that of the API object.
	ResourceVersion string       `json:"resourceVersion,omitempty"`
	Status          v1.PodStatus `json:"status"`
}

// Lag says how far the API server is behind.
type Lag struct {
	State explain.SyncState `json:"state"`
	// Behind counts versions. SinceMs is the age of the oldest.
	Behind  int   `json:"behind"`
	SinceMs int64 `json:"sinceMs"`
	// TookMs is the time from the newest acknowledged version to its acknowledgement.
	TookMs   int64  `json:"tookMs,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Failures int    `json:"failures,omitempty"`
	NextTry  *Time  `json:"nextTry,omitempty"`
}

// Worker is the state of the pod's worker.
type Worker struct {
	// Stage is sync, terminating, terminated or finished.
	Stage    string `json:"stage"`
	Trouble  string `json:"trouble,omitempty"`
	Failures int    `json:"failures,omitempty"`
	RetryAt  *Time  `json:"retryAt,omitempty"`
}

// Probe is the state of a probe.
type Probe struct {
	Container string              `json:"container"`
	Kind      explain.ProbeKind   `json:"kind"`
	Target    string              `json:"target"`
	Verdict   explain.ProbeResult `json:"verdict"`
	Streak    int                 `json:"streak"`
	// StreakFailed says that the streak is one of failures.
	StreakFailed bool    `json:"streakFailed,omitempty"`
	Threshold    int     `json:"threshold"`
	Errors       int     `json:"errors,omitempty"`
	Last         *Answer `json:"last,omitempty"`
	// P50Ms and MaxMs are of the time that the last 16 checks of this instance took.
	P50Ms int64 `json:"p50Ms,omitempty"`
	MaxMs int64 `json:"maxMs,omitempty"`
	Next  *Time `json:"next,omitempty"`
}

// Answer is the answer to a check.
type Answer struct {
	At      *Time  `json:"at"`
	TookMs  int64  `json:"tookMs"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
}

// Waiting is a container that waits for a start.
type Waiting struct {
	Container string `json:"container"`
	Reason    string `json:"reason"`
	Message   string `json:"message,omitempty"`
	Until     *Time  `json:"until,omitempty"`
	Failures  int    `json:"failures,omitempty"`
	DelayMs   int64  `json:"delayMs,omitempty"`
}

// Stopping is a container that is being stopped.
type Stopping struct {
	Container string `json:"container"`
	Reason    string `json:"reason"`
	Since     *Time  `json:"since,omitempty"`
	KillAt    *Time  `json:"killAt,omitempty"`
}

// Why is the worst that is wrong with the pod, see explain.
type Why struct {
	OK   bool   `json:"ok"`
	Code string `json:"code"`
	// Class is healthy, ended, progress or problem.
	Class explain.Class `json:"class"`
	// Text is one line without the name of the pod: the column WHY.
	Text  string `json:"text"`
	Since *Time  `json:"since,omitempty"`
}

// IsReady reports whether the local status is Ready.
func (v *PodView) IsReady() bool {
	for i := range v.Local.Status.Conditions {
		if condition := &v.Local.Status.Conditions[i]; condition.Type == v1.PodReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}
