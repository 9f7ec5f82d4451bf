package bench

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
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
