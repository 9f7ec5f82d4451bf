// Command bench measures Herald beside the kubelet's own code and prints a table and RATIO lines.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/heraldnode/herald/parity/bench"
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
	rounds, known := map[string]int{"short": 3, "full": 9}[*mode]
	if !known {
		fmt.Fprintf(os.Stderr, "bench: -mode=%s: want short or full\n", *mode)
		os.Exit(2)
	}
	if err := run(rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	dir, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for manifests: %w", err)
	}
	defer os.RemoveAll(dir)
	cases, err := bench.Manifests(dir)
	if err != nil {
		return err
	}
	return bench.Print(os.Stdout, bench.Run(append(bench.PodManager(), cases...), rounds, os.Stderr))
}
