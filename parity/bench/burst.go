package bench

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/status"
)

// burst is many pods that turn Running at once, on a real API server.
type burst struct {
	pods int
	line line
}

// outcome is what one side needed.
type outcome struct {
	// visible is the time until a watch has shown all pods as Running.
	visible time.Duration
	// requests is how many the manager sent.
	requests int
}

// burst lets one side report it, on a node of its own.
func (l *Lab) burst(ctx context.Context, b burst, begin start) (outcome, error) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	n, err := l.newNode(ctx, b.pods)
	if err != nil {
		return outcome{}, err
	}
	config, script := n.connect(b.line)
	side, err := begin(ctx, config, n.pods)
	if err != nil {
		return outcome{}, err
	}
	defer side.end()
	events, _, err := n.watch(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer events.Stop()
	began := time.Now()
	for _, p := range n.pods {
		side.set(p, runningStatus())
	}
	if err := untilRunning(events, b.pods); err != nil {
		return outcome{}, err
	}
	return outcome{visible: time.Since(began), requests: len(script.Requests())}, nil
}

// untilRunning reads the watch until that many pods are Running.
func untilRunning(events watch.Interface, pods int) error {
	return until(events, pods, "Running", func(_ watch.EventType, p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
}

// until reads the watch until it has shown that many pods as wanted. It is the end of the watch that ends a vain wait.
func until(events watch.Interface, pods int, wanted string, is func(watch.EventType, *v1.Pod) bool) error {
	seen := map[string]bool{}
	for event := range events.ResultChan() {
		if p, isPod := event.Object.(*v1.Pod); isPod && is(event.Type, p) {
			seen[p.Name] = true
		}
		if len(seen) == pods {
			return nil
		}
	}
	return fmt.Errorf("only %d of %d pods became %s", len(seen), pods, wanted)
}

// timeBurst measures the burst as often as it is called, in seconds.
func (l *Lab) timeBurst(ctx context.Context, b burst, begin start) func() (float64, error) {
	return func() (float64, error) {
		out, err := l.burst(ctx, b, begin)
		return out.visible.Seconds(), err
	}
}

func seconds(s float64) string { return duration(s * float64(time.Second)) }

// bursts lets pods turn Running at once, with 0, 5 and 20 ms added to each request.
func bursts(ctx context.Context, lab *Lab) ([]Row, error) {
	var rows []Row
	sent := &tally{}
	goals := map[time.Duration]Goal{5 * time.Millisecond: AtLeast(6), 20 * time.Millisecond: AtLeast(15)}
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		b := burst{pods: lab.Effort.BurstPods, line: line{delay: delay}}
		row, err := lab.bothBurst(ctx, b, sent)
		if err != nil {
			return nil, err
		}
		row.Name = fmt.Sprintf("burst%d_%dms", b.pods, delay.Milliseconds())
		row.What = fmt.Sprintf("%d pods turn Running at once, %v added to each request: time until all is visible", b.pods, delay)
		row.Goal = goals[delay]
		rows = append(rows, row)
	}
	return append(rows, sent.row("requests_per_change", "requests for a change of status: Herald's")), nil
}

// limitedBurst is a burst with the client limits that the kubelet has by default, on both sides.
func limitedBurst(ctx context.Context, lab *Lab) ([]Row, error) {
	b := burst{pods: lab.Effort.BurstPods, line: line{qps: 50, burst: 100}}
	row, err := lab.bothBurst(ctx, b, &tally{})
	row.Name = fmt.Sprintf("burst%d_qps50", b.pods)
	row.What = fmt.Sprintf("%d pods turn Running at once, clients limited to 50 requests a second, 100 at once", b.pods)
	row.Goal = AtLeast(1.9)
	return []Row{row}, err
}

// bothBurst measures a burst on both sides in turns.
func (l *Lab) bothBurst(ctx context.Context, b burst, sent *tally) (Row, error) {
	l.say("%d pods turn Running, %v added to each request, limit %v/s", b.pods, b.line.delay, b.line.qps)
	measure := func(begin start, requests *int) func() (float64, error) {
		return func() (float64, error) {
			out, err := l.burst(ctx, b, begin)
			*requests += out.requests
			return out.visible.Seconds(), err
		}
	}
	took, err := inTurns(l.Effort.Bursts, measure(startKubelet, &sent.kubelet), measure(startHerald, &sent.herald))
	if err != nil {
		return Row{}, fmt.Errorf("a burst of %d pods: %w", b.pods, err)
	}
	sent.changes += b.pods * l.Effort.Bursts
	return Row{Kubelet: seconds(median(took[0])), Herald: seconds(median(took[1])), Value: ratio(took[0], took[1])}, nil
}

// tally counts requests over several measurements.
type tally struct{ kubelet, herald, changes int }

// row is how many requests there were for each change.
func (t *tally) row(name, what string) Row {
	kubelet, herald := float64(t.kubelet)/float64(t.changes), float64(t.herald)/float64(t.changes)
	return Row{
		Name: name, What: what, Kubelet: fmt.Sprintf("%.2f", kubelet), Herald: fmt.Sprintf("%.2f", herald),
		Value: herald, Goal: AtMost(1.02),
	}
}

// ourWorkers is the default of status.Config.Workers.
const ourWorkers = 16

// burstBesideLimit compares our burst with the same patches sent by nothing but a client.
func burstBesideLimit(ctx context.Context, lab *Lab) ([]Row, error) {
	b := burst{pods: lab.Effort.BurstPods, line: line{delay: 5 * time.Millisecond}}
	lab.say("%d pods turn Running, beside bare patches", b.pods)
	took, err := inTurns(max(lab.Effort.Bursts, 3),
		lab.timeBurst(ctx, b, startHerald),
		lab.timeBurst(ctx, b, startBare(ourWorkers)), lab.timeBurst(ctx, b, startBare(2*ourWorkers)))
	if err != nil {
		return nil, fmt.Errorf("a burst beside bare patches: %w", err)
	}
	best := make([]float64, len(took[0]))
	for i := range best {
		best[i] = min(took[1][i], took[2][i])
	}
	row := func(name, how string, bare []float64) Row {
		return Row{
			Name: fmt.Sprintf("burst%d_%s_5ms", b.pods, name),
			What: fmt.Sprintf("%d pods turn Running at once, 5ms added: Herald's time divided by that of bare PATCHes, %s (%s)",
				b.pods, how, seconds(median(bare))),
			Herald: seconds(median(took[0])), Value: ratio(took[0], bare), Goal: AtMost(1.25),
		}
	}
	return []Row{
		row("limit", fmt.Sprintf("%d in flight as Herald", ourWorkers), took[1]),
		row("limit_best", fmt.Sprintf("the better of %d and %d in flight", ourWorkers, 2*ourWorkers), best),
	}, nil
}

// createdByOthers counts requests when the node hears of its pods by a watch while somebody else creates them, and reports
// each as Running as soon as it is known.
func createdByOthers(ctx context.Context, lab *Lab) ([]Row, error) {
	lab.say("%d pods are created by somebody else and turn Running at once", lab.Effort.BurstPods)
	kubelet, err := lab.countCreated(ctx, startKubelet)
	if err != nil {
		return nil, fmt.Errorf("pods created by somebody else, kubelet: %w", err)
	}
	herald, err := lab.countCreated(ctx, startHerald)
	if err != nil {
		return nil, fmt.Errorf("pods created by somebody else: %w", err)
	}
	sent := &tally{kubelet: kubelet, herald: herald, changes: lab.Effort.BurstPods}
	return []Row{sent.row("requests_per_change_created",
		"requests for a change of status, pods just created by somebody else and known by the watch: Herald's")}, nil
}

func (l *Lab) countCreated(ctx context.Context, begin start) (int, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	n, err := l.newNode(ctx, 0)
	if err != nil {
		return 0, err
	}
	config, script := n.connect(line{})
	side, err := begin(ctx, config, nil)
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
		_, err := n.create(ctx, l.Effort.BurstPods, threeContainers)
		failed <- err
	}()
	if err := follow(events, side, l.Effort.BurstPods); err != nil {
		return 0, err
	}
	side.end()
	return len(script.Requests()), <-failed
}

// follow hands what the watch shows to the manager, as an agent does, until that many pods are Running.
func follow(events watch.Interface, side manager, pods int) error {
	runs := map[string]bool{}
	for event := range events.ResultChan() {
		p, isPod := event.Object.(*v1.Pod)
		if !isPod {
			continue
		}
		side.learn(p)
		if event.Type == watch.Added {
			side.set(p, runningStatus())
		}
		if p.Status.Phase == v1.PodRunning {
			runs[p.Name] = true
		}
		if len(runs) == pods {
			return nil
		}
	}
	return fmt.Errorf("only %d of %d pods became visible", len(runs), pods)
}

// WorkersResult is what one setting of status.Config.Workers gives.
type WorkersResult struct {
	Workers int
	// Bursts are the times of a burst with 0, 5 and 20 ms added to each request, in seconds.
	Bursts [3]float64
	// ReadinessMedian and Readiness95 are the median and the 95th percentile of a readiness change behind others, in seconds.
	ReadinessMedian, Readiness95 float64
}

// Workers measures what the number of workers does to a burst, and to a readiness change behind others.
func Workers(ctx context.Context, lab *Lab, settings ...int) ([]WorkersResult, error) {
	results := make([]WorkersResult, len(settings))
	for i, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		lab.say("%d pods turn Running, %v added to each request, workers %v", lab.Effort.BurstPods, delay, settings)
		var sides []func() (float64, error)
		for _, workers := range settings {
			b := burst{pods: lab.Effort.BurstPods, line: line{delay: delay}}
			sides = append(sides, lab.timeBurst(ctx, b, startHeraldWith(status.Config{Workers: workers})))
		}
		took, err := inTurns(lab.Effort.Bursts, sides...)
		if err != nil {
			return nil, fmt.Errorf("bursts with workers %v: %w", settings, err)
		}
		for s := range settings {
			results[s].Bursts[i] = median(took[s])
		}
	}
	for s, workers := range settings {
		took, err := lab.readiness(ctx, startHeraldWith(status.Config{Workers: workers}), min(lab.Effort.Tries, 100))
		if err != nil {
			return nil, fmt.Errorf("readiness with %d workers: %w", workers, err)
		}
		results[s].Workers = workers
		results[s].ReadinessMedian, results[s].Readiness95 = median(took.behind), quantile(took.behind, 0.95)
	}
	return results, nil
}
