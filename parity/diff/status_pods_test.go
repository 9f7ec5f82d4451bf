package diff_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/heraldnode/herald/podid"
)

// The pods of a history: a regular one with a sidecar, two probed containers and a readiness gate; a run-once pod with
// an init container; and a static pod.
const (
	webPod    = "web"
	jobPod    = "job"
	staticPod = "etcd"
)

const gateCondition v1.PodConditionType = "example.com/gate"

// podTemplate returns the pod of that name without its identity.
func podTemplate(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	always := v1.ContainerRestartPolicyAlways
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	switch name {
	case webPod:
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: gateCondition}}
		p.Spec.InitContainers = []v1.Container{{Name: "proxy", Image: "proxy", RestartPolicy: &always, StartupProbe: probe}}
		p.Spec.Containers = []v1.Container{
			{Name: "main", Image: "web", ReadinessProbe: probe, StartupProbe: probe}, {Name: "log", Image: "log", ReadinessProbe: probe},
		}
	case jobPod:
		p.Spec.RestartPolicy = v1.RestartPolicyNever
		p.Spec.InitContainers = []v1.Container{{Name: "prepare", Image: "prepare"}}
		p.Spec.Containers = []v1.Container{{Name: "main", Image: "job"}}
	default:
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
		p.Spec.Containers = []v1.Container{{Name: "main", Image: "etcd", ReadinessProbe: probe}}
	}
	return p
}

func newStaticPod(name string) *v1.Pod {
	p := podTemplate(name)
	p.UID = types.UID("static-" + name)
	p.Annotations = map[string]string{podid.SourceAnnotation: "file", podid.HashAnnotation: "h"}
	return p
}

func newMirrorPod(manifest *v1.Pod, nodeName string) *v1.Pod {
	p := manifest.DeepCopy()
	p.UID, p.Spec.NodeName = "", nodeName
	p.Annotations = map[string]string{podid.MirrorAnnotation: manifest.Annotations[podid.HashAnnotation]}
	return p
}

// podSim simulates one instance of a pod as its worker sees it. Its containers behave the same on both nodes.
type podSim struct {
	name     string
	serial   int
	phase    v1.PodPhase
	inits    []v1.ContainerStatus
	regulars []v1.ContainerStatus
	// disrupted means that the node terminates the pod and reports it.
	disrupted        bool
	readyOverwritten bool // another client has written its Ready condition
	reported         bool // a status was set
	terminated       bool // TerminatePod was called
}

func newPodSim(name string, serial int) *podSim {
	sim := &podSim{name: name, serial: serial, phase: v1.PodPending}
	waiting := func(containers []v1.Container) (statuses []v1.ContainerStatus) {
		for _, c := range containers {
			statuses = append(statuses, v1.ContainerStatus{
				Name: c.Name, Image: c.Image, Started: new(false),
				State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "PodInitializing"}},
			})
		}
		return statuses
	}
	spec := podTemplate(name).Spec
	sim.inits, sim.regulars = waiting(spec.InitContainers), waiting(spec.Containers)
	return sim
}

// container returns the container with that number, modulo the number of containers.
func (sim *podSim) container(number int) (*v1.ContainerStatus, *v1.Container) {
	spec := podTemplate(sim.name).Spec
	number %= len(sim.inits) + len(sim.regulars)
	if number < len(sim.inits) {
		return &sim.inits[number], &spec.InitContainers[number]
	}
	return &sim.regulars[number-len(sim.inits)], &spec.Containers[number-len(sim.inits)]
}

// advance moves a container one step forward: it starts, terminates, and restarts if allowed.
func (sim *podSim) advance(number int, exitCode int32) {
	c, spec := sim.container(number)
	now := metav1.Now()
	restarts := sim.name != jobPod
	switch {
	case sim.terminated:
		return
	case c.State.Running != nil:
		c.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: exitCode, Reason: "Terminated", StartedAt: c.State.Running.StartedAt, FinishedAt: now, ContainerID: c.ContainerID,
		}}
		c.Ready, c.Started = sim.name == jobPod && spec.Name == "prepare" && exitCode == 0, new(false)
	case c.State.Terminated != nil && !restarts:
		return
	default:
		if c.State.Terminated != nil {
			c.LastTerminationState = c.State
			c.RestartCount++
		}
		c.ContainerID = fmt.Sprintf("test://%s-%d-%s-%d", sim.name, sim.serial, c.Name, c.RestartCount)
		c.ImageID = "sha256:" + c.Image
		c.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}
		c.Started = new(spec.StartupProbe == nil)
		c.Ready = *c.Started && spec.ReadinessProbe == nil && spec.Name != "prepare"
	}
	sim.phase = sim.computePhase()
}

// terminateContainers terminates the started containers. The others are lost: their termination is never observed
// (TestSM18_LostContainer).
func (sim *podSim) terminateContainers() {
	for number := range len(sim.inits) + len(sim.regulars) {
		if c, _ := sim.container(number); c.State.Running != nil && *c.Started {
			sim.advance(number, 137)
		}
	}
}

func (sim *podSim) computePhase() v1.PodPhase {
	if sim.name == jobPod {
		if end := sim.inits[0].State.Terminated; end != nil && end.ExitCode != 0 {
			return v1.PodFailed
		}
		if end := sim.regulars[0].State.Terminated; end != nil {
			return map[bool]v1.PodPhase{true: v1.PodSucceeded, false: v1.PodFailed}[end.ExitCode == 0]
		}
	}
	for _, c := range sim.regulars {
		if c.State.Waiting != nil {
			return v1.PodPending
		}
	}
	return v1.PodRunning
}

// status returns what the worker derives from the containers and from the pod as its node knows it. The kubelet's
// functions generate the conditions.
func (sim *podSim) status(pod *v1.Pod) v1.PodStatus {
	s := v1.PodStatus{
		Phase: sim.phase, QOSClass: v1.PodQOSBestEffort, HostIP: "192.0.2.1", HostIPs: []v1.HostIP{{IP: "192.0.2.1"}},
		PodIP: "10.0.0.7", PodIPs: []v1.PodIP{{IP: "10.0.0.7"}},
	}
	s.InitContainerStatuses, s.ContainerStatuses = copyStatuses(sim.inits), copyStatuses(sim.regulars)
	for _, c := range pod.Status.Conditions {
		if !kubetypes.PodConditionByKubelet(c.Type) && (c.Type != v1.DisruptionTarget || !sim.disrupted) {
			s.Conditions = append(s.Conditions, c)
		}
	}
	if sim.disrupted {
		s.Conditions = append(s.Conditions, v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
		})
	}
	all := append(copyStatuses(sim.inits), copyStatuses(sim.regulars)...)
	s.Conditions = append(s.Conditions,
		kubeletstatus.GeneratePodInitializedCondition(pod, &pod.Status, all, s.Phase),
		kubeletstatus.GeneratePodReadyCondition(pod, &pod.Status, s.Conditions, all, s.Phase),
		kubeletstatus.GenerateContainersReadyCondition(pod, &pod.Status, all, s.Phase),
		v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation},
	)
	return s
}

func copyStatuses(statuses []v1.ContainerStatus) []v1.ContainerStatus {
	return (&v1.PodStatus{ContainerStatuses: statuses}).DeepCopy().ContainerStatuses
}
