package view

import (
	"encoding/json"

	"github.com/heraldnode/herald/explain"
)

// PodViewList is the answer of /herald/v1/pods.
type PodViewList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // PodViewList
	// ID is where a watch continues after this list. 0 without a history.
	ID uint64 `json:"id"`
	// Continue is the cursor of the next page. Empty if there are no more pods.
	Continue string    `json:"continue,omitempty"`
	Items    []PodView `json:"items"`
}

// SourceList is the answer of /herald/v1/sources.
type SourceList struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // SourceList
	Items      []Source `json:"items"`
	// RuleFiles are the files with rules of alerts. Absent if there are none.
	RuleFiles []RuleFile `json:"ruleFiles,omitempty"`
}

// Explanation is the answer of /herald/v1/explain/NAMESPACE/NAME.
type Explanation struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // Explanation
	Metadata   Metadata `json:"metadata"`
	// Question is what was asked: Ready, Running, Deleted, Restarting, or empty for the worst that is wrong.
	Question explain.Question `json:"question"`
	Verdict  explain.Verdict  `json:"verdict"`
}

// WatchType is what happened to an object of a watch.
type WatchType string

// The types. Synced follows the objects that exist when the watch begins. Bookmark has no object: it tells a client that asked for it that
// the stream is alive. Error is the last event of a watch that failed.
const (
	Added    WatchType = "ADDED"
	Modified WatchType = "MODIFIED"
	Deleted  WatchType = "DELETED"
	Synced   WatchType = "SYNCED"
	Bookmark WatchType = "BOOKMARK"
	Error    WatchType = "ERROR"
)

// WatchEvent is one line of /herald/v1/watch.
type WatchEvent struct {
	// ID resumes the stream after this event. It is a sequence number of the history, and 0 in events before SYNCED.
	ID uint64 `json:"id"`
	// Topic is pods, node, alerts, load or history.
	Topic string    `json:"topic"`
	Type  WatchType `json:"type"`
	// Object is a PodView, a NodeView, an Alert, Loads or a record of the history; a Status in an error.
	Object json.RawMessage `json:"object,omitempty"`
}

// Restart is the answer of POST /herald/v1/restart.
type Restart struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Restart
	Namespace  string `json:"namespace"`
	Pod        string `json:"pod"`
	Container  string `json:"container"`
	// ContainerID is the instance that was stopped, ExitCode and TookMs how it ended and after what time.
	ContainerID string `json:"containerID"`
	ExitCode    int32  `json:"exitCode"`
	TookMs      int64  `json:"tookMs"`
}

// ProbeCheckList is the answer of POST /herald/v1/probe.
type ProbeCheckList struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"` // ProbeCheckList
	Items      []ProbeCheck `json:"items"`
}

// ProbeCheck is one check that changed no result.
type ProbeCheck struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"` // ProbeCheck
	Namespace  string            `json:"namespace"`
	Pod        string            `json:"pod"`
	Container  string            `json:"container"`
	ProbeKind  explain.ProbeKind `json:"probeKind"`
	Target     string            `json:"target"`
	Answer     Answer            `json:"answer"`
}
