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
type ward struct {
	// The story alone changes these, and only while all else waits.
	t       *testing.T
	pod     *v1.Pod
	seed    uint64
	kubelet *kubeletAgent
	herald  *heraldAgent

	mu      sync.Mutex // guards all below
	current map[string]*patient
	serial  int
	// shift counts the agents' starts. A new agent knows nothing of the answers before, and gets others.
	shift   int
	ending  bool
	answers map[exam]string
	// scripts are what all containers answer to probes of a kind, the last again and again; none: anything.
	scripts map[probejudge.Kind]string
}

// patient is one instance of a container.
type patient struct {
	name, id string
	state    observed.State
	since    time.Time
}

func (p *patient) containerID() observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: p.id}
}

// exam is one probe of one instance by an agent of that shift.
type exam struct {
	shift int
	id    string
	kind  probejudge.Kind
}

// level is what a probe has made of the answers so far. Readiness cannot fail, liveness cannot pass: not to be ready is
// what every container begins with, and to be alive.
type level struct{ Passed, Failed bool }

// newWard is to be called in a bubble. Its agents are too old to spread their first checks.
func newWard(t *testing.T, pod *v1.Pod, seed uint64, story func(*ward)) {
	t.Helper()
	w := &ward{t: t, pod: pod, seed: seed, current: map[string]*patient{}, answers: map[exam]string{}}
	w.boot()
	time.Sleep(time.Hour)
	defer func() {
		w.stop()
		time.Sleep(drain)
	}()
	story(w)
}

// drain is longer than anything that a kubelet does not stop.
const drain = 2 * time.Minute

// boot starts both agents. They know what was published.
func (w *ward) boot() {
	w.mu.Lock()
	w.shift++
	w.mu.Unlock()
	w.kubelet, w.herald = w.newKubelet(w.kubelet), w.newHerald(w.herald)
}

func (w *ward) stop() {
	w.kubelet.stop()
	w.herald.stop()
}

// restart ends both agents and starts them anew.
func (w *ward) restart() {
	w.stop()
	w.boot()
	w.sync()
}

// sync gives the pod's workers a turn.
func (w *ward) sync() {
	w.kubelet.sync()
	w.herald.sync()
	synctest.Wait()
}

// start has a new instance of the container run.
func (w *ward) start(name string) {
	w.mu.Lock()
	w.serial++
	id := fmt.Sprintf("%s-%d", name, w.serial)
	w.mu.Unlock()
	w.show(patient{name: name, id: id, state: observed.Running, since: time.Now()})
}

// exit ends the container's instance.
func (w *ward) exit(name string) {
	for _, p := range w.patients() {
		if p.name == name {
			w.show(patient{name: name, id: p.id, state: observed.Exited, since: p.since})
		}
	}
}

// show has both see an instance.
func (w *ward) show(p patient) {
	w.mu.Lock()
	w.current[p.name] = &p
	w.mu.Unlock()
	w.sync()
}

// terminate has the pod begin to stop. Its containers do not hurry.
func (w *ward) terminate() {
	w.mu.Lock()
	before := w.ending
	w.ending = true
	w.mu.Unlock()
	if !before {
		w.kubelet.manager.StopLivenessAndStartup(w.pod)
		w.herald.StopLivenessAndStartup(w.pod)
		synctest.Wait()
	}
}

// patients are the instances of now.
func (w *ward) patients() []*patient {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*patient
	for _, list := range [][]v1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			if p := w.current[list[i].Name]; p != nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// find is the instance with that ID, if it is the newest of its container.
func (w *ward) find(id string) *patient {
	for _, p := range w.patients() {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (w *ward) isEnding() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ending
}

// probeOf is the spec of a probe of the instance, or nil.
func (w *ward) probeOf(p *patient, kind probejudge.Kind) *v1.Probe {
	for _, list := range [][]v1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
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
	isWell    = '+'
	isIll     = '-'
	isUnknown = 'e' // the runtime cannot tell
	isLate    = 'h' // it hangs until its time is over
	isMissing = 'g' // the runtime has no such container
)

// maxUnknown is how many attempts in a row may find nothing out: two rounds. More make a container unready here, and
// never on a kubelet (BUG-24).
const maxUnknown = 6

// answer is the nth of that exam, counted from 0.
func (w *ward) answer(e exam, n int) byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if script := w.scripts[e.kind]; script != "" {
		return script[min(n, len(script)-1)]
	}
	said := w.answers[e]
	for len(said) <= n {
		said += string(w.nextLocked(e, said))
	}
	w.answers[e] = said
	return said[n]
}

// nextLocked prefers what was said before, so that there are streaks.
func (w *ward) nextLocked(e exam, said string) byte {
	hash := fnv.New64a()
	fmt.Fprint(hash, e, len(said))
	d := &drawer{rand.New(rand.NewPCG(w.seed, hash.Sum64()))}
	unknown := 0
	for unknown < len(said) && said[len(said)-1-unknown] == isUnknown {
		unknown++
	}
	switch {
	case len(said) > 0 && d.chance(50) && unknown < maxUnknown:
		return said[len(said)-1]
	case unknown >= maxUnknown:
		return oneOf[byte](d, isWell, isIll)
	default:
		return oneOf[byte](d, isWell, isWell, isIll, isIll, isUnknown, isLate)
	}
}

// chart is what one agent asked and made of it, from its start on.
type chart struct {
	ward  *ward
	shift int
	// made is what the agent has made of the answers that it got.
	made func(id string, kind probejudge.Kind) level

	mu sync.Mutex // guards all below
	// got counts the answers, by exam. levels is what was made of them, after each.
	got    map[exam]int
	levels map[exam]map[int]level
	asked  []question
	// open counts the commands that run.
	open  int
	wrong []string
}

// question is one command that was begun.
type question struct {
	kind probejudge.Kind
	at   time.Time
}

func newChart(w *ward, made func(string, probejudge.Kind) level) *chart {
	return &chart{ward: w, shift: w.shift, made: made, got: map[exam]int{}, levels: map[exam]map[int]level{}}
}

// exec is a command in a container, for at most that long. Commands are called after their kind of probe.
func (c *chart) exec(ctx context.Context, id, command string, timeout time.Duration) (code int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err // as a call to a runtime
	}
	e := exam{c.shift, id, kindOf(command)}
	n := c.begin(e)
	switch c.ward.answer(e, n) {
	case isIll:
		code = 1
	case isUnknown:
		err = errors.New("the runtime is away")
	case isMissing:
		err = errNotFound
	case isLate:
		select {
		case <-time.After(timeout):
			err = context.DeadlineExceeded
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if !errors.Is(err, context.Canceled) { // of which nobody learns
		c.got[e]++
	}
	return code, err
}

// begin writes down the question, and what was made of the answers before it.
func (c *chart) begin(e exam) int {
	level := c.made(e.id, e.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.asked = append(c.asked, question{e.kind, time.Now()})
	c.noteLocked(e, level)
	if p := c.ward.find(e.id); p != nil {
		delay := time.Duration(c.ward.probeOf(p, e.kind).InitialDelaySeconds) * time.Second
		if early := delay - time.Since(p.since); early > 0 {
			c.wrong = append(c.wrong, fmt.Sprintf("%v of %s was asked %v too early", e.kind, e.id, early))
		}
	}
	return c.got[e]
}

// note writes down what is made of the answers to now.
func (c *chart) note(e exam) {
	level := c.made(e.id, e.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteLocked(e, level)
}

func (c *chart) noteLocked(e exam, l level) {
	if c.levels[e] == nil {
		c.levels[e] = map[int]level{}
	}
	if before, known := c.levels[e][c.got[e]]; known && before != l {
		c.wrong = append(c.wrong, fmt.Sprintf("after %d answers: %v was %+v and is %+v", c.got[e], e, before, l))
	}
	c.levels[e][c.got[e]] = l
}

// times counts how often probes of that kind were begun since then.
func (c *chart) times(kind probejudge.Kind, since time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := 0
	for _, q := range c.asked {
		if q.kind == kind && !q.at.Before(since) {
			times++
		}
	}
	return times
}

// running is how many commands run.
func (c *chart) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func kindOf(command string) probejudge.Kind {
	for _, kind := range kinds {
		if kind.String() == command {
			return kind
		}
	}
	panic("nobody probes by " + command)
}

var kinds = []probejudge.Kind{probejudge.Startup, probejudge.Readiness, probejudge.Liveness}

// asking is a probe that asks each second, and decides at once.
func asking(kind probejudge.Kind) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{kind.String()}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
	}
}

// count is how many answers were got.
func (c *chart) count(e exam) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[e]
}

func (c *chart) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}
