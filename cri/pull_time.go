package cri

import (
	"sync"
	"time"

	"github.com/heraldnode/herald/podid"
)

// pullTimes adds up how long pods wait for their images. Pulls of one pod that overlap count once.
type pullTimes struct {
	mu   sync.Mutex // guards pods
	pods map[podid.UID]*pullTime
}

type pullTime struct {
	total   time.Duration
	pulls   int       // in progress
	started time.Time // when the first of them began
}

// begin records that a pull of the pod begins. Call the returned function when it ends.
func (p *pullTimes) begin(uid podid.UID, now time.Time) (end func(now time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods == nil {
		p.pods = map[podid.UID]*pullTime{}
	}
	pod := p.pods[uid]
	if pod == nil {
		pod = &pullTime{}
		p.pods[uid] = pod
	}
	if pod.pulls == 0 {
		pod.started = now
	}
	pod.pulls++
	return func(now time.Time) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if pod.pulls--; pod.pulls == 0 {
			pod.total += now.Sub(pod.started)
		}
	}
}

func (p *pullTimes) of(uid podid.UID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.pods[uid]; pod != nil {
		return pod.total
	}
	return 0
}

func (p *pullTimes) forget(uid podid.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
}

// ImagePullTime returns how long the pod has waited for images, until RemovePod.
func (r *Runtime) ImagePullTime(uid podid.UID) time.Duration { return r.pulls.times.of(uid) }
