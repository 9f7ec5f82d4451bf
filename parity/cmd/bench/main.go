// Command bench compares Herald with the kubelet's own code, prints a table and RATIO lines, and writes docs/benchmarks.md
// and its plot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/heraldnode/herald/parity/bench"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
)

// docs is where the report goes, relative to the parity module's directory. The command must run there.
const docs = "../docs"

// The parts that can be selected with -only.
const (
	everything = ""
	calls      = "calls"
	statuses   = "statuses"
	agents     = "agents"
	lives      = "lives"
	starts     = "starts"
	server     = "server"
	tokens     = "tokens"
	histories  = "history"
	alerts     = "alerts"
	alertCPU   = "alertcpu"
)

// tokenRounds is the number of rounds with -only=tokens.
const tokenRounds = 10

func main() {
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // the kubelet's code registers its own flags in the default set
	mode := flags.String("mode", "full", "how much to measure: short (about five minutes) or full")
	write := flags.Bool("write", false, "write "+docs+"/benchmarks.md and benchmarks.svg in short mode too; full mode always writes them")
	only := flags.String("only", "", "measure one part: calls, history, alerts, alertcpu, statuses (needs an API server), agents, lives, "+
		"starts or server (need containers), "+
		"or tokens (needs containers, writes "+docs+"/benchmarks-tokens.md); the others write no files")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), `bench compares Herald with the kubelet's own code, in one process and in alternating rounds, and
'herald run' with a complete kubelet.

Unless the table says otherwise, a ratio is the kubelet's time divided by Herald's: above 1, Herald is faster.
Absolute times depend on the machine.

`)
		flags.PrintDefaults()
	}
	_ = flags.Parse(os.Args[1:]) // exits on an error
	effort, known := map[string]bench.Profile{"short": bench.ShortProfile(), "full": bench.FullProfile()}[*mode]
	if !known {
		fmt.Fprintf(os.Stderr, "bench: -mode=%s: want short or full\n", *mode)
		os.Exit(2)
	}
	parts := []string{calls, histories, alerts, alertCPU, statuses, agents, lives, starts, server, tokens}
	if *only != everything && !slices.Contains(parts, *only) {
		fmt.Fprintf(os.Stderr, "bench: -only=%s: want one of %s\n", *only, strings.Join(parts, ", "))
		os.Exit(2)
	}
	klog.SetLogger(logr.Discard()) // the kubelet's code logs when a measurement ends
	b := &bencher{only: *only, write: *only == everything && (*write || *mode == "full")}
	if err := b.run(context.Background(), effort); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bencher measures once.
type bencher struct {
	only   string
	write  bool
	env    *bench.Environment
	report bench.Report
}

func (b *bencher) run(ctx context.Context, effort bench.Profile) (err error) {
	dir, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return fmt.Errorf("create directory for manifests: %w", err)
	}
	defer os.RemoveAll(dir)
	b.env = &bench.Environment{ManifestDir: dir, Profile: effort, Progress: os.Stderr}
	err = b.measure(ctx)
	err = errors.Join(err, b.report.Print(os.Stdout)) // also prints the results before an error
	if err != nil || !b.write {
		return err
	}
	return b.report.Write(docs, "make bench")
}

func (b *bencher) measure(ctx context.Context) (err error) {
	if err := b.add(ctx, calls, bench.LocalCases()); err != nil || b.only == calls {
		return err
	}
	if err := b.add(ctx, histories, bench.HistoryCases()); err != nil || b.only == histories {
		return err
	}
	if err := b.add(ctx, alerts, bench.AlertCases()); err != nil || b.only == alerts {
		return err
	}
	if err := b.add(ctx, alertCPU, bench.AlertAgentCases()); err != nil || b.only == alertCPU {
		return err
	}
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if b.env.ControlPlane, err = controlplane.Start(ctx, controlplane.Config{Binaries: binaries}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.env.ControlPlane.Stop()) }()
	if b.only == tokens {
		rounds, err := bench.MeasureTokens(ctx, b.env, tokenRounds)
		if err != nil {
			return err
		}
		return bench.WriteTokens(docs, "make tokens", b.env.Profile.AgentPods, rounds)
	}
	if err := b.add(ctx, statuses, bench.ClusterCases()); err != nil {
		return err
	}
	if err := b.addAgents(ctx); err != nil || !b.write {
		return err
	}
	if b.report.Workers, err = bench.MeasureWorkers(ctx, b.env, 4, 8, 16, 32, 64); err != nil {
		return err
	}
	b.report.Curve, err = bench.MeasureCurve(ctx, b.env, 10, 25, 50, 100, 200, 300, 400)
	return err
}

// addAgents omits the agents where containers cannot run.
func (b *bencher) addAgents(ctx context.Context) error {
	if err := needs.CheckContainers(); err != nil && (b.wants(agents) || b.wants(lives) || b.wants(starts) || b.wants(server)) {
		fmt.Fprintln(os.Stderr, "skipping agents:", err)
		return nil
	}
	if err := b.add(ctx, agents, bench.AgentCases()); err != nil {
		return err
	}
	if err := b.add(ctx, lives, bench.LifeCases()); err != nil {
		return err
	}
	if err := b.add(ctx, starts, bench.StartCases()); err != nil {
		return err
	}
	return b.add(ctx, server, bench.ServerCases())
}

// add measures a part if it was selected.
func (b *bencher) add(ctx context.Context, part string, cases []bench.Case) error {
	if !b.wants(part) {
		return nil
	}
	rows, err := bench.Run(ctx, b.env, cases)
	b.report.Results = append(b.report.Results, rows...)
	return err
}

func (b *bencher) wants(part string) bool { return b.only == everything || b.only == part }
