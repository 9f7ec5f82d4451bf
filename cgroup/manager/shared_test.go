package manager_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cgroup"
)

// TestCGR9_PodsThatStartTogether checks that many pods share an update of the cgroups that they share, and that it counts all
// of them.
func TestCGR9_PodsThatStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 50
		updates, proceed := 0, make(chan struct{})
		h := newHarness(t, cgroup.Host{}, func(h *harness) {
			h.config.Pods = func() ([]*v1.Pod, bool) {
				updates++
				pods := h.pods
				<-proceed
				return pods, true
			}
		})
		var starts sync.WaitGroup
		start := func(i int) {
			pod := newPod(fmt.Sprint(i), "100m", "")
			h.pods = append(h.pods, pod)
			starts.Go(func() {
				if err := h.EnsurePod(t.Context(), pod); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for i := range count {
			start(i)
		}
		close(proceed)
		starts.Wait()
		if updates != 2 {
			t.Errorf("got %d updates, want one for the first pod and one for the others", updates)
		}
		h.want("cpu/kubepods/burstable/cpu.shares", fmt.Sprint(count*1024/10))
	})
}
