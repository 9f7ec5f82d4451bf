package status_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// TestManager_RandomHistories checks that after any history of changes and faults the API server has the newest status of
// each pod, and that no invariant was violated on the way.
func TestManager_RandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(anyStep, 1, 60).Draw(rt, "steps")
		var violations []string // the bubble's goroutine must not end the property's
		synctest.Test(t, func(t *testing.T) { violations = newModel(t).run(steps) })
		if len(violations) > 0 {
			rt.Fatalf("%q", violations)
		}
	})
}

// step is one thing that happens, to one pod name, in one of its variants, and the time until the next.
type step struct {
	Action, Name string
	Variant      int
	Then         time.Duration
}

func (s step) String() string {
	return fmt.Sprintf("%s %s (%d), then %v", s.Action, s.Name, s.Variant, s.Then)
}

// actions is what can happen to a pod, to the agent, or between it and the API server. Two are listed twice to occur more
// often.
var actions = map[string]func(m *model, s step){
	"add pod":             func(m *model, s step) { m.addPod(s.Name) },
	"advance container":   func(m *model, s step) { m.withPod(s, func(pod *modelPod) { m.advance(pod, int32(s.Variant%2)) }) },
	"advance container 2": func(m *model, s step) { m.withPod(s, func(pod *modelPod) { m.advance(pod, int32(s.Variant%2)) }) },
	"repeat status":       func(m *model, s step) { m.withPod(s, func(pod *modelPod) { m.setStatus(pod, pod.status) }) },
	"set illegal status":  func(m *model, s step) { m.withPod(s, m.setIllegalStatus) },
	"probe":               func(m *model, s step) { m.withPod(s, func(pod *modelPod) { m.probe(pod, s.Variant) }) },
	"terminate":           func(m *model, s step) { m.withPod(s, m.terminate) },
	"stop containers": func(m *model, s step) {
		m.withPod(s, func(pod *modelPod) { m.deletion.setCouldRun(pod.pod.UID, false) })
	},
	"hold volumes": func(m *model, s step) {
		m.withPod(s, func(pod *modelPod) { m.deletion.setHoldsResources(pod.pod.UID, true) })
	},
	"release volumes": func(m *model, s step) {
		m.withPod(s, func(pod *modelPod) { m.deletion.setHoldsResources(pod.pod.UID, false) })
	},
	"delete":          func(m *model, s step) { m.server.DeletePod(podid.FullName{Namespace: "shop", Name: s.Name}, 30) },
	"force delete":    func(m *model, s step) { m.server.DeletePod(podid.FullName{Namespace: "shop", Name: s.Name}, 0) },
	"foreign write":   func(m *model, s step) { m.writeForeign(s.Name, foreignWrites[s.Variant%len(foreignWrites)]) },
	"fail requests":   func(m *model, s step) { m.failRequests(s) },
	"fail requests 2": func(m *model, s step) { m.failRequests(s) },
	"cut watches":     func(m *model, _ step) { m.server.CutWatches() },
	"stall watch":     func(m *model, _ step) { m.addFault(fault.On("watch", "/pods").Times(1).Stall()) },
	"compact etcd":    func(m *model, _ step) { m.server.Compact() },
	"API server down": func(m *model, _ step) { m.server.SetDown(true) },
	"API server up":   func(m *model, _ step) { m.server.SetDown(false) },
	"restart agent":   func(m *model, _ step) { m.stop(); m.start(); m.resync() },
	"kill agent":      func(m *model, _ step) { m.kill(); m.start(); m.resync() },
	"housekeeping":    func(m *model, _ step) { m.housekeep() },
	"wait":            func(*model, step) {},
}

// modelNames are those of two API pods and a static pod.
var modelNames = []string{"web", "job", "etcd-n1"}

var anyStep = rapid.Custom(func(t *rapid.T) step {
	return step{
		Action:  rapid.SampledFrom(slices.Sorted(maps.Keys(actions))).Draw(t, "action"),
		Name:    rapid.SampledFrom(modelNames).Draw(t, "name"),
		Variant: rapid.IntRange(0, 167).Draw(t, "variant"),
		Then: rapid.SampledFrom([]time.Duration{
			0, 0, 0, time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 11 * time.Second, time.Minute,
		}).Draw(t, "then"),
	}
})

// foreignWrites is what other writers do to a pod. None of them leaves a terminal phase, which would be their violation.
var foreignWrites = []func(*v1.Pod){
	func(p *v1.Pod) { setCondition(p, "example.com/gate", v1.ConditionTrue) },
	func(p *v1.Pod) { setCondition(p, "example.com/gate", v1.ConditionFalse) },
	func(p *v1.Pod) { setCondition(p, v1.PodReady, v1.ConditionFalse) },
	func(p *v1.Pod) { setCondition(p, v1.DisruptionTarget, v1.ConditionTrue) },
	func(p *v1.Pod) { p.Labels = map[string]string{"app": "changed"} },
	func(p *v1.Pod) { p.Status.NominatedNodeName = "n2" },
	func(p *v1.Pod) {
		if !derive.IsTerminal(p.Status.Phase) {
			p.Status.Phase = v1.PodPending
		}
	},
	func(p *v1.Pod) {
		if !derive.IsTerminal(p.Status.Phase) {
			p.Status.Phase, p.Status.Reason = v1.PodFailed, "NodeLost"
		}
	},
}

func setCondition(p *v1.Pod, conditionType v1.PodConditionType, value v1.ConditionStatus) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for i := range p.Status.Conditions {
		if condition := &p.Status.Conditions[i]; condition.Type == conditionType {
			if condition.Status != value {
				condition.LastTransitionTime = now
			}
			condition.Status, condition.Message = value, "foreign"
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: conditionType, Status: value, LastTransitionTime: now})
}

// model is an API server, an agent, and the pods as their workers know them. Whatever happens to the connection between the
// two, the API server must come to have the workers' statuses.
type model struct {
	*harness // the agent that runs now
	t        *testing.T
	server   *heraldtest.APIServer
	recorder *recorder
	apis     []*checkedAPI // one for each start of the agent
	dir      string
	state    *checkpoint.Dir
	deletion *fakeDeletionSafety // outlives the agent, as containers do
	heal     []func()
	foreign  int                    // writes of others so far
	pods     map[string][]*modelPod // by name, oldest first

	violations []string

	mu         sync.Mutex // guards all below, which checks read
	terminated map[types.UID]bool
	staticUIDs map[types.UID]types.UID // of the static pod, by the UID of its mirror pod
}

// modelPod is a pod as its worker knows it.
type modelPod struct {
	pod        *v1.Pod
	status     v1.PodStatus
	sequence   int      // of the last accepted status; the container's image ID carries it
	knownTo    *harness // the agent that has a worker for it
	terminated bool     // TerminatePod was called
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{
		t: t, server: heraldtest.NewAPIServer(), dir: t.TempDir(), deletion: newFakeDeletionSafety(), pods: map[string][]*modelPod{},
		terminated: map[types.UID]bool{}, staticUIDs: map[types.UID]types.UID{},
	}
	m.recorder = record(t, m.server)
	m.recorder.extraCheck = m.checkChange
	m.start()
	return m
}

// run takes the steps, waits until everything is sent, and returns all violations.
func (m *model) run(steps []step) []string {
	defer m.stop()
	for _, name := range modelNames {
		m.addPod(name)
	}
	for _, s := range steps {
		actions[s.Action](m, s)
		m.checkSyncs()
		time.Sleep(s.Then)
	}
	return m.settle()
}

func (m *model) start() {
	m.t.Helper()
	var err error
	if m.state, err = checkpoint.Open(m.dir, checkpoint.Options{}); err != nil {
		m.t.Fatal(err)
	}
	m.harness = newHarness(m.t, m.server, func(c *status.Config) {
		api := newCheckedAPI(c.API, m.checkDelete)
		m.apis = append(m.apis, api)
		c.API, c.Deletion, c.State = api, m.deletion, m.state
	})
	for _, pod := range m.allPods() {
		if podid.IsStatic(pod.pod) {
			m.harness.pods.AddPod(pod.pod)
		}
	}
}

// stop stops the agent orderly.
func (m *model) stop() {
	m.t.Helper()
	m.harness.stop()
	if err := m.state.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// kill stops the agent at once. Only what was on disk survives; requests that were sent may still be executed.
func (m *model) kill() {
	m.t.Helper()
	dir := copyState(m.t, m.dir)
	m.apis[len(m.apis)-1].kill()
	m.stop()
	m.dir = dir
}

// checkChange checks what the recorder cannot know: which status a pod has, and how old it is.
func (m *model) checkChange(before, after *v1.Pod) (violations []string) {
	was, is := sequenceOf(before), sequenceOf(after)
	uid := m.staticUID(after.UID)
	if is.uid != "" && is.uid != uid {
		violations = append(violations, fmt.Sprintf("I9: has the status of %s", is.uid))
	}
	if is.uid == was.uid && is.number < was.number {
		violations = append(violations, fmt.Sprintf("went back from status %d to %d", was.number, is.number))
	}
	if derive.IsTerminal(after.Status.Phase) && !derive.IsTerminal(before.Status.Phase) &&
		m.deletion.PodCouldHaveRunningContainers(podid.UID(uid)) {
		violations = append(violations, "SM-67: has a terminal phase while containers could run")
	}
	return violations
}

// staticUID returns the UID of the static pod if uid is its mirror pod's, and uid itself otherwise.
func (m *model) staticUID(uid types.UID) types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if static, isMirror := m.staticUIDs[uid]; isMirror {
		return static
	}
	return uid
}

func (m *model) checkDelete(uid types.UID) error {
	m.mu.Lock()
	_, isMirror := m.staticUIDs[uid]
	isTerminated := m.terminated[uid]
	m.mu.Unlock()
	switch {
	case isMirror:
		return errors.New("mirror pod")
	case !isTerminated || m.deletion.PodCouldHaveRunningContainers(podid.UID(uid)):
		return errors.New("containers could run")
	case m.deletion.holdsResources(uid):
		return errors.New("still holds resources on the node")
	}
	return nil
}

// sequence identifies a status: the pod that it belongs to, and its number.
type sequence struct {
	uid    types.UID
	number int
}

func sequenceOf(p *v1.Pod) sequence {
	if len(p.Status.ContainerStatuses) == 0 {
		return sequence{}
	}
	uid, number, _ := strings.Cut(p.Status.ContainerStatuses[0].ImageID, "#")
	parsed, _ := strconv.Atoi(number)
	return sequence{types.UID(uid), parsed}
}

func (m *model) addPod(name string) {
	switch name {
	case "web":
		m.addAPIPod(name, v1.RestartPolicyAlways)
	case "job":
		m.addAPIPod(name, v1.RestartPolicyNever)
	default:
		m.addStaticPod(name)
	}
	synctest.Wait()
}

// addAPIPod creates a pod whose containers could run until its worker says otherwise.
func (m *model) addAPIPod(name string, policy v1.RestartPolicy) {
	if m.server.Pod(podid.FullName{Namespace: "shop", Name: name}) != nil {
		return
	}
	created := m.server.AddPod(heraldtest.NewPod(name, inShop, func(p *v1.Pod) {
		p.Labels = map[string]string{"app": name}
		p.Spec.RestartPolicy = policy
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].StartupProbe = &v1.Probe{}, &v1.Probe{}
	}))
	m.deletion.setCouldRun(created.UID, true)
	m.addModelPod(name, created)
}

// addStaticPod adds a static pod and its mirror pod, or only the mirror pod if the static pod is there.
func (m *model) addStaticPod(name string) {
	if len(m.pods[name]) == 0 {
		static := newStaticPod(name)
		m.deletion.setCouldRun(static.UID, true)
		m.harness.pods.AddPod(static)
		m.addModelPod(name, static)
	}
	static := m.pods[name][0].pod
	if m.server.Pod(podid.FullNameOf(static)) != nil {
		return
	}
	created := m.server.AddPod(newMirrorPod(static))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.staticUIDs[created.UID] = static.UID
}

func (m *model) addModelPod(name string, p *v1.Pod) {
	pod := &modelPod{pod: p, status: runningStatus()}
	pod.status.Phase = v1.PodPending
	container := &pod.status.ContainerStatuses[0]
	container.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	container.ContainerID = ""
	container.Ready, container.Started = false, new(false)
	m.pods[name] = append(m.pods[name], pod)
}

func (m *model) allPods() (pods []*modelPod) {
	for _, sameName := range m.pods {
		pods = append(pods, sameName...)
	}
	return pods
}

// withPod calls do with the newest pod of the step's name or, in some variants, with an earlier one.
func (m *model) withPod(s step, do func(*modelPod)) {
	if pods := m.pods[s.Name]; len(pods) > 0 {
		if pod := pods[len(pods)-1-min(s.Variant/6, len(pods)-1)]; m.hasWorker(pod) {
			do(pod)
		}
	}
}

// hasWorker reports whether the running agent has seen the pod. It updates the pod to the Pod Manager's copy.
func (m *model) hasWorker(pod *modelPod) bool {
	if watched, found := m.harness.pods.GetPodByUID(podid.UID(pod.pod.UID)); found {
		pod.pod, pod.knownTo = watched, m.harness
	}
	return pod.knownTo == m.harness
}

// setStatus sets the status with the next sequence number and reports whether it was accepted.
func (m *model) setStatus(pod *modelPod, podStatus v1.PodStatus) bool {
	podStatus = *podStatus.DeepCopy()
	podStatus.ContainerStatuses[0].ImageID = fmt.Sprintf("%s#%d", pod.pod.UID, pod.sequence+1)
	if _, changed := m.SetPodStatus(pod.pod, podStatus); !changed {
		return false
	}
	pod.sequence++
	return true
}

// advance takes the pod's container one step further: it starts, terminates, and restarts if its policy allows that.
func (m *model) advance(pod *modelPod, exitCode int32) {
	container := &pod.status.ContainerStatuses[0]
	isRunOnce := pod.pod.Spec.RestartPolicy == v1.RestartPolicyNever
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	switch {
	case pod.terminated:
		return
	case container.State.Waiting != nil:
		container.ContainerID = fmt.Sprintf("test://%s-0", pod.pod.UID)
		container.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}
		pod.status.Phase = v1.PodRunning
	case container.State.Running != nil:
		container.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: exitCode, StartedAt: container.State.Running.StartedAt, FinishedAt: now, ContainerID: container.ContainerID,
		}}
		if isRunOnce {
			pod.status.Phase = map[bool]v1.PodPhase{true: v1.PodSucceeded, false: v1.PodFailed}[exitCode == 0]
		}
	case isRunOnce:
		return
	default:
		container.LastTerminationState = container.State
		container.RestartCount++
		container.ContainerID = fmt.Sprintf("test://%s-%d", pod.pod.UID, container.RestartCount)
		container.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}
	}
	if !m.setStatus(pod, pod.status) {
		m.violations = append(m.violations, fmt.Sprintf("legal status of %s was rejected", pod.pod.Name))
	}
}

// setIllegalStatus sets a status in which a terminated run-once container runs again.
func (m *model) setIllegalStatus(pod *modelPod) {
	isTerminated := pod.status.ContainerStatuses[0].State.Terminated != nil
	if !isTerminated || pod.pod.Spec.RestartPolicy != v1.RestartPolicyNever || pod.sequence == 0 {
		return
	}
	illegal := *pod.status.DeepCopy()
	illegal.Phase = v1.PodRunning
	illegal.ContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	if m.setStatus(pod, illegal) {
		m.violations = append(m.violations, fmt.Sprintf("SM-23: run-once container of %s runs again", pod.pod.Name))
	}
}

func (m *model) probe(pod *modelPod, variant int) {
	if pod.status.ContainerStatuses[0].State.Running == nil {
		return
	}
	id := containerID(pod.status.ContainerStatuses[0].ContainerID[len("test://"):])
	if variant%2 == 0 {
		m.SetContainerStartup(pod.pod.UID, id, true)
	}
	m.SetContainerReadiness(pod.pod.UID, id, variant%3 == 0)
}

func (m *model) terminate(pod *modelPod) {
	m.deletion.setCouldRun(pod.pod.UID, false)
	m.mu.Lock()
	m.terminated[pod.pod.UID] = true
	m.mu.Unlock()
	pod.terminated = true
	m.TerminatePod(pod.pod)
}

func (m *model) writeForeign(name string, mutate func(*v1.Pod)) {
	m.foreign++
	m.server.UpdatePod(podid.FullName{Namespace: "shop", Name: name}, func(p *v1.Pod) {
		mutate(p)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, foreignWritesAnnotation, strconv.Itoa(m.foreign))
	})
}

// failRequests breaks one to three of the next requests of a verb.
func (m *model) failRequests(s step) {
	verb := []string{"PATCH", "PATCH", "DELETE", "get"}[s.Variant%4]
	next := fault.On(verb, "/pods/").Times(1 + s.Variant/4%3)
	rules := []*fault.Rule{
		next.Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)),
		next.Reply(http.StatusInternalServerError),
		next.Reply(http.StatusServiceUnavailable),
		next.Refuse(),
		next.Reset(),
		next.LoseReply(),
		next.Delay(15 * time.Second), // longer than a client waits; a Hang of a request that is also held would never end
		next.HoldFor(30 * time.Second),
		next.HoldFor(3 * time.Second),
		next.Duplicate(),
		next.Delay(2 * time.Second),
		next.CutAfter(20),
		fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusConflict),
		next.Reply(http.StatusNotFound, fault.Body("text/html", []byte("<html>no such page</html>"))),
		next.Reply(http.StatusOK, fault.Body("application/json", []byte("{}"))),
	}
	m.addFault(rules[s.Variant%len(rules)])
}

func (m *model) addFault(rule *fault.Rule) { m.heal = append(m.heal, m.faults.Add(rule)) }

// resync sets all statuses again, as workers do after a restart and from time to time.
func (m *model) resync() {
	for _, pod := range m.allPods() {
		if !m.hasWorker(pod) {
			continue
		}
		if pod.sequence > 0 {
			m.setStatus(pod, pod.status)
		}
		if pod.terminated {
			m.terminate(pod)
		}
	}
}

// housekeep removes the statuses of pods that are in no source any more.
func (m *model) housekeep() {
	remaining := map[types.UID]bool{}
	for _, p := range m.harness.pods.GetPods() {
		remaining[p.UID] = true
	}
	m.RemoveOrphanedStatuses(remaining)
}

// settle ends all faults, waits until everything is sent, and returns all violations.
func (m *model) settle() []string {
	for _, heal := range m.heal {
		heal()
	}
	m.server.SetDown(false)
	time.Sleep(3 * time.Minute)
	m.resync()
	time.Sleep(3 * time.Minute)
	m.housekeep()
	for _, pod := range m.allPods() {
		m.checkSettled(pod)
	}
	m.checkSyncs()
	m.faults.ClearRequests()
	time.Sleep(5 * time.Minute)
	for _, request := range m.faults.Requests().Filter("*", "/pods/") {
		m.violations = append(m.violations, fmt.Sprintf("I10: %s %s while idle, at %v", request.Method, request.Path, request.Start))
	}
	for _, api := range m.apis {
		m.violations = append(m.violations, api.recorded()...)
	}
	return append(m.violations, m.recorder.recorded()...)
}

// checkSettled compares the API server with the cache, and the cache with the worker.
func (m *model) checkSettled(pod *modelPod) {
	object := m.server.Pod(podid.FullNameOf(pod.pod))
	if object == nil || m.staticUID(object.UID) != pod.pod.UID {
		return
	}
	report := func(format string, args ...any) {
		m.violations = append(m.violations, fmt.Sprintf("pod %s %s at the end: ", pod.pod.Name, pod.pod.UID)+fmt.Sprintf(format, args...))
	}
	uid := podid.UID(pod.pod.UID)
	couldRun := m.deletion.PodCouldHaveRunningContainers(uid)
	isReleased := pod.terminated && !couldRun && !m.deletion.holdsResources(pod.pod.UID)
	if isReleased && object.DeletionTimestamp != nil && !podid.IsStatic(pod.pod) {
		report("I12: still in the API server")
		return
	}
	cached, found := m.GetPodStatus(pod.pod.UID)
	if !found {
		if pod.sequence > 0 {
			report("has no cached status")
		}
		return
	}
	if merged := derive.Merge(object.Status, cached, couldRun, time.Now()); !derive.Equal(&object.Status, &merged) {
		report("I10: API server has\n%+v\ncache has\n%+v", object.Status, cached)
	}
	if got := sequenceOf(object); got.number != pod.sequence {
		report("I11: got status %d, want %d", got.number, pod.sequence)
	}
}
