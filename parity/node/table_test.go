package node_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// inManyStates are pods, and the word by which each is known to have come where it stays.
func (tr *trial) inManyStates() map[*v1.Pod]string {
	job := func(name string, args ...string) *v1.Pod {
		p := newPod(name, runs("main", args...))
		p.Spec.RestartPolicy = v1.RestartPolicyNever
		return p
	}
	image := newPod("no-image", runs("main", "pause"))
	image.Spec.Containers[0].Image = "127.0.0.1:1/absent:1"
	never := newPod("never-pulled", runs("main", "pause"))
	never.Spec.Containers[0].Image, never.Spec.Containers[0].ImagePullPolicy = "herald.test/absent:1", v1.PullNever
	initial := newPod("initial", runs("main", "pause"))
	initial.Spec.InitContainers = []v1.Container{runs("first", "exit", "0"), runs("second", "sleep", "1h")}
	broken := newPod("broken-initial", runs("main", "pause"))
	broken.Spec.InitContainers = []v1.Container{runs("first", "exit", "9")}
	steady := newPod("steady", runs("main", "pause"))
	steady.Labels = map[string]string{"app": "web"}
	gated := newPod("gated", runs("main", "pause"), runs("other", "pause"))
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/open"}}
	deaf := tr.served("deaf", func(c *v1.Container, _ server) {
		c.ReadinessProbe = everySecond(v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/testpod", "exit", "1"}}})
	})
	configured := newPod("unconfigured", runs("main", "pause"))
	configured.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("absent")}}}
	return map[*v1.Pod]string{
		newPod("steady", runs("main", "pause")):                              "Running",
		job("completed", "exit", "0"):                                        "Completed",
		job("failed", "exit", "3"):                                           "Error",
		newPod("crashing", runs("main", "exit", "1"), runs("fine", "pause")): "CrashLoopBackOff",
		image: "ImagePullBackOff", never: "ErrImageNeverPull", initial: "Init:1/2", broken: "Init:CrashLoopBackOff",
		gated: "Running", deaf: "Running", configured: "CreateContainerConfigError",
	}
}

func TestHeraldPrintsWhatKubectlPrints(t *testing.T) {
	t.Parallel()
	tr := tryAlone(t, "mirrored")
	pods := tr.inManyStates()
	for p := range pods {
		tr.bind(p)
	}
	for p, word := range pods {
		recorder.Eventually(t, "kubectl about "+p.Name, func() (string, bool) {
			got := tr.kubectl("get", "pod", p.Name, "--no-headers")
			return got, strings.Contains(got, " "+word+" ")
		})
	}
	tr.writeManifest("static", "static")
	tr.Await("static-"+tr.NodeName, "ready", isReady)
	for name, asks := range map[string][]string{
		"the list":         nil,
		"wide":             {"-o", "wide"},
		"names":            {"-o", "name"},
		"without a header": {"--no-headers"},
		"one pod":          {"steady"},
		"some pods":        {"steady", "failed", "-o", "wide"},
		"by label":         {"-l", "app=web"},
		"by field":         {"--field-selector", "status.phase=Running"},
	} {
		t.Run(name, func(t *testing.T) {
			mustAgree(t, func() (string, string) {
				args := append([]string{"get", "pods"}, asks...)
				return tr.kubectl(args...), tr.herald(args...)
			})
		})
	}
	t.Run("all namespaces", func(t *testing.T) {
		mustAgree(t, func() (string, string) {
			return tr.kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName="+tr.NodeName), tr.herald("get", "pods", "-A")
		})
	})
	t.Run("objects", func(t *testing.T) { mustAgree(t, func() (string, string) { return tr.bothStatuses(t) }) })
}

// mustAgree waits until both say the same: between two questions a second may have passed, which ages show, or a pod have
// changed.
func mustAgree(t *testing.T, ask func() (kubectl, herald string)) {
	t.Helper()
	recorder.Eventually(t, "kubectl's (-) and herald's (+) words", func() (string, bool) {
		kubectl, herald := ask()
		diff := cmp.Diff(strings.Split(kubectl, "\n"), strings.Split(herald, "\n"))
		return diff, diff == ""
	})
}

// bothStatuses are the statuses of all pods as kubectl's objects and herald's have them.
func (tr *trial) bothStatuses(t *testing.T) (kubectl, herald string) {
	t.Helper()
	return statuses(t, tr.kubectl("get", "pods", "-o", "json")), statuses(t, tr.herald("get", "pods", "-o", "json"))
}

func statuses(t *testing.T, list string) string {
	t.Helper()
	var pods v1.PodList
	if err := json.Unmarshal([]byte(list), &pods); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(pods.Items, func(a, b v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var all strings.Builder
	for _, p := range pods.Items {
		status, err := json.MarshalIndent(p.Status, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %s\n", p.Name, status)
	}
	return all.String()
}
