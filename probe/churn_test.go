package probe_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// churn does what workers do to one pod, in any order.
func (w *world) churn(uid types.UID, rounds int) {
	pod := podOf(v1.Container{Name: "app", StartupProbe: command("start"), ReadinessProbe: command("ready"), LivenessProbe: command("live")})
	pod.UID = uid
	for round := range rounds {
		switch rand.IntN(6) {
		case 0:
			w.RemovePod(podid.UID(uid))
		case 1:
			w.StopLivenessAndStartup(pod)
		case 2:
			pod = pod.DeepCopy()
			pod.Spec.Containers[0].ReadinessProbe.FailureThreshold = 1 + rand.Int32N(3)
		case 3:
			w.run(pod, "app", fmt.Sprint(uid, "-", round))
		}
		w.AddPod(pod)
		w.Results(podid.UID(uid))
		time.Sleep(rand.N(700 * time.Millisecond))
	}
	w.RemovePod(podid.UID(uid))
}

func TestI14HoweverPodsComeAndGoNothingIsLeftOfThem(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answer("live", hangs)
		var workers sync.WaitGroup
		for n := range 8 {
			workers.Go(func() { w.churn(types.UID(fmt.Sprint("u", n)), 300) })
		}
		workers.Wait()
		synctest.Wait()
		asked := len(w.times("ready"))
		w.after(time.Minute)
		if more := len(w.times("ready")) - asked; asked == 0 || more > 0 {
			t.Errorf("asked %d times, and %d times after all were gone", asked, more)
		}
		if left := w.count("prober_probe_total") + w.count("prober_probe_duration_seconds"); left > 0 {
			t.Errorf("%d series are left", left)
		}
	})
}
