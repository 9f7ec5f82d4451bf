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

// fakeAPIServer answers as an API server that has every pod, each with its name as its UID and with the same status. It
// stores nothing, so that retained memory belongs to the status manager.
type fakeAPIServer struct {
	resourceVersion string
	status          v1.PodStatus
	gets, patches   atomic.Int64 // requests
}

func (s *fakeAPIServer) config() *rest.Config {
	return withProtobuf(&rest.Config{Host: "http://fake", Transport: s, QPS: -1})
}

// pod returns the pod with that name.
func (s *fakeAPIServer) pod(name string) *v1.Pod {
	p := threeContainerPod(name, types.UID(name))
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.ResourceVersion, p.Status = s.resourceVersion, *s.status.DeepCopy()
	return p
}

func (s *fakeAPIServer) pods(count int) []*v1.Pod {
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pods[i] = s.pod(fmt.Sprintf("9f1c1a52-7d3e-4a0c-8a9b-%012d", i))
	}
	return pods
}

// waitForRequests waits for count requests, and a moment longer for the last response to be read.
func (s *fakeAPIServer) waitForRequests(requests *atomic.Int64, count int64) error {
	for range 30_000 {
		if requests.Load() >= count {
			time.Sleep(50 * time.Millisecond)
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("got %d requests in five minutes, want %d", requests.Load(), count)
}

// RoundTrip answers a GET with the pod, and a PATCH as if it had been applied.
func (s *fakeAPIServer) RoundTrip(req *http.Request) (*http.Response, error) {
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
	var response any = p
	if strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadata") {
		response = &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: p.ObjectMeta,
		}
	}
	body, err := json.Marshal(response)
	if err != nil {
		return nil, fmt.Errorf("answer %s %s: %w", req.Method, req.URL, err)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

// bytesPerPod compares the memory that the status managers retain for a pod whose status has been reported.
func bytesPerPod(ctx context.Context, env *Environment) ([]Result, error) {
	pods := env.Profile.MemoryPods
	env.logf("memory for %d pods", pods)
	measure := func(start startFunc) func() (float64, error) {
		return func() (float64, error) {
			without, err := measureHeap(ctx, start, pods, false)
			if err != nil {
				return 0, err
			}
			with, err := measureHeap(ctx, start, pods, true)
			return (with - without) / float64(pods), err
		}
	}
	bytes, err := measureRounds(3, measure(startKubelet), measure(startHerald))
	if err != nil {
		return nil, fmt.Errorf("memory for %d pods: %w", pods, err)
	}
	kubelet, herald := median(bytes[0]), median(bytes[1])
	return []Result{{
		Name: "bytes_per_pod", Description: "memory that the status manager retains per reported pod: Herald's divided by the kubelet's",
		Kubelet: fmt.Sprintf("%.0f B", kubelet), Herald: fmt.Sprintf("%.0f B", herald), Value: herald / kubelet, Goal: AtMost(1),
	}}, nil
}

// measureHeap returns the heap in use once the pod manager has received all pods as Running: reported by the status
// manager or, as the baseline, without its involvement.
func measureHeap(ctx context.Context, start startFunc, count int, reported bool) (float64, error) {
	before := heapInUse()
	server, running := &fakeAPIServer{resourceVersion: "1"}, runningStatus()
	pods := server.pods(count)
	manager, err := start(ctx, server.config(), pods)
	if err != nil {
		return 0, err
	}
	defer manager.close()
	if reported {
		for _, p := range pods {
			manager.setStatus(p, *running.DeepCopy())
		}
		if err := server.waitForRequests(&server.patches, int64(count)); err != nil {
			return 0, err
		}
	}
	updated := &fakeAPIServer{resourceVersion: "2", status: running}
	for i, p := range pods {
		pods[i] = nil
		manager.updatePod(updated.pod(p.Name))
	}
	time.Sleep(100 * time.Millisecond) // until Herald's manager has compared the statuses
	inUse := heapInUse() - before
	runtime.KeepAlive(manager)
	return inUse, nil
}

func heapInUse() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // collects what the first run left to finalizers
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// idleFullPass measures the CPU time of the process for a full pass that has nothing to do.
func idleFullPass(ctx context.Context, env *Environment) ([]Result, error) {
	pods := env.Profile.IdlePods
	env.logf("full pass over %d idle pods", pods)
	kubeletTime, err := measureKubeletPass(ctx, pods)
	if err != nil {
		return nil, fmt.Errorf("full pass over %d idle pods, kubelet: %w", pods, err)
	}
	heraldTime, err := measureHeraldPass(ctx, pods)
	if err != nil {
		return nil, fmt.Errorf("full pass over %d idle pods: %w", pods, err)
	}
	return []Result{{
		Name:        fmt.Sprintf("idle%dk_pass_ms", pods/1000),
		Description: fmt.Sprintf("full pass over %d idle pods, no requests: Herald's CPU time in ms", pods),
		Kubelet:     formatNanoseconds(float64(kubeletTime)), Herald: formatNanoseconds(float64(heraldTime)),
		Value: float64(heraldTime) / 1e6, Goal: AtMost(10),
	}}, nil
}

// countingHeraldPods counts lookups, which gives the number of passes.
type countingHeraldPods struct {
	*pod.Manager
	lookups atomic.Int64
}

func (c *countingHeraldPods) GetPodByUID(uid podid.UID) (*v1.Pod, bool) {
	c.lookups.Add(1)
	return c.Manager.GetPodByUID(uid)
}

// measureHeraldPass returns the mean over passes in quick succession.
func measureHeraldPass(ctx context.Context, count int) (time.Duration, error) {
	server := &fakeAPIServer{resourceVersion: "1", status: runningStatus()}
	client, err := kubeapi.New(server.config())
	if err != nil {
		return 0, err
	}
	pods := &countingHeraldPods{Manager: pod.NewManager()}
	manager, err := status.New(status.Config{API: client, Pods: pods, Deletion: heraldCallbacks{}, SyncPeriod: 50 * time.Millisecond})
	if err != nil {
		return 0, err
	}
	for _, p := range server.pods(count) {
		pods.AddPod(p)
		manager.SetPodStatus(p, *server.status.DeepCopy())
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = manager.Run(ctx)
	}()
	time.Sleep(time.Second) // until all pods have been processed once
	lookups, cpuTime := pods.lookups.Load(), processCPUTime()
	time.Sleep(2 * time.Second)
	passes := float64(pods.lookups.Load()-lookups) / float64(count)
	cpuTime = processCPUTime() - cpuTime
	stop()
	<-done
	if requests := server.gets.Load() + server.patches.Load(); requests > 0 || passes < 1 {
		return 0, fmt.Errorf("got %d requests and %.1f passes, want none and at least 1", requests, passes)
	}
	return time.Duration(float64(cpuTime) / passes), nil
}

// processCPUTime returns the CPU time of this process so far.
func processCPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(fmt.Sprintf("bench: getrusage of the process: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// countingKubeletPods counts lookups, which shows when a pass is under way.
type countingKubeletPods struct {
	kubeletpod.Manager
	lookups atomic.Int64
}

func (c *countingKubeletPods) GetPodByUID(uid types.UID) (*v1.Pod, bool) {
	c.lookups.Add(1)
	return c.Manager.GetPodByUID(uid)
}

// measureKubeletPass waits for the pass that the kubelet's manager makes every ten seconds.
func measureKubeletPass(ctx context.Context, count int) (time.Duration, error) {
	server := &fakeAPIServer{resourceVersion: "1", status: runningStatus()}
	client, err := kubernetes.NewForConfig(server.config())
	if err != nil {
		return 0, err
	}
	pods := &countingKubeletPods{Manager: kubeletpod.NewBasicPodManager()}
	manager := newKubeletStatusManager(client, pods)
	for _, p := range server.pods(count) {
		pods.AddPod(p)
		manager.SetPodStatus(klog.Logger{}, p, *server.status.DeepCopy())
	}
	manager.Start(ctx)
	defer manager.RemoveOrphanedStatuses(klog.Logger{}, nil)
	if err := server.waitForRequests(&server.gets, int64(count)); err != nil { // the kubelet reads each pod once
		return 0, err
	}
	cpuTime, err := pods.measureNextPass()
	if err == nil && server.gets.Load()+server.patches.Load() > int64(count) {
		err = errors.New("status manager sent requests during an idle pass")
	}
	return cpuTime, err
}

// measureNextPass returns the CPU time from before the first lookup of the next pass until lookups stop.
func (c *countingKubeletPods) measureNextPass() (time.Duration, error) {
	started, lookups := processCPUTime(), c.lookups.Load()
	quiet := 0
	for range 30_000 {
		time.Sleep(10 * time.Millisecond)
		now := c.lookups.Load()
		switch {
		case now == lookups && quiet < 0: // the pass has started
			if quiet++; quiet == 0 {
				return processCPUTime() - started, nil
			}
		case now == lookups:
			started = processCPUTime()
		default:
			lookups, quiet = now, -10
		}
	}
	return 0, errors.New("no full pass within five minutes")
}
