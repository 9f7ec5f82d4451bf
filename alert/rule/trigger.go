package rule

import (
	"strings"

	"github.com/heraldnode/herald/expression"
)

// triggersOf returns the changes after which an expression that reads something can have another answer. A rule about a pod is also
// evaluated when the pod appears. Answers about containers change also when the runtime falls silent, or answers again: the engine
// evaluates all rules about pods and containers then, so that OnNode stands only for rules that read the node.
func triggersOf(reads expression.Reads, scope Scope) Trigger {
	var triggers Trigger
	add := func(read expression.Reads, trigger Trigger) {
		if reads&read != 0 {
			triggers |= trigger
		}
	}
	add(expression.ReadsPod, OnStatus)
	add(expression.ReadsContainer, OnStatus)
	add(expression.ReadsProbe, OnProbe)
	add(expression.ReadsSync, OnSync)
	add(expression.ReadsLoad, OnLoad)
	add(expression.ReadsNode, OnNode)
	add(expression.ReadsSource, OnSource)
	add(expression.ReadsTime, OnTime)
	switch scope {
	case Pod, Container:
		triggers |= OnStatus
	case Node:
		triggers |= OnNode
	}
	return triggers
}

// String returns the names of the changes: "status, time".
func (t Trigger) String() string {
	var names []string
	for i, name := range [...]string{"status", "probe", "sync", "load", "node", "source", "time"} {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
