package pleg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Run looks until ctx ends. It is called once.
func (p *PLEG) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for range p.config.MaxInspections {
		running.Go(func() { p.inspectAll(ctx) })
	}
	running.Go(func() { p.listen(ctx) })
	running.Go(func() {
		<-ctx.Done()
		p.queue.ShutDown()
	})
	for ctx.Err() == nil {
		p.relist(ctx)
		sleep(ctx, p.config.RelistPeriod)
	}
	running.Wait()
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// relist takes a list, and has the pods inspected that are not as they were. It waits for none of them: one that hangs
// holds up nobody (PLEG-22). If there is no list, everything stays as it was (PLEG-2).
func (p *PLEG) relist(ctx context.Context) {
	began := time.Now()
	call, cancel := context.WithTimeout(ctx, p.config.CallTimeout)
	pods, err := p.config.Runtime.ListPods(call)
	cancel()
	if err != nil {
		p.listFailed(ctx, err)
		return
	}
	p.metrics.relisted(began)
	for _, uid := range p.take(pods, began) {
		p.queue.Add(uid)
	}
}

func (p *PLEG) listFailed(ctx context.Context, err error) {
	p.mu.Lock()
	first := p.failing == nil
	p.failing = err
	p.mu.Unlock()
	if first && ctx.Err() == nil {
		p.config.Logger.Error("The runtime does not list its pods; their last known state stands", "err", err)
	}
}

// take compares a list with what is known, and returns the pods that must be inspected.
func (p *PLEG) take(pods []*observed.Pod, began time.Time) []podid.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := make(map[podid.UID]*observed.Pod, len(pods))
	var suspects []podid.UID
	for _, pod := range pods {
		shown[pod.UID] = pod
		r, known := p.records[pod.UID]
		if known && !r.isSuspect() && r.looksLike(pod) {
			continue
		}
		if !known || !r.isSuspect() {
			p.suspectLocked(pod.UID)
		}
		suspects = append(suspects, pod.UID)
	}
	for uid, r := range p.records {
		r.announce() // also of what is still the same
		switch {
		case shown[uid] != nil:
		case r.isSuspect():
			suspects = append(suspects, uid)
		case r.pod.At.Before(began): // else it was made while the list was
			delete(p.records, uid)
			if isNews(&observed.Pod{}, r.pod) {
				p.markChangedLocked(uid)
			}
		}
	}
	if p.failing != nil && !p.listed.IsZero() {
		p.config.Logger.Info("The runtime lists its pods again", "silent", began.Sub(p.listed).Round(time.Second))
	}
	p.list, p.shown, p.listed, p.failing = pods, shown, began, nil
	return suspects
}

func (p *PLEG) inspectAll(ctx context.Context) {
	for {
		uid, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			p.inspect(ctx, uid)
		}
		p.queue.Done(uid)
	}
}

func (p *PLEG) inspect(ctx context.Context, uid podid.UID) {
	began := time.Now()
	p.mu.Lock()
	r, known := p.records[uid]
	if !known || !r.isSuspect() {
		p.mu.Unlock()
		return
	}
	asked := r.asked // what is asked from now on needs another look
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, p.config.CallTimeout)
	pod, err := p.config.Runtime.InspectPod(ctx, uid)
	cancel()
	if err == nil && pod.At.IsZero() {
		err = errors.New("the runtime does not say when it looked")
	}
	p.metrics.inspected(began)
	if err != nil {
		p.inspectionFailed(r, began, fmt.Errorf("inspect pod %s: %w", uid, err))
		return
	}
	p.inspected(r, asked, pod)
}

// inspectionFailed leaves the pod as it was known, to be looked at again with the next list (PLEG-6).
func (p *PLEG) inspectionFailed(r *record, began time.Time, err error) {
	p.mu.Lock()
	first := r.err == nil
	r.err, r.failed = err, began
	r.announce()
	p.mu.Unlock()
	if first {
		p.config.Logger.Warn("A pod cannot be inspected; its last known state stands", "err", err)
	}
}

// inspected stores what was seen, and tells of it only then (PLEG-5). A suspect record is never dropped, so r is still
// the pod's. A look that is older than the newest list holds if that shows the same; of a pod that it does not show nothing
// is left; and else it takes another look, which the list has asked for.
func (p *PLEG) inspected(r *record, asked uint64, pod *observed.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := r.pod
	shown, older := p.shown[pod.UID], pod.At.Before(p.listed)
	if older && shown == nil {
		pod = &observed.Pod{UID: pod.UID, At: p.listed}
	}
	r.pod, r.err, r.answered = withAddresses(pod, before), nil, asked
	if older && shown != nil && !r.looksLike(shown) {
		r.asked++
	}
	if isNews(r.pod, before) {
		p.markChangedLocked(pod.UID)
	}
	r.announce()
}

// listen takes the runtime's events as hints (PLEG-19). A stream that breaks is opened again, less and less often; lists
// go on meanwhile, at their pace.
func (p *PLEG) listen(ctx context.Context) {
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
	for pause := fresh; ctx.Err() == nil; {
		began := time.Now()
		err := p.config.Runtime.WatchPods(ctx, p.Refresh)
		if errors.Is(err, errors.ErrUnsupported) {
			p.config.Logger.Info("The runtime has no events; lists alone show what happens")
			return
		}
		if time.Since(began) > time.Minute {
			pause = fresh
		}
		p.metrics.streamEnded()
		sleep(ctx, pause.Step())
	}
}
