// Package alertmanager_test delivers alerts to real Alertmanagers.
package alertmanager_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/notify"
)

// engine stands for the part of the agent that decides what fires.
type engine struct {
	*agent
	firing map[string]alert.Alert
}

func (e *engine) fire(labels alert.Labels, annotations map[string]string) alert.Alert {
	now := time.Now()
	labels = maps.Clone(labels)
	labels["job"], labels["node"] = "herald", "n1"
	a := alert.Alert{
		Labels: labels, Annotations: annotations, State: alert.Firing, ActiveAt: now, StartsAt: now, Episode: 1,
	}
	e.firing[a.Key()] = a
	e.Update([]alert.Alert{a})
	return a
}

func (e *engine) resolve(key string) {
	a := e.firing[key]
	a.State, a.EndsAt = alert.Resolved, time.Now()
	delete(e.firing, key)
	e.Update([]alert.Alert{a})
}

// waitForSameSet waits until the replica shows what fires, and nothing else (A9).
func (e *engine) waitForSameSet(t *testing.T, what string, r *replica) {
	t.Helper()
	eventually(t, what, func() error {
		shown, err := r.alerts()
		if err != nil {
			return err
		}
		for key, a := range e.firing {
			got, ok := shown[key]
			want := shownAlert{
				Labels: a.Labels, Annotations: a.Annotations, StartsAt: a.StartsAt.UTC().Truncate(time.Millisecond), EndsAt: got.EndsAt,
				GeneratorURL: externalURL, Fingerprint: got.Fingerprint,
			}
			got.StartsAt = got.StartsAt.UTC()
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				return fmt.Errorf("%s: shown: %v, difference: %s", key, ok, diff)
			}
			if left := time.Until(got.EndsAt); left > 4*time.Minute {
				return fmt.Errorf("%s ends in %s", key, left)
			}
		}
		if len(shown) != len(e.firing) {
			return fmt.Errorf("%d alerts are shown, %d fire", len(shown), len(e.firing))
		}
		return nil
	})
}

// keys returns the keys of some firing alerts.
func (e *engine) keys(count int) []string { return slices.Sorted(maps.Keys(e.firing))[:count] }

func TestA9_RealAlertmanagerShowsTheSameSet(t *testing.T) {
	forwarded := newRecorder(t)
	first, second := startReplica(t, forwarded.URL), startReplica(t, forwarded.URL)
	e := &engine{firing: map[string]alert.Alert{}, agent: startAgent(t, notify.Config{
		Alertmanagers: []notify.Alertmanager{{HTTP: notify.HTTP{URL: first.url()}}, {HTTP: notify.HTTP{URL: second.url() + "/"}}},
	})}
	for i := range 150 {
		e.fire(alert.Labels{"alertname": fmt.Sprintf("Rule%d", i%7), "namespace": "shop", "pod": fmt.Sprintf("web-%d", i)},
			map[string]string{"summary": "it fails", "last_log": "line 1\nline 2\t\x1b[31m"})
	}
	e.fire(alert.Labels{"alertname": "Quoted", "pod": `a"b\c`, "team": "Grüße 🎉"}, map[string]string{"summary": strings.Repeat("x", 4096)})
	for _, r := range []*replica{first, second} {
		e.waitForSameSet(t, "all alerts are shown", r)
	}

	first.kill()
	for _, key := range e.keys(40) {
		e.resolve(key)
	}
	e.fire(alert.Labels{"alertname": "WhileDown", "pod": "web"}, map[string]string{"summary": "new"})
	e.waitForSameSet(t, "the other replica goes on", second)

	e.stop() // the agent restarts, too; afterwards the replica has lost everything, and what was acknowledged is told again
	e.start()
	first.start()
	e.Reconcile(slices.Collect(maps.Values(e.firing)))
	e.waitForSameSet(t, "a replica that was killed is told again", first)
	e.waitForSameSet(t, "nothing changes for the other", second)

	second.kill()
	second.start() // nobody but the refresh tells it
	e.waitForSameSet(t, "a replica that was restarted is refreshed", second)

	for _, key := range e.keys(len(e.firing)) {
		e.resolve(key)
	}
	for _, r := range []*replica{first, second} {
		e.waitForSameSet(t, "all is resolved", r)
		checkAllValid(t, r)
	}
	forwarded.find(t, "Alertmanager tells that all of a group is resolved", func(message map[string]any) bool {
		return message["status"] == "resolved"
	})
}

// checkAllValid checks that Alertmanager has accepted every alert of every request.
func checkAllValid(t *testing.T, r *replica) {
	t.Helper()
	metrics, err := r.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	isReceived := false
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "alertmanager_alerts_invalid_total") && !strings.HasSuffix(line, " 0\n") {
			t.Error(line)
		}
		isReceived = isReceived || strings.HasPrefix(line, "alertmanager_alerts_received_total") && !strings.HasSuffix(line, " 0\n")
	}
	if !isReceived {
		t.Error("no alert was received")
	}
}

func TestAmtool(t *testing.T) {
	r := startReplica(t, "http://127.0.0.1:9/")
	amtool(t, "check-config", r.configFile())
	e := &engine{firing: map[string]alert.Alert{}, agent: startAgent(t, notify.Config{
		Alertmanagers: []notify.Alertmanager{{HTTP: notify.HTTP{URL: r.url()}}},
	})}
	e.fire(alert.Labels{"alertname": "PodFailed", "pod": "web"}, map[string]string{"summary": "it fails"})
	e.waitForSameSet(t, "the alert is shown", r)
	var shown []shownAlert
	if err := json.Unmarshal([]byte(amtool(t, "--alertmanager.url="+r.url(), "alert", "query", "pod=web", "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown) != 1 || shown[0].Annotations["summary"] != "it fails" {
		t.Errorf("got %+v", shown)
	}
}

// newKeys are keys that later versions of Alertmanager have added to its messages.
var newKeys = []string{"notification_reason", "routeLabels"}

// A receiver cannot tell our messages from Alertmanager's: for the same alerts, the JSON is equal.
func TestWebhook_EqualsAlertmanagers(t *testing.T) {
	theirs, ours := newRecorder(t), newRecorder(t)
	r := startReplica(t, theirs.URL)
	e := &engine{firing: map[string]alert.Alert{}, agent: startAgent(t, notify.Config{
		Alertmanagers: []notify.Alertmanager{{HTTP: notify.HTTP{URL: r.url()}}},
		Webhooks:      []notify.Webhook{{Name: "hook", HTTP: notify.HTTP{URL: ours.URL}}},
	})}
	labels := alert.Labels{"alertname": "PodFailed", "namespace": "shop", "pod": `web"0`, "severity": "warning", "team": "Grüße"}
	annotations := map[string]string{"summary": "it <fails> & \"more\"", "history_url": "http://n1.example/history?pod=web"}
	one := e.fire(labels, annotations)
	compareMessages(t, "one fires", theirs, ours, "firing")

	labels["pod"] = "web1"
	two := e.fire(labels, map[string]string{"summary": annotations["summary"], "explain": "why"})
	compareMessages(t, "two fire", theirs, ours, "firing firing")

	e.resolve(one.Key())
	compareMessages(t, "one of two is resolved", theirs, ours, "firing resolved")

	e.resolve(two.Key())
	compareMessages(t, "both are resolved", theirs, ours, "resolved")
}

// compareMessages compares the first messages of both with alerts of these statuses.
func compareMessages(t *testing.T, what string, theirs, ours *recorder, statuses string) {
	t.Helper()
	matches := func(message map[string]any) bool {
		var all []string
		for _, a := range message["alerts"].([]any) {
			all = append(all, fmt.Sprint(a.(map[string]any)["status"]))
		}
		slices.Sort(all)
		return strings.Join(all, " ") == statuses
	}
	want, got := theirs.find(t, what+": Alertmanager's", matches), ours.find(t, what+": ours", matches)
	for _, key := range newKeys {
		delete(want, key)
	}
	for _, message := range []map[string]any{want, got} {
		slices.SortFunc(message["alerts"].([]any), func(a, b any) int { return strings.Compare(fingerprintOf(a), fingerprintOf(b)) })
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%s: (-theirs +ours)\n%s", what, cmp.Diff(want, got))
	}
}

func fingerprintOf(a any) string { return fmt.Sprint(a.(map[string]any)["fingerprint"]) }
