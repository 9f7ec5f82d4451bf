package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// bytesPerPod compares what the status managers keep in memory for a pod that is reported and at rest.
func bytesPerPod(ctx context.Context, lab *Lab) ([]Row, error) {
	pods := lab.Effort.MemoryPods
	lab.say("memory for %d pods", pods)
	side := func(begin start) func() (float64, error) {
		return func() (float64, error) {
			without, err := heapAtRest(ctx, begin, pods, false)
			if err != nil {
				return 0, err
			}
			with, err := heapAtRest(ctx, begin, pods, true)
			return (with - without) / float64(pods), err
		}
	}
	bytes, err := inTurns(3, side(startKubelet), side(startHerald))
	if err != nil {
		return nil, fmt.Errorf("memory for %d pods: %w", pods, err)
	}
	kubelet, herald := median(bytes[0]), median(bytes[1])
	return []Row{{
		Name: "bytes_per_pod", What: "memory that the status manager keeps for a reported pod: Herald's divided by the kubelet's",
		Kubelet: fmt.Sprintf("%.0f B", kubelet), Herald: fmt.Sprintf("%.0f B", herald), Value: herald / kubelet, Goal: AtMost(1),
	}}, nil
}

// heapAtRest is how much memory a node takes once its address book has heard that all pods are Running: reported by the
// manager, or, for comparison, without its having anything to do with it.
func heapAtRest(ctx context.Context, begin start, count int, reported bool) (float64, error) {
	before := heapInUse()
	server, running := &shelf{version: "1"}, runningStatus()
	pods := server.pods(count)
	side, err := begin(ctx, server.config(), pods)
	if err != nil {
		return 0, err
	}
	defer side.end()
	if reported {
		for _, p := range pods {
			side.set(p, *running.DeepCopy())
		}
		if err := server.await(&server.patches, int64(count)); err != nil {
			return 0, err
		}
	}
	after := &shelf{version: "2", status: running}
	for i, p := range pods {
		pods[i] = nil
		side.learn(after.pod(p.Name))
	}
	time.Sleep(100 * time.Millisecond) // until our manager has compared
	used := heapInUse() - before
	runtime.KeepAlive(side)
	return used, nil
}

func heapInUse() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one left to finalizers
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
