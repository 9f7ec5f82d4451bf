package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// crashLoop is a history of pods that each start, fail and wait, over and over: three transitions per restart. It accepts them
// as the status manager does.
type crashLoop struct {
	log      *history.Log
	dir      string
	registry *prometheus.Registry
	stop     func() error

	now      time.Time
	rounds   int
	version  uint64
	pods     []*v1.Pod
	statuses []*v1.PodStatus
	versions []uint64
}

// openCrashLoop opens a history in dir and runs it. The times of the transitions begin at now.
func openCrashLoop(dir string, pods int, now time.Time) (*crashLoop, error) {
	c := newCrashLoop(pods, now)
	c.dir = dir
	var err error
	if c.log, err = history.Open(history.Config{Dir: dir, Metrics: c.registry, LogLines: -1}); err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.log.Run(ctx) }()
	c.stop = func() error {
		cancel()
		return <-done
	}
	return c, nil
}

// newCrashLoop returns a crash loop without a history.
func newCrashLoop(pods int, now time.Time) *crashLoop {
	c := &crashLoop{registry: prometheus.NewRegistry(), now: now, statuses: make([]*v1.PodStatus, pods), versions: make([]uint64, pods)}
	for i := range pods {
		c.pods = append(c.pods, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: crashLoopName(i), UID: types.UID(fmt.Sprintf("0b1e5c4a-5d0c-4c0e-9d1f-%012x", i*7919)),
			},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web"}}},
		})
	}
	return c
}

func crashLoopName(i int) string { return fmt.Sprintf("cart-%d-7d9f8b6c5-x2x%d", i, i) }

// round returns the next version of each pod, a second later.
func (c *crashLoop) round() []history.Version {
	c.now = c.now.Add(time.Second)
	c.rounds++
	versions := make([]history.Version, 0, len(c.pods))
	for i, pod := range c.pods {
		c.version++
		after := crashStatus(c.rounds+i, i, c.now)
		versions = append(versions, history.Version{
			UID: podid.UID(pod.UID), Pod: pod, Before: c.statuses[i], After: after, Version: c.version, Previous: c.versions[i],
			Via: transition.ViaWorker, Time: c.now,
		})
		c.statuses[i], c.versions[i] = after, c.version
	}
	return versions
}

// accept passes the versions to the history and waits until all versions so far have records.
func (c *crashLoop) accept(ctx context.Context, versions []history.Version) error {
	for i := range versions {
		c.log.Accepted(versions[i])
	}
	return c.waitForRecords(ctx, versions[len(versions)-1].Version)
}

// waitForRecords waits until the writer has recorded count versions.
func (c *crashLoop) waitForRecords(ctx context.Context, count uint64) error {
	for c.metric("records_total", string(history.KindPod)) < float64(count) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for records: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond): // gathering metrics takes time too
		}
	}
	return nil
}

// waitForSealer waits until at most one full segment is not compressed.
func (c *crashLoop) waitForSealer(ctx context.Context) error {
	for {
		plain, err := filepath.Glob(filepath.Join(c.dir, "*.log"))
		if err != nil || len(plain) <= 2 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for compression: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// metric returns the value of a metric of the history. kind selects one of several; it may be empty.
func (c *crashLoop) metric(name, kind string) float64 {
	families, err := c.registry.Gather()
	if err != nil {
		panic("bench: gather metrics of the history: " + err.Error()) // the registry has no other collectors
	}
	for _, family := range families {
		if family.GetName() != "herald_history_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			if kind == "" || hasLabelValue(m, kind) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func hasLabelValue(m *dto.Metric, value string) bool {
	for _, label := range m.GetLabel() {
		if label.GetValue() == value {
			return true
		}
	}
	return false
}

// fill adds transitions until the files have that size.
func (c *crashLoop) fill(ctx context.Context, size int64) error {
	const roundsAtOnce = 20 // less than what the history keeps in memory without merging
	for c.metric("bytes", "") < float64(size) {
		var versions []history.Version
		for range roundsAtOnce {
			versions = append(versions, c.round()...)
		}
		if err := errors.Join(c.accept(ctx, versions), c.waitForSealer(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// firstSequence returns the first sequence number of a segment, which is its name.
func firstSequence(path string) (uint64, error) {
	digits, _, _ := strings.Cut(filepath.Base(path), ".")
	return strconv.ParseUint(digits, 10, 64)
}

// crashStatus returns the status in the step-th step of a crash loop. Each instance runs for a second.
func crashStatus(step, pod int, now time.Time) *v1.PodStatus {
	id := fmt.Sprintf("containerd://%064x", step/3*1000+pod)
	started := metav1.NewTime(now.Add(-time.Duration(step%3) * time.Second))
	ended := &v1.ContainerStateTerminated{
		ExitCode: 3, Reason: "Error", StartedAt: started, FinishedAt: metav1.NewTime(started.Add(time.Second)), ContainerID: id,
	}
	container := v1.ContainerStatus{
		Name: "web", Image: "registry.example.com/shop/cart:1.4.2", RestartCount: int32(step / 3), ContainerID: id,
	}
	ready, reason, message := v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [web]"
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
