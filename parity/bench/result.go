package bench

import (
	"fmt"
	"math"
	"slices"
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

// inTurns measures the sides in that many rounds, each round in another order, so that a busy moment of the machine, or
// what one side leaves behind, hits all. It returns the numbers of each side, by round.
func inTurns(rounds int, sides ...func() (float64, error)) ([][]float64, error) {
	numbers := make([][]float64, len(sides))
	for round := range rounds {
		for i := range sides {
			side := (i + round) % len(sides)
			number, err := sides[side]()
			if err != nil {
				return nil, err
			}
			numbers[side] = append(numbers[side], number)
		}
	}
	return numbers, nil
}

// ratio is the median of the rounds' ratios.
func ratio(above, below []float64) float64 {
	ratios := make([]float64, len(above))
	for i := range above {
		ratios[i] = above[i] / below[i]
	}
	return median(ratios)
}

func median(numbers []float64) float64 { return quantile(numbers, 0.5) }

// quantile is the smallest number that at least that share of the numbers does not exceed.
func quantile(numbers []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}
