package bench

import (
	"context"
	"fmt"
	"time"
)

// bursts lets pods turn Running at once, with 0, 5 and 20 ms added to each request.
func bursts(ctx context.Context, lab *Lab) ([]Row, error) {
	var rows []Row
	sent := &tally{}
	goals := map[time.Duration]Goal{5 * time.Millisecond: AtLeast(6), 20 * time.Millisecond: AtLeast(15)}
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		b := burst{pods: lab.Effort.BurstPods, line: line{delay: delay}}
		row, err := lab.bothBurst(ctx, b, sent)
		if err != nil {
			return nil, err
		}
		row.Name = fmt.Sprintf("burst%d_%dms", b.pods, delay.Milliseconds())
		row.What = fmt.Sprintf("%d pods turn Running at once, %v added to each request: time until all is visible", b.pods, delay)
		row.Goal = goals[delay]
		rows = append(rows, row)
	}
	return append(rows, sent.row("requests_per_change", "requests for a change of status: Herald's")), nil
}

// limitedBurst is a burst with the client limits that the kubelet has by default, on both sides.
func limitedBurst(ctx context.Context, lab *Lab) ([]Row, error) {
	b := burst{pods: lab.Effort.BurstPods, line: line{qps: 50, burst: 100}}
	row, err := lab.bothBurst(ctx, b, &tally{})
	row.Name = fmt.Sprintf("burst%d_qps50", b.pods)
	row.What = fmt.Sprintf("%d pods turn Running at once, clients limited to 50 requests a second, 100 at once", b.pods)
	row.Goal = AtLeast(1.9)
	return []Row{row}, err
}

// bothBurst measures a burst on both sides in turns.
func (l *Lab) bothBurst(ctx context.Context, b burst, sent *tally) (Row, error) {
	l.say("%d pods turn Running, %v added to each request, limit %v/s", b.pods, b.line.delay, b.line.qps)
	measure := func(begin start, requests *int) func() (float64, error) {
		return func() (float64, error) {
			out, err := l.burst(ctx, b, begin)
			*requests += out.requests
			return out.visible.Seconds(), err
		}
	}
	took, err := inTurns(l.Effort.Bursts, measure(startKubelet, &sent.kubelet), measure(startHerald, &sent.herald))
	if err != nil {
		return Row{}, fmt.Errorf("a burst of %d pods: %w", b.pods, err)
	}
	sent.changes += b.pods * l.Effort.Bursts
	return Row{Kubelet: seconds(median(took[0])), Herald: seconds(median(took[1])), Value: ratio(took[0], took[1])}, nil
}

// tally counts requests over several measurements.
type tally struct{ kubelet, herald, changes int }

// row is how many requests there were for each change.
func (t *tally) row(name, what string) Row {
	kubelet, herald := float64(t.kubelet)/float64(t.changes), float64(t.herald)/float64(t.changes)
	return Row{
		Name: name, What: what, Kubelet: fmt.Sprintf("%.2f", kubelet), Herald: fmt.Sprintf("%.2f", herald),
		Value: herald, Goal: AtMost(1.02),
	}
}
