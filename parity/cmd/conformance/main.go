// Command conformance runs Kubernetes' own tests of a node against Herald, or with -control against the kubelet, and writes
// docs/conformance.md. It takes about 20 minutes, and needs root and containers. The working directory must be that of the parity module.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/conformance"
	"github.com/heraldnode/herald/parity/internal/foreground"
	"github.com/heraldnode/herald/parity/internal/needs"
)

// Paths relative to the parity module's directory.
const (
	document       = "../docs/conformance.md"
	heraldResults  = "conformance/testdata/herald.json"
	kubeletResults = "conformance/testdata/kubelet.json"
)

const usage = `conformance runs Kubernetes' own tests of a node and writes docs/conformance.md.

`

func main() { foreground.Main("conformance", run) }

// settings are the flags.
type settings struct {
	control, documentOnly, buildOnly, write bool
	focus, shells, dir, nodeDir             string
	processes                               int
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&s.control, "control", false, "run the kubelet instead of Herald")
	flags.StringVar(&s.focus, "focus", "", "run the specs whose names match this regular expression; the results of others are kept")
	flags.IntVar(&s.processes, "procs", 8, "number of specs that run at once")
	flags.StringVar(&s.shells, "shells", "", "directory that hack/install-shells prints")
	flags.StringVar(&s.dir, "dir", "", "directory for the suite's output and logs; a new temporary one by default")
	flags.StringVar(&s.nodeDir, "node-dir", "/dev/shm", "directory for the node's data, on a file system with room")
	flags.BoolVar(&s.buildOnly, "build-only", false, "only build the programs")
	flags.BoolVar(&s.documentOnly, "document", false, "only write the document, from the results of earlier runs")
	flags.BoolVar(&s.write, "write", true, "write the results and the document")
	if err := foreground.Parse(flags, args, usage); err != nil {
		return err
	}
	if s.documentOnly {
		return writeDocument()
	}
	if err := needs.CheckContainers(); err != nil {
		return err
	}
	programs, err := conformance.Build(ctx, s.shells, stderr)
	if err != nil || s.buildOnly {
		return err
	}
	return s.runSuite(ctx, programs, stdout)
}

func (s settings) runSuite(ctx context.Context, programs conformance.Programs, output io.Writer) (err error) {
	dir := s.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "herald-conformance-"); err != nil {
			return err
		}
	}
	agent, path, err := s.buildAgent(ctx, dir, output)
	if err != nil {
		return err
	}
	start := time.Now()
	results, err := conformance.Run(ctx, conformance.Options{
		Programs: programs, Agent: agent, Focus: s.focus, Processes: s.processes, NodeDir: s.nodeDir, Dir: dir, Output: output,
	})
	if err != nil {
		return fmt.Errorf("%w; logs are in %s", err, dir)
	}
	fmt.Fprintf(output, "%v: %d specs passed, %d failed, %d skipped in %v; output and logs are in %s\n", agent,
		results.Count(conformance.Passed), results.Count(conformance.Failed), results.Count(conformance.Skipped),
		time.Since(start).Round(time.Second), dir)
	if !s.write {
		return nil
	}
	return errors.Join(s.writeResults(path, results), writeDocument())
}

// buildAgent returns the agent to test and the file of its results.
func (s settings) buildAgent(ctx context.Context, dir string, progress io.Writer) (agents.Program, string, error) {
	if s.control {
		agent, err := agents.BuildKubelet(ctx, progress)
		return agent, kubeletResults, err
	}
	agent, err := agents.BuildHerald(ctx, dir)
	return agent, heraldResults, err
}

// writeResults keeps the results of specs that were not selected.
func (s settings) writeResults(path string, results conformance.Results) error {
	if s.focus == "" {
		return conformance.WriteResults(path, results)
	}
	all, err := conformance.ReadResults(path)
	if err != nil {
		return err
	}
	all.Update(results)
	return conformance.WriteResults(path, all)
}

func writeDocument() error {
	kubelet, err := conformance.ReadResults(kubeletResults)
	if err != nil {
		return err
	}
	herald, err := conformance.ReadResults(heraldResults)
	if err != nil {
		return err
	}
	text, err := conformance.Document(kubelet, herald)
	if err != nil {
		return err
	}
	return os.WriteFile(document, []byte(text), 0o644)
}
