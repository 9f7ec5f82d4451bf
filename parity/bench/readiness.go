package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/heraldtest/fault"
)

const (
	readinessDelay = 20 * time.Millisecond
	aloneTries     = 20
)

// readinessBehindOthers measures how long a readiness change takes to be visible behind others that nobody waits for, in
// times of a single request.
func readinessBehindOthers(ctx context.Context, lab *Lab) ([]Row, error) {
	ours, err := lab.readiness(ctx, startHerald, lab.Effort.Tries)
	if err != nil {
		return nil, fmt.Errorf("readiness behind other changes: %w", err)
	}
	var theirs []float64
	for range lab.Effort.KubeletTries {
		lab.say("the same with the kubelet's, which takes up to half a minute")
		took, err := lab.kubeletReadiness(ctx)
		if err != nil {
			return nil, fmt.Errorf("readiness behind other changes, kubelet: %w", err)
		}
		theirs = append(theirs, took)
	}
	late := quantile(ours.behind, 0.99)
	return []Row{{
		Name: fmt.Sprintf("readiness_behind_%d", lab.Effort.Waiting),
		What: fmt.Sprintf("a readiness change behind %d others, %v added to each request, until visible: Herald's 99th percentile "+
			"(median %s) in times of a single request (%s)", lab.Effort.Waiting, readinessDelay, seconds(median(ours.behind)),
			seconds(ours.single)),
		Kubelet: seconds(median(theirs)), Herald: seconds(late), Value: late / ours.single, Goal: AtMost(3),
	}}, nil
}

// waited is what was measured, in seconds: a request alone, and how long changes took behind others.
type waited struct {
	single float64
	behind []float64
}

// readiness measures one of our managers. The others are changed again and again, so that about as many wait for each try.
func (l *Lab) readiness(ctx context.Context, begin start, tries int) (waited, error) {
	l.say("readiness changes behind %d others", l.Effort.Waiting)
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	q, err := l.queue(ctx, begin)
	if err != nil {
		return waited{}, err
	}
	defer q.end()
	if _, err := q.turn(aloneTries); err != nil {
		return waited{}, err
	}
	single := median(q.requestTimes())
	q.changeOthers()
	feeding, enough := context.WithCancel(ctx)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		q.feed(feeding)
	}()
	behind, err := q.turn(tries)
	enough()
	<-fed
	return waited{single: single, behind: behind}, err
}

// kubeletReadiness is one try with the kubelet's manager, in seconds.
func (l *Lab) kubeletReadiness(ctx context.Context) (float64, error) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	q, err := l.queue(ctx, startKubelet)
	if err != nil {
		return 0, err
	}
	defer q.end()
	q.changeOthers()
	time.Sleep(10 * readinessDelay) // until its loop is at work on them
	took, err := q.turn(1)
	if err != nil {
		return 0, err
	}
	return took[0], nil
}

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
