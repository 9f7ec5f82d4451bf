package bench

import (
	"math"
	"slices"
)

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
