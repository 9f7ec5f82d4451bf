// Command bench measures Herald beside the kubelet's own code, prints a table and RATIO lines, and writes docs/benchmarks.md
// and its plot.
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

// docs is where the report goes, seen from the parity module's folder, from which this command has to be run.
const docs = "../docs"

func main() {
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // the kubelet's code has put its own into the program's
	mode := flags.String("mode", "full", "how much to measure: short (under three minutes) or full")
	write := flags.Bool("write", false, "write "+docs+"/benchmarks.md and benchmarks.svg also in short mode; full always does")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), `bench measures Herald beside the kubelet's own code, in one process, in turns.

Ratios are the kubelet's time divided by Herald's, where the table does not say otherwise: above 1, Herald is faster.
Absolute times depend on the machine.

`)
		flags.PrintDefaults()
	}
	_ = flags.Parse(os.Args[1:]) // it exits
	effort, known := map[string]bench.Effort{"short": bench.Short(), "full": bench.Full()}[*mode]
	if !known {
		fmt.Fprintf(os.Stderr, "bench: -mode=%s: want short or full\n", *mode)
		os.Exit(2)
	}
	klog.SetLogger(logr.Discard()) // what the kubelet's code has to say about its end is of no interest
	if err := run(context.Background(), effort, *write || *mode == "full"); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, effort bench.Effort, write bool) (err error) {
	folder, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for manifests: %w", err)
	}
	defer os.RemoveAll(folder)
	lab := &bench.Lab{Folder: folder, Effort: effort, Progress: os.Stderr}
	var report bench.Report
	err = measure(ctx, lab, &report, write)
	err = errors.Join(err, report.Print(os.Stdout)) // also what was measured before something failed
	if err != nil || !write {
		return err
	}
	return report.Write(docs, "make bench")
}

func measure(ctx context.Context, lab *bench.Lab, report *bench.Report, all bool) (err error) {
	if report.Rows, err = bench.Run(ctx, lab, bench.Calls()); err != nil {
		return err
	}
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if lab.Cluster, err = controlplane.Start(ctx, controlplane.Config{Binaries: binaries}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Cluster.Stop()) }()
	onCluster, err := bench.Run(ctx, lab, bench.OnCluster())
	report.Rows = append(report.Rows, onCluster...)
	if err != nil || !all {
		return err
	}
	if report.Workers, err = bench.Workers(ctx, lab, 4, 8, 16, 32, 64); err != nil {
		return err
	}
	report.Curve, err = bench.Curve(ctx, lab, 10, 25, 50, 100, 200, 300, 400)
	return err
}
