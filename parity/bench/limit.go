package bench

import (
	"context"
	"fmt"
	"time"
)

// ourWorkers is the default of status.Config.Workers.
const ourWorkers = 16

// burstBesideLimit compares our burst with the same patches sent by nothing but a client.
func burstBesideLimit(ctx context.Context, lab *Lab) ([]Row, error) {
	b := burst{pods: lab.Effort.BurstPods, line: line{delay: 5 * time.Millisecond}}
	lab.say("%d pods turn Running, beside bare patches", b.pods)
	took, err := inTurns(max(lab.Effort.Bursts, 3),
		lab.timeBurst(ctx, b, startHerald),
		lab.timeBurst(ctx, b, startBare(ourWorkers)), lab.timeBurst(ctx, b, startBare(2*ourWorkers)))
	if err != nil {
		return nil, fmt.Errorf("a burst beside bare patches: %w", err)
	}
	best := make([]float64, len(took[0]))
	for i := range best {
		best[i] = min(took[1][i], took[2][i])
	}
	row := func(name, how string, bare []float64) Row {
		return Row{
			Name: fmt.Sprintf("burst%d_%s_5ms", b.pods, name),
			What: fmt.Sprintf("%d pods turn Running at once, 5ms added: Herald's time divided by that of bare PATCHes, %s (%s)",
				b.pods, how, seconds(median(bare))),
			Herald: seconds(median(took[0])), Value: ratio(took[0], bare), Goal: AtMost(1.25),
		}
	}
	return []Row{
		row("limit", fmt.Sprintf("%d in flight as Herald", ourWorkers), took[1]),
		row("limit_best", fmt.Sprintf("the better of %d and %d in flight", ourWorkers, 2*ourWorkers), best),
	}, nil
}
