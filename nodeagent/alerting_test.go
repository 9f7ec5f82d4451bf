package nodeagent_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/notify"
)

// receiver is a webhook that keeps what it is told.
type receiver struct {
	*httptest.Server

	mu   sync.Mutex // guards told
	told []toldAlert
}

type toldAlert struct {
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var message struct {
			Alerts []toldAlert `json:"alerts"`
		}
		if err := json.NewDecoder(request.Body).Decode(&message); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, message.Alerts...)
	}))
	t.Cleanup(r.Close)
	return r
}

// of returns what was told about an alert.
func (r *receiver) of(name string) []toldAlert {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []toldAlert
	for _, told := range r.told {
		if told.Labels[alert.LabelName] == name {
			found = append(found, told)
		}
	}
	return found
}

func (r *receiver) config() []notify.Webhook {
	return []notify.Webhook{{Name: "test", HTTP: notify.HTTP{URL: r.URL}}}
}

const crashingPod = `apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: host
    command: [sh, -c, "echo cannot open the database; exit 3"]
`

func rules(text string) string {
	return "apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: test\n  rules:\n" + text
}

// restartRule fires at the second restart, which takes ten seconds less than PodCrashLooping.
const restartRule = `  - alert: Restarted
    on: container
    expr: container.restarted('24h') >= 1
    labels: {severity: warning}
    annotations: {summary: "{{ $labels.pod }} restarted"}
  - alert: Ended
    on: container
    expr: container.ended('Error', '24h') >= 1 && container.state != 'running'
    keep_firing_for: 1h
`

func findAlert(n *nodeagent.NodeAgent, name string) (alert.Alert, bool) {
	for _, a := range n.Alerts.Alerts() {
		if a.Labels[alert.LabelName] == name {
			return a.Alert, true
		}
	}
	return alert.Alert{}, false
}

func isFiring(n *nodeagent.NodeAgent, name string) bool {
	a, found := findAlert(n, name)
	return found && a.IsFiring()
}

// TestAlerting_CrashLoop runs a pod that ends at once, over a restart of the agent, until it is removed.
func TestAlerting_CrashLoop(t *testing.T) {
	webhook, folder := newReceiver(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.yaml"), []byte(rules(restartRule)), 0o600); err != nil {
		t.Fatal(err)
	}
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t, crashingPod)
	config.API = server.Config()
	config.Alerting = nodeagent.AlertingConfig{RuleFiles: []string{folder}, Webhooks: webhook.config()}
	var startsAt time.Time
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "alerts", func() bool { return isFiring(n, "Restarted") && isFiring(n, "Ended") })
		eventually(t, "annotations", func() bool {
			fired, _ := findAlert(n, "Restarted")
			return fired.Annotations["explain"] != ""
		})
		fired, _ := findAlert(n, "Restarted")
		startsAt = fired.StartsAt.Round(0)
		if fired.Labels["pod"] != "crash-n1" || fired.Labels["container"] != "main" || fired.Labels["node"] != "n1" ||
			fired.Annotations["summary"] != "crash-n1 restarted" {
			t.Errorf("got %+v", fired)
		}
		eventually(t, "the webhook", func() bool { return len(webhook.of("Restarted")) > 0 && len(webhook.of("Ended")) > 0 })
		if told := webhook.of("Restarted")[0]; told.Status != "firing" || !told.StartsAt.Equal(startsAt) {
			t.Errorf("got %+v, want start %v", told, startsAt)
		}
		eventually(t, "an event", func() bool {
			return slices.ContainsFunc(server.Events(), func(e *v1.Event) bool { return e.Reason == "Restarted" })
		})
		if got := n.Inspector.Node(t.Context()).Alerting; got == nil || got.Firing < 2 {
			t.Errorf("got alerting %+v in the view of the node", got)
		}
		if testing.Short() {
			return
		}
		eventually(t, "PodCrashLooping of the default rules", func() bool { return isFiring(n, "PodCrashLooping") })
		eventually(t, "its last lines", func() bool {
			looping, _ := findAlert(n, "PodCrashLooping")
			return strings.Contains(looping.Annotations["last_log"], "cannot open the database")
		})
	})
	run(t, config, func(n *nodeagent.NodeAgent) {
		again, found := findAlert(n, "Restarted")
		if !found || !again.IsFiring() || !again.StartsAt.Round(0).Equal(startsAt) {
			t.Fatalf("got %+v after a restart, want start %v", again, startsAt)
		}
		if err := os.Remove(filepath.Join(config.StaticPodPath, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the alert to be resolved", func() bool {
			resolved, _ := findAlert(n, "Restarted")
			return resolved.State == alert.Resolved && resolved.StartsAt.Round(0).Equal(startsAt)
		})
		eventually(t, "the webhook", func() bool {
			told := webhook.of("Restarted")
			return told[len(told)-1].Status == "resolved"
		})
		page, err := n.History.Query(t.Context(), history.Query{Kinds: []history.Kind{history.KindAlert}, Namespace: "default", Name: "crash-n1", Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		states := map[alert.State]int{}
		for _, record := range page.Records {
			if record.Alert.Labels[alert.LabelName] == "Restarted" {
				states[record.Alert.State]++
			}
		}
		if states[alert.Firing] != 1 || states[alert.Resolved] != 1 {
			t.Errorf("got records %v, want one of each", states)
		}
	})
}

const nodeRules = `  - alert: Alone
    on: node
    expr: "!node.api_reachable"
    condition: {type: APIServerLost, reason: Unreachable}
  - alert: CertificateEnds
    on: node
    expr: node.cert_days >= 0 && node.cert_days < 7
`

// TestAlerting_RuleFiles edits a rule file while the agent runs: a broken one keeps its last good version, also over a restart.
func TestAlerting_RuleFiles(t *testing.T) {
	folder := t.TempDir()
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "new"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(folder, "new"), filepath.Join(folder, "a.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	config := newConfig(t, crashingPod)
	config.Alerting = nodeagent.AlertingConfig{RuleFiles: []string{folder}, NoDefaults: true}
	state := func(n *nodeagent.NodeAgent) string {
		files := n.Alerts.Files()
		if len(files) != 1 {
			return ""
		}
		return files[0].State
	}
	run(t, config, func(n *nodeagent.NodeAgent) {
		write(rules(restartRule))
		eventually(t, "the alert of the new file", func() bool { return isFiring(n, "Restarted") && state(n) == "ok" })
		write(rules(strings.Replace(restartRule, "container.state", "container.stat", 1)))
		eventually(t, "the broken file", func() bool { return state(n) == "error" && n.Inspector.Node(t.Context()).Alerting.FilesBroken == 1 })
		if !isFiring(n, "Restarted") || !strings.Contains(n.Alerts.Files()[0].Problem, "a.yaml:") {
			t.Errorf("got %+v, want the last good rules and the place of the error", n.Alerts.Files())
		}
		eventually(t, "its record", func() bool {
			page, err := n.History.Query(t.Context(), history.Query{Kinds: []history.Kind{history.KindSource}, Limit: 10})
			return err == nil && slices.ContainsFunc(page.Records, func(r history.Record) bool { return r.Source.Source == "rules" })
		})
	})
	run(t, config, func(n *nodeagent.NodeAgent) {
		if state(n) != "error" || !isFiring(n, "Restarted") {
			t.Errorf("got %+v after a restart, want the last good rules", n.Alerts.Files())
		}
		write(rules(strings.Replace(restartRule, "alert: Restarted", "alert: Renamed", 1)))
		eventually(t, "the renamed rule", func() bool {
			removed, _ := findAlert(n, "Restarted")
			return isFiring(n, "Renamed") && removed.State == alert.Resolved && removed.Reason == "rule removed" && state(n) == "ok"
		})
		if err := os.Chmod(filepath.Join(folder, "a.yaml"), 0o666); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a file that others can write to be refused", func() bool {
			return state(n) == "error" && strings.Contains(n.Alerts.Files()[0].Problem, "world-writable")
		})
		if !isFiring(n, "Renamed") {
			t.Error("the rules of a refused file are gone")
		}
	})
}

// TestAlerting_Node loses the API server.
func TestAlerting_Node(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.yaml"), []byte(rules(nodeRules)), 0o600); err != nil {
		t.Fatal(err)
	}
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t)
	config.API, config.NodeStatusUpdateFrequency = server.Config(), time.Second
	config.Alerting = nodeagent.AlertingConfig{RuleFiles: []string{folder}, NoDefaults: true}
	condition := func() v1.ConditionStatus {
		for _, condition := range server.Node("n1").Status.Conditions {
			if condition.Type == "APIServerLost" {
				return condition.Status
			}
		}
		return ""
	}
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "the condition", func() bool { return condition() == v1.ConditionFalse })
		server.SetDown(true)
		eventually(t, "the alert", func() bool { return isFiring(n, "Alone") })
		server.SetDown(false)
		eventually(t, "its end", func() bool { return !isFiring(n, "Alone") && condition() == v1.ConditionFalse })
	})
	if err := os.Remove(filepath.Join(folder, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	run(t, config, func(*nodeagent.NodeAgent) {
		eventually(t, "the condition to be removed", func() bool { return condition() == "" })
	})
}
