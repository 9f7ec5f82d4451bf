package nodeagent_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

// unreadyRule acts on a pod that has started and whose readiness probe fails.
const unreadyRule = `  - alert: Unready
    on: container
    expr: container.started && container.probe_failing
    actions:
    - {type: snapshot}
    - {type: probe}
    - {type: webhook, target: test}
    - {type: restart-container, mode: enforce, only_if: "container.name == 'main'"}
    - {type: restart-pod, mode: enforce, only_if: "container.name == 'other'"}
`

// findAction returns the newest action of a type.
func findAction(n *nodeagent.NodeAgent, kind remedy.Type) (action.Record, bool) {
	records := n.Actions.List(0)
	i := slices.IndexFunc(records, func(r action.Record) bool { return r.Type == kind })
	if i < 0 {
		return action.Record{}, false
	}
	return records[i], true
}

// TestActions runs the actions of a rule on a real pod. The restart waits: the agent was started less than two minutes ago.
func TestActions(t *testing.T) {
	webhook, folder := newReceiver(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.yaml"), []byte(rules(unreadyRule)), 0o600); err != nil {
		t.Fatal(err)
	}
	started := filepath.Join(folder, "started") // the log has its line then
	config := newConfig(t, newManifest("unready", `command: [sh, -c, "echo hello; touch `+started+`; exec sleep 1000"]`,
		`env: [{name: PASSWORD, value: geheim}]`,
		`startupProbe: {exec: {command: [test, -e, `+started+`]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 600}`,
		`readinessProbe: {exec: {command: [sh, -c, "echo db down; exit 1"]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}`))
	config.Alerting = nodeagent.AlertingConfig{RuleFiles: []string{folder}, Webhooks: webhook.config()}
	run(t, config, func(n *nodeagent.NodeAgent) {
		waitForCode(t, n, "unready", explain.WhyNotReady, explain.CodeReadinessFailing)
		for _, kind := range []remedy.Type{remedy.Snapshot, remedy.Probe, remedy.Webhook} {
			eventually(t, string(kind), func() bool {
				record, found := findAction(n, kind)
				return found && record.Outcome == remedy.Done
			})
		}
		probed, _ := findAction(n, remedy.Probe)
		if !strings.Contains(probed.Message, "main readiness failed") || !strings.Contains(probed.Message, "db down") {
			t.Errorf("got %q, want the answer of the probe", probed.Message)
		}
		eventually(t, "the refusal of restart-pod", func() bool {
			record, found := findAction(n, remedy.RestartPod)
			return found && record.Decision == remedy.Refuse && record.Reason == remedy.ReasonCondition
		})
		if record, found := findAction(n, remedy.RestartContainer); found {
			t.Errorf("got %+v, want no restart in the first two minutes of a run", record)
		}
		snapshot, _ := findAction(n, remedy.Snapshot)
		path, _, _ := strings.Cut(snapshot.Message, ",")
		files := readSnapshot(t, path)
		for name, want := range map[string]string{
			"logs/main.log": "hello", "pod.json": "unready-n1", "explain.json": "unready-n1", "history.jsonl": `"kind":"pod"`,
			"runtime/main.json": `"pid"`, "alert.json": "Unready",
		} {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s: got %q, want %q in it", name, files[name], want)
			}
		}
		isStatus := func(name string) bool {
			return strings.HasPrefix(name, "processes/main/") && strings.HasSuffix(name, "/status")
		}
		isFound := false
		for name, text := range files {
			isFound = isFound || isStatus(name) && strings.Contains(text, "State:")
			if strings.Contains(text, "geheim") {
				t.Errorf("got an environment variable in %s", name)
			}
		}
		if !isFound {
			t.Error("got no status of the process")
		}
		eventually(t, "records of the actions", func() bool {
			page, err := n.History.Query(t.Context(), history.Query{Namespace: "default", Name: "unready-n1", Kinds: []history.Kind{history.KindAction}})
			return err == nil && slices.ContainsFunc(page.Records, func(record history.Record) bool {
				return record.Action.Type == "snapshot" && record.Action.Outcome == "done" && record.Action.Rule == "Unready" && record.Action.Policy != ""
			})
		})
		eventually(t, "the delivery of the alert", func() bool {
			return slices.ContainsFunc(n.Alerts.Alerts(), func(a view.Alert) bool {
				return a.Labels["alertname"] == "Unready" && slices.ContainsFunc(a.Deliveries, func(d view.Delivery) bool {
					return d.Receiver == "webhook/test" && d.State == "delivered"
				})
			})
		})
		removeManifests(t, n, config)
	})
	run(t, config, func(n *nodeagent.NodeAgent) { // the ledger survives
		if record, found := findAction(n, remedy.Snapshot); !found || record.Outcome != remedy.Done {
			t.Errorf("got %+v, want the snapshot of the run before", record)
		}
	})
}

// TestActions_Restart restarts containers as an action does: the history says so.
func TestActions_Restart(t *testing.T) {
	config := newConfig(t, newManifest("web", `command: [sh, -c, "trap 'exit 7' TERM; while true; do sleep 0.05; done"]`))
	run(t, config, func(n *nodeagent.NodeAgent) {
		waitForCode(t, n, "web", explain.WhatIsWrong, explain.CodeReady)
		restarted, err := n.Inspector.RestartByAction(t.Context(), podName("web"), "main", "alert Stuck")
		if err != nil || restarted.ContainerID == "" {
			t.Fatalf("got %+v, %v, want the end of the process", restarted, err)
		}
		eventually(t, "record of the stop", func() bool {
			page, err := n.History.Query(t.Context(), history.Query{Namespace: "default", Name: "web-n1", Kinds: []history.Kind{history.KindPod}})
			return err == nil && slices.ContainsFunc(page.Records, func(record history.Record) bool {
				return record.Cause == transition.CauseAction && slices.ContainsFunc(record.Changes, func(change transition.Change) bool {
					return change.Exit != nil && change.Exit.StoppedBy == transition.StopAction && strings.Contains(change.Message, "alert Stuck")
				})
			})
		})
		eventually(t, "the next instance", func() bool {
			pod, found := n.Inspector.Pod(t.Context(), podName("web"))
			return found && pod.IsReady() && pod.Local.Status.ContainerStatuses[0].RestartCount == 1
		})
		removeManifests(t, n, config)
	})
}

func readSnapshot(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(io.LimitReader(reader, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}
