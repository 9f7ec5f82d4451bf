package ruletest

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

// podModel is a pod of a test. Its status is derived from what the runtime would show, as the agent does it.
type podModel struct {
	pod      *v1.Pod
	observed observed.Pod
	probes   derive.ProbeResults
	waiting  map[string]derive.Waiting
	eviction *derive.Eviction
	states   map[string]explain.Probe // by container and kind
	loads    map[string]view.UsageLoad
	behind   int
	refused  bool
	removed  bool
	// told is the status that the rules have seen, nil if none. stoppedBy has reasons by container ID until they were told.
	told      *v1.PodStatus
	stoppedBy map[string]string
	version   uint64
}

const runtimeName = "test"

// newPod returns the model of a pod. The error is about its limits.
func newPod(p *Pod, index int, start time.Time) (*podModel, error) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: podUID(index), Labels: p.Labels, Annotations: p.Annotations,
			CreationTimestamp: metav1.NewTime(start.Add(-p.Age)), Generation: 1,
		},
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicy(cmp.Or(p.RestartPolicy, "Always")), Priority: new(int32(p.Priority))},
	}
	if p.Static {
		pod.Annotations = map[string]string{podid.SourceAnnotation: string(podid.File)}
		for key, value := range p.Annotations {
			pod.Annotations[key] = value
		}
	}
	if p.OwnerKind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: p.OwnerKind, Name: p.Name, Controller: new(true)}}
	}
	for i := range p.Containers {
		if err := addContainer(&pod.Spec, &p.Containers[i]); err != nil {
			return nil, err
		}
	}
	m := &podModel{
		pod: pod, probes: derive.ProbeResults{}, waiting: map[string]derive.Waiting{}, states: map[string]explain.Probe{},
		loads: map[string]view.UsageLoad{}, stoppedBy: map[string]string{},
	}
	address := netip.AddrFrom4([4]byte{10, 0, 0, byte(index + 1)})
	for i := range p.Containers {
		m.loads[p.Containers[i].Name] = newUsage(&Load{})
	}
	m.observed = observed.Pod{
		UID: podid.UID(pod.UID), Name: podid.FullNameOf(pod), IPs: []netip.Addr{address},
		Sandboxes: []observed.Sandbox{{ID: "sandbox", Ready: true, CreatedAt: start, Network: &observed.Network{IPs: []netip.Addr{address}}}},
	}
	return m, nil
}

func addContainer(spec *v1.PodSpec, c *Container) error {
	container := v1.Container{Name: c.Name, Image: cmp.Or(c.Image, "example.test/"+c.Name+":1")}
	for name, text := range c.Limits {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("container %s: limit of %s: %w", c.Name, name, err)
		}
		if container.Resources.Limits == nil {
			container.Resources.Limits = v1.ResourceList{}
		}
		container.Resources.Limits[v1.ResourceName(name)] = quantity
	}
	if c.Kind == "init" || c.Kind == "sidecar" {
		if c.Kind == "sidecar" {
			container.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		spec.InitContainers = append(spec.InitContainers, container)
		return nil
	}
	// The probe lets a container be unready. It is ready from its start, unless a step says otherwise.
	container.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	spec.Containers = append(spec.Containers, container)
	return nil
}

// apply changes the model by a step.
func (m *podModel) apply(step *Step, now time.Time) {
	for _, name := range step.Running {
		m.start(name, step.Restart, now)
	}
	for _, name := range step.Ended {
		m.end(name, step, now)
	}
	for _, name := range step.Waiting {
		m.waiting[name] = derive.Waiting{Reason: step.Reason, Message: step.Message}
	}
	for _, name := range step.Ready {
		m.setReady(name, derive.ProbeSuccess)
	}
	for _, name := range step.Unready {
		m.setReady(name, derive.ProbeFailure)
	}
	if p := step.Probe; p != nil {
		m.setProbe(p, now)
	}
	if l := step.Load; l != nil {
		m.loads[l.Container] = newUsage(l)
	}
	if step.Evicted != "" {
		m.eviction = &derive.Eviction{Reason: step.Evicted, Message: step.Message}
	}
	if step.Deleting != nil {
		m.pod = m.pod.DeepCopy()
		m.pod.DeletionTimestamp = new(metav1.NewTime(now.Add(*step.Deleting)))
		m.pod.DeletionGracePeriodSeconds = new(int64(step.Deleting.Seconds()))
	}
	if step.Behind != nil {
		m.behind = *step.Behind
	}
	if step.Refused != nil {
		m.refused = *step.Refused
	}
	m.removed = m.removed || step.Deleted
}

// start starts a new instance of a container, which is ready.
func (m *podModel) start(name string, restarts *int, now time.Time) {
	count := 0
	if old := m.observed.Newest(name); old != nil {
		count = old.RestartCount + 1
		if old.State == observed.Running { // it ended at the same time
			m.end(name, &Step{}, now)
		}
	}
	if restarts != nil {
		count = *restarts
	}
	id := observed.ContainerID{Runtime: runtimeName, ID: fmt.Sprintf("%s-%d-%d", name, count, now.UnixNano())}
	m.observed.Containers = append(m.observed.Containers, observed.Container{
		ID: id, Name: name, SandboxID: "sandbox", State: observed.Running, RestartCount: count, CreatedAt: now, StartedAt: now,
	})
	m.observed.Sort()
	m.prune(name)
	m.probes[id] = derive.ContainerProbeResults{Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}
	delete(m.waiting, name)
}

// prune keeps the two newest instances of a container, as the agent does.
func (m *podModel) prune(name string) {
	kept := 0
	m.observed.Containers = slices.DeleteFunc(m.observed.Containers, func(c observed.Container) bool {
		if c.Name == name {
			kept++
		}
		if c.Name != name || kept <= 2 {
			return false
		}
		delete(m.probes, c.ID)
		return true
	})
}

func (m *podModel) end(name string, step *Step, now time.Time) {
	instance := m.observed.Newest(name)
	if instance == nil || instance.State != observed.Running { // it started at the same time
		m.start(name, step.Restart, now)
		instance = m.observed.Newest(name)
	}
	reason := cmp.Or(step.Reason, "Error")
	if step.Code == 0 {
		reason = cmp.Or(step.Reason, "Completed")
	}
	instance.State = observed.Exited
	instance.Exit = &observed.Exit{Code: step.Code, Reason: reason, Message: step.Message, FinishedAt: now}
	if step.By != "" {
		m.stoppedBy[instance.ID.String()] = stopReason(step.By)
	}
}

// stopReason returns the plan.StopReason that a rule knows by this name.
func stopReason(name string) string {
	switch name {
	case "liveness":
		return "LivenessProbe"
	case "startup":
		return "StartupProbe"
	case "user":
		return transition.StopUser
	default:
		return name
	}
}

func (m *podModel) setReady(name string, result derive.ProbeResult) {
	if instance := m.observed.Newest(name); instance != nil {
		m.probes[instance.ID] = derive.ContainerProbeResults{Startup: derive.ProbeSuccess, Readiness: result}
	}
}

func (m *podModel) setProbe(p *Probe, now time.Time) {
	state := explain.Probe{
		Container: p.Container, Kind: explain.ProbeKind(cmp.Or(p.Kind, string(explain.Liveness))), Result: explain.Passing, Streak: p.Streak,
		StreakFailed: p.Streak > 0, Threshold: 3, Last: explain.Answer{At: now, OK: p.Streak == 0},
	}
	if p.Failing {
		state.Result = explain.Failing
	}
	if p.Erroring {
		state.Errors = 1
	}
	m.states[p.Container+"/"+p.Kind] = state
}

// status returns the status that the agent would have.
func (m *podModel) status(now time.Time) v1.PodStatus {
	seen := m.observed
	seen.At, seen.Containers = now, slices.Clone(m.observed.Containers)
	return derive.Status(derive.Input{
		Pod: m.pod, Previous: m.told, Observed: &seen, Probes: m.probes, Waiting: m.waiting, Eviction: m.eviction,
		Terminating: m.pod.DeletionTimestamp != nil && m.pod.DeletionTimestamp.Time.Before(now), Now: now,
	})
}

// tell returns the view of the pod, and the changes since the last one. hasChanged is set if the status did.
func (m *podModel) tell(now time.Time, hasAPI, knowsLoad bool) (seen *view.PodView, changes []transition.Change, hasChanged bool) {
	status := m.status(now)
	if m.told == nil || !derive.Equal(m.told, &status) {
		changes, hasChanged = transition.AppendPod(nil, m.told, &status), true
		m.version++
		for i := range changes {
			if exit := changes[i].Exit; exit != nil {
				exit.StoppedBy = m.stoppedBy[exit.ContainerID]
			}
		}
		m.told = &status
	}
	pod := *m.pod
	pod.Status = *m.told
	facts := explain.Facts{
		Now: now, Name: podid.FullNameOf(&pod), Pod: &pod, Sync: m.sync(now, hasAPI),
		Worker: explain.Worker{Known: true},
	}
	for _, key := range sortedKeys(m.states) {
		facts.Probes = append(facts.Probes, m.states[key])
	}
	v := view.NewRulePod(facts)
	if knowsLoad {
		v.Load = &view.PodLoad{}
		for _, name := range sortedKeys(m.loads) {
			v.Load.Containers = append(v.Load.Containers, view.ContainerLoad{Name: name, UsageLoad: m.loads[name]})
		}
	}
	return &v, changes, hasChanged
}

func (m *podModel) sync(now time.Time, hasAPI bool) explain.Sync {
	sync := explain.Sync{State: explain.SyncSynced, Version: m.version, At: now, Behind: m.behind}
	switch {
	case !hasAPI:
		sync.State = explain.SyncNoServer
	case m.refused:
		sync.State = explain.SyncRefused
	case m.behind > 0:
		sync.State = explain.SyncWaiting
	}
	return sync
}

func newUsage(l *Load) view.UsageLoad {
	return view.UsageLoad{
		CPU:    view.CPULoad{Cores: newWindows(l.CPU), LimitCores: new(1.0), OfLimit: &l.CPULimit, Throttled: newWindows(l.Throttled)},
		Memory: view.MemoryLoad{WorkingSetBytes: newWindows(l.Memory), LimitBytes: new(int64(1)), OfLimit: &l.MemoryLimit},
	}
}

func newWindows(value float64) *view.Windows {
	window := view.Window{Mean: value, Max: value}
	return &view.Windows{Last1m: window, Last5m: window, Last15m: window}
}
