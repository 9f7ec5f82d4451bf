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
	runs := map[string]bool{}
	for event := range events.ResultChan() {
		if p, isPod := event.Object.(*v1.Pod); isPod && p.Status.Phase == v1.PodRunning {
			runs[p.Name] = true
		}
		if len(runs) == pods {
			return nil
		}
	}
	return fmt.Errorf("only %d of %d pods became visible", len(runs), pods)
}

// timeBurst measures the burst as often as it is called, in seconds.
func (l *Lab) timeBurst(ctx context.Context, b burst, begin start) func() (float64, error) {
	return func() (float64, error) {
		out, err := l.burst(ctx, b, begin)
		return out.visible.Seconds(), err
	}
}

func seconds(s float64) string { return duration(s * float64(time.Second)) }
