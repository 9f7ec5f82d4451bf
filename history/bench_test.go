package history_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// crashLoop is a node with 110 pods that each start, fail and wait, over and over: three transitions per restart.
type crashLoop struct {
	log      *history.Log
	now      time.Time
	rounds   int
	pods     []*v1.Pod
	statuses []*v1.PodStatus
	versions []uint64
	version  uint64
}

func newCrashLoop(log *history.Log, now time.Time) *crashLoop {
	const pods = 110
	c := &crashLoop{log: log, now: now, statuses: make([]*v1.PodStatus, pods), versions: make([]uint64, pods)}
	for i := range pods {
		pod := heraldtest.NewPod(fmt.Sprintf("cart-%d-7d9f8b6c5-x2x%d", i, i))
		pod.UID = types.UID(fmt.Sprintf("0b1e5c4a-5d0c-4c0e-9d1f-%012x", i*7919))
		c.pods = append(c.pods, pod)
	}
	log.Start(now)
	return c
}

// accept gives each pod its next version, a second later.
func (c *crashLoop) accept() {
	c.now = c.now.Add(time.Second)
	c.rounds++
	for i, pod := range c.pods {
		c.version++
		after := crashStatus(c.rounds+i, i, c.now)
		c.log.Accepted(history.Version{
			UID: podid.UID(pod.UID), Pod: pod, Before: c.statuses[i], After: after, Version: c.version, Previous: c.versions[i],
			Via: transition.ViaWorker, Time: c.now,
		})
		c.statuses[i], c.versions[i] = after, c.version
	}
}

// round accepts and writes a version of each pod.
func (c *crashLoop) round() {
	c.accept()
	c.log.Step(c.now)
}

// crashStatus returns the status in the step-th step of a crash loop. Each instance runs for a second.
func crashStatus(step, pod int, now time.Time) *v1.PodStatus {
	restarts := int32(step / 3)
	id := fmt.Sprintf("containerd://%064x", int(restarts)*1000+pod)
	container := v1.ContainerStatus{Name: "web", Image: "registry.example.com/shop/cart:1.4.2", RestartCount: restarts, ContainerID: id}
	ready, reason, message := v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [web]"
	started := metav1.NewTime(now.Add(-time.Duration(step%3) * time.Second))
	ended := &v1.ContainerStateTerminated{
		ExitCode: 3, Reason: "Error", StartedAt: started, FinishedAt: metav1.NewTime(started.Add(time.Second)), ContainerID: id,
	}
	switch step % 3 {
	case 0:
		container.State.Running = &v1.ContainerStateRunning{StartedAt: started}
		container.Ready, container.Started = true, new(true)
		ready, reason, message = v1.ConditionTrue, "", ""
	case 1:
		container.State.Terminated = ended
	default:
		container.LastTerminationState.Terminated = ended
		container.State.Waiting = &v1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container=web pod=cart_shop",
		}
	}
	return &v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.7", Conditions: []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue}, {Type: v1.PodInitialized, Status: v1.ConditionTrue},
		{Type: v1.ContainersReady, Status: ready, Reason: reason, Message: message},
		{Type: v1.PodReady, Status: ready, Reason: reason, Message: message},
	}, ContainerStatuses: []v1.ContainerStatus{container}}
}

// BenchmarkAppend measures what the writer does for one transition: comparing, encoding, indexing and writing.
func BenchmarkAppend(b *testing.B) {
	log, err := history.Open(history.Config{Dir: filepath.Join(b.TempDir(), "history"), Sync: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	c := newCrashLoop(log, time.Now())
	c.round()
	before := log.Bytes()
	const rawRounds = 30
	for range rawRounds {
		c.round()
	}
	raw := float64(log.Bytes()-before) / float64(rawRounds*len(c.pods))
	b.ReportAllocs()
	rounds := 0
	for b.Loop() {
		b.StopTimer()
		c.accept()
		if rounds%100 == 0 {
			_ = log.SealAll()
		}
		b.StartTimer()
		log.Step(c.now)
		rounds++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rounds*len(c.pods)), "ns/transition")
	b.ReportMetric(raw, "rawB/transition")
}

// fullBytes is the size of the history that is read.
var fullBytes = flag.Int64("history.bytes", 58<<20, "size of the history of BenchmarkFull")

// fillDirectory writes a history of about 60 MiB.
func fillDirectory(b *testing.B, dir string) {
	b.Helper()
	log, err := history.Open(history.Config{Dir: dir, Sync: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	c := newCrashLoop(log, time.Now().Add(-29*24*time.Hour))
	for rounds := 0; log.Bytes() < *fullBytes; rounds++ {
		c.round()
		if rounds%100 == 0 {
			if err := log.SealAll(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Logf("%d transitions in %d bytes, %.1f B per transition", c.version, log.Bytes(), float64(log.Bytes())/float64(c.version))
	if err := log.Stop(c.now); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFull measures opening and reading a history of about 60 MiB: the newest records of a pod, and a scan of all.
func BenchmarkFull(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "history")
	fillDirectory(b, dir)
	open := func(b *testing.B) *history.Log {
		log, err := history.Open(history.Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		return log
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			_ = open(b).Close()
		}
	})
	for name, query := range map[string]history.Query{
		"last100": {Namespace: "default", Name: "cart-7-7d9f8b6c5-x2x7", Limit: 100},
		"scan":    {Kinds: []history.Kind{history.KindSource}},
	} {
		b.Run(name, func(b *testing.B) {
			log := open(b)
			defer log.Close()
			b.ReportAllocs()
			for b.Loop() {
				if page, err := log.Query(b.Context(), query); err != nil || len(page.Records) != query.Limit {
					b.Fatalf("got %d records, error %v", len(page.Records), err)
				}
			}
		})
	}
}
