package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
)

// wholeAgents measures `herald run` beside the real kubelet: on the same API server, each with a containerd of its own that
// has nothing else to do, each with the defaults of its API client (50 requests a second, 100 at once).
func wholeAgents(ctx context.Context, lab *Lab) ([]Row, error) {
	folder, err := os.MkdirTemp("", "herald-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for herald: %w", err)
	}
	defer os.RemoveAll(folder)
	herald, err := agents.Herald(ctx, folder)
	if err != nil {
		return nil, err
	}
	kubelet, err := agents.Kubelet(ctx, lab.Progress)
	if err != nil {
		return nil, err
	}
	var theirs, ours []agentUse
	if _, err := inTurns(lab.Effort.Agents, lab.agentSide(ctx, kubelet, &theirs), lab.agentSide(ctx, herald, &ours)); err != nil {
		return nil, fmt.Errorf("whole agents: %w", err)
	}
	return agentRows(lab.Effort.AgentPods, theirs, ours), nil
}

// agentSide measures a life of the agent as often as it is called.
func (l *Lab) agentSide(ctx context.Context, program agents.Program, rounds *[]agentUse) func() (float64, error) {
	return func() (float64, error) {
		l.say("%d probed pods on a node of %s", l.Effort.AgentPods, program)
		used, err := l.agentLife(ctx, program)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", program, err)
		}
		l.say("  ready after %s, %s, %s", seconds(used.ready), megabytes(used.resident), cores(used.processor))
		*rounds = append(*rounds, used)
		return used.ready, nil
	}
}

func agentRows(count int, kubelet, herald []agentUse) []Row {
	pods := fmt.Sprintf("%d pods with a readiness and a liveness probe every second", count)
	row := func(name, what string, of func(agentUse) float64, word func(float64) string) Row {
		theirs, ours := byRound(kubelet, of), byRound(herald, of)
		return Row{
			Name: name, What: what, Kubelet: word(median(theirs)), Herald: word(median(ours)), Value: ratio(ours, theirs),
		}
	}
	ready := row(fmt.Sprintf("agent_%dpods_ready", count),
		"`herald run` beside the real kubelet, on containerd: "+pods+", from their creation until the API shows all as ready",
		func(u agentUse) float64 { return u.ready }, seconds)
	ready.Value, ready.Goal = 1/ready.Value, AtLeast(1)
	resident := row("agent_rss",
		"resident memory of the whole agent that has these "+pods+": Herald's divided by the kubelet's, in which cAdvisor is",
		func(u agentUse) float64 { return u.resident }, megabytes)
	resident.Goal = AtMost(0.6)
	processor := row("agent_idle_cpu",
		"processor time of the whole agent while nothing happens to its "+pods+
			": Herald's divided by the kubelet's, whose iptables chains are switched off",
		func(u agentUse) float64 { return u.processor }, cores)
	processor.Goal = AtMost(1)
	return []Row{ready, resident, processor}
}

func byRound(rounds []agentUse, of func(agentUse) float64) []float64 {
	var numbers []float64
	for _, used := range rounds {
		numbers = append(numbers, of(used))
	}
	return numbers
}

func megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

func cores(share float64) string { return fmt.Sprintf("%.1f %% of a core", 100*share) }

const (
	// agentPatience bounds everything that is done with one agent.
	agentPatience = 4 * time.Minute
	// agentWarmUp is left to an agent whose Node is Ready. The kubelet looks for pods up to a second later.
	agentWarmUp = 2 * time.Second
	// memorySamples is how often the memory is looked at while the agent is idle.
	memorySamples = 10
)

// agentUse is what an agent needed in one life.
type agentUse struct {
	ready     float64 // seconds until all pods were
	resident  float64 // bytes
	processor float64 // seconds in each second
}

// agentLife starts a containerd and an agent, gives it pods, looks at it and takes all away again.
func (l *Lab) agentLife(ctx context.Context, program agents.Program) (used agentUse, err error) {
	ctx, stop := context.WithTimeout(ctx, agentPatience)
	defer stop()
	n, err := l.nameNode()
	if err != nil {
		return used, err
	}
	runtime, err := containerd.Start(ctx, containerd.Config{})
	if err != nil {
		return used, err
	}
	agent, err := program.On(agents.Place{Cluster: l.Cluster, Runtime: runtime, Node: n.name})
	if err != nil {
		return used, errors.Join(err, runtime.Close())
	}
	// The containers' cgroups are in the agent's.
	defer func() { err = errors.Join(err, runtime.Close(), agent.Clean()) }()
	if err := agent.Start(ctx); err != nil {
		_ = agent.Kill() // it may have ended by itself
		return used, err
	}
	used, err = n.liveWith(ctx, agent)
	if err != nil {
		err = fmt.Errorf("%w; the end of its log:\n%s", err, agent.LogTail())
	}
	return used, errors.Join(err, agent.Stop())
}

// liveWith gives the node's agent pods, and takes them away.
func (n *node) liveWith(ctx context.Context, agent *agents.Agent) (used agentUse, err error) {
	events, _, err := n.watch(ctx)
	if err != nil {
		return used, err
	}
	defer events.Stop()
	effort := n.lab.Effort
	time.Sleep(agentWarmUp)
	began := time.Now()
	if n.pods, err = n.create(ctx, effort.AgentPods, servingPod); err != nil {
		return used, err
	}
	ready := func(_ watch.EventType, p *v1.Pod) bool { return isReady(&p.Status) }
	if err := until(events, effort.AgentPods, "ready", ready); err != nil {
		return used, err
	}
	used.ready = time.Since(began).Seconds()
	time.Sleep(effort.AgentSettle)
	if err := used.whileIdle(agent, effort.AgentIdle); err != nil {
		return used, err
	}
	return used, n.deletePods(ctx, events)
}

// whileIdle looks at an agent that has nothing to do but to probe.
func (u *agentUse) whileIdle(agent *agents.Agent, window time.Duration) error {
	first, err := agent.Usage()
	if err != nil {
		return err
	}
	began := time.Now()
	var resident []float64
	for range memorySamples {
		time.Sleep(window / memorySamples)
		now, err := agent.Usage()
		if err != nil {
			return err
		}
		resident = append(resident, float64(now.Resident))
		u.processor = (now.Processor - first.Processor).Seconds() / time.Since(began).Seconds()
	}
	u.resident = median(resident)
	return nil
}

// deletePods returns when the agent has let go of all.
func (n *node) deletePods(ctx context.Context, events watch.Interface) error {
	for _, p := range n.pods {
		if err := n.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete pod %s: %w", p.Name, err)
		}
	}
	return until(events, len(n.pods), "deleted", func(event watch.EventType, _ *v1.Pod) bool { return event == watch.Deleted })
}
