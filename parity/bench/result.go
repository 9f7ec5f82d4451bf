package bench

import (
	"fmt"
	"math"
	"slices"
)

// Result is one number of the report.
type Result struct {
	// Name is the name in the RATIO line.
	Name string
	// Description says in a few words what is measured.
	Description string
	// Kubelet and Herald are the formatted values of each side.
	Kubelet, Herald string
	// Value is the kubelet's value divided by Herald's, unless Description says otherwise.
	Value float64
	Goal  Goal
}

// Goal is the bound that a value should meet. The zero value is no goal.
type Goal struct{ least, most float64 }

// AtLeast returns a goal that values from value up meet.
func AtLeast(value float64) Goal { return Goal{least: value, most: math.Inf(1)} }

// AtMost returns a goal that values up to value meet.
func AtMost(value float64) Goal { return Goal{least: math.Inf(-1), most: value} }

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

// goalText returns the goal and whether the result misses it.
func (r Result) goalText() string {
	if r.Goal != (Goal{}) && (r.Value < r.Goal.least || r.Value > r.Goal.most) {
		return r.Goal.String() + ", missed"
	}
	return r.Goal.String()
}

func formatNanoseconds(ns float64) string {
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

func formatSeconds(seconds float64) string { return formatNanoseconds(seconds * 1e9) }

// measureRounds measures the sides in alternating order, so that a busy moment of the machine, or what one side leaves
// behind, affects all sides. It returns the values of each side, by round.
func measureRounds(rounds int, sides ...func() (float64, error)) ([][]float64, error) {
	values := make([][]float64, len(sides))
	for round := range rounds {
		for i := range sides {
			side := (i + round) % len(sides)
			value, err := sides[side]()
			if err != nil {
				return nil, err
			}
			values[side] = append(values[side], value)
		}
	}
	return values, nil
}

// ratio returns the median of the per-round ratios.
func ratio(numerators, denominators []float64) float64 {
	ratios := make([]float64, len(numerators))
	for i := range numerators {
		ratios[i] = numerators[i] / denominators[i]
	}
	return median(ratios)
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the smallest value such that at least that share of the values do not exceed it.
func quantile(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}
