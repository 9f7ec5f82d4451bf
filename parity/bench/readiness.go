package bench

import (
	"context"
	"fmt"
	"time"
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
