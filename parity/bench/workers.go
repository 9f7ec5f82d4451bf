package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/heraldnode/herald/status"
)

// WorkersResult is what one setting of status.Config.Workers gives.
type WorkersResult struct {
	Workers int
	// Bursts are the times of a burst with 0, 5 and 20 ms added to each request, in seconds.
	Bursts [3]float64
	// ReadinessMedian and Readiness95 are the median and the 95th percentile of a readiness change behind others, in seconds.
	ReadinessMedian, Readiness95 float64
}

// Workers measures what the number of workers does to a burst, and to a readiness change behind others.
func Workers(ctx context.Context, lab *Lab, settings ...int) ([]WorkersResult, error) {
	results := make([]WorkersResult, len(settings))
	for i, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		lab.say("%d pods turn Running, %v added to each request, workers %v", lab.Effort.BurstPods, delay, settings)
		var sides []func() (float64, error)
		for _, workers := range settings {
			b := burst{pods: lab.Effort.BurstPods, line: line{delay: delay}}
			sides = append(sides, lab.timeBurst(ctx, b, startHeraldWith(status.Config{Workers: workers})))
		}
		took, err := inTurns(lab.Effort.Bursts, sides...)
		if err != nil {
			return nil, fmt.Errorf("bursts with workers %v: %w", settings, err)
		}
		for s := range settings {
			results[s].Bursts[i] = median(took[s])
		}
	}
	for s, workers := range settings {
		took, err := lab.readiness(ctx, startHeraldWith(status.Config{Workers: workers}), min(lab.Effort.Tries, 100))
		if err != nil {
			return nil, fmt.Errorf("readiness with %d workers: %w", workers, err)
		}
		results[s].Workers = workers
		results[s].ReadinessMedian, results[s].Readiness95 = median(took.behind), quantile(took.behind, 0.95)
	}
	return results, nil
}
