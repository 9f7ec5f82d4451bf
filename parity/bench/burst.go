package bench

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/status"
)

// burst is many pods that become Running at once, on a real API server.
type burst struct {
	pods int
	conn connection
}

// burstResult is what one side needed.
type burstResult struct {
	// visible is the time until a watch has shown all pods as Running.
	visible time.Duration
	// requests is how many requests the manager sent.
	requests int
}

// runBurst runs the burst for one side, on its own node.
func (e *Environment) runBurst(ctx context.Context, b burst, start startFunc) (burstResult, error) {
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	n, err := e.newNode(ctx, b.pods)
	if err != nil {
		return burstResult{}, err
	}
	config, script := n.clientConfig(b.conn)
	manager, err := start(ctx, config, n.pods)
	if err != nil {
		return burstResult{}, err
	}
	defer manager.close()
	events, _, err := n.watch(ctx)
	if err != nil {
		return burstResult{}, err
	}
	defer events.Stop()
	started := time.Now()
	for _, p := range n.pods {
		manager.setStatus(p, runningStatus())
	}
	if err := waitUntilRunning(events, b.pods); err != nil {
		return burstResult{}, err
	}
	return burstResult{visible: time.Since(started), requests: len(script.Requests())}, nil
}

// waitUntilRunning reads the watch until that many pods are Running.
func waitUntilRunning(events watch.Interface, pods int) error {
	return waitForPods(events, pods, "Running", func(_ watch.EventType, p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
}

// waitForPods reads the watch until that many pods match. The end of the watch ends the wait.
func waitForPods(events watch.Interface, pods int, state string, matches func(watch.EventType, *v1.Pod) bool) error {
	seen := map[string]bool{}
	for event := range events.ResultChan() {
		if p, isPod := event.Object.(*v1.Pod); isPod && matches(event.Type, p) {
			seen[p.Name] = true
		}
		if len(seen) == pods {
			return nil
		}
	}
	return fmt.Errorf("%d of %d pods became %s", len(seen), pods, state)
}

// burstTimer returns a function that measures the burst in seconds.
func (e *Environment) burstTimer(ctx context.Context, b burst, start startFunc) func() (float64, error) {
	return func() (float64, error) {
		out, err := e.runBurst(ctx, b, start)
		return out.visible.Seconds(), err
	}
}

// latencyBursts measures bursts with 0, 5 and 20 ms added to each request.
func latencyBursts(ctx context.Context, env *Environment) ([]Result, error) {
	var results []Result
	sent := &requestTally{}
	goals := map[time.Duration]Goal{5 * time.Millisecond: AtLeast(6), 20 * time.Millisecond: AtLeast(15)}
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		b := burst{pods: env.Profile.BurstPods, conn: connection{delay: delay}}
		result, err := env.compareBurst(ctx, b, sent)
		if err != nil {
			return nil, err
		}
		result.Name = fmt.Sprintf("burst%d_%dms", b.pods, delay.Milliseconds())
		result.Description = fmt.Sprintf("%d pods become Running at once, %v added to each request: time until all are visible", b.pods, delay)
		result.Goal = goals[delay]
		results = append(results, result)
	}
	return append(results, sent.result("requests_per_change", "Herald's requests per status change")), nil
}

// rateLimitedBurst measures a burst with the kubelet's default client limits on both sides.
func rateLimitedBurst(ctx context.Context, env *Environment) ([]Result, error) {
	b := burst{pods: env.Profile.BurstPods, conn: connection{qps: 50, burst: 100}}
	result, err := env.compareBurst(ctx, b, &requestTally{})
	result.Name = fmt.Sprintf("burst%d_qps50", b.pods)
	result.Description = fmt.Sprintf("%d pods become Running at once, clients limited to 50 requests per second, burst 100", b.pods)
	result.Goal = AtLeast(1.9)
	return []Result{result}, err
}

// compareBurst measures a burst on both sides in alternating rounds.
func (e *Environment) compareBurst(ctx context.Context, b burst, sent *requestTally) (Result, error) {
	e.logf("%d pods become Running, %v added to each request, limit %v/s", b.pods, b.conn.delay, b.conn.qps)
	measure := func(start startFunc, requests *int) func() (float64, error) {
		return func() (float64, error) {
			out, err := e.runBurst(ctx, b, start)
			*requests += out.requests
			return out.visible.Seconds(), err
		}
	}
	took, err := measureRounds(e.Profile.BurstRounds, measure(startKubelet, &sent.kubelet), measure(startHerald, &sent.herald))
	if err != nil {
		return Result{}, fmt.Errorf("burst of %d pods: %w", b.pods, err)
	}
	sent.changes += b.pods * e.Profile.BurstRounds
	return Result{Kubelet: formatSeconds(median(took[0])), Herald: formatSeconds(median(took[1])), Value: ratio(took[0], took[1])}, nil
}

// requestTally counts requests over several measurements.
type requestTally struct{ kubelet, herald, changes int }

// result returns the number of requests per change.
func (t *requestTally) result(name, description string) Result {
	kubelet, herald := float64(t.kubelet)/float64(t.changes), float64(t.herald)/float64(t.changes)
	return Result{
		Name: name, Description: description, Kubelet: fmt.Sprintf("%.2f", kubelet), Herald: fmt.Sprintf("%.2f", herald),
		Value: herald, Goal: AtMost(1.02),
	}
}

// heraldWorkers is the default of status.Config.Workers.
const heraldWorkers = 16

// burstBesidePatches compares Herald's burst with the same patches sent by a bare client.
func burstBesidePatches(ctx context.Context, env *Environment) ([]Result, error) {
	b := burst{pods: env.Profile.BurstPods, conn: connection{delay: 5 * time.Millisecond}}
	env.logf("%d pods become Running, compared with bare patches", b.pods)
	took, err := measureRounds(max(env.Profile.BurstRounds, 3),
		env.burstTimer(ctx, b, startHerald),
		env.burstTimer(ctx, b, startPatchSender(heraldWorkers)), env.burstTimer(ctx, b, startPatchSender(2*heraldWorkers)))
	if err != nil {
		return nil, fmt.Errorf("burst compared with bare patches: %w", err)
	}
	fastest := make([]float64, len(took[0]))
	for i := range fastest {
		fastest[i] = min(took[1][i], took[2][i])
	}
	newResult := func(name, how string, patches []float64) Result {
		return Result{
			Name: fmt.Sprintf("burst%d_%s_5ms", b.pods, name),
			Description: fmt.Sprintf("%d pods become Running at once, 5ms added: Herald's time divided by the time of bare PATCH requests, %s (%s)",
				b.pods, how, formatSeconds(median(patches))),
			Herald: formatSeconds(median(took[0])), Value: ratio(took[0], patches), Goal: AtMost(1.25),
		}
	}
	return []Result{
		newResult("limit", fmt.Sprintf("%d in flight as in Herald", heraldWorkers), took[1]),
		newResult("limit_best", fmt.Sprintf("the better of %d and %d in flight", heraldWorkers, 2*heraldWorkers), fastest),
	}, nil
}

// createdPods counts requests while another client creates pods, the node learns of them from a watch, and reports each
// as Running as soon as it is known.
func createdPods(ctx context.Context, env *Environment) ([]Result, error) {
	env.logf("%d pods are created by another client and become Running at once", env.Profile.BurstPods)
	kubelet, err := env.countRequestsForCreated(ctx, startKubelet)
	if err != nil {
		return nil, fmt.Errorf("pods created by another client, kubelet: %w", err)
	}
	herald, err := env.countRequestsForCreated(ctx, startHerald)
	if err != nil {
		return nil, fmt.Errorf("pods created by another client: %w", err)
	}
	sent := &requestTally{kubelet: kubelet, herald: herald, changes: env.Profile.BurstPods}
	return []Result{sent.result("requests_per_change_created",
		"Herald's requests per status change, for pods that another client just created and the watch announced")}, nil
}

func (e *Environment) countRequestsForCreated(ctx context.Context, start startFunc) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	n, err := e.newNode(ctx, 0)
	if err != nil {
		return 0, err
	}
	config, script := n.clientConfig(connection{})
	manager, err := start(ctx, config, nil)
	if err != nil {
		return 0, err
	}
	events, _, err := n.watch(ctx)
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	failed := make(chan error, 1)
	go func() {
		_, err := n.createPods(ctx, e.Profile.BurstPods, threeContainerPod)
		failed <- err
	}()
	if err := relayWatch(events, manager, e.Profile.BurstPods); err != nil {
		return 0, err
	}
	manager.close()
	return len(script.Requests()), <-failed
}

// relayWatch passes watch events to the manager, as an agent does, until that many pods are Running.
func relayWatch(events watch.Interface, manager statusManager, pods int) error {
	running := map[string]bool{}
	for event := range events.ResultChan() {
		p, isPod := event.Object.(*v1.Pod)
		if !isPod {
			continue
		}
		manager.updatePod(p)
		if event.Type == watch.Added {
			manager.setStatus(p, runningStatus())
		}
		if p.Status.Phase == v1.PodRunning {
			running[p.Name] = true
		}
		if len(running) == pods {
			return nil
		}
	}
	return fmt.Errorf("%d of %d pods became visible", len(running), pods)
}

// WorkersResult is the effect of one value of status.Config.Workers.
type WorkersResult struct {
	Workers int
	// Bursts are the times of a burst with 0, 5 and 20 ms added to each request, in seconds.
	Bursts [3]float64
	// ReadinessMedian and ReadinessP95 describe a readiness change queued behind others, in seconds.
	ReadinessMedian, ReadinessP95 float64
}

// MeasureWorkers measures how the number of workers affects a burst, and a readiness change queued behind others.
func MeasureWorkers(ctx context.Context, env *Environment, settings ...int) ([]WorkersResult, error) {
	results := make([]WorkersResult, len(settings))
	for i, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		env.logf("%d pods become Running, %v added to each request, workers %v", env.Profile.BurstPods, delay, settings)
		var sides []func() (float64, error)
		for _, workers := range settings {
			b := burst{pods: env.Profile.BurstPods, conn: connection{delay: delay}}
			sides = append(sides, env.burstTimer(ctx, b, startHeraldWithConfig(status.Config{Workers: workers})))
		}
		took, err := measureRounds(env.Profile.BurstRounds, sides...)
		if err != nil {
			return nil, fmt.Errorf("bursts with workers %v: %w", settings, err)
		}
		for s := range settings {
			results[s].Bursts[i] = median(took[s])
		}
	}
	for s, workers := range settings {
		took, err := env.measureReadiness(ctx, startHeraldWithConfig(status.Config{Workers: workers}), min(env.Profile.ReadinessSamples, 100))
		if err != nil {
			return nil, fmt.Errorf("readiness with %d workers: %w", workers, err)
		}
		results[s].Workers = workers
		results[s].ReadinessMedian, results[s].ReadinessP95 = median(took.queued), quantile(took.queued, 0.95)
	}
	return results, nil
}
