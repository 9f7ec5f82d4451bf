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
	requestDelay  = 20 * time.Millisecond
	singleSamples = 20
)

// queuedReadiness measures how long a readiness change queued behind low-priority changes takes to become visible, in
// multiples of a single request.
func queuedReadiness(ctx context.Context, env *Environment) ([]Result, error) {
	herald, err := env.measureReadiness(ctx, startHerald, env.Profile.ReadinessSamples)
	if err != nil {
		return nil, fmt.Errorf("queued readiness change: %w", err)
	}
	var kubelet []float64
	for range env.Profile.KubeletReadinessSamples {
		env.logf("the same with the kubelet, which takes up to 30 s")
		took, err := env.measureKubeletReadiness(ctx)
		if err != nil {
			return nil, fmt.Errorf("queued readiness change, kubelet: %w", err)
		}
		kubelet = append(kubelet, took)
	}
	p99 := quantile(herald.queued, 0.99)
	return []Result{{
		Name: fmt.Sprintf("readiness_behind_%d", env.Profile.QueuedChanges),
		Description: fmt.Sprintf("time until a readiness change queued behind %d others is visible, %v added to each request: Herald's 99th "+
			"percentile (median %s) as a multiple of a single request (%s)",
			env.Profile.QueuedChanges, requestDelay, formatSeconds(median(herald.queued)), formatSeconds(herald.single)),
		Kubelet: formatSeconds(median(kubelet)), Herald: formatSeconds(p99), Value: p99 / herald.single, Goal: AtMost(3),
	}}, nil
}

// readinessTimes holds the duration of a single request and of queued changes, in seconds.
type readinessTimes struct {
	single float64
	queued []float64
}

// measureReadiness measures one of Herald's managers. The other pods change continuously, so that about as many changes
// are queued for each sample.
func (e *Environment) measureReadiness(ctx context.Context, start startFunc, samples int) (readinessTimes, error) {
	e.logf("readiness changes queued behind %d others", e.Profile.QueuedChanges)
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	fixture, err := e.newReadinessFixture(ctx, start)
	if err != nil {
		return readinessTimes{}, err
	}
	defer fixture.close()
	if _, err := fixture.toggleReadiness(singleSamples); err != nil {
		return readinessTimes{}, err
	}
	single := median(fixture.requestDurations())
	fixture.enqueueOthers()
	enqueuing, stopEnqueuing := context.WithCancel(ctx)
	enqueued := make(chan struct{})
	go func() {
		defer close(enqueued)
		fixture.keepEnqueuing(enqueuing)
	}()
	queued, err := fixture.toggleReadiness(samples)
	stopEnqueuing()
	<-enqueued
	return readinessTimes{single: single, queued: queued}, err
}

// measureKubeletReadiness returns one sample with the kubelet's manager, in seconds.
func (e *Environment) measureKubeletReadiness(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	fixture, err := e.newReadinessFixture(ctx, startKubelet)
	if err != nil {
		return 0, err
	}
	defer fixture.close()
	fixture.enqueueOthers()
	time.Sleep(10 * requestDelay) // until the kubelet's loop is sending them
	took, err := fixture.toggleReadiness(1)
	if err != nil {
		return 0, err
	}
	return took[0], nil
}

// enqueueInterval is how often changes that were sent meanwhile are queued again.
const enqueueInterval = 100 * time.Millisecond

// readinessFixture is a node on which low-priority changes are queued while one pod's readiness toggles. One goroutine
// may toggle while another enqueues.
type readinessFixture struct {
	manager  statusManager
	script   *fault.Injector
	events   watch.Interface
	target   *v1.Pod
	ready    bool // the target's current readiness
	others   []*v1.Pod
	restarts int // restart count of each of the others
}

// newReadinessFixture creates the node with all pods Running and known to a new manager.
func (e *Environment) newReadinessFixture(ctx context.Context, start startFunc) (*readinessFixture, error) {
	n, err := e.newNode(ctx, e.Profile.QueuedChanges+1)
	if err != nil {
		return nil, err
	}
	if err := n.runPods(ctx); err != nil {
		return nil, err
	}
	events, pods, err := n.watch(ctx)
	if err != nil {
		return nil, err
	}
	config, script := n.clientConfig(connection{delay: requestDelay})
	manager, err := start(ctx, config, pods)
	if err != nil {
		return nil, err
	}
	manager.setStatus(pods[0], pods[0].Status)
	return &readinessFixture{manager: manager, script: script, events: events, target: pods[0], ready: true, others: pods[1:]}, nil
}

// runPods makes the node's pods Running quickly.
func (n *node) runPods(ctx context.Context) error {
	events, _, err := n.watch(ctx)
	if err != nil {
		return err
	}
	defer events.Stop()
	config, _ := n.clientConfig(connection{})
	manager, err := startHerald(ctx, config, n.pods)
	if err != nil {
		return err
	}
	defer manager.close()
	for _, p := range n.pods {
		manager.setStatus(p, runningStatus())
	}
	return waitUntilRunning(events, len(n.pods))
}

// enqueueOthers enqueues a change of each of the other pods.
func (f *readinessFixture) enqueueOthers() {
	f.restarts++
	for _, p := range f.others {
		f.manager.setStatus(p, withRestartCount(p.Status, f.restarts))
	}
}

// keepEnqueuing changes the other pods until ctx is done.
func (f *readinessFixture) keepEnqueuing(ctx context.Context) {
	ticker := time.NewTicker(enqueueInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.enqueueOthers()
		case <-ctx.Done():
			return
		}
	}
}

// toggleReadiness toggles the target's readiness count times and returns how long each change took to become visible,
// in seconds.
func (f *readinessFixture) toggleReadiness(count int) ([]float64, error) {
	var took []float64
	for range count {
		f.ready = !f.ready
		started := time.Now()
		f.manager.setReadiness(f.target, f.ready)
		if !f.waitForReadiness() {
			return nil, errors.New("readiness change did not become visible")
		}
		took = append(took, time.Since(started).Seconds())
	}
	return took, nil
}

// waitForReadiness waits until the watch shows the target's current readiness. It returns false if the watch ends
// first.
func (f *readinessFixture) waitForReadiness() bool {
	for event := range f.events.ResultChan() {
		if p, isPod := event.Object.(*v1.Pod); isPod && p.UID == f.target.UID && isReady(&p.Status) == f.ready {
			return true
		}
	}
	return false
}

// requestDurations returns how long the manager's requests took, in seconds.
func (f *readinessFixture) requestDurations() []float64 {
	var took []float64
	for _, r := range f.script.Requests() {
		if !r.End.IsZero() {
			took = append(took, r.End.Sub(r.Start).Seconds())
		}
	}
	return took
}

func (f *readinessFixture) close() {
	f.events.Stop()
	f.manager.close()
}
