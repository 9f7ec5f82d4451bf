package load

import (
	"time"

	"github.com/heraldnode/herald/podid"
)

// PodMonitor computes the loads of pods from their samples. It is not safe for concurrent use. The zero value has seen none.
type PodMonitor struct {
	pods map[podid.UID]*podSeries
}

// podSeries has the samples of a pod.
type podSeries struct {
	usage      usageSeries
	rx, tx     Counter
	received   Series
	sent       Series
	containers map[string]*containerSeries // by name
	last       PodSample
}

// containerSeries has the samples of an instance of a container. A new instance starts anew.
type containerSeries struct {
	id    string
	usage usageSeries
}

type usageSeries struct {
	seconds, periods, throttled Counter
	cpu, memory, held           Series
}

// Pod is the load of a pod.
type Pod struct {
	UsageLoad
	Received, Sent Value // bytes per second over the last minute
	PIDs           Value
	Containers     []Container
}

// Container is the load of a container.
type Container struct {
	Name string
	UsageLoad
	WritableLayer Value
}

// UsageLoad is the use of resources over the windows.
type UsageLoad struct {
	// CPU is in cores, Memory is the working set in bytes, Throttled the share of periods in which the CPU limit held it back.
	CPU, Memory, Throttled Windows
	Pressure               Pressure
}

// Add adds the samples of all pods of one tick. Pods that are not among them are forgotten.
func (m *PodMonitor) Add(at time.Duration, samples []PodSample) {
	pods := make(map[podid.UID]*podSeries, len(samples))
	for _, sample := range samples {
		series, found := m.pods[sample.UID]
		if !found {
			series = &podSeries{}
		}
		series.add(at, sample)
		pods[sample.UID] = series
	}
	m.pods = pods
}

func (s *podSeries) add(at time.Duration, sample PodSample) {
	s.usage.add(at, sample.Usage)
	s.received.Add(at, s.rx.Rate(at, sample.Network.RxBytes))
	s.sent.Add(at, s.tx.Rate(at, sample.Network.TxBytes))
	containers := make(map[string]*containerSeries, len(sample.Containers))
	for _, container := range sample.Containers {
		series, found := s.containers[container.Name]
		if !found || series.id != container.ID {
			series = &containerSeries{id: container.ID}
		}
		series.usage.add(at, container.Usage)
		containers[container.Name] = series
	}
	s.containers, s.last = containers, sample
}

func (s *usageSeries) add(at time.Duration, usage Usage) {
	rate := s.seconds.Rate(at, usage.CPUSeconds)
	if !rate.known && usage.NanoCores.known {
		rate = Known(usage.NanoCores.number / 1e9)
	}
	s.cpu.Add(at, rate)
	s.memory.Add(at, usage.WorkingSet)
	s.held.Add(at, throttledShare(s.throttled.Rate(at, usage.Throttling.Throttled), s.periods.Rate(at, usage.Throttling.Periods)))
}

// throttledShare returns the share of throttled periods. Without periods there was no limit, or nothing ran.
func throttledShare(throttled, periods Value) Value {
	if throttled.known && periods == Known(0) {
		return periods
	}
	return throttled.Share(periods)
}

// Load returns the load of a pod now. What was not sampled for maxAge is unknown. It returns false for a pod without samples.
func (m *PodMonitor) Load(uid podid.UID, now, maxAge time.Duration) (Pod, bool) {
	series, found := m.pods[uid]
	if !found {
		return Pod{}, false
	}
	pod := Pod{
		UsageLoad: series.usage.load(now, maxAge, series.last.Usage.Pressure),
		Received:  series.received.Over(now, Window1m, maxAge).Mean, Sent: series.sent.Over(now, Window1m, maxAge).Mean,
	}
	if pod.Memory.OneMinute.Mean.IsKnown() {
		pod.PIDs = series.last.PIDs
	}
	for _, container := range series.last.Containers {
		usage := &series.containers[container.Name].usage
		load := Container{Name: container.Name, UsageLoad: usage.load(now, maxAge, container.Usage.Pressure)}
		if load.Memory.OneMinute.Mean.IsKnown() {
			load.WritableLayer = container.WritableLayer
		}
		pod.Containers = append(pod.Containers, load)
	}
	return pod, true
}

// Newest returns the newest use of a pod, in cores and bytes.
func (m *PodMonitor) Newest(uid podid.UID, now, maxAge time.Duration) (cpu, memory Value) {
	series, found := m.pods[uid]
	if !found {
		return Value{}, Value{}
	}
	return series.usage.cpu.Last(now, maxAge), series.usage.memory.Last(now, maxAge)
}

func (s *usageSeries) load(now, maxAge time.Duration, pressure Pressure) UsageLoad {
	load := UsageLoad{CPU: over(&s.cpu, now, maxAge), Memory: over(&s.memory, now, maxAge), Throttled: over(&s.held, now, maxAge)}
	if load.Memory.OneMinute.Mean.IsKnown() {
		load.Pressure = pressure
	}
	return load
}

// Size returns the number of pods.
func (m *PodMonitor) Size() int { return len(m.pods) }
