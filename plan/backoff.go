package plan

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

const (
	firstDelay = 10 * time.Second
	maxDelay   = 300 * time.Second
	// healthyRun is how long an instance must have run for its crash loop to be forgotten.
	healthyRun = 2 * maxDelay
)

// Backoff remembers crash loops. Next never changes the one that it is given. It is bounded by the pod's containers.
//
// It is only needed where the runtime's own records end. What it says is otherwise computed from the instances that are
// seen: how long each ran and how often the container was restarted. So an agent that starts with an empty Backoff
// neither restarts a crash-looping container early, as the kubelet does, nor lets it wait longer than the rule.
type Backoff map[BackoffKey]CrashLoop

// BackoffKey names a version of a container: one that was edited starts afresh.
type BackoffKey struct {
	Name string
	Hash uint64
}

func keyOf(c *v1.Container) BackoffKey { return BackoffKey{c.Name, HashContainer(c)} }

// CrashLoop is what is remembered of one version of a container. Counting ends, and not attempts to start, makes the
// same observation give the same loop however often it is looked at.
type CrashLoop struct {
	// Counted is the newest instance that is accounted for. All that are newer are not, nor, when it is gone, are those that
	// are left: a runtime forgets the oldest first.
	LastCounted observed.ContainerID
	// Runs is how many instances in a row ended before they had run for 10 minutes, the last one aside: it counts always.
	Runs int
	// Ended is when the last of them ended.
	LastExit time.Time
	// Owed is the instance that was last stopped to be started again, whatever its exit code says.
	PendingRestart observed.ContainerID
}

// Delay is how long a start waits after Ended: not at all after the first run, then 10 s, doubling to 5 minutes.
func (l CrashLoop) Delay() time.Duration {
	if l.Runs < 2 {
		return 0
	}
	delay := firstDelay
	for range l.Runs - 2 {
		if delay *= 2; delay >= maxDelay {
			return maxDelay
		}
	}
	return delay
}

// Until is when the delay is over.
func (l CrashLoop) RetryAt() time.Time { return l.LastExit.Add(l.Delay()) }

// after is the loop with one more run.
func (l CrashLoop) after(ran time.Duration) CrashLoop {
	if ran > healthyRun {
		l.Runs = 0
	}
	l.Runs++
	return l
}

// remember is the memory with what is seen now, for exactly the containers that can be restarted.
func (d *decision) remember() Backoff {
	memory := Backoff{}
	note := func(specs []v1.Container) {
		for i := range specs {
			key := keyOf(&specs[i])
			if loop := d.loopOf(key); loop != (CrashLoop{}) {
				memory[key] = loop
			}
		}
	}
	note(d.Pod.Spec.InitContainers)
	note(d.Pod.Spec.Containers)
	return memory
}

func (d *decision) loopOf(key BackoffKey) CrashLoop {
	loop := d.Backoff[key]
	loop.LastExit = d.past(loop.LastExit)
	instances := d.seen.Instances(key.Name)
	uncounted := slices.IndexFunc(instances, func(c observed.Container) bool { return c.ID == loop.LastCounted })
	if uncounted < 0 {
		uncounted = len(instances)
	}
	for i := uncounted - 1; i >= 0; i-- {
		c := &instances[i]
		switch {
		case c.SpecHash != 0 && c.SpecHash != key.Hash:
			loop = CrashLoop{LastCounted: c.ID}
		case stateOf(c) == observed.Exited:
			loop = d.counted(loop, c)
		}
	}
	return loop
}

// counted is the loop with an instance that ended. Where nothing is known of those before it, they are taken for as short
// as this one.
func (d *decision) counted(loop CrashLoop, c *observed.Container) CrashLoop {
	if loop.LastCounted == (observed.ContainerID{}) {
		loop.Runs = c.RestartCount
	}
	end := c.Exit.FinishedAt
	if end.Before(c.CreatedAt) {
		end = c.CreatedAt
	}
	end = d.past(end)
	loop = loop.after(ranFor(c, end))
	loop.LastCounted, loop.LastExit = c.ID, end
	return loop
}

// past is when something happened. What a clock that was set back has made the future is taken for now (F14).
func (d *decision) past(at time.Time) time.Time {
	if at.After(d.Now) {
		return d.Now
	}
	return at
}

func ranFor(c *observed.Container, end time.Time) time.Duration {
	if c.StartedAt.IsZero() {
		return 0
	}
	return end.Sub(c.StartedAt)
}

// waitOf is why the container may not be started now, if it may not. running is the instance that is stopped for it, or
// nil. The run of one that is stopped counts as waiting, as in the kubelet: a container that fails its liveness probe
// after minutes is replaced at once.
func (d *decision) waitOf(c *v1.Container, running *observed.Container) (derive.Waiting, bool) {
	loop := d.out.Backoff[keyOf(c)]
	if running != nil {
		loop = loop.after(ranFor(running, d.Now))
	}
	if !d.Now.Before(loop.RetryAt()) {
		return derive.Waiting{}, false
	}
	return derive.Waiting{
		Reason: ReasonCrashLoopBackOff,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			loop.Delay(), c.Name, d.Pod.Name, d.Pod.Namespace, d.Pod.UID),
		Until: loop.RetryAt(),
	}, true
}

// owe notes that the instance is stopped to be started again.
func (d *decision) owe(c *v1.Container, instance *observed.Container) {
	key := keyOf(c)
	loop := d.out.Backoff[key]
	loop.PendingRestart = instance.ID
	d.out.Backoff[key] = loop
}

func (d *decision) isOwed(c *v1.Container, instance *observed.Container) bool {
	return d.out.Backoff[keyOf(c)].PendingRestart == instance.ID
}
