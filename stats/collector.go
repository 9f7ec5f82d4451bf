package stats

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

// PodLister measures all pods of the runtime.
type PodLister interface {
	// ListPodStats returns a sample of each pod. With an error, what was measured until then.
	ListPodStats(ctx context.Context) ([]load.PodSample, error)
}

// Config configures a Collector.
type Config struct {
	// Machine is required.
	Machine *Machine
	// Pods measures pods. Nil measures none.
	Pods PodLister
	// FileSystems returns the directories of the file systems that matter, by their names. It must not block for long. Defaults to
	// none.
	FileSystems func() map[string]string
	// Dir is a directory for the loads of the last 24 hours, which is created if it does not exist. Empty keeps them in memory only.
	Dir string
	// OnLevel is called when the level of the node's load changes. It must not block. Defaults to a no-op.
	OnLevel func(before, after load.Node)
	// OnNode is called after each sample of the node, OnPods after each attempt to sample the pods. They must not block. Default to
	// no-ops.
	OnNode, OnPods func()
	// NodePeriod defaults to 10 seconds.
	NodePeriod time.Duration
	// PodPeriod is the time between samples of pods while somebody asks for their loads, IdlePodPeriod while nobody does. They
	// default to 15 and 60 seconds.
	PodPeriod, IdlePodPeriod time.Duration
	// InterestDuration is how long a question keeps the shorter period. Defaults to 2 minutes.
	InterestDuration time.Duration
	// Timeout bounds one measurement of the pods. Defaults to 5 seconds.
	Timeout time.Duration
	// Logger receives log messages. Defaults to a logger that discards them.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Machine == nil {
		return c, errors.New("stats.Config: Machine is required")
	}
	for _, field := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.NodePeriod, 10 * time.Second},
		{&c.PodPeriod, 15 * time.Second},
		{&c.IdlePodPeriod, time.Minute},
		{&c.InterestDuration, 2 * time.Minute},
		{&c.Timeout, 5 * time.Second},
	} {
		if *field.value == 0 {
			*field.value = field.def
		}
	}
	if c.FileSystems == nil {
		c.FileSystems = func() map[string]string { return nil }
	}
	if c.OnLevel == nil {
		c.OnLevel = func(_, _ load.Node) {}
	}
	for _, callback := range []*func(){&c.OnNode, &c.OnPods} {
		if *callback == nil {
			*callback = func() {}
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Collector samples the node and its pods while Run runs. Its other methods may be called at any time from any goroutine and do not
// block.
type Collector struct {
	config    Config
	startedAt time.Time
	asked     wakeup.Signal // set when somebody asks for the loads of pods after a time in which nobody did

	mu       sync.Mutex // guards the fields below
	node     load.NodeMonitor
	pods     load.PodMonitor
	samples  []load.PodSample // of the last tick, for those who need the raw numbers
	sampleAt time.Duration
	askedAt  time.Duration // when somebody last asked; negative if nobody did
	failing  bool          // the last measurement of the pods failed
	missed   int           // ticks without a sample of the pods since the last one
	day      *load.Day
}

// New returns a Collector. Call Run to start sampling.
func New(config Config) (*Collector, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Collector{config: config, startedAt: time.Now(), asked: wakeup.New(), askedAt: -1, day: load.NewDay()}, nil
}

// Run samples until ctx ends. Pods are sampled apart from the node: a runtime that hangs does not delay the numbers of the node. It must
// be called at most once.
func (c *Collector) Run(ctx context.Context) error {
	if archive := c.openArchive(); archive != nil {
		defer archive.close()
		var saver sync.WaitGroup
		defer saver.Wait()
		saver.Go(func() { archive.run(ctx) })
	}
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { c.sampleNodes(ctx) })
	if c.config.Pods != nil {
		loops.Go(func() { c.samplePods(ctx) })
	}
	return nil
}

func (c *Collector) sampleNodes(ctx context.Context) {
	for {
		c.sampleNode()
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(c.config.NodePeriod)):
		}
	}
}

func (c *Collector) sampleNode() {
	sample, err := c.config.Machine.Sample(c.config.FileSystems())
	if err != nil {
		c.config.Logger.Debug("Failed to measure machine", "err", err)
	}
	now := c.now()
	c.mu.Lock()
	before := c.node.Load(now)
	c.node.Add(now, sample)
	after := c.node.Load(now)
	c.day.AddNode(time.Now(), c.node.Point(now))
	c.mu.Unlock()
	if after.Level != before.Level && before.Level != load.LevelUnknown {
		c.config.OnLevel(before, after)
	}
	c.config.OnNode()
}

func (c *Collector) samplePods(ctx context.Context) {
	for {
		c.samplePodsOnce(ctx)
		c.config.OnPods()
		select {
		case <-ctx.Done():
			return
		case <-c.asked:
		case <-time.After(jitter(c.podPeriod())):
		}
	}
}

func (c *Collector) samplePodsOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	samples, err := c.config.Pods.ListPodStats(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !c.failing {
		c.config.Logger.Warn("Failed to measure pods", "err", err)
	}
	if c.failing = err != nil; c.failing && len(samples) == 0 {
		c.missed++ // what is known gets old, and then unknown
		return
	}
	c.pods.Add(now, samples)
	if samples == nil {
		samples = []load.PodSample{} // a node without pods was measured
	}
	c.samples, c.sampleAt, c.missed = samples, now, 0
	wall := time.Now()
	for i := range samples {
		cpu, memory := c.pods.Newest(samples[i].UID, now, c.maxPodAgeLocked())
		c.day.AddPod(wall, samples[i].UID, cpu, memory)
	}
	c.day.Prune(wall)
}

// podPeriod returns the time until the next sample of pods.
func (c *Collector) podPeriod() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isWatchedLocked(c.now()) {
		return c.config.PodPeriod
	}
	return c.config.IdlePodPeriod
}

func (c *Collector) isWatchedLocked(now time.Duration) bool {
	return c.askedAt >= 0 && now-c.askedAt < c.config.InterestDuration
}

// maxMissedTicks is the number of ticks without a sample after which the last one says nothing about the present (L3).
const maxMissedTicks = 3

// maxPodAgeLocked returns the age from which a sample of a pod is not used. It is negative if no sample is.
func (c *Collector) maxPodAgeLocked() time.Duration {
	if c.missed >= maxMissedTicks {
		return -1
	}
	return maxMissedTicks * c.config.IdlePodPeriod
}

// askLocked records that somebody wants to know the loads of pods.
func (c *Collector) askLocked(now time.Duration) {
	if !c.isWatchedLocked(now) {
		c.asked.Set()
	}
	c.askedAt = now
}

// Node returns the load of the node.
func (c *Collector) Node() load.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node.Load(c.now())
}

// Time returns the time that is the given duration after the start of the collector, as in load.Node.LevelSince.
func (c *Collector) Time(sinceStart time.Duration) time.Time { return c.startedAt.Add(sinceStart) }

// Machine returns the last sample of the machine and when it was taken. The time is zero if there is no recent one.
func (c *Collector) Machine() (load.MachineSample, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sample, at, recent := c.node.Sample(c.now())
	if !recent {
		return load.MachineSample{}, time.Time{}
	}
	return sample, c.startedAt.Add(at)
}

// Pod returns the load of a pod, and false if it was not measured. Asking makes the samples more frequent for a while.
func (c *Collector) Pod(uid podid.UID) (load.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.askLocked(now)
	return c.pods.Load(uid, now, c.maxPodAgeLocked())
}

// PeekPod returns what Pod returns. It does not make the samples more frequent.
func (c *Collector) PeekPod(uid podid.UID) (load.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods.Load(uid, c.now(), c.maxPodAgeLocked())
}

// PodSamples returns the samples of the last tick and when it was. They are shared and must not be modified. Asking makes the samples
// more frequent for a while.
func (c *Collector) PodSamples() ([]load.PodSample, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.askLocked(now)
	if c.samples == nil || now-c.sampleAt > c.maxPodAgeLocked() {
		return nil, time.Time{}
	}
	return c.samples, c.startedAt.Add(c.sampleAt)
}

// NodeDay returns the load of the node since a time within the last 24 hours.
func (c *Collector) NodeDay(since time.Time) load.Points {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.day.Node(since)
}

// PodDay returns the load of a pod since a time within the last 24 hours, and false if there is none. Asking does not make the samples
// more frequent.
func (c *Collector) PodDay(uid podid.UID, since time.Time) (load.Points, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.day.Pod(uid, since)
}

func (c *Collector) now() time.Duration { return time.Since(c.startedAt) }

// jitter spreads ticks over a fifth of the period, so that the parts of the agent do not all wake up at once.
func jitter(period time.Duration) time.Duration {
	return period - period/10 + time.Duration(rand.Int64N(int64(period)/5+1)) //nolint:gosec // spreads load, not security-relevant
}
