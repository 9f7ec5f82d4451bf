package node_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
)

// awaitVerdict waits until herald explain answers with the code.
func (h *harness) awaitVerdict(pod, code string, flags ...string) {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		args := append([]string{"explain", pod, "-o", "jsonpath={.verdict.code}"}, flags...)
		out, _ := h.heraldCommand(h.t.Context(), args...).Output() // exits with 1 if something is wrong with the pod
		if got := strings.TrimSpace(string(out)); got != code {
			return fmt.Errorf("explain pod %s: got %q, want %q", pod, got, code)
		}
		return nil
	})
}

// TestExplain_Pods asks a real node why its pods are as they are.
func TestExplain_Pods(t *testing.T) {
	h := newHarness(t, shared.node(t))
	unready := newContainer("main", "sleep", "1h")
	unready.ReadinessProbe = &v1.Probe{
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: testpod("cat", "/absent")}}, PeriodSeconds: 1, TimeoutSeconds: 30,
	}
	starting := newContainer("main", "sleep", "1h")
	starting.StartupProbe = unready.ReadinessProbe.DeepCopy()
	starting.StartupProbe.FailureThreshold = 10_000
	neverPull := newContainer("main", "sleep", "1h")
	neverPull.Image, neverPull.ImagePullPolicy = "127.0.0.1:1/absent:1", v1.PullNever
	unreachable := newContainer("main", "sleep", "1h")
	unreachable.Image = "127.0.0.1:1/absent:2"
	invalid := newContainer("main", "sleep", "1h")
	invalid.Image = "shop/X:9"
	gated := newPod("gated", newContainer("main", "sleep", "1h"))
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	noSecret := newPod("no-secret", newContainer("main", "sleep", "1h"))
	noSecret.Spec.Volumes = []v1.Volume{{
		Name: "tls", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "absent"}},
	}}
	init := newPod("init", newContainer("main", "sleep", "1h"))
	init.Spec.InitContainers = []v1.Container{newContainer("prepare", "sleep", "1h")}
	verdicts := []struct {
		pod  *v1.Pod
		code string
	}{
		{newPod("ready", newContainer("main", "sleep", "1h")), "Ready"},
		{newPod("unready", unready), "ReadinessProbeFailing"},
		{newPod("starting", starting), "StartupProbePending"},
		{newPod("crash", newContainer("main", "exit", "3")), "CrashLoopBackOff"},
		{newJob("failed", newContainer("main", "exit", "3")), "Failed"},
		{newPod("never-pull", neverPull), "ErrImageNeverPull"},
		{newPod("unreachable", unreachable), "RegistryUnavailable"},
		{newPod("invalid", invalid), "InvalidImageName"},
		{gated, "ReadinessGateMissing"},
		{noSecret, "VolumeFailed"},
		{init, "InitContainerRunning"},
	}
	for _, verdict := range verdicts {
		h.createPod(verdict.pod)
	}
	for _, verdict := range verdicts {
		h.awaitVerdict(verdict.pod.Name, verdict.code)
	}
	if out := h.herald("get", "pods", "-o", "why"); !strings.Contains(out, "WHY") || strings.Count(out, "\n") != len(verdicts) {
		t.Errorf("get pods -o why: got\n%s", out)
	}
	// The API server acknowledges every status, so that each pod becomes synced.
	heraldtest.Eventually(t, func() error {
		if out := h.herald("get", "pods", "--where", "pod.behind > 0", "-o", "name"); out != "" {
			return fmt.Errorf("pods that are not synced: %s", out)
		}
		return nil
	})
	if out := h.herald("restart", "pod", "ready", "--reason", "test"); !strings.Contains(out, "ready/main stopped after") {
		t.Errorf("restart: got %s", out)
	}
	h.herald("wait", "pod", "ready", "--for=condition=Ready", "--timeout=2m")
	h.awaitVerdict("ready", "Ready", "--question", "ready")
	if out := h.herald("history", "pod/ready"); !strings.Contains(out, "test") {
		t.Errorf("history: got\n%s\nwant the reason of the restart", out)
	}
	h.deletePod("crash")
	h.AwaitDeleted("crash")
	h.awaitVerdict("crash", "Left")
}
