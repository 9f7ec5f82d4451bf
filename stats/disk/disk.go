// Package disk measures what pods use of the node's disk, when somebody asks and at most once a minute.
package disk

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats/summary"
)

// VolumeMeter measures volumes.
type VolumeMeter interface {
	// VolumeStats measures the pod's volumes. With an error, it returns those that could be measured.
	VolumeStats(ctx context.Context, pod *v1.Pod) ([]summary.Volume, error)
}

// LogMeter measures logs.
type LogMeter interface {
	// LogStats measures the logs of the pod's containers, by name, and its other files on the node. With an error, it returns what could
	// be measured.
	LogStats(ctx context.Context, pod *v1.Pod) (logs map[string]summary.Usage, files summary.Usage, err error)
}

// Config configures a Meter.
type Config struct {
	// Volumes and Logs are required.
	Volumes VolumeMeter
	Logs    LogMeter
	// Period is how long a measurement is used. Defaults to 1 minute, as the kubelet's volumeStatsAggPeriod.
	Period time.Duration
	// Budget bounds the time that one call may walk directories. Defaults to 10 seconds.
	Budget time.Duration
}

// restFactor is how many times longer than its measurement a pod is left alone: measuring takes at most a tenth of the time.
const restFactor = 10

// Meter measures what pods use of the disk when somebody asks, and remembers it for a while (RES-23). It is safe for concurrent use:
// one caller measures, others wait.
type Meter struct {
	config Config
	turn   chan struct{} // holds a token while nobody measures

	mu   sync.Mutex // guards pods
	pods map[podid.UID]record
}

type record struct {
	disk *summary.Disk
	at   time.Time     // of the measurement
	rest time.Duration // in which the pod is left alone
}

// New returns a Meter.
func New(config Config) (*Meter, error) {
	if config.Volumes == nil || config.Logs == nil {
		return nil, errors.New("disk.Config: Volumes and Logs are required")
	}
	config.Period, config.Budget = cmp.Or(config.Period, time.Minute), cmp.Or(config.Budget, 10*time.Second)
	m := &Meter{config: config, turn: make(chan struct{}, 1), pods: map[podid.UID]record{}}
	m.turn <- struct{}{}
	return m, nil
}

// Measure returns what the pods use of the disk, not older than the period. When the budget is spent, pods have their last measurement,
// or none. Pods that are not among the given ones are forgotten. The results are shared and must not be modified.
func (m *Meter) Measure(ctx context.Context, pods []*v1.Pod) (map[podid.UID]*summary.Disk, error) {
	return m.MeasureWithin(ctx, pods, m.config.Period)
}

// MeasureWithin is Measure with another age. Pods whose measurement takes long are left alone nevertheless.
func (m *Meter) MeasureWithin(ctx context.Context, pods []*v1.Pod, maxAge time.Duration) (map[podid.UID]*summary.Disk, error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.Budget)
	defer cancel()
	var errs []error
	select {
	case <-m.turn:
		for _, pod := range pods {
			errs = append(errs, m.measureIfDue(ctx, pod, maxAge))
		}
		m.forgetOthers(pods)
		m.turn <- struct{}{}
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	disks := make(map[podid.UID]*summary.Disk, len(m.pods))
	for uid, known := range m.pods {
		disks[uid] = known.disk
	}
	return disks, errors.Join(errs...)
}

func (m *Meter) measureIfDue(ctx context.Context, pod *v1.Pod, maxAge time.Duration) error {
	uid, started := podid.UID(pod.UID), time.Now()
	m.mu.Lock()
	known, found := m.pods[uid]
	m.mu.Unlock()
	due := !found || started.Sub(known.at) >= max(maxAge, known.rest)
	if !due {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	volumes, volumesErr := m.config.Volumes.VolumeStats(ctx, pod)
	logs, files, logsErr := m.config.Logs.LogStats(ctx, pod)
	if ctx.Err() != nil {
		return ctx.Err() // half a measurement is none
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	disk := &summary.Disk{Volumes: volumes, Logs: logs, Files: files}
	m.pods[uid] = record{disk: disk, at: now, rest: restFactor * now.Sub(started)}
	return errors.Join(volumesErr, logsErr)
}

func (m *Meter) forgetOthers(pods []*v1.Pod) {
	wanted := make(map[podid.UID]bool, len(pods))
	for _, pod := range pods {
		wanted[podid.UID(pod.UID)] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.pods, func(uid podid.UID, _ record) bool { return !wanted[uid] })
}
