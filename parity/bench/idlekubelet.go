package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
)

// countingKubelet counts how often a pod is looked up, which tells when a pass is under way.
type countingKubelet struct {
	kubeletpod.Manager
	lookups atomic.Int64
}

func (c *countingKubelet) GetPodByUID(uid types.UID) (*v1.Pod, bool) {
	c.lookups.Add(1)
	return c.Manager.GetPodByUID(uid)
}

// kubeletPass waits for the one pass that the kubelet's manager makes every ten seconds.
func kubeletPass(ctx context.Context, count int) (time.Duration, error) {
	server := &shelf{version: "1", status: runningStatus()}
	client, err := kubernetes.NewForConfig(server.config())
	if err != nil {
		return 0, err
	}
	book := &countingKubelet{Manager: kubeletpod.NewBasicPodManager()}
	m := newKubeletStatus(client, book)
	for _, p := range server.pods(count) {
		book.AddPod(p)
		m.SetPodStatus(klog.Logger{}, p, *server.status.DeepCopy())
	}
	m.Start(ctx)
	defer m.RemoveOrphanedStatuses(klog.Logger{}, nil)
	if err := server.await(&server.gets, int64(count)); err != nil { // it reads each pod once
		return 0, err
	}
	used, err := book.nextPass()
	if err == nil && server.gets.Load()+server.patches.Load() > int64(count) {
		err = errors.New("pods were not idle")
	}
	return used, err
}

// nextPass is the processor time from before the first look-up of the next pass until there are no more.
func (c *countingKubelet) nextPass() (time.Duration, error) {
	began, looked := processorTime(), c.lookups.Load()
	quiet := 0
	for range 3000 {
		time.Sleep(10 * time.Millisecond)
		now := c.lookups.Load()
		switch {
		case now == looked && quiet < 0: // the pass has begun
			if quiet++; quiet == 0 {
				return processorTime() - began, nil
			}
		case now == looked:
			began = processorTime()
		default:
			looked, quiet = now, -10
		}
	}
	return 0, errors.New("no pass in half a minute")
}
