// Package bench measures Herald beside the kubelet's own code, in one process and one run. Absolute times depend on the
// machine and on who else uses it; what counts is the ratio of the two sides, taken in turns.
package bench

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"text/tabwriter"
)

// Case is one thing that both sides can do.
type Case struct {
	// Name stands in the RATIO line.
	Name string
	// What says in a few words what is done once.
	What            string
	Kubelet, Herald func(*testing.B)
}

// Result is what was measured of one case: medians over all rounds.
type Result struct {
	Case            Case
	Kubelet, Herald Cost
	// Ratio is the kubelet's time divided by Herald's: above 1, Herald is faster. It is the median of the rounds' ratios.
	Ratio float64
}

// Cost is what doing it once takes.
type Cost struct {
	Nanoseconds float64
	Allocs      int64
}

// Run measures the cases, each in that many rounds of both sides, in turns, so that a busy moment of the machine hits
// both.
func Run(cases []Case, rounds int, progress io.Writer) []Result {
	var results []Result
	for i, c := range cases {
		fmt.Fprintf(progress, "[%d/%d] %s\n", i+1, len(cases), c.What)
		results = append(results, measure(c, rounds))
	}
	return results
}

func measure(c Case, rounds int) Result {
	var kubelet, herald, ratios []float64
	r := Result{Case: c}
	for range rounds {
		k, h := testing.Benchmark(c.Kubelet), testing.Benchmark(c.Herald)
		kubelet, herald = append(kubelet, perOp(k)), append(herald, perOp(h))
		ratios = append(ratios, perOp(k)/perOp(h))
		r.Kubelet.Allocs, r.Herald.Allocs = k.AllocsPerOp(), h.AllocsPerOp()
	}
	r.Kubelet.Nanoseconds, r.Herald.Nanoseconds, r.Ratio = median(kubelet), median(herald), median(ratios)
	return r
}

func perOp(r testing.BenchmarkResult) float64 {
	return float64(r.T.Nanoseconds()) / float64(max(r.N, 1))
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// Print writes the results for people, and then a line `RATIO <name> <value>` each for machines.
func Print(out io.Writer, results []Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "what\tkubelet\tallocs\tHerald\tallocs\tratio\t")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%.2f\t\n", r.Case.What, duration(r.Kubelet.Nanoseconds), r.Kubelet.Allocs,
			duration(r.Herald.Nanoseconds), r.Herald.Allocs, r.Ratio)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the results: %w", err)
	}
	fmt.Fprintln(out)
	for _, r := range results {
		fmt.Fprintf(out, "RATIO %s %.2f\n", r.Case.Name, r.Ratio)
	}
	return nil
}

func duration(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.1f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.1f us", ns/1e3)
	default:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	}
}
