package bench

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// feedEvery is how often what was sent meanwhile is made to wait again.
const feedEvery = 100 * time.Millisecond

// queued is a node on which unimportant changes wait while one pod's readiness turns. The two kinds of changes may be made
// by two goroutines.
type queued struct {
	side     manager
	script   *fault.Script
	events   watch.Interface
	one      *v1.Pod
	ready    bool // what the one is
	others   []*v1.Pod
	restarts int // of each of the others
}

// queue makes the node, with all pods Running and known to a fresh manager.
func (l *Lab) queue(ctx context.Context, begin start) (*queued, error) {
	n, err := l.newNode(ctx, l.Effort.Waiting+1)
	if err != nil {
		return nil, err
	}
	if err := n.run(ctx); err != nil {
		return nil, err
	}
	events, pods, err := n.watch(ctx)
	if err != nil {
		return nil, err
	}
	config, script := n.connect(line{delay: readinessDelay})
	side, err := begin(ctx, config, pods)
	if err != nil {
		return nil, err
	}
	side.set(pods[0], pods[0].Status)
	return &queued{side: side, script: script, events: events, one: pods[0], ready: true, others: pods[1:]}, nil
}

// run makes the node's pods Running, the quick way.
func (n *node) run(ctx context.Context) error {
	events, _, err := n.watch(ctx)
	if err != nil {
		return err
	}
	defer events.Stop()
	config, _ := n.connect(line{})
	side, err := startHerald(ctx, config, n.pods)
	if err != nil {
		return err
	}
	defer side.end()
	for _, p := range n.pods {
		side.set(p, runningStatus())
	}
	return untilRunning(events, len(n.pods))
}

// changeOthers makes a change of each of the others wait.
func (q *queued) changeOthers() {
	q.restarts++
	for _, p := range q.others {
		q.side.set(p, restarted(p.Status, q.restarts))
	}
}

// feed goes on changing the others until ctx ends.
func (q *queued) feed(ctx context.Context) {
	ticker := time.NewTicker(feedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			q.changeOthers()
		case <-ctx.Done():
			return
		}
	}
}

// turn turns the one's readiness that many times, and returns how long each took to be visible, in seconds.
func (q *queued) turn(times int) ([]float64, error) {
	var took []float64
	for range times {
		q.ready = !q.ready
		began := time.Now()
		q.side.setReady(q.one, q.ready)
		if !q.seen() {
			return nil, errors.New("a readiness change never became visible")
		}
		took = append(took, time.Since(began).Seconds())
	}
	return took, nil
}

// seen waits until the watch shows the one's readiness as it is.
func (q *queued) seen() bool {
	for event := range q.events.ResultChan() {
		if p, isPod := event.Object.(*v1.Pod); isPod && p.UID == q.one.UID && isReady(&p.Status) == q.ready {
			return true
		}
	}
	return false
}

// requestTimes are how long the manager's requests took, in seconds.
func (q *queued) requestTimes() []float64 {
	var took []float64
	for _, r := range q.script.Requests() {
		if !r.End.IsZero() {
			took = append(took, r.End.Sub(r.Start).Seconds())
		}
	}
	return took
}

func (q *queued) end() {
	q.events.Stop()
	q.side.end()
}
