package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/heraldnode/herald/parity/agents"
)

// suiteTimeout ends a hang. The suite takes about 20 minutes.
const suiteTimeout = 3 * time.Hour

// Options are the choices of a run.
type Options struct {
	Programs Programs
	// Agent is the agent of the node.
	Agent agents.Program
	// Focus selects specs by a regular expression of their names. Defaults to all.
	Focus string
	// Processes is how many specs run at once.
	Processes int
	// NodeDir is where the node's data is created. Agents report disk pressure if less than 15% of the file system are free.
	NodeDir string
	// Dir is where the suite's output and the logs of all components are left.
	Dir string
	// Output gets the suite's progress.
	Output io.Writer
}

// Run starts a cluster, runs the selected specs against its node, and stops the cluster. A failed spec is not an error.
func Run(ctx context.Context, options Options) (results Results, err error) {
	cluster, err := startCluster(ctx, options)
	defer func() { err = errors.Join(err, cluster.keepLogs(options.Dir), cluster.stop()) }()
	if err != nil {
		return nil, fmt.Errorf("conformance: start cluster: %w", err)
	}
	return runSuite(ctx, options, cluster.controlPlane.AdminKubeconfig())
}

const reportFile = "report.json"

func runSuite(ctx context.Context, options Options, kubeconfig string) (Results, error) {
	args := []string{
		"run", "--no-color", "--keep-going", "--silence-skips", "--timeout=" + suiteTimeout.String(),
		"--procs=" + strconv.Itoa(options.Processes), "--label-filter=" + labels, "--focus=" + options.Focus,
		"--output-dir=" + options.Dir, "--json-report=" + reportFile,
	}
	for _, file := range files {
		args = append(args, "--focus-file="+file)
	}
	args = append(args, options.Programs.Suite, "--",
		"--kubeconfig="+kubeconfig, "--provider=skeleton", "--num-nodes=1", "--prepull-images=false", "--repo-root=",
		"--kubectl-path="+options.Programs.Kubectl, "--report-dir=", "--disable-log-dump", "--dump-logs-on-failure=true",
	)
	command := exec.CommandContext(ctx, options.Programs.Ginkgo, args...)
	command.Dir, command.Stdout, command.Stderr = options.Dir, options.Output, options.Output
	// Ginkgo's processes end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	failed := command.Run() // also if a spec failed
	results, err := readReport(filepath.Join(options.Dir, reportFile))
	if err != nil {
		return nil, fmt.Errorf("conformance: run the suite: %w", errors.Join(failed, err))
	}
	return results, nil
}

// suiteReport is what this package reads of Ginkgo's report.
type suiteReport struct {
	SpecialSuiteFailureReasons []string
	SpecReports                []specReport
}

type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	NumAttempts             int // 0 if the spec was not selected
	Failure                 struct{ Message string }
}

func readReport(path string) (Results, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []suiteReport
	if err := json.Unmarshal(content, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	results := Results{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			if err := results.add(spec); err != nil {
				return nil, err
			}
		}
	}
	if len(results) == 0 {
		return nil, errors.New("no spec ran")
	}
	return results, nil
}
