// Command bench measures Herald beside the kubelet's own code and prints tables and RATIO lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/heraldnode/herald/parity/bench"
	"github.com/heraldnode/herald/parity/controlplane"
)

func main() {
	mode := flag.String("mode", "full", "how long to measure: short (under three minutes) or full")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), `bench measures Herald beside the kubelet's own code, in one process, in turns.

Ratios are the kubelet's time divided by Herald's: above 1, Herald is faster. Absolute times depend on the machine.

`)
		flag.PrintDefaults()
	}
	flag.Parse()
	rounds, known := map[string]rounds{"short": {calls: 2, bursts: 1}, "full": {calls: 9, bursts: 3}}[*mode]
	if !known {
		fmt.Fprintf(os.Stderr, "bench: -mode=%s: want short or full\n", *mode)
		os.Exit(2)
	}
	klog.SetLogger(logr.Discard()) // what the kubelet's code has to say about its end is of no interest
	if err := run(context.Background(), rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// rounds is how often both sides are measured in turns.
type rounds struct{ calls, bursts int }

func run(ctx context.Context, r rounds) (err error) {
	if err := calls(r.calls); err != nil {
		return err
	}
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	cluster, err := controlplane.Start(ctx, controlplane.Config{Binaries: binaries})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	bursts, err := bench.Bursts(ctx, cluster, r.bursts, os.Stderr)
	if err != nil {
		return err
	}
	return bench.PrintBursts(os.Stdout, bursts)
}

// calls measures what single calls cost.
func calls(rounds int) error {
	dir, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for manifests: %w", err)
	}
	defer os.RemoveAll(dir)
	manifests, err := bench.Manifests(dir)
	if err != nil {
		return err
	}
	statuses, err := bench.Statuses()
	if err != nil {
		return err
	}
	cases := append(append(bench.PodManager(), manifests...), statuses...)
	return bench.Print(os.Stdout, bench.Run(cases, rounds, os.Stderr))
}
