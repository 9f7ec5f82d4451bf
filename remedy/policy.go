package remedy

import "time"

// Type is what an action does.
type Type string

// The types of actions.
const (
	Snapshot         Type = "snapshot"          // saves logs, history and state of the object
	Probe            Type = "probe"             // checks the probes once
	RestartContainer Type = "restart-container" // stops a container gracefully; its restart policy starts it again
	RestartPod       Type = "restart-pod"       // restarts all containers of a static pod, evicts a pod of the API server
	Cordon           Type = "cordon"            // makes the node unschedulable
	Webhook          Type = "webhook"           // tells a program of the operator
	Run              Type = "run"               // runs a program of the operator
)

// Policy is an action of a rule and its limits. Zero fields mean the defaults of the type.
type Policy struct {
	Type Type
	// Enforce carries the action out. Otherwise everything happens but the deed.
	Enforce bool
	// Max is how often the action may be done for one object within Per.
	Max int
	Per time.Duration
	// CoolDown is the time between two of these actions for one object.
	CoolDown time.Duration
	// ResolvedWithin is how long after the action the alert must be resolved. After that, the action did not help.
	ResolvedWithin time.Duration
	// Pods names critical pods for which the action is allowed, as namespace/name.
	Pods []string
	// Target is the name of a webhook or a program of the agent's configuration.
	Target string
}
