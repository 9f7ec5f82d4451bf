package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/parity/agents"
)

// startOverCRI compares the time from the creation of pods until the API shows them as ready with the time of the calls that start
// them: one pod on an otherwise idle node, and many at once. The pods have no probes, so that they are ready as soon as they run.
func startOverCRI(ctx context.Context, env *Environment) ([]Result, error) {
	kubelet, herald, remove, err := env.buildAgents(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	const sides = 3
	var one, many [sides][]float64
	for round := range env.Profile.AgentRounds {
		for i := range sides {
			side := (i + round) % sides
			var starts startTimes
			if side == sides-1 {
				starts, err = env.measureBareStarts(ctx)
			} else {
				starts, err = env.measureStarts(ctx, []agents.Program{kubelet, herald}[side])
			}
			if err != nil {
				return nil, fmt.Errorf("compare starts: %w", err)
			}
			one[side], many[side] = append(one[side], median(starts.one)), append(many[side], starts.many)
		}
	}
	newResult := func(name, pods string, took [sides][]float64) Result {
		return Result{
			Name: name,
			Description: fmt.Sprintf("%s without probes, from creation until the API shows it as ready: Herald's time divided by that of the bare "+
				"CRI calls (%s); the kubelet's is %s", pods, formatSeconds(median(took[2])), formatRatio(ratio(took[0], took[2]))),
			Kubelet: formatSeconds(median(took[0])), Herald: formatSeconds(median(took[1])), Value: ratio(took[1], took[2]), Goal: AtMost(1.15),
		}
	}
	return []Result{
		newResult("start_over_cri_1", "one pod", one),
		newResult(fmt.Sprintf("start_over_cri_%d", env.Profile.AgentPods), fmt.Sprintf("%d pods at once,", env.Profile.AgentPods), many),
	}, nil
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

func (e *Environment) measureStarts(ctx context.Context, program agents.Program) (starts startTimes, err error) {
	err = e.withAgent(ctx, program, func(ctx context.Context, n *node, _ *agents.Agent) error {
		events, _, err := n.watch(ctx)
		if err != nil {
			return err
		}
		defer events.Stop()
		time.Sleep(agentWarmUp)
		starts, err = e.measureInTurn(func(prefix string, count int) (float64, error) { return n.startPods(ctx, events, prefix, count) })
		if err != nil {
			return err
		}
		e.logf("starts on a node with %s: %s", program, starts)
		return n.deletePods(ctx, events)
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

func (e *Environment) measureBareStarts(ctx context.Context) (starts startTimes, err error) {
	err = withRuntime(ctx, func(ctx context.Context, r bareRuntime) error {
		starts, err = e.measureInTurn(func(prefix string, count int) (float64, error) { return r.startPods(ctx, prefix, count) })
		return err
	})
	e.logf("starts by bare calls of containerd: %s", starts)
	return starts, err
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
