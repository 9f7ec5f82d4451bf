package bench

import (
	"context"
	"fmt"
	"os"

	"github.com/heraldnode/herald/parity/agents"
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
