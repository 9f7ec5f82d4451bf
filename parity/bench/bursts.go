package bench

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/heraldnode/herald/parity/controlplane"
)

// burstPods is how many pods turn Running at once.
const burstPods = 300

// BurstResult is one burst on both sides.
type BurstResult struct {
	Delay           time.Duration
	Kubelet, Herald Outcome
	// Ratio is the kubelet's time divided by ours, the median of the rounds' ratios.
	Ratio float64
}

// Bursts lets 300 pods turn Running at once, with 0, 5 and 20 ms added to each request, both sides in turns.
func Bursts(ctx context.Context, cluster *controlplane.ControlPlane, rounds int, progress io.Writer) ([]BurstResult, error) {
	var results []BurstResult
	burst := &Burst{Cluster: cluster, Pods: burstPods}
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		fmt.Fprintf(progress, "%d pods turn Running, %v added to each request\n", burstPods, delay)
		burst.Delay = delay
		result, err := inTurns(ctx, burst, rounds)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

func inTurns(ctx context.Context, burst *Burst, rounds int) (BurstResult, error) {
	result := BurstResult{Delay: burst.Delay}
	var ratios, kubelet, herald []float64
	for range rounds {
		var err error
		if result.Kubelet, err = burst.Kubelet(ctx); err != nil {
			return result, fmt.Errorf("the kubelet's manager: %w", err)
		}
		if result.Herald, err = burst.Herald(ctx); err != nil {
			return result, fmt.Errorf("our manager: %w", err)
		}
		kubelet, herald = append(kubelet, result.Kubelet.Visible.Seconds()), append(herald, result.Herald.Visible.Seconds())
		ratios = append(ratios, result.Kubelet.Visible.Seconds()/result.Herald.Visible.Seconds())
	}
	result.Ratio = median(ratios)
	result.Kubelet.Visible = time.Duration(median(kubelet) * float64(time.Second))
	result.Herald.Visible = time.Duration(median(herald) * float64(time.Second))
	return result, nil
}

// PrintBursts writes the results for people, and RATIO lines for machines.
func PrintBursts(out io.Writer, results []BurstResult) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%d pods at once, added\tkubelet\trequests\tHerald\trequests\tratio\t\n", burstPods)
	for _, r := range results {
		fmt.Fprintf(table, "%v\t%v\t%d\t%v\t%d\t%.2f\t\n", r.Delay, r.Kubelet.Visible.Round(time.Millisecond), r.Kubelet.Requests,
			r.Herald.Visible.Round(time.Millisecond), r.Herald.Requests, r.Ratio)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the bursts: %w", err)
	}
	fmt.Fprintln(out)
	requests := 0
	for _, r := range results {
		fmt.Fprintf(out, "RATIO burst%d_%dms %.2f\n", burstPods, r.Delay.Milliseconds(), r.Ratio)
		requests += r.Herald.Requests
	}
	fmt.Fprintf(out, "RATIO requests_per_change %.2f\n", float64(requests)/float64(burstPods*len(results)))
	return nil
}
