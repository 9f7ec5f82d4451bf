package diff_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	probejudge "github.com/heraldnode/herald/probe/judge"
)

// ward is a node on which two agents probe the same containers: the kubelet's prober and ours. The first answer that an
// agent gets from a container is the same for both, and so is the second: what they make of the answers can be compared,
// however often each of them asks.
type proberHarness struct {
	// The story alone changes these, and only while all else waits.
	t       *testing.T
	pod     *v1.Pod
	seed    uint64
	kubelet *kubeletAgent
	herald  *heraldAgent

	mu      sync.Mutex // guards all below
	current map[string]*instance
	serial  int
	// shift counts the agents' starts. A new agent knows nothing of the answers before, and gets others.
	generation  int
	terminating bool
	answers     map[probeKey]string
	// scripts are what all containers answer to probes of a kind, the last again and again; none: anything.
	scripts map[probejudge.Kind]string
}

// patient is one instance of a container.
type instance struct {
	name, id  string
	state     observed.State
	startedAt time.Time
}

func (p *instance) containerID() observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: p.id}
}

// exam is one probe of one instance by an agent of that shift.
type probeKey struct {
	generation int
	id         string
	kind       probejudge.Kind
}

// level is what a probe has made of the answers so far. Readiness cannot fail, liveness cannot pass: not to be ready is
// what every container begins with, and to be alive.
type probeState struct{ Passed, Failed bool }

// newWard is to be called in a bubble. Its agents are too old to spread their first checks.
func runProberHarness(t *testing.T, pod *v1.Pod, seed uint64, scenario func(*proberHarness)) {
	t.Helper()
	h := &proberHarness{t: t, pod: pod, seed: seed, current: map[string]*instance{}, answers: map[probeKey]string{}}
	h.startAgents()
	time.Sleep(time.Hour)
	defer func() {
		h.stop()
		time.Sleep(drainTime)
	}()
	scenario(h)
}

// drain is longer than anything that a kubelet does not stop.
const drainTime = 2 * time.Minute

// boot starts both agents. They know what was published.
func (h *proberHarness) startAgents() {
	h.mu.Lock()
	h.generation++
	h.mu.Unlock()
	h.kubelet, h.herald = h.newKubeletAgent(h.kubelet), h.newHeraldAgent(h.herald)
}

func (h *proberHarness) stop() {
	h.kubelet.stop()
	h.herald.stop()
}

// restart ends both agents and starts them anew.
func (h *proberHarness) restart() {
	h.stop()
	h.startAgents()
	h.sync()
}

// sync gives the pod's workers a turn.
func (h *proberHarness) sync() {
	h.kubelet.sync()
	h.herald.sync()
	synctest.Wait()
}

// start has a new instance of the container run.
func (h *proberHarness) start(name string) {
	h.mu.Lock()
	h.serial++
	id := fmt.Sprintf("%s-%d", name, h.serial)
	h.mu.Unlock()
	h.setInstance(instance{name: name, id: id, state: observed.Running, startedAt: time.Now()})
}

// exit ends the container's instance.
func (h *proberHarness) exit(name string) {
	for _, p := range h.instances() {
		if p.name == name {
			h.setInstance(instance{name: name, id: p.id, state: observed.Exited, startedAt: p.startedAt})
		}
	}
}

// show has both see an instance.
func (h *proberHarness) setInstance(p instance) {
	h.mu.Lock()
	h.current[p.name] = &p
	h.mu.Unlock()
	h.sync()
}

// terminate has the pod begin to stop. Its containers do not hurry.
func (h *proberHarness) terminate() {
	h.mu.Lock()
	before := h.terminating
	h.terminating = true
	h.mu.Unlock()
	if !before {
		h.kubelet.manager.StopLivenessAndStartup(h.pod)
		h.herald.StopLivenessAndStartup(h.pod)
		synctest.Wait()
	}
}

// patients are the instances of now.
func (h *proberHarness) instances() []*instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*instance
	for _, list := range [][]v1.Container{h.pod.Spec.InitContainers, h.pod.Spec.Containers} {
		for i := range list {
			if p := h.current[list[i].Name]; p != nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// find is the instance with that ID, if it is the newest of its container.
func (h *proberHarness) findInstance(id string) *instance {
	for _, p := range h.instances() {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (h *proberHarness) isTerminating() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.terminating
}

// probeOf is the spec of a probe of the instance, or nil.
func (h *proberHarness) probeSpec(p *instance, kind probejudge.Kind) *v1.Probe {
	for _, list := range [][]v1.Container{h.pod.Spec.InitContainers, h.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == p.name {
				return kind.ProbeOf(&list[i])
			}
		}
	}
	return nil
}

// The answers of a command.
const (
	answerSuccess  = '+'
	answerFailure  = '-'
	answerError    = 'e' // the runtime cannot tell
	answerHang     = 'h' // it hangs until its time is over
	answerNotFound = 'g' // the runtime has no such container
)

// maxUnknown is how many attempts in a row may find nothing out: two rounds. More make a container unready here, and
// never on a kubelet (BUG-24).
const maxErrors = 6

// answer is the nth of that exam, counted from 0.
func (h *proberHarness) answer(e probeKey, n int) byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if script := h.scripts[e.kind]; script != "" {
		return script[min(n, len(script)-1)]
	}
	said := h.answers[e]
	for len(said) <= n {
		said += string(h.nextAnswerLocked(e, said))
	}
	h.answers[e] = said
	return said[n]
}

// nextLocked prefers what was said before, so that there are streaks.
func (h *proberHarness) nextAnswerLocked(e probeKey, said string) byte {
	hash := fnv.New64a()
	fmt.Fprint(hash, e, len(said))
	g := &generator{rand.New(rand.NewPCG(h.seed, hash.Sum64()))}
	errorRun := 0
	for errorRun < len(said) && said[len(said)-1-errorRun] == answerError {
		errorRun++
	}
	switch {
	case len(said) > 0 && g.chance(50) && errorRun < maxErrors:
		return said[len(said)-1]
	case errorRun >= maxErrors:
		return oneOf[byte](g, answerSuccess, answerFailure)
	default:
		return oneOf[byte](g, answerSuccess, answerSuccess, answerFailure, answerFailure, answerError, answerHang)
	}
}

// chart is what one agent asked and made of it, from its start on.
type probeRecorder struct {
	harness    *proberHarness
	generation int
	// made is what the agent has made of the answers that it got.
	state func(id string, kind probejudge.Kind) probeState

	mu sync.Mutex // guards all below
	// got counts the answers, by exam. levels is what was made of them, after each.
	answered map[probeKey]int
	states   map[probeKey]map[int]probeState
	started  []probeStart
	// open counts the commands that run.
	running    int
	violations []string
}

// question is one command that was begun.
type probeStart struct {
	kind probejudge.Kind
	at   time.Time
}

func newProbeRecorder(harness *proberHarness, state func(string, probejudge.Kind) probeState) *probeRecorder {
	return &probeRecorder{harness: harness, generation: harness.generation, state: state, answered: map[probeKey]int{}, states: map[probeKey]map[int]probeState{}}
}

// exec is a command in a container, for at most that long. Commands are called after their kind of probe.
func (c *probeRecorder) exec(ctx context.Context, id, command string, timeout time.Duration) (code int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err // as a call to a runtime
	}
	e := probeKey{c.generation, id, kindForCommand(command)}
	n := c.recordStart(e)
	switch c.harness.answer(e, n) {
	case answerFailure:
		code = 1
	case answerError:
		err = errors.New("the runtime is away")
	case answerNotFound:
		err = errNotFound
	case answerHang:
		select {
		case <-time.After(timeout):
			err = context.DeadlineExceeded
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if !errors.Is(err, context.Canceled) { // of which nobody learns
		c.answered[e]++
	}
	return code, err
}

// begin writes down the question, and what was made of the answers before it.
func (c *probeRecorder) recordStart(e probeKey) int {
	level := c.state(e.id, e.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
	c.started = append(c.started, probeStart{e.kind, time.Now()})
	c.recordStateLocked(e, level)
	if p := c.harness.findInstance(e.id); p != nil {
		delay := time.Duration(c.harness.probeSpec(p, e.kind).InitialDelaySeconds) * time.Second
		if early := delay - time.Since(p.startedAt); early > 0 {
			c.violations = append(c.violations, fmt.Sprintf("%v of %s was asked %v too early", e.kind, e.id, early))
		}
	}
	return c.answered[e]
}

// note writes down what is made of the answers to now.
func (c *probeRecorder) recordState(e probeKey) {
	level := c.state(e.id, e.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordStateLocked(e, level)
}

func (c *probeRecorder) recordStateLocked(e probeKey, l probeState) {
	if c.states[e] == nil {
		c.states[e] = map[int]probeState{}
	}
	if before, known := c.states[e][c.answered[e]]; known && before != l {
		c.violations = append(c.violations, fmt.Sprintf("after %d answers: %v was %+v and is %+v", c.answered[e], e, before, l))
	}
	c.states[e][c.answered[e]] = l
}

// times counts how often probes of that kind were begun since then.
func (c *probeRecorder) countStarted(kind probejudge.Kind, since time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := 0
	for _, q := range c.started {
		if q.kind == kind && !q.at.Before(since) {
			times++
		}
	}
	return times
}

// running is how many commands run.
func (c *probeRecorder) countRunning() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

func kindForCommand(command string) probejudge.Kind {
	for _, kind := range allKinds {
		if kind.String() == command {
			return kind
		}
	}
	panic("nobody probes by " + command)
}

var allKinds = []probejudge.Kind{probejudge.Startup, probejudge.Readiness, probejudge.Liveness}

// asking is a probe that asks each second, and decides at once.
func execProbe(kind probejudge.Kind) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{kind.String()}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
	}
}

// count is how many answers were got.
func (c *probeRecorder) countAnswers(e probeKey) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered[e]
}

func (c *probeRecorder) addViolation(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}
