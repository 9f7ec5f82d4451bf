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

// proberHarness is a node on which two agents probe the same containers: the kubelet's prober and Herald's. The n-th
// answer of a container is the same for both agents, so that their results can be compared however often each of them
// probes.
type proberHarness struct {
	// Only the scenario changes these, while everything else is idle.
	t       *testing.T
	pod     *v1.Pod
	seed    uint64
	kubelet *kubeletAgent
	herald  *heraldAgent

	mu      sync.Mutex // guards all below
	current map[string]*instance
	serial  int
	// generation counts the starts of the agents. A new agent gets new answers.
	generation  int
	terminating bool
	answers     map[probeKey]string
	// scripts are the answers to probes of a kind, the last one repeated. Without a script, answers are random.
	scripts map[probejudge.Kind]string
}

// instance is one instance of a container.
type instance struct {
	name, id  string
	state     observed.State
	startedAt time.Time
}

func (i *instance) containerID() observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: i.id}
}

// probeKey identifies one probe of one instance by an agent of one generation.
type probeKey struct {
	generation int
	id         string
	kind       probejudge.Kind
}

// probeState is what a probe has concluded so far. Readiness cannot fail and liveness cannot pass, because every
// container starts not ready and alive.
type probeState struct{ Passed, Failed bool }

// runProberHarness must be called in a synctest bubble. Its agents have been running long enough not to spread their
// first probes.
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

// drainTime is longer than anything that a kubelet does not stop.
const drainTime = 2 * time.Minute

// startAgents starts both agents with the statuses that were published.
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

// restart stops both agents and starts them again.
func (h *proberHarness) restart() {
	h.stop()
	h.startAgents()
	h.sync()
}

// sync syncs the pod on both sides.
func (h *proberHarness) sync() {
	h.kubelet.sync()
	h.herald.sync()
	synctest.Wait()
}

// start runs a new instance of the container.
func (h *proberHarness) start(name string) {
	h.mu.Lock()
	h.serial++
	id := fmt.Sprintf("%s-%d", name, h.serial)
	h.mu.Unlock()
	h.setInstance(instance{name: name, id: id, state: observed.Running, startedAt: time.Now()})
}

// exit terminates the container's instance.
func (h *proberHarness) exit(name string) {
	for _, inst := range h.instances() {
		if inst.name == name {
			h.setInstance(instance{name: name, id: inst.id, state: observed.Exited, startedAt: inst.startedAt})
		}
	}
}

// setInstance shows an instance to both sides.
func (h *proberHarness) setInstance(inst instance) {
	h.mu.Lock()
	h.current[inst.name] = &inst
	h.mu.Unlock()
	h.sync()
}

// terminate starts the pod's termination. Its containers keep running.
func (h *proberHarness) terminate() {
	h.mu.Lock()
	wasTerminating := h.terminating
	h.terminating = true
	h.mu.Unlock()
	if !wasTerminating {
		h.kubelet.manager.StopLivenessAndStartup(h.pod)
		h.herald.StopLivenessAndStartup(h.pod)
		synctest.Wait()
	}
}

// instances returns the current instances.
func (h *proberHarness) instances() []*instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*instance
	for _, list := range [][]v1.Container{h.pod.Spec.InitContainers, h.pod.Spec.Containers} {
		for i := range list {
			if inst := h.current[list[i].Name]; inst != nil {
				all = append(all, inst)
			}
		}
	}
	return all
}

// findInstance returns the instance with that ID if it is the newest of its container.
func (h *proberHarness) findInstance(id string) *instance {
	for _, inst := range h.instances() {
		if inst.id == id {
			return inst
		}
	}
	return nil
}

func (h *proberHarness) isTerminating() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.terminating
}

// probeSpec returns the spec of the instance's probe, or nil.
func (h *proberHarness) probeSpec(inst *instance, kind probejudge.Kind) *v1.Probe {
	for _, list := range [][]v1.Container{h.pod.Spec.InitContainers, h.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == inst.name {
				return kind.ProbeOf(&list[i])
			}
		}
	}
	return nil
}

// The answers of a probe command.
const (
	answerSuccess  = '+'
	answerFailure  = '-'
	answerError    = 'e' // the runtime returns an error
	answerHang     = 'h' // hangs until the timeout
	answerNotFound = 'g' // the container does not exist
)

// maxErrors is how many attempts in a row may return errors: two rounds. More make a container unready in Herald, and
// never in the kubelet (BUG-24).
const maxErrors = 6

// answer returns the n-th answer, counted from 0.
func (h *proberHarness) answer(e probeKey, n int) byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if script := h.scripts[e.kind]; script != "" {
		return script[min(n, len(script)-1)]
	}
	answers := h.answers[e]
	for len(answers) <= n {
		answers += string(h.nextAnswerLocked(e, answers))
	}
	h.answers[e] = answers
	return answers[n]
}

// nextAnswerLocked prefers the previous answer, so that there are runs of equal answers.
func (h *proberHarness) nextAnswerLocked(e probeKey, answers string) byte {
	hash := fnv.New64a()
	fmt.Fprint(hash, e, len(answers))
	g := &generator{rand.New(rand.NewPCG(h.seed, hash.Sum64()))}
	errorRun := 0
	for errorRun < len(answers) && answers[len(answers)-1-errorRun] == answerError {
		errorRun++
	}
	switch {
	case len(answers) > 0 && g.chance(50) && errorRun < maxErrors:
		return answers[len(answers)-1]
	case errorRun >= maxErrors:
		return oneOf[byte](g, answerSuccess, answerFailure)
	default:
		return oneOf[byte](g, answerSuccess, answerSuccess, answerFailure, answerFailure, answerError, answerHang)
	}
}

// probeRecorder records what one agent probed and concluded since its start.
type probeRecorder struct {
	harness    *proberHarness
	generation int
	// state returns what the agent has concluded from the answers so far.
	state func(id string, kind probejudge.Kind) probeState

	mu sync.Mutex // guards all below
	// answered counts the answers, by probe. states is the state after each of them.
	answered map[probeKey]int
	states   map[probeKey]map[int]probeState
	started  []probeStart
	// running counts the commands in progress.
	running    int
	violations []string
}

// probeStart is the start of one command.
type probeStart struct {
	kind probejudge.Kind
	at   time.Time
}

func newProbeRecorder(harness *proberHarness, state func(string, probejudge.Kind) probeState) *probeRecorder {
	return &probeRecorder{harness: harness, generation: harness.generation, state: state, answered: map[probeKey]int{}, states: map[probeKey]map[int]probeState{}}
}

// exec runs a command in a container. Commands are named after their kind of probe.
func (c *probeRecorder) exec(ctx context.Context, id, command string, timeout time.Duration) (code int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err // as a call to a runtime would
	}
	e := probeKey{c.generation, id, kindForCommand(command)}
	n := c.recordStart(e)
	switch c.harness.answer(e, n) {
	case answerFailure:
		code = 1
	case answerError:
		err = errors.New("runtime unavailable")
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
	if !errors.Is(err, context.Canceled) { // a cancelled probe has no result
		c.answered[e]++
	}
	return code, err
}

// recordStart records a probe and the state before it. It returns the number of answers so far.
func (c *probeRecorder) recordStart(e probeKey) int {
	state := c.state(e.id, e.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
	c.started = append(c.started, probeStart{e.kind, time.Now()})
	c.recordStateLocked(e, state)
	if inst := c.harness.findInstance(e.id); inst != nil {
		delay := time.Duration(c.harness.probeSpec(inst, e.kind).InitialDelaySeconds) * time.Second
		if early := delay - time.Since(inst.startedAt); early > 0 {
			c.violations = append(c.violations, fmt.Sprintf("%v of %s was probed %v too early", e.kind, e.id, early))
		}
	}
	return c.answered[e]
}

// recordState records the current state.
func (c *probeRecorder) recordState(e probeKey) {
	state := c.state(e.id, e.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordStateLocked(e, state)
}

func (c *probeRecorder) recordStateLocked(e probeKey, state probeState) {
	if c.states[e] == nil {
		c.states[e] = map[int]probeState{}
	}
	if previous, known := c.states[e][c.answered[e]]; known && previous != state {
		c.violations = append(c.violations, fmt.Sprintf("after %d answers: state of %v changed from %+v to %+v", c.answered[e], e, previous, state))
	}
	c.states[e][c.answered[e]] = state
}

// countStarted counts the probes of that kind since a time.
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

// countRunning counts the commands in progress.
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
	panic("no kind of probe is named " + command)
}

var allKinds = []probejudge.Kind{probejudge.Startup, probejudge.Readiness, probejudge.Liveness}

// execProbe returns a probe with a period of one second and thresholds of one.
func execProbe(kind probejudge.Kind) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{kind.String()}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
	}
}

// countAnswers counts the answers to a probe.
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
