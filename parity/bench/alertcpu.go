package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/internal/program"
)

const (
	// failingManifest is a pod of the process runtime that ends at once. Its third restart, after about 30 s, fires the rule PodCrashLooping.
	failingManifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: failing-%d}\nspec:\n  hostNetwork: true\n  containers:\n" +
		"  - {name: web, image: host, command: [sh, -c, 'echo failing; exit 3']}\n"
	agentConfig = "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\nalerting:\n"
	// stopTimeout is how long an agent may take to end before it is killed.
	stopTimeout = time.Minute
)

// AlertAgentCases returns the cases that compare agents with and without rules. They need neither an API server nor containers.
func AlertAgentCases() []Case { return []Case{alertCPU} }

// alertCPU compares an agent that has the default rules and a webhook with one that has no rules. Both run at the same time, so that the
// machine is equally busy for both, with pods of the process runtime that all crash over and over.
func alertCPU(ctx context.Context, env *Environment) (results []Result, err error) {
	env.logf("%d crash-looping pods with and without rules for %v", env.Profile.AlertPods, env.Profile.AlertTime)
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary, err := program.Herald(ctx, dir)
	if err != nil {
		return nil, err
	}
	var messages atomic.Int64
	webhook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { messages.Add(1) }))
	defer webhook.Close()
	without, stop, err := env.startFailingPods(ctx, binary, filepath.Join(dir, "without"), "  enabled: false\n")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	with, stopWith, err := env.startFailingPods(ctx, binary, filepath.Join(dir, "with"),
		fmt.Sprintf("  webhooks: [{name: bench, url: %q}]\n", webhook.URL))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopWith()) }()
	time.Sleep(env.Profile.AlertTime)
	usageWith, errWith := agents.ProcessUsage(with)
	usageWithout, errWithout := agents.ProcessUsage(without)
	if err := errors.Join(errWith, errWithout); err != nil {
		return nil, err
	}
	return alertCPUResults(env.Profile, usageWith.CPUTime, usageWithout.CPUTime, messages.Load()), nil
}

func alertCPUResults(profile Profile, with, without time.Duration, messages int64) []Result {
	pods := fmt.Sprintf("%d crash-looping pods for %v", profile.AlertPods, profile.AlertTime)
	return []Result{
		alertResult("alert_cpu", fmt.Sprintf("alerts: CPU time of an agent with %s, divided by that of one without rules (%s)",
			pods, formatSeconds(without.Seconds())), formatSeconds(with.Seconds()), with.Seconds()/without.Seconds(), AtMost(1.2)),
		alertResult("alert_messages", "alerts: messages to a webhook from an agent with "+pods,
			fmt.Sprint(messages), float64(messages), AtMost(20)),
	}
}

// startFailingPods starts an agent with the pods and returns its process ID.
func (e *Environment) startFailingPods(ctx context.Context, binary, dir, alerting string) (pid int, stop func() error, err error) {
	manifests, config := filepath.Join(dir, "manifests"), filepath.Join(dir, "config.yaml")
	err = errors.Join(os.MkdirAll(manifests, 0o700), os.WriteFile(config, []byte(agentConfig+alerting), 0o600))
	for i := range e.Profile.AlertPods {
		name := filepath.Join(manifests, fmt.Sprintf("failing-%d.yaml", i))
		err = errors.Join(err, os.WriteFile(name, fmt.Appendf(nil, failingManifest, i), 0o600))
	}
	if err != nil {
		return 0, nil, err
	}
	command := exec.CommandContext(ctx, binary, "run", "--config", config, "--node-name=n1", "--runtime=process", "--node-ip=127.0.0.1",
		"--manifests", manifests, "--data-dir", filepath.Join(dir, "data"), "--listen", "unix://"+filepath.Join(dir, "socket"))
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stopTimeout
	if err := command.Start(); err != nil {
		return 0, nil, err
	}
	return command.Process.Pid, func() error {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("end agent: %w", err)
		}
		if err := command.Wait(); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
		return nil
	}, nil
}
