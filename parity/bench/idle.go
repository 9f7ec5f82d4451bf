package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// shelf answers for an API server that has every pod, each with its name for a UID and with the same status. It remembers
// nothing, so that what a process keeps in memory is the manager's.
type shelf struct {
	version string
	status  v1.PodStatus
	// gets and patches count requests.
	gets, patches atomic.Int64
}

func (s *shelf) config() *rest.Config {
	return inProtobuf(&rest.Config{Host: "http://shelf", Transport: s, QPS: -1})
}

// pod is what the shelf has under that name.
func (s *shelf) pod(name string) *v1.Pod {
	p := threeContainers(name, types.UID(name))
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.ResourceVersion, p.Status = s.version, *s.status.DeepCopy()
	return p
}

func (s *shelf) pods(count int) []*v1.Pod {
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pods[i] = s.pod(fmt.Sprintf("9f1c1a52-7d3e-4a0c-8a9b-%012d", i))
	}
	return pods
}

// await waits for that many requests, and a moment longer, so that the last answer is read.
func (s *shelf) await(requests *atomic.Int64, count int64) error {
	for range 6000 {
		if requests.Load() >= count {
			time.Sleep(50 * time.Millisecond)
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%d requests in a minute, want %d", requests.Load(), count)
}

// RoundTrip answers a GET with the pod, and a PATCH as if it had been carried out.
func (s *shelf) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	p := s.pod(path.Base(strings.TrimSuffix(req.URL.Path, "/status")))
	if req.Method == http.MethodPatch {
		s.patches.Add(1)
		p.ResourceVersion = "2"
	} else {
		s.gets.Add(1)
	}
	var answer any = p
	if strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadata") {
		answer = &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: p.ObjectMeta,
		}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("answer %s %s: %w", req.Method, req.URL, err)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

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
	m, err := status.New(status.Config{API: client, Pods: book, Deletion: idleHerald{}, SyncPeriod: 50 * time.Millisecond})
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
