package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// idlePass measures what a full pass costs when nothing is to be done: the processor time of the whole process.
func idlePass(ctx context.Context, lab *Lab) ([]Row, error) {
	pods := lab.Effort.IdlePods
	lab.say("a full pass over %d idle pods", pods)
	theirs, err := kubeletPass(ctx, pods)
	if err != nil {
		return nil, fmt.Errorf("a full pass over %d idle pods, kubelet: %w", pods, err)
	}
	ours, err := heraldPass(ctx, pods)
	if err != nil {
		return nil, fmt.Errorf("a full pass over %d idle pods: %w", pods, err)
	}
	return []Row{{
		Name:    fmt.Sprintf("idle%dk_pass_ms", pods/1000),
		What:    fmt.Sprintf("a full pass over %d idle pods, no request: processor time of Herald's in ms", pods),
		Kubelet: duration(float64(theirs)), Herald: duration(float64(ours)), Value: float64(ours) / 1e6, Goal: AtMost(10),
	}}, nil
}

// countingHerald counts how often a pod is looked up, which tells how many passes there were.
type countingHerald struct {
	*pod.Manager
	lookups atomic.Int64
}

func (c *countingHerald) GetPodByUID(uid podid.UID) (*v1.Pod, bool) {
	c.lookups.Add(1)
	return c.Manager.GetPodByUID(uid)
}

// heraldPass is the mean over passes that follow each other quickly.
func heraldPass(ctx context.Context, count int) (time.Duration, error) {
	server := &shelf{version: "1", status: runningStatus()}
	client, err := kubeapi.New(server.config())
	if err != nil {
		return 0, err
	}
	book := &countingHerald{Manager: pod.NewManager()}
	m, err := status.New(status.Config{API: client, Pods: book, Deletion: idleHerald{}, FullPass: 50 * time.Millisecond})
	if err != nil {
		return 0, err
	}
	for _, p := range server.pods(count) {
		book.AddPod(p)
		m.SetPodStatus(p, *server.status.DeepCopy())
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx)
	}()
	time.Sleep(time.Second) // until all pods had their turn
	looked, used := book.lookups.Load(), processorTime()
	time.Sleep(2 * time.Second)
	passes := float64(book.lookups.Load()-looked) / float64(count)
	used = processorTime() - used
	stop()
	<-ended
	if requests := server.gets.Load() + server.patches.Load(); requests > 0 || passes < 1 {
		return 0, fmt.Errorf("%d requests and %.1f passes", requests, passes)
	}
	return time.Duration(float64(used) / passes), nil
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(fmt.Sprintf("bench: ask for the processor time of this process: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
