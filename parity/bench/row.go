package bench

import (
	"fmt"
	"math"
)

// Row is one number of the report, and what it is made of.
type Row struct {
	// Name stands in the RATIO line.
	Name string
	// What says in a few words what is measured.
	What string
	// Kubelet and Herald are what each side gave, for people.
	Kubelet, Herald string
	// Value is the kubelet's number divided by Herald's, unless What says otherwise.
	Value float64
	Goal  Goal
}

// Goal is what a value should be. The zero value is no goal.
type Goal struct{ least, most float64 }

// AtLeast is a goal that higher values meet.
func AtLeast(value float64) Goal { return Goal{least: value, most: math.Inf(1)} }

// AtMost is a goal that lower values meet.
func AtMost(value float64) Goal { return Goal{most: value} }

func (g Goal) String() string {
	switch {
	case g == Goal{}:
		return ""
	case math.IsInf(g.most, 1):
		return fmt.Sprintf(">= %g", g.least)
	default:
		return fmt.Sprintf("<= %g", g.most)
	}
}

// verdict is the goal, and whether the row misses it.
func (r Row) verdict() string {
	if r.Goal != (Goal{}) && (r.Value < r.Goal.least || r.Value > r.Goal.most) {
		return r.Goal.String() + ", missed"
	}
	return r.Goal.String()
}

// duration words a time in nanoseconds.
func duration(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.1f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.1f us", ns/1e3)
	case ns < 1e9:
		return fmt.Sprintf("%.1f ms", ns/1e6)
	default:
		return fmt.Sprintf("%.2f s", ns/1e9)
	}
}
