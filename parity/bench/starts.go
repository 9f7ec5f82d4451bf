package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/parity/agents"
)

// startOverCRI compares the time from the creation of pods until the API shows them as ready with the time of the calls that start
// them: one pod on an otherwise idle node, and many at once. The calls are those that the same agent makes, repeated without it on the
// same containerd. The pods have no probes, so that they are ready as soon as they run.
func startOverCRI(ctx context.Context, env *Environment) ([]Result, error) {
	kubelet, herald, remove, err := env.buildAgents(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	var one, many startResult
	for round := range env.Profile.AgentRounds {
		for i := range 2 {
			side := (i + round) % 2
			agent, bare, err := env.measureStarts(ctx, []agents.Program{kubelet, herald}[side])
			if err != nil {
				return nil, fmt.Errorf("compare starts: %w", err)
			}
			one.add(side, median(agent.one), median(bare.one))
			many.add(side, agent.many, bare.many)
		}
	}
	return []Result{
		one.result("start_over_cri_1", "one pod"),
		many.result(fmt.Sprintf("start_over_cri_%d", env.Profile.AgentPods), fmt.Sprintf("%d pods at once,", env.Profile.AgentPods)),
	}, nil
}

// startResult has the times of each round in seconds, and those of the same calls, of the kubelet and of Herald.
type startResult struct{ agent, bare [2][]float64 }

func (r *startResult) add(side int, agent, bare float64) {
	r.agent[side], r.bare[side] = append(r.agent[side], agent), append(r.bare[side], bare)
}

func (r *startResult) result(name, pods string) Result {
	return Result{
		Name: name,
		Description: fmt.Sprintf("%s without probes, from creation until the API shows it as ready: Herald's time divided by that of its bare "+
			"CRI calls (%s); the kubelet's, by its own (%s), is %s", pods, formatSeconds(median(r.bare[1])), formatSeconds(median(r.bare[0])),
			formatRatio(ratio(r.agent[0], r.bare[0]))),
		Kubelet: formatSeconds(median(r.agent[0])), Herald: formatSeconds(median(r.agent[1])), Value: ratio(r.agent[1], r.bare[1]),
		Goal: AtMost(1.15),
	}
}

// startTimes is how long pods took to start, in seconds: single pods one after the other, and many at once.
type startTimes struct {
	one  []float64
	many float64
}

func (s startTimes) String() string {
	return fmt.Sprintf("one %s, many at once %s", formatSeconds(median(s.one)), formatSeconds(s.many))
}

// pauseBetweenStarts lets the machine finish what the last start left to do.
const pauseBetweenStarts = 500 * time.Millisecond

// measureStarts measures the starts of pods by the agent, and then the same calls while the agent is suspended.
func (e *Environment) measureStarts(ctx context.Context, program agents.Program) (starts, bare startTimes, err error) {
	err = e.withAgent(ctx, program, func(ctx context.Context, n *node, agent *agents.Agent) error {
		events, _, err := n.watch(ctx)
		if err != nil {
			return err
		}
		defer events.Stop()
		time.Sleep(agentWarmUp)
		if _, err := n.startPods(ctx, events, "example", 1); err != nil { // whose calls are repeated
			return err
		}
		example := n.pods
		n.pods = nil
		starts, err = e.measureInTurn(func(prefix string, count int) (float64, error) { return n.startPods(ctx, events, prefix, count) })
		if err == nil {
			err = n.deletePods(ctx, events)
		}
		if err != nil {
			return err
		}
		time.Sleep(agentWarmUp)
		if bare, err = n.repeatCalls(ctx, agent, example[0].Name); err != nil {
			return err
		}
		e.logf("starts on a node with %s: %s; its bare calls: %s", program, starts, bare)
		n.pods = example
		return n.deletePods(ctx, events)
	})
	return starts, bare, err
}

// repeatCalls measures the calls that started a pod, without the agent.
func (n *node) repeatCalls(ctx context.Context, agent *agents.Agent, podName string) (starts startTimes, err error) {
	if err := unix.Kill(agent.PID(), unix.SIGSTOP); err != nil { // it would stop pods that it does not know
		return starts, fmt.Errorf("suspend the agent: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Kill(agent.PID(), unix.SIGCONT)) }()
	err = withRuntimeClient(n.runtime, func(client runtimeapi.RuntimeServiceClient) error {
		calls, err := recordCalls(ctx, client, podName)
		if err != nil {
			return err
		}
		starts, err = n.env.measureInTurn(func(prefix string, count int) (float64, error) { return calls.startPods(ctx, prefix, count) })
		return err
	})
	return starts, err
}

// startPods creates pods at once, waits until they are ready, and returns how long it took in seconds.
func (n *node) startPods(ctx context.Context, events watch.Interface, prefix string, count int) (float64, error) {
	startTime := time.Now()
	pods, err := n.createPods(ctx, count, func(name string, uid types.UID) *v1.Pod { return plainPod(prefix+"-"+name, uid) })
	if err != nil {
		return 0, err
	}
	n.pods = append(n.pods, pods...)
	isNew := func(p *v1.Pod) bool {
		return slices.ContainsFunc(pods, func(created *v1.Pod) bool { return created.UID == p.UID })
	}
	err = waitForPods(events, count, "ready", func(_ watch.EventType, p *v1.Pod) bool { return isReady(&p.Status) && isNew(p) })
	return time.Since(startTime).Seconds(), err
}

// measureInTurn starts single pods, one after the other, and then many at once.
func (e *Environment) measureInTurn(start func(prefix string, count int) (float64, error)) (starts startTimes, err error) {
	for i := range e.Profile.SingleStarts {
		took, err := start(fmt.Sprintf("one-%d", i), 1)
		if err != nil {
			return starts, err
		}
		starts.one = append(starts.one, took)
		time.Sleep(pauseBetweenStarts)
	}
	starts.many, err = start("many", e.Profile.AgentPods)
	return starts, err
}

// plainPod returns servingPod without its probes.
func plainPod(name string, uid types.UID) *v1.Pod {
	p := servingPod(name, uid)
	p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = nil, nil
	return p
}
