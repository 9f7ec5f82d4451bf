package allocation_test

import (
	"fmt"
	"testing"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
)

// BenchmarkSetPodAllocation adds one pod after another to a node that has pods already.
func BenchmarkSetPodAllocation(b *testing.B) {
	for _, pods := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("%dPods", pods), func(b *testing.B) {
			state, err := checkpoint.Open(b.TempDir(), checkpoint.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer state.Close()
			manager, err := allocation.New(allocation.Config{State: state})
			if err != nil {
				b.Fatal(err)
			}
			add := func(i int) {
				if err := manager.SetPodAllocation(requestingPod(fmt.Sprint("web-", i))); err != nil {
					b.Fatal(err)
				}
			}
			for i := range pods {
				add(i)
			}
			b.ReportAllocs()
			for i := pods; b.Loop(); i++ {
				add(i)
				manager.RemovePod(podid.UID(fmt.Sprint("web-", i-pods)))
			}
		})
	}
}
