package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/heraldnode/herald/nodeagent"
)

// nodeName is the suffix of the names of static pods.
const nodeName = "demo"

func manifestDir(dir string) string { return filepath.Join(dir, "manifests") }
func dataDir(dir string) string     { return filepath.Join(dir, "data") }
func ruleFile(dir string) string    { return filepath.Join(dir, "rules.yaml") }

// newAgent returns an agent without a cluster that runs host processes and keeps everything in dir.
func newAgent(dir string) (*nodeagent.NodeAgent, error) {
	return nodeagent.New(nodeagent.Config{
		NodeName: nodeName, DataDir: dataDir(dir), StaticPodPath: manifestDir(dir),
		Runtime: nodeagent.RuntimeProcess, NodeIPs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})},
		Alerting: nodeagent.AlertingConfig{RuleFiles: []string{ruleFile(dir)}},
	})
}

// removeManifests removes all manifests.
func removeManifests(dir string) error {
	files, err := os.ReadDir(manifestDir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, file := range files {
		if err := os.RemoveAll(filepath.Join(manifestDir(dir), file.Name())); err != nil {
			return err
		}
	}
	return nil
}

const (
	stopTimeout = 40 * time.Second
	stopPeriod  = 50 * time.Millisecond
)

// waitForEmpty waits until all pods are gone.
func waitForEmpty(ctx context.Context, agent *nodeagent.NodeAgent) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	ticker := time.NewTicker(stopPeriod)
	defer ticker.Stop()
	for {
		empty, err := agent.Empty(ctx)
		if empty && len(agent.Agent.LocalPods()) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("pods are still running after %v", stopTimeout), err)
		case <-ticker.C:
		}
	}
}

// reaper is a process that outlives the demo and cleans up after it, even if the demo is killed. It notices the end of the demo
// by a pipe that the kernel closes.
type reaper struct {
	command *exec.Cmd
	pipe    io.Closer
}

// startReaper starts this program again in a new session, where Ctrl-C and a closed terminal do not reach it.
func startReaper(ctx context.Context, dir string) (*reaper, error) {
	command := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", "demo", "reap", dir)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Dir = "/"
	pipe, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start the reaper: %w", errors.Join(err, pipe.Close()))
	}
	return &reaper{command, pipe}, nil
}

// release lets the reaper clean up, and waits for it.
func (r *reaper) release() error {
	err := r.pipe.Close()
	if waitErr := r.command.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("reaper of the demo: %w", waitErr))
	}
	return err
}

// Reap waits until the demo has ended. If its directory still exists, Reap stops the pods and removes it, regardless of ctx.
func Reap(ctx context.Context, demo io.Reader, dir string) error {
	_, _ = io.Copy(io.Discard, demo)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(stopOrphans(context.WithoutCancel(ctx), dir), os.RemoveAll(dir))
}

// stopOrphans runs an agent in the place of the killed one, which stops the pods because their manifests are gone.
func stopOrphans(ctx context.Context, dir string) error {
	if err := removeManifests(dir); err != nil {
		return err
	}
	agent, err := newAgent(dir)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var runErr error
	running.Go(func() { runErr = agent.Run(ctx) })
	stopErr := waitForEmpty(ctx, agent)
	stop()
	running.Wait()
	return errors.Join(stopErr, runErr)
}
