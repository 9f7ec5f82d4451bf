package worker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// seesByPleg lets the agent see by the real pleg, and wakes the workers as it sees changes.
func (w *world) seesByPleg(c *worker.Config) {
	p, err := pleg.New(pleg.Config{Runtime: w.engine})
	if err != nil {
		w.Fatal(err)
	}
	c.PodCache = p
	w.hear = func(ctx context.Context, wake func(podid.UID)) {
		var looking sync.WaitGroup
		looking.Go(func() { _ = p.Run(ctx) })
		for {
			changed, err := p.WaitForChanges(ctx)
			if err != nil {
				break
			}
			for _, uid := range changed {
				wake(uid)
			}
		}
		looking.Wait()
	}
}

func TestPLEG17WithPlegAPodIsStartedRestartedAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, engine: engine.New(), unready: map[podid.Source]bool{}}
		w.configure = w.seesByPleg
		w.boot()
		defer func() { w.stop() }()
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
