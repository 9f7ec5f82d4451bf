package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// withPleg lets the agent see by the real pleg, and wakes the workers as it sees changes.
func withPleg(t *testing.T, story func(*world)) {
	t.Helper()
	var p *pleg.Pleg
	configure := func(c *worker.Config) {
		var err error
		if p, err = pleg.New(pleg.Config{Runtime: c.Runtime.(pleg.Runtime)}); err != nil {
			t.Fatal(err)
		}
		c.Observations = p
	}
	inWorldWith(t, configure, func(w *world) {
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(w.Context())
		running.Go(func() { _ = p.Run(ctx) })
		running.Go(func() {
			for {
				changed, err := p.Changed(ctx)
				if err != nil {
					return
				}
				for _, uid := range changed {
					w.Wake(uid)
				}
			}
		})
		story(w)
		stop()
		running.Wait()
	})
}

func TestPLEG17WithPlegAPodIsStartedRestartedAndEnded(t *testing.T) {
	withPleg(t, func(w *world) {
		web, etcd, next := apiPod("web"), staticPod("etcd", "u1"), staticPod("etcd", "u2")
		w.create(web)
		w.create(etcd)
		w.after(3 * time.Second)
		w.wantPhase(web, v1.PodRunning)
		w.wantPhase(etcd, v1.PodRunning)
		w.engine.Exit(podid.UID(web.UID), "app", 1)
		w.after(15 * time.Second)
		if !w.runs(web) {
			w.Fatal("it crashed and was not started again")
		}
		w.engine.Script("app", engine.Script{Ending: 4 * time.Second})
		w.remove(etcd)
		w.create(next)
		w.delete(web, 30)
		w.after(10 * time.Second) // in a bubble no time passes while a look is made, so each waits for the next list
		w.wantStage(web, "finished")
		w.wantPhase(next, v1.PodRunning)
	})
}
