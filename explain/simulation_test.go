package explain_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// TestE5_FinalVerdicts runs pods in a simulated runtime: after a final verdict no container of the verdict starts, and the pod never
// becomes Ready.
func TestE5_FinalVerdicts(t *testing.T) {
	finals := map[string]int{}
	for range 50 { // until all verdicts occurred: some are rare
		checkFinalVerdicts(t, finals)
		if t.Failed() || len(missingVerdicts(finals)) == 0 {
			break
		}
	}
	t.Log(finals)
	if missing := missingVerdicts(finals); len(missing) > 0 {
		t.Errorf("no simulated pod had the final verdicts %v", missing)
	}
}

func missingVerdicts(finals map[string]int) (missing []string) {
	for _, code := range []string{explain.CodeSucceeded, explain.CodeFailed, explain.CodeContainerEnded, explain.CodeInvalidImageName} {
		if finals[code] == 0 {
			missing = append(missing, code)
		}
	}
	return missing
}

// checkFinalVerdicts simulates some pods and counts their final verdicts.
func checkFinalVerdicts(t *testing.T, finals map[string]int) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		sim := newSimulation(t)
		var final *explain.Verdict
		for range 40 {
			started := sim.step(t)
			v := explain.Pod(sim.facts(), explain.WhyNotReady)
			switch {
			case final == nil && v.Final:
				final = &v
				finals[v.Code]++
			case final == nil:
			case v.OK:
				t.Fatalf("the pod is Ready after the final verdict %s: %s", final.Code, final.Headline)
			case final.Container != "" && started[final.Container]:
				t.Fatalf("%s started after the final verdict %s: %s", final.Container, final.Code, final.Headline)
			}
		}
	})
}

// simulation is a pod in a runtime that exists in memory.
type simulation struct {
	pod         *v1.Pod
	status      *v1.PodStatus
	runtime     observed.Pod
	backoff     plan.Backoff
	restartAll  plan.RestartAll
	waiting     map[string]derive.Waiting
	terminating bool
	now         time.Time
	instances   int
	// invalid is the container whose image name is invalid, or "".
	invalid string
}

func newSimulation(t *rapid.T) *simulation {
	policies := rapid.SampledFrom([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever})
	sim := &simulation{now: now, pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "shop", UID: "1"},
		Spec:       v1.PodSpec{RestartPolicy: policies.Draw(t, "policy")},
	}}
	add := func(list *[]v1.Container, name string, sidecar bool) {
		if !rapid.Bool().Draw(t, name) {
			return
		}
		c := v1.Container{Name: name, Image: "reg/" + name}
		if sidecar {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		*list = append(*list, c)
	}
	add(&sim.pod.Spec.InitContainers, "sidecar", true)
	add(&sim.pod.Spec.InitContainers, "init", false)
	sim.pod.Spec.Containers = []v1.Container{{Name: "web", Image: "reg/web"}}
	add(&sim.pod.Spec.Containers, "job", false)
	sim.invalid = rapid.SampledFrom([]string{"", "", "", "web", "init"}).Draw(t, "invalid image")
	return sim
}

func (s *simulation) facts() explain.Facts {
	pod := s.pod.DeepCopy()
	pod.Status = *s.status
	return explain.Facts{Now: s.now, Pod: pod, Observed: &s.runtime}
}

// step lets containers exit, and syncs the pod. It returns the containers that started.
func (s *simulation) step(t *rapid.T) map[string]bool {
	s.now = s.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
	for i := range s.runtime.Containers {
		c := &s.runtime.Containers[i]
		if c.State == observed.Running && (s.terminating || rapid.IntRange(0, 2).Draw(t, "exits") == 0) {
			c.State = observed.Exited
			c.Exit = &observed.Exit{Code: rapid.IntRange(0, 1).Draw(t, "code"), Reason: "Error", FinishedAt: s.now}
		}
	}
	started := map[string]bool{}
	if !s.terminating {
		s.sync(started)
	}
	status := derive.Status(derive.Input{
		Pod: s.pod, Previous: s.status, Observed: &s.runtime, Waiting: s.waiting, Terminating: s.terminating, Now: s.now,
	})
	s.status = &status
	s.terminating = s.terminating || derive.IsTerminal(status.Phase)
	return started
}

// sync executes what the plan asks for.
func (s *simulation) sync(started map[string]bool) {
	actions := plan.ComputeActions(plan.Input{
		Pod: s.pod, Observed: &s.runtime, Backoff: s.backoff, RestartAll: s.restartAll, Now: s.now,
	})
	s.backoff, s.restartAll, s.waiting = actions.Backoff, actions.RestartAll, map[string]derive.Waiting{}
	for name, waiting := range actions.Waiting {
		s.waiting[name] = waiting
	}
	if actions.Done {
		s.terminating = true
		return
	}
	if actions.Sandbox != nil {
		s.runtime.Sandboxes = []observed.Sandbox{{ID: "sandbox", Ready: true, CreatedAt: s.now}}
	}
	for _, start := range actions.Start {
		name := start.Container.Name
		if name == s.invalid {
			s.waiting[name] = derive.Waiting{Reason: "InvalidImageName", Message: "invalid reference format"}
			if start.Kind == derive.InitContainer {
				return
			}
			continue
		}
		s.instances++
		started[name] = true
		s.runtime.Containers = append(s.runtime.Containers, observed.Container{
			ID: observed.ContainerID{Runtime: "test", ID: fmt.Sprint(s.instances)}, Name: name, SandboxID: "sandbox",
			State: observed.Running, RestartCount: start.RestartCount, CreatedAt: s.now, StartedAt: s.now,
			SpecHash: plan.HashContainer(start.Container),
		})
	}
	s.runtime.Sort()
}
