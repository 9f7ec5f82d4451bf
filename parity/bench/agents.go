package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
)

// compareAgents compares `herald run` with the real kubelet: on the same API server, each with its own otherwise idle
// containerd and the defaults of its API client (50 requests per second, burst 100).
func compareAgents(ctx context.Context, env *Environment) ([]Result, error) {
	kubelet, herald, remove, err := env.buildAgents(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	var kubeletRounds, heraldRounds []agentUsage
	took, err := measureRounds(env.Profile.AgentRounds,
		env.agentMeasurer(ctx, kubelet, &kubeletRounds), env.agentMeasurer(ctx, herald, &heraldRounds),
		func() (float64, error) { return env.measureRuntime(ctx) })
	if err != nil {
		return nil, fmt.Errorf("compare agents: %w", err)
	}
	results := agentResults(env.Profile.AgentPods, kubeletRounds, heraldRounds)
	return append(results, Result{
		Name: fmt.Sprintf("agent_%dpods_limit", env.Profile.AgentPods),
		Description: fmt.Sprintf("the same until ready: Herald's time divided by the time that containerd takes to start these pods without "+
			"an agent, an API server and probes (%s)", formatSeconds(median(took[2]))),
		Kubelet: formatSeconds(median(took[0])), Herald: formatSeconds(median(took[1])), Value: ratio(took[1], took[2]),
	}), nil
}

// buildAgents builds both programs. remove deletes what they need no longer.
func (e *Environment) buildAgents(ctx context.Context) (kubelet, herald agents.Program, remove func(), err error) {
	dir, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return kubelet, herald, nil, fmt.Errorf("create directory for herald: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	if herald, err = agents.BuildHerald(ctx, dir); err == nil {
		kubelet, err = agents.BuildKubelet(ctx, e.Progress)
	}
	if err != nil {
		remove()
	}
	return kubelet, herald, remove, err
}

// agentMeasurer returns a function that measures one run of the agent.
func (e *Environment) agentMeasurer(ctx context.Context, program agents.Program, rounds *[]agentUsage) func() (float64, error) {
	return func() (float64, error) {
		e.logf("%d probed pods on a node with %s", e.Profile.AgentPods, program)
		usage, err := e.measureAgent(ctx, program, workload{pod: servingPod, settle: e.Profile.AgentSettle, idle: e.Profile.AgentIdle})
		if err != nil {
			return 0, fmt.Errorf("%s: %w", program, err)
		}
		e.logf("  ready after %s, %s, %s",
			formatSeconds(usage.readySeconds), formatMegabytes(usage.residentBytes), formatCPUShare(usage.cpuShare))
		*rounds = append(*rounds, usage)
		return usage.readySeconds, nil
	}
}

func agentResults(count int, kubelet, herald []agentUsage) []Result {
	pods := fmt.Sprintf("%d pods with a readiness and a liveness probe every second", count)
	newResult := func(name, description string, value func(agentUsage) float64, format func(float64) string) Result {
		kubeletValues, heraldValues := valuesOf(kubelet, value), valuesOf(herald, value)
		return Result{
			Name: name, Description: description,
			Kubelet: format(median(kubeletValues)), Herald: format(median(heraldValues)), Value: ratio(heraldValues, kubeletValues),
		}
	}
	ready := newResult(fmt.Sprintf("agent_%dpods_ready", count),
		"`herald run` and the real kubelet on containerd: "+pods+", from creation until the API shows all as ready",
		func(u agentUsage) float64 { return u.readySeconds }, formatSeconds)
	ready.Value, ready.Goal = 1/ready.Value, AtLeast(1)
	resident := newResult("agent_rss",
		"resident memory of the agent with "+pods+": Herald's divided by the kubelet's, which includes cAdvisor",
		func(u agentUsage) float64 { return u.residentBytes }, formatMegabytes)
	resident.Goal = AtMost(0.5)
	cpu := newResult("agent_idle_cpu",
		"CPU time of the idle agent with "+pods+": Herald's divided by the kubelet's, whose iptables chains are disabled",
		func(u agentUsage) float64 { return u.cpuShare }, formatCPUShare)
	cpu.Goal = AtMost(0.7)
	return []Result{ready, resident, cpu}
}

func valuesOf(rounds []agentUsage, value func(agentUsage) float64) []float64 {
	var values []float64
	for _, usage := range rounds {
		values = append(values, value(usage))
	}
	return values
}

func formatMegabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

func formatCPUShare(share float64) string { return fmt.Sprintf("%.1f %% of a core", 100*share) }

const (
	// agentWarmUp is how long an agent with a Ready Node is left alone. The kubelet looks for pods up to a second
	// later.
	agentWarmUp = 2 * time.Second
	// memorySamples is how often memory is sampled while the agent is idle.
	memorySamples = 10
)

// agentUsage is what an agent needed in one run.
type agentUsage struct {
	readySeconds  float64 // until all pods were ready
	residentBytes float64
	cpuShare      float64 // CPU seconds per second
}

// workload is what an agent runs: pods that are then left alone for a while.
type workload struct {
	pod          func(name string, uid types.UID) *v1.Pod
	settle, idle time.Duration // 0: the idle agent is not measured
}

// measureAgent starts a containerd and an agent, runs the workload, and removes everything again.
func (e *Environment) measureAgent(ctx context.Context, program agents.Program, w workload) (usage agentUsage, err error) {
	err = e.withAgent(ctx, program, func(ctx context.Context, n *node, agent *agents.Agent) error {
		usage, err = n.runWorkload(ctx, agent, w)
		return err
	})
	return usage, err
}

// withAgent starts a containerd and an agent, measures, and removes everything again.
func (e *Environment) withAgent(
	ctx context.Context, program agents.Program, measure func(context.Context, *node, *agents.Agent) error,
) error {
	return e.withConfiguredAgent(ctx, program, "", measure)
}

// withConfiguredAgent is withAgent with YAML that is added to the agent's configuration, which both agents understand.
func (e *Environment) withConfiguredAgent(
	ctx context.Context, program agents.Program, extra string, measure func(context.Context, *node, *agents.Agent) error,
) (err error) {
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	n, err := e.reserveNode()
	if err != nil {
		return err
	}
	runtime, err := containerd.Start(ctx, containerd.Config{})
	if err != nil {
		return err
	}
	n.runtime = runtime
	agent, err := program.NewAgent(agents.Config{
		ControlPlane: e.ControlPlane, Containerd: runtime, NodeName: n.name, HeraldConfig: extra, KubeletConfig: extra,
	})
	if err != nil {
		return errors.Join(err, runtime.Close())
	}
	// The containers' cgroups are below the agent's.
	defer func() { err = errors.Join(err, runtime.Close(), agent.RemoveCgroups()) }()
	if err := agent.Start(ctx); err != nil {
		_ = agent.Kill() // it may have exited on its own
		return err
	}
	if err = measure(ctx, n, agent); err != nil {
		err = fmt.Errorf("%w; agent log:\n%s", err, agent.LogTail())
	}
	return errors.Join(err, agent.Stop())
}

// runWorkload creates pods on the agent's node, measures the agent, and deletes them.
func (n *node) runWorkload(ctx context.Context, agent *agents.Agent, w workload) (usage agentUsage, err error) {
	events, _, err := n.watch(ctx)
	if err != nil {
		return usage, err
	}
	defer events.Stop()
	profile := n.env.Profile
	time.Sleep(agentWarmUp)
	startTime := time.Now()
	if n.pods, err = n.createPods(ctx, profile.AgentPods, w.pod); err != nil {
		return usage, err
	}
	ready := func(_ watch.EventType, p *v1.Pod) bool { return isReady(&p.Status) }
	if err := waitForPods(events, profile.AgentPods, "ready", ready); err != nil {
		return usage, err
	}
	usage.readySeconds = time.Since(startTime).Seconds()
	if w.idle > 0 {
		time.Sleep(w.settle)
		if err := usage.sampleIdle(agent, w.idle); err != nil {
			return usage, err
		}
	}
	return usage, n.deletePods(ctx, events)
}

// sampleIdle measures an agent that has nothing to do but probe.
func (u *agentUsage) sampleIdle(agent *agents.Agent, window time.Duration) error {
	first, err := agent.Usage()
	if err != nil {
		return err
	}
	startTime := time.Now()
	var resident []float64
	for range memorySamples {
		time.Sleep(window / memorySamples)
		now, err := agent.Usage()
		if err != nil {
			return err
		}
		resident = append(resident, float64(now.ResidentBytes))
		u.cpuShare = (now.CPUTime - first.CPUTime).Seconds() / time.Since(startTime).Seconds()
	}
	u.residentBytes = median(resident)
	return nil
}

// deletePods deletes the node's pods and waits until the agent has removed them all.
func (n *node) deletePods(ctx context.Context, events watch.Interface) error {
	for _, p := range n.pods {
		if err := n.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete pod %s: %w", p.Name, err)
		}
	}
	return waitForPods(events, len(n.pods), "deleted", func(event watch.EventType, _ *v1.Pod) bool { return event == watch.Deleted })
}
