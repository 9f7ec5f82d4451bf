// Command versus lets the same things happen under Prometheus with kube-state-metrics and under Herald's rules, and writes who noticed
// what into docs/alerts.md. It takes about ten minutes, and needs root, containers and Prometheus.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/versus"
)

// Paths relative to the parity module's directory. The command must run there.
const (
	document = "../docs/alerts.md"
	results  = "versus/testdata/result.json"
)

func main() {
	write := flag.Bool("write", true, "write "+document+" and "+results)
	flag.Parse()
	klog.SetLogger(logr.Discard())
	if err := run(context.Background(), *write); err != nil {
		fmt.Fprintln(os.Stderr, "versus:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, write bool) (err error) {
	if err := needs.CheckContainers(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "herald-versus-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	result, err := versus.Run(ctx, dir, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Print(result.Markdown())
	if !write {
		return nil
	}
	data, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(results), 0o755), os.WriteFile(results, append(data, '\n'), 0o644)); err != nil {
		return err
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	updated, err := result.Insert(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	return os.WriteFile(document, []byte(updated), 0o644)
}
