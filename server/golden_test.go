package server_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

var goldenNow = time.Date(2026, 11, 15, 14, 1, 3, 344_000_000, time.UTC)

// goldenFacts returns the facts of a static pod whose container exits again and again, while the API server does not answer.
func goldenFacts() explain.Facts {
	at := func(offset time.Duration) time.Time { return goldenNow.Add(offset) }
	pod := heraldtest.NewPod("cart-n1", heraldtest.Static(podid.File), heraldtest.OnNode("n1"), heraldtest.WithContainers(
		v1.Container{Name: "web", Image: "example.test/web:1"},
	))
	pod.Namespace, pod.UID, pod.Labels = "shop", "0b1e", map[string]string{"app": "cart"}
	pod.CreationTimestamp = metav1.NewTime(at(-61 * time.Minute))
	ended := &v1.ContainerStateTerminated{
		ExitCode: 3, Reason: "Error", StartedAt: metav1.NewTime(at(-time.Second)), FinishedAt: metav1.NewTime(goldenNow), ContainerID: "containerd://14",
	}
	pod.Status = v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.0.0.7",
		Conditions: []v1.PodCondition{{
			Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: metav1.NewTime(goldenNow),
		}},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "web", RestartCount: 14, Image: "example.test/web:1", ContainerID: "containerd://14",
			State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s"}},
			LastTerminationState: v1.ContainerState{Terminated: ended},
		}},
	}
	return explain.Facts{
		Now: goldenNow, Name: podid.FullNameOf(pod), Pod: pod, Source: explain.Source{Name: podid.File},
		Sync: explain.Sync{
			State: explain.SyncWaiting, Version: 913, At: goldenNow, SyncedVersion: 911, SyncedAt: at(-161 * time.Second),
			Synced: &v1.PodStatus{Phase: v1.PodRunning}, ResourceVersion: "88121", Took: 38 * time.Millisecond, Behind: 2,
			Since: at(-161 * time.Second), Reason: "connection refused", Failures: 9, NextTry: at(168 * time.Second),
		},
		Worker: explain.Worker{
			Known: true, Stage: plan.Syncing, Trouble: errors.New("web: CrashLoopBackOff"), Failures: 1, RetryAt: at(5 * time.Minute),
			Starts:   map[string]explain.Start{"web": {Reason: "CrashLoopBackOff", At: at(5 * time.Minute), Failures: 14, Delay: 5 * time.Minute}},
			Stopping: []explain.Stopping{{Container: "web", Reason: plan.StopLivenessProbe, Since: goldenNow, KillAt: at(30 * time.Second)}},
		},
		Probes: []explain.Probe{{
			Container: "web", Kind: explain.Readiness, Target: "http-get :8080/ready", Result: explain.Failing, Streak: 4, StreakFailed: true,
			Threshold: 3, Last: explain.Answer{At: goldenNow, Took: 12 * time.Millisecond, Message: "HTTP 503"}, Next: at(6 * time.Second),
		}},
		LastLines: map[string][]string{"web": {"open /data: no such file or directory"}},
	}
}

func goldenNode() view.NodeView {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "77"}}
	node.Status.Allocatable = v1.ResourceList{v1.ResourcePods: resource.MustParse("110")}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "AgentReady"}}
	return view.NewNode(view.NodeFacts{
		Node: node, At: goldenNow, Synced: &v1.NodeStatus{}, SyncedAt: goldenNow, Lag: view.Lag{State: explain.SyncSynced},
		Lease: &view.Lease{RenewedAt: view.NewTime(goldenNow), DurationMs: 40_000}, Pods: []view.PodView{view.NewPod(goldenFacts())},
		Agent:   view.Agent{Version: "v0.4.0", StartedAt: view.NewTime(goldenNow), RSSBytes: 43 << 20, CPU: 0.009, Latencies: goldenLatencies()},
		Runtime: view.Runtime{Name: "containerd", Version: "1.6.20", RelistedAt: view.NewTime(goldenNow)}, Cluster: "https://10.0.0.1:6443",
		Sources: goldenSources(), History: view.History{Bytes: 31 << 20, Oldest: view.NewTime(goldenNow), LastSeq: 48211},
		Load: view.NewNodeLoad(goldenLoad(), goldenNow.Add(-4*time.Minute)),
	})
}

// goldenWindows has a maximum that is twice the mean.
func goldenWindows(mean float64) load.Windows {
	window := load.Window{Mean: load.Known(mean), Max: load.Known(2 * mean)}
	return load.Windows{OneMinute: window, FiveMinutes: window, FifteenMinutes: window}
}

// goldenLoad is the load of a node without pressure of the CPU, whose data file system does not grow.
func goldenLoad() load.Node {
	gib := func(n float64) load.Value { return load.Known(n * (1 << 30)) }
	return load.Node{
		Saturation: load.Saturation{Value: load.Known(.83337), Culprit: load.Memory}, Level: load.LevelBusy,
		CPU: goldenWindows(.31), IOWait: goldenWindows(0), Steal: goldenWindows(0), Memory: goldenWindows(.45), PIDs: goldenWindows(.01),
		Received: goldenWindows(1200), Sent: goldenWindows(800), Cores: load.Known(1.24), OOMKills: load.Known(2),
		Pressure:    load.Pressure{Memory: load.Known(.34), MemoryFull: load.Known(.1), IO: load.Known(0), IOFull: load.Known(0)},
		MemoryBytes: load.MemoryBytes{WorkingSet: gib(7), Available: gib(1), Total: gib(8)},
		FileSystems: []load.FileSystemLoad{
			{FileSystem: load.FileSystem{Name: "data", Capacity: gib(100), Used: gib(40), Available: gib(60)}, Use: load.Known(.4)},
			{
				FileSystem: load.FileSystem{Name: "images", Capacity: gib(10), Used: gib(9), Available: gib(1), ReadOnly: true},
				Use:        load.Known(.9), InodeUse: load.Known(.2), HoursToFull: load.Known(3.5),
			},
		},
	}
}

func goldenUsage() load.UsageLoad {
	return load.UsageLoad{CPU: goldenWindows(.25), Memory: goldenWindows(100 << 20), Throttled: goldenWindows(.1)}
}

// goldenPodLoad is the load of a pod with a limit of memory.
func goldenPodLoad(pod *v1.Pod) *view.PodLoad {
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("200Mi")}
	return view.NewPodLoad(load.Pod{
		UsageLoad: goldenUsage(), Received: load.Known(1200), Sent: load.Known(0), PIDs: load.Known(7),
		Containers: []load.Container{{Name: "web", UsageLoad: goldenUsage(), WritableLayer: load.Known(4096)}},
	}, pod)
}

// goldenPoints has three points of a pod, of which the second is not known.
func goldenPoints() load.Points {
	values := func(first, last float64) []load.Value { return []load.Value{load.Known(first), {}, load.Known(last)} }
	return load.Points{
		Start: goldenNow.Truncate(5 * time.Minute), Step: 5 * time.Minute,
		Values: [][]load.Value{values(.25, 0), values(.5, 0), values(100<<20, 90<<20), values(110<<20, 90<<20)},
	}
}

// goldenLatencies are those of an agent that has not relisted yet.
func goldenLatencies() view.Latencies {
	return view.Latencies{
		StatusLagP99Ms: view.NewLatency(51_700*time.Microsecond, true), OldestUnsentMs: new(int64(0)), APIP99Ms: new(int64(12)),
		RuntimeP99Ms: new(int64(5)), RelistP99Ms: view.NewLatency(0, false),
	}
}

func goldenSources() []view.Source {
	return []view.Source{{
		Name: "file", State: "error", Origin: "/etc/herald/manifests", Pods: 9, LastChange: view.NewTime(goldenNow),
		Problems: []view.Problem{{
			Pod: "shop/db", Message: "db.yaml:14: spec.containers[0].imag: unknown field", Since: view.NewTime(goldenNow), LastGood: view.NewTime(goldenNow),
		}},
		Ignored: []string{"web.yaml.bak: extension"},
	}}
}

// goldenVerdict does not depend on the texts of package explain.
func goldenVerdict() explain.Verdict {
	return explain.Verdict{
		Code: "CrashLoopBackOff", Headline: "cart-n1 is not Ready: web is not started", Summary: "web exits 3", Container: "web", Since: goldenNow,
		Chain:    []explain.Because{{Rule: "PH-12", Text: "web exited 3", Input: "restartCount: 14", Since: goldenNow}},
		Next:     explain.Step{What: "start", At: goldenNow.Add(5 * time.Minute), By: explain.ByHerald},
		Changes:  []string{"an edit of the container starts it at once"},
		Evidence: []explain.Line{{Container: "web", Text: "open /data: no such file or directory"}},
	}
}

// goldenObjects returns one object of each kind.
func goldenObjects(t *testing.T) map[string]any {
	t.Helper()
	facts := goldenFacts()
	pod := view.NewPod(facts)
	pod.Load = goldenPodLoad(facts.Pod)
	pod.Why = view.Why{
		Code: "CrashLoopBackOff", Class: explain.Problem, Text: "web exits 3 after 1s; next start in 5m", Since: view.NewTime(goldenNow),
	}
	encoded, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	record := history.Record{
		Seq: 48211, Time: goldenNow, UptimeMs: 81_123_344, Run: "7f3a", Kind: history.KindPod,
		PodRef: history.PodRef{Namespace: "shop", Name: "cart-n1", UID: "0b1e"},
		Transition: history.Transition{
			Prev: 48209, Version: 913, Via: transition.ViaWorker, Cause: transition.CauseRuntime, Before: "Running 1/1 (13 restarts)",
			After: pod.Local.Summary, Changes: []transition.Change{{
				Container: "web", Field: transition.FieldState, From: "running", To: "terminated", Reason: "Error",
				Exit: &transition.Exit{Code: 3, RanMs: 1226, Attempt: 13},
			}},
		},
		SyncedMs: new(int64(41)),
	}
	return map[string]any{
		"PodView":  pod,
		"NodeView": goldenNode(),
		"Explanation": view.Explanation{
			APIVersion: view.APIVersion, Kind: "Explanation", Metadata: pod.Metadata, Question: explain.WhyNotReady,
			Verdict: goldenVerdict(),
		},
		"LoadHistory": view.NewPodLoadHistory(goldenPoints(), pod.Metadata),
		"Loads":       view.NewLoads(goldenNode().Load, []view.PodView{pod}),
		"SourceList":  view.SourceList{APIVersion: view.APIVersion, Kind: "SourceList", Items: goldenSources(), RuleFiles: goldenRules().Files},
		"HistoryList": server.HistoryList{APIVersion: view.APIVersion, Kind: "HistoryList", Continue: "48211", Items: []history.Record{record}},
		"WatchEvent":  view.WatchEvent{ID: 48211, Topic: "pods", Type: view.Modified, Object: encoded},
		"AlertList":   view.AlertList{APIVersion: view.APIVersion, Kind: "AlertList", ID: 48211, Items: goldenAlerts()},
		"RuleList":    goldenRules(),
		"SilenceList": view.SilenceList{APIVersion: view.APIVersion, Kind: "SilenceList", Items: []alert.Silence{goldenSilence(t)}},
		"ActionList":  goldenActions(),
		"Restart": view.Restart{
			APIVersion: view.APIVersion, Kind: "Restart", Namespace: "shop", Pod: "cart-n1", Container: "web", ContainerID: "containerd://14", TookMs: 400,
		},
	}
}
