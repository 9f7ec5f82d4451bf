package nodeagent_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/worker"
)

// newManifest returns the manifest of a pod with one container, which has the given lines.
func newManifest(name string, lines ...string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  hostNetwork: true\n  terminationGracePeriodSeconds: 2\n" +
		"  containers:\n  - name: main\n    image: host\n    " + strings.Join(lines, "\n    ") + "\n"
}

func podName(name string) podid.FullName {
	return podid.FullName{Namespace: "default", Name: name + "-n1"}
}

// waitForCode waits for a verdict with this code.
func waitForCode(t *testing.T, n *nodeagent.NodeAgent, name string, q explain.Question, code string) explain.Verdict {
	t.Helper()
	var verdict explain.Verdict
	eventually(t, "code "+code+" for "+name, func() bool {
		verdict, _ = n.Inspector.Explain(t.Context(), podName(name), q)
		return verdict.Code == code
	})
	return verdict
}

// removeManifests ends all pods, so that the test leaves no process behind.
func removeManifests(t *testing.T, n *nodeagent.NodeAgent, config nodeagent.Config) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(config.StaticPodPath, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all pods to be gone", func() bool { return len(n.Agent.LocalPods()) == 0 })
}

// TestInspector_Verdicts asks about pods of the process runtime: one with a failing readiness probe, one that crashes, one that
// is gone.
func TestInspector_Verdicts(t *testing.T) {
	config := newConfig(t,
		newManifest("unready", `command: [sleep, "1000"]`,
			`readinessProbe: {exec: {command: [sh, -c, "echo db down; exit 1"]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 2}`),
		newManifest("crash", `command: [sh, -c, "echo cannot open the database; exit 3"]`),
		newManifest("leaves", `command: [sleep, "1000"]`),
	)
	config.MaxPods = 10
	run(t, config, func(n *nodeagent.NodeAgent) {
		unready := waitForCode(t, n, "unready", explain.WhyNotReady, explain.CodeReadinessFailing)
		if unready.OK || !strings.Contains(unready.Headline, "unready-n1") {
			t.Errorf("got %+v, want a headline with the pod", unready)
		}
		facts, _ := n.Inspector.Facts(t.Context(), podName("unready"))
		if p := facts.Probes[0]; p.Last.OK || p.Last.Message != "db down\n" || !p.StreakFailed || p.Target != "exec sh -c echo db down; exit 1" {
			t.Errorf("got %+v, want the answer of the command", p)
		}
		crash := waitForCode(t, n, "crash", explain.WhyNotReady, explain.CodeCrashLoop)
		if crash.Next.At.IsZero() || crash.Next.By != explain.ByHerald {
			t.Errorf("got next step %+v, want a start by herald", crash.Next)
		}
		eventually(t, "last lines as evidence", func() bool {
			verdict, _ := n.Inspector.Explain(t.Context(), podName("crash"), explain.WhyNotReady)
			return slices.ContainsFunc(verdict.Evidence, func(line explain.Line) bool { return line.Text == "cannot open the database" })
		})

		waitForCode(t, n, "leaves", explain.WhatIsWrong, explain.CodeReady)
		if _, found := n.Inspector.Pod(t.Context(), podName("leaves")); !found {
			t.Error("got no view of a running pod")
		}
		if err := os.Remove(filepath.Join(config.StaticPodPath, "c.yaml")); err != nil {
			t.Fatal(err)
		}
		waitForCode(t, n, "leaves", explain.WhatIsWrong, explain.CodeLeft)
		if _, found := n.Inspector.Explain(t.Context(), podName("never"), explain.WhatIsWrong); found {
			t.Error("got a verdict about a pod that never existed")
		}
		node := n.Inspector.Node(t.Context())
		if node.Pods.Total != 2 || node.Pods.NotWell == 0 || len(node.Sources) != 1 || node.Sources[0].Pods != 2 || node.Agent.RSSBytes == 0 {
			t.Errorf("got %+v, want two pods of one source", node)
		}
		if latencies := node.Agent.Latencies; latencies.RuntimeP99Ms == nil || latencies.RelistP99Ms == nil || latencies.OldestUnsentMs != nil {
			t.Errorf("got latencies %+v, want those of the runtime and none of an API server", latencies)
		}
		if node.History.Oldest == nil || node.History.Problem != "" {
			t.Errorf("got history %+v, want its oldest record", node.History)
		}
		if node.Load == nil || node.Load.Saturation == nil || node.Load.Memory.Use == nil || len(node.Load.FileSystems) == 0 {
			t.Errorf("got load %+v, want a measured one", node.Load)
		}
		removeManifests(t, n, config)
	})
}

func TestInspector_SlowStop(t *testing.T) {
	slow := strings.Replace(newManifest("slow", `command: [sh, -c, "trap '' TERM; echo ready; while true; do sleep 1; done"]`),
		"PeriodSeconds: 2", "PeriodSeconds: 30", 1)
	config := newConfig(t, slow)
	config.MaxPods = 10
	run(t, config, func(n *nodeagent.NodeAgent) {
		waitForCode(t, n, "slow", explain.WhatIsWrong, explain.CodeReady)
		removed := time.Now()
		if err := os.Remove(filepath.Join(config.StaticPodPath, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		verdict := waitForCode(t, n, "slow", explain.WhyNotDeleted, explain.CodeStopping)
		if at := verdict.Next.At; at.Before(removed.Add(30*time.Second)) || at.After(time.Now().Add(30*time.Second)) {
			t.Errorf("got %+v, want a kill 30s after the removal at %v", verdict.Next, removed)
		}
		eventually(t, "the pod to be gone", func() bool { return len(n.Agent.LocalPods()) == 0 })
		if now := time.Now(); now.Before(verdict.Next.At) {
			t.Errorf("got the end at %v, before the kill at %v", now, verdict.Next.At)
		}
	})
}

// TestInspector_Restart restarts a process that handles SIGTERM: its exit code is the answer, and the history names the user.
func TestInspector_Restart(t *testing.T) {
	config := newConfig(t,
		newManifest("web", `command: [sh, -c, "trap 'exit 7' TERM; while true; do sleep 0.05; done"]`,
			`readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 30}`),
		strings.Replace(newManifest("once", `command: [sleep, "1000"]`), "spec:", "spec:\n  restartPolicy: Never", 1),
	)
	config.MaxPods = 10
	run(t, config, func(n *nodeagent.NodeAgent) {
		waitForCode(t, n, "web", explain.WhatIsWrong, explain.CodeReady)
		waitForCode(t, n, "once", explain.WhatIsWrong, explain.CodeReady)
		restarted, err := n.Inspector.Restart(t.Context(), podName("web"), "", "root: new cert")
		if err != nil || restarted.ExitCode != 7 && restarted.ExitCode != 143 || restarted.Container != "main" || restarted.ContainerID == "" {
			t.Fatalf("got %+v, %v; want the exit of the process", restarted, err)
		}
		eventually(t, "the next instance to be ready", func() bool {
			pod, found := n.Inspector.Pod(t.Context(), podName("web"))
			return found && pod.IsReady() && pod.Local.Status.ContainerStatuses[0].RestartCount == 1
		})
		facts, _ := n.Inspector.Facts(t.Context(), podName("web"))
		if got := facts.Recent["main"]; got.Restarts != 1 || got.StoppedBy != "User" {
			t.Errorf("got %+v, want one restart by a user", got)
		}
		eventually(t, "record of the stop", func() bool {
			page, err := n.History.Query(t.Context(), history.Query{Namespace: "default", Name: "web-n1", Kinds: []history.Kind{history.KindPod}})
			return err == nil && slices.ContainsFunc(page.Records, func(record history.Record) bool {
				return record.Cause == transition.CauseUser && slices.ContainsFunc(record.Changes, func(change transition.Change) bool {
					return strings.Contains(change.Message, "root: new cert")
				})
			})
		})
		if _, err := n.Inspector.Restart(t.Context(), podName("once"), "main", ""); !errors.Is(err, worker.ErrNotRestartable) {
			t.Errorf("got %v, want a refusal: the container would not start again", err)
		}
		checks, err := n.Inspector.CheckProbe(t.Context(), podName("web"), "", explain.Readiness)
		if err != nil || len(checks) != 1 || !checks[0].Answer.OK || checks[0].Target != "exec true" {
			t.Errorf("got %+v, %v; want a successful check", checks, err)
		}
		removeManifests(t, n, config)
	})
}
