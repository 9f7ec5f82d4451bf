// Command bench measures Herald beside the kubelet's own code, prints a table and RATIO lines, and writes docs/benchmarks.md
// and its plot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/heraldnode/herald/parity/bench"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
)

// docs is where the report goes, seen from the parity module's folder, from which this command has to be run.
const docs = "../docs"

// The parts that can be measured alone.
const (
	everything = ""
	calls      = "calls"
	statuses   = "statuses"
	agents     = "agents"
)

func main() {
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // the kubelet's code has put its own into the program's
	mode := flags.String("mode", "full", "how much to measure: short (under three minutes) or full")
	write := flags.Bool("write", false, "write "+docs+"/benchmarks.md and benchmarks.svg also in short mode; full always does")
	only := flags.String("only", "", "measure only a part, and write nothing: calls, statuses (on an API server) or agents (on containers)")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), `bench measures Herald beside the kubelet's own code, in one process, in turns, and 'herald run'
beside a whole kubelet.

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
	if !slices.Contains([]string{everything, calls, statuses, agents}, *only) {
		fmt.Fprintf(os.Stderr, "bench: -only=%s: want %s, %s or %s\n", *only, calls, statuses, agents)
		os.Exit(2)
	}
	klog.SetLogger(logr.Discard()) // what the kubelet's code has to say about its end is of no interest
	b := &bencher{only: *only, write: *only == everything && (*write || *mode == "full")}
	if err := b.run(context.Background(), effort); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bencher measures, once.
type bencher struct {
	only   string
	write  bool
	lab    *bench.Lab
	report bench.Report
}

func (b *bencher) run(ctx context.Context, effort bench.Effort) (err error) {
	folder, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for manifests: %w", err)
	}
	defer os.RemoveAll(folder)
	b.lab = &bench.Lab{Folder: folder, Effort: effort, Progress: os.Stderr}
	err = b.measure(ctx)
	err = errors.Join(err, b.report.Print(os.Stdout)) // also what was measured before something failed
	if err != nil || !b.write {
		return err
	}
	return b.report.Write(docs, "make bench")
}

func (b *bencher) measure(ctx context.Context) (err error) {
	if err := b.add(ctx, calls, bench.Calls()); err != nil || b.only == calls {
		return err
	}
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if b.lab.Cluster, err = controlplane.Start(ctx, controlplane.Config{Binaries: binaries}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.lab.Cluster.Stop()) }()
	if err := b.add(ctx, statuses, bench.OnCluster()); err != nil {
		return err
	}
	if err := b.addAgents(ctx); err != nil || !b.write {
		return err
	}
	if b.report.Workers, err = bench.Workers(ctx, b.lab, 4, 8, 16, 32, 64); err != nil {
		return err
	}
	b.report.Curve, err = bench.Curve(ctx, b.lab, 10, 25, 50, 100, 200, 300, 400)
	return err
}

// addAgents leaves the whole agents out where containers cannot run.
func (b *bencher) addAgents(ctx context.Context) error {
	if err := needs.CheckContainers(); err != nil && b.wants(agents) {
		fmt.Fprintln(os.Stderr, "whole agents are left out:", err)
		return nil
	}
	return b.add(ctx, agents, bench.OnContainers())
}

// add measures a part, if it is wanted.
func (b *bencher) add(ctx context.Context, part string, cases []bench.Case) error {
	if !b.wants(part) {
		return nil
	}
	rows, err := bench.Run(ctx, b.lab, cases)
	b.report.Rows = append(b.report.Rows, rows...)
	return err
}

func (b *bencher) wants(part string) bool { return b.only == everything || b.only == part }
