package explain

import "time"

// Verdict is the answer to a question.
type Verdict struct {
	// OK reports that nothing is wrong: the answer to WhyNotReady is OK if and only if the Ready condition is True.
	OK bool `json:"ok"`
	// Code identifies the leaf of the decision tree, such as CrashLoopBackOff. docs/explain.md lists all.
	Code string `json:"code"`
	// Headline is one line.
	Headline string `json:"headline"`
	// Summary is the reason alone, without the pod's name and without the next step; see [Short].
	Summary string `json:"summary"`
	// Container is the container that the headline is about, if it is about one.
	Container string `json:"container,omitempty"`
	// Since is when it became so. Zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Chain gives the reasons, the nearest one first.
	Chain []Because `json:"chain,omitempty"`
	// Next is the next automatic step.
	Next Step `json:"next"`
	// Changes says what would change it.
	Changes []string `json:"changes,omitempty"`
	// Evidence has the last lines of the container that the headline is about.
	Evidence []Line `json:"evidence,omitempty"`
	// Final reports that nothing will ever change it without somebody's doing.
	Final bool `json:"final,omitempty"`
}

// Because is one reason.
type Because struct {
	// Rule is the rule of docs/behaviour.md that was applied, such as PH-7.
	Rule string `json:"rule,omitempty"`
	Text string `json:"text"`
	// Input is the fact that the rule was applied to, as field and value.
	Input string    `json:"input,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// Actor is who takes a step.
type Actor string

// The actors.
const (
	ByHerald    Actor = "herald"
	ByRuntime   Actor = "runtime"
	ByContainer Actor = "container"
	ByCluster   Actor = "cluster"
	ByNobody    Actor = "nobody"
)

// Step is something that will happen by itself.
type Step struct {
	What string `json:"what"`
	// At is when. Zero if nobody can know, or if By is ByNobody.
	At time.Time `json:"at,omitzero"`
	By Actor     `json:"by"`
	// Then is what follows from the step.
	Then string `json:"then,omitempty"`
}

// Line is a line of a container's log.
type Line struct {
	Container string `json:"container"`
	Text      string `json:"text"`
}
