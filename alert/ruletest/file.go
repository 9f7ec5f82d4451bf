package ruletest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// File is a file of tests.
type File struct {
	// Path is that of the file, for messages.
	Path string `yaml:"-"`
	// RuleFiles are relative to the folder of the file.
	RuleFiles []string `yaml:"rule_files"`
	// Defaults adds the default rules, as the agent does. Disable leaves some of them out.
	Defaults *bool    `yaml:"defaults"`
	Disable  []string `yaml:"disable"`
	Tests    []*Test  `yaml:"tests"`
}

// Test is one timeline with its expectations.
type Test struct {
	Line int    `yaml:"-"`
	Name string `yaml:"name"`
	Node Node   `yaml:"node"`
	// Pod or Pods are there from the beginning.
	Pod      *Pod      `yaml:"pod"`
	Pods     []*Pod    `yaml:"pods"`
	Timeline []*Step   `yaml:"timeline"`
	Expect   []*Expect `yaml:"expect"`
}

// Node is the node of a test.
type Node struct {
	Name string `yaml:"name"`
	// Alone is set for a node without an API server.
	Alone bool `yaml:"alone"`
}

// Pod is a pod of a test.
type Pod struct {
	Line          int               `yaml:"-"`
	Namespace     string            `yaml:"namespace"`
	Name          string            `yaml:"name"`
	Labels        map[string]string `yaml:"labels"`
	Annotations   map[string]string `yaml:"annotations"`
	Static        bool              `yaml:"static"`
	OwnerKind     string            `yaml:"owner_kind"`
	Priority      int               `yaml:"priority"`
	RestartPolicy string            `yaml:"restart_policy"`
	// Age is how old the pod is at the beginning.
	Age        time.Duration `yaml:"age"`
	Containers []Container   `yaml:"containers"`
}

// Container is a container of a pod.
type Container struct {
	Line int    `yaml:"-"`
	Name string `yaml:"name"`
	// Kind is regular, init or sidecar.
	Kind   string            `yaml:"kind"`
	Image  string            `yaml:"image"`
	Limits map[string]string `yaml:"limits"`
}

// Step is something that happens.
type Step struct {
	Line int           `yaml:"-"`
	At   time.Duration `yaml:"at"`
	// Pod is the name of the pod, which may be left out if there is only one.
	Pod string `yaml:"pod"`
	ContainerStep
	PodStep
	NodeStep
	// Agent is restart, stop or start. While it is stopped, what happens is seen at the start.
	Agent string `yaml:"agent"`
	// Silence has matchers of alerts that are silenced, and For says for how long.
	Silence []string      `yaml:"silence"`
	For     time.Duration `yaml:"for"`
}

// ContainerStep is what happens to containers. The fields that name containers exclude each other, except Running with Unready.
type ContainerStep struct {
	// Running starts an instance. Restart is its restart count, by default one more than before.
	Running []string `yaml:"running"`
	Restart *int     `yaml:"restart"`
	// Ended ends the instance with Code and Reason. By is liveness, startup, user or another reason why the agent stopped it.
	Ended []string `yaml:"ended"`
	Code  int      `yaml:"code"`
	By    string   `yaml:"by"`
	// Waiting lets it wait with Reason.
	Waiting []string `yaml:"waiting"`
	Reason  string   `yaml:"reason"`
	Message string   `yaml:"message"`
	// Ready and Unready are results of the readiness probe. A container that runs is ready until it is not.
	Ready   []string `yaml:"ready"`
	Unready []string `yaml:"unready"`
	Probe   *Probe   `yaml:"probe"`
	Load    *Load    `yaml:"load"`
}

// Probe is the state of a probe that does not show in the status.
type Probe struct {
	Container string `yaml:"container"`
	Kind      string `yaml:"kind"`
	Failing   bool   `yaml:"failing"`
	Erroring  bool   `yaml:"erroring"`
	Streak    int    `yaml:"streak"`
}

// PodStep is what happens to a pod as a whole.
type PodStep struct {
	// Deleting requests the deletion with a grace period, Deleted removes the pod from the node.
	Deleting *time.Duration `yaml:"deleting"`
	Deleted  bool           `yaml:"deleted"`
	// Evicted fails the pod with this reason.
	Evicted string `yaml:"evicted"`
	// Behind is how many versions of the status the API server does not have, Refused that it rejects them.
	Behind  *int  `yaml:"behind"`
	Refused *bool `yaml:"refused"`
}

// NodeStep is what happens to the node.
type NodeStep struct {
	// API, Runtime and Network are up or down.
	API     string `yaml:"api"`
	Runtime string `yaml:"runtime"`
	Network string `yaml:"network"`
	// Unknown and Known are runtime or load.
	Unknown []string `yaml:"unknown"`
	Known   []string `yaml:"known"`
	// Event counts for node.count: clock, boot, lease, load or runtime.
	Event string `yaml:"event"`
	// Pressure has Memory, Disk and PID.
	Pressure map[string]bool `yaml:"pressure"`
	NodeLoad *NodeLoad       `yaml:"node_load"`
	// SourcesBad is the number of manifests that cannot be used.
	SourcesBad *int `yaml:"sources_bad"`
	// CertificateExpires is after which time from now the client certificate ends.
	CertificateExpires *time.Duration `yaml:"certificate_expires"`
	History            string         `yaml:"history"` // up or down
	// Alerting has numbers of the agent's own state: sinks_failing, remedies_exhausted, files_broken.
	Alerting map[string]int `yaml:"alerting"`
}

// Load is the load of a container, by the names of the fields of container.load. What is absent is 0.
type Load struct {
	Container   string  `yaml:"container"`
	CPU         float64 `yaml:"cpu"`
	CPULimit    float64 `yaml:"cpu_limit"`
	Memory      float64 `yaml:"memory"`
	MemoryLimit float64 `yaml:"memory_limit"`
	Throttled   float64 `yaml:"throttled"`
}

// NodeLoad is the load of the node, by the names of the fields of node.load. What is absent is 0, and disks do not fill.
type NodeLoad struct {
	Level       string   `yaml:"level"`
	Saturation  float64  `yaml:"saturation"`
	Culprit     string   `yaml:"culprit"`
	CPU         float64  `yaml:"cpu"`
	Memory      float64  `yaml:"memory"`
	PIDs        float64  `yaml:"pids"`
	Disk        float64  `yaml:"disk"`
	Inodes      float64  `yaml:"inodes"`
	HoursToFull *float64 `yaml:"hours_to_full"`
	ReadOnly    bool     `yaml:"read_only"`
	PSIMemory   float64  `yaml:"psi_memory"`
	PSIIO       float64  `yaml:"psi_io"`
	LagP99      float64  `yaml:"lag_p99"`
	RelistP99   float64  `yaml:"relist_p99"`
	CRIP99      float64  `yaml:"cri_p99"`
}

// Expect is an expectation. It is about the alerts of a name with these labels; there may be more labels.
type Expect struct {
	Line   int               `yaml:"-"`
	At     time.Duration     `yaml:"at"`
	Alert  string            `yaml:"alert"`
	Labels map[string]string `yaml:"labels"`
	// State is pending, firing, recovering, resolved or inactive.
	State string `yaml:"state"`
	// Sent is how many messages a receiver has got about the alert since the beginning.
	Sent *int `yaml:"sent"`
	// Count is how many alerts are in the state.
	Count *int `yaml:"count"`
	// Value is that of the rule's value expression, Unknown that its truth is not known, Muted that it is silenced or inhibited.
	Value   *float64 `yaml:"value"`
	Unknown *bool    `yaml:"unknown"`
	Muted   *bool    `yaml:"muted"`
	// Annotations are those that the alert must have.
	Annotations map[string]string `yaml:"annotations"`
}

// Parse reads a file of tests. Its error has all problems, each with file, line and field.
func Parse(data []byte, path string) (*File, error) {
	file := &File{Path: path}
	d := &decoder{path: path}
	d.decodeFile(data, file)
	if len(d.errs) == 0 {
		d.check(file)
	}
	return file, errors.Join(d.errs...)
}

// UsesDefaults reports whether the default rules are part of the tests.
func (f *File) UsesDefaults() bool { return f.Defaults == nil || *f.Defaults }

func (d *decoder) check(file *File) {
	if len(file.Tests) == 0 {
		d.errorf(0, "tests", "there are none")
	}
	names := map[string]bool{}
	for i, test := range file.Tests {
		field := fmt.Sprintf("tests[%d]", i)
		if test.Name == "" || names[test.Name] {
			d.errorf(test.Line, field+".name", "must be set and unique")
		}
		names[test.Name] = true
		if test.Pod != nil {
			test.Pods = append([]*Pod{test.Pod}, test.Pods...)
		}
		d.checkPods(test, field)
		d.checkSteps(test, field)
		d.checkExpectations(test, field)
	}
}

func (d *decoder) checkPods(test *Test, field string) {
	names := map[string]bool{}
	for i, pod := range test.Pods {
		at := fmt.Sprintf("%s.pods[%d]", field, i)
		pod.Namespace = cmp.Or(pod.Namespace, "default")
		switch {
		case pod.Name == "" || names[pod.Name]:
			d.errorf(pod.Line, at+".name", "must be set and unique")
		case len(pod.Containers) == 0:
			d.errorf(pod.Line, at+".containers", "at least one is required")
		case !slices.Contains([]string{"", "Always", "OnFailure", "Never"}, pod.RestartPolicy):
			d.errorf(pod.Line, at+".restart_policy", "%q must be Always, OnFailure or Never", pod.RestartPolicy)
		}
		names[pod.Name] = true
		for j := range pod.Containers {
			container := &pod.Containers[j]
			at := fmt.Sprintf("%s.containers[%d]", at, j)
			if container.Name == "" {
				d.errorf(container.Line, at+".name", "must be set")
			}
			if !slices.Contains([]string{"", "regular", "init", "sidecar"}, container.Kind) {
				d.errorf(container.Line, at+".kind", "%q must be regular, init or sidecar", container.Kind)
			}
		}
	}
}

func (d *decoder) checkSteps(test *Test, field string) {
	last := time.Duration(0)
	for i, step := range test.Timeline {
		at := fmt.Sprintf("%s.timeline[%d]", field, i)
		if step.At < last {
			d.errorf(step.Line, at+".at", "%s is before the step above, at %s", step.At, last)
		}
		last = step.At
		d.checkChoice(step.Line, at+".agent", step.Agent, "restart", "stop", "start")
		d.checkChoice(step.Line, at+".api", step.API, "up", "down")
		d.checkChoice(step.Line, at+".runtime", step.Runtime, "up", "down")
		d.checkChoice(step.Line, at+".network", step.Network, "up", "down")
		d.checkChoice(step.Line, at+".history", step.History, "up", "down")
		for _, name := range slices.Concat(step.Unknown, step.Known) {
			d.checkChoice(step.Line, at+".unknown", name, "runtime", "load")
		}
		if len(step.Silence) > 0 && step.For <= 0 {
			d.errorf(step.Line, at+".for", "how long the silence lasts is required")
		}
		d.checkObject(test, step, at)
	}
}

func (d *decoder) checkChoice(line int, field, value string, choices ...string) {
	if value != "" && !slices.Contains(choices, value) {
		d.errorf(line, field, "%q must be one of %q", value, choices)
	}
}

// checkObject checks that the pod and the containers of a step exist.
func (d *decoder) checkObject(test *Test, step *Step, field string) {
	names := slices.Concat(step.Running, step.Ended, step.Waiting, step.Ready, step.Unready)
	if step.Probe != nil {
		names = append(names, step.Probe.Container)
	}
	if step.Load != nil {
		names = append(names, step.Load.Container)
	}
	isAboutPod := len(names) > 0 || step.Deleting != nil || step.Deleted || step.Evicted != "" || step.Behind != nil || step.Refused != nil
	if !isAboutPod && step.Pod == "" {
		return
	}
	if step.Pod == "" && len(test.Pods) == 1 {
		step.Pod = test.Pods[0].Name
	}
	index := slices.IndexFunc(test.Pods, func(pod *Pod) bool { return pod.Name == step.Pod })
	if index < 0 {
		d.errorf(step.Line, field+".pod", "%q is none of the pods of the test", step.Pod)
		return
	}
	for _, name := range names {
		if !slices.ContainsFunc(test.Pods[index].Containers, func(c Container) bool { return c.Name == name }) {
			d.errorf(step.Line, field, "pod %s has no container %q", step.Pod, name)
		}
	}
}

func (d *decoder) checkExpectations(test *Test, field string) {
	if len(test.Expect) == 0 {
		d.errorf(test.Line, field+".expect", "at least one expectation is required")
	}
	for i, expect := range test.Expect {
		at := fmt.Sprintf("%s.expect[%d]", field, i)
		if expect.Alert == "" {
			d.errorf(expect.Line, at+".alert", "must be set")
		}
		d.checkChoice(expect.Line, at+".state", expect.State, "pending", "firing", "recovering", "resolved", stateInactive)
	}
}

// stateInactive is the state of an alert that does not exist.
const stateInactive = "inactive"
