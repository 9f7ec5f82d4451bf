package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/transition"
)

func event(reason, message string) *v1.Event {
	return &v1.Event{
		Type: v1.EventTypeWarning, Reason: reason, Message: message,
		InvolvedObject: v1.ObjectReference{
			Kind: "Pod", Namespace: "default", Name: "web", UID: "web", FieldPath: "spec.containers{main}",
		},
	}
}

func TestLog_Events(t *testing.T) {
	n, disk := newTestNode(t, nil)
	for range 14 {
		n.log.EventOccurred(event("BackOff", "Back-off restarting failed container"))
	}
	n.log.EventOccurred(&v1.Event{
		Type: "Normal", Reason: "NodeReady", InvolvedObject: v1.ObjectReference{Kind: "Node", Name: "n1"},
	})
	n.step(0)
	want := []history.Event{
		{Type: "Warning", Reason: "BackOff", Message: "Back-off restarting failed container", Count: 1, Container: "main"},
		{Type: "Normal", Reason: "NodeReady", Count: 1, Object: "Node/n1"},
	}
	check := func(records []history.Record) {
		t.Helper()
		if len(records) != len(want) {
			t.Fatalf("got %d event records, want %d: %+v", len(records), len(want), records)
		}
		for i, record := range records {
			if *record.Event != want[i] {
				t.Errorf("got event %+v, want %+v", *record.Event, want[i])
			}
		}
	}
	check(ofKind(all(t, n.log), history.KindEvent))
	n.step(2 * time.Minute)
	repeats := want[0]
	repeats.Count = 13
	want = append(want, repeats)
	check(ofKind(all(t, n.log), history.KindEvent))
	check(ofKind(all(t, openOn(t, disk, nil)), history.KindEvent))
	page, err := n.log.Query(t.Context(), history.Query{Namespace: "default", Name: "web"})
	if err != nil || len(page.Records) != 2 {
		t.Errorf("got %+v and error %v, want the two records of the pod", page.Records, err)
	}
	page, err = n.log.Query(t.Context(), history.Query{Namespace: "other", Kinds: []history.Kind{history.KindEvent}})
	if err != nil || len(page.Records) != 1 || page.Records[0].Event.Object != "Node/n1" {
		t.Errorf("got %+v and error %v, want the event of the node only", page.Records, err)
	}
}

// TestLog_EventFlood checks that an object with ever new messages has a bounded number of records, and that all are counted.
func TestLog_EventFlood(t *testing.T) {
	n, _ := newTestNode(t, nil)
	const events = 1000
	for i := range events {
		n.log.EventOccurred(event("Failed", fmt.Sprint("attempt ", i)))
	}
	n.step(0)
	n.step(2 * time.Minute)
	records := ofKind(all(t, n.log), history.KindEvent)
	total := 0
	for _, record := range records {
		total += record.Event.Count
	}
	if total != events || len(records) > 100 {
		t.Errorf("got %d events in %d records, want %d in at most 100", total, len(records), events)
	}
}

func TestLog_SourceProblem(t *testing.T) {
	n, _ := newTestNode(t, nil)
	problem := history.SourceProblem{Source: "file", Location: "db.yaml", Line: 14, Field: "spec.imag", Message: "unknown field"}
	n.log.SourceChanged(problem)
	resolved := problem
	resolved.Resolved = true
	n.log.SourceChanged(resolved)
	n.step(0)
	records := ofKind(all(t, n.log), history.KindSource)
	if len(records) != 2 || *records[0].Source != problem || *records[1].Source != resolved {
		t.Errorf("got %+v, want the problem and its end", records)
	}
}

// nodeFields returns the fields of the node records, with their new values.
func nodeFields(records []history.Record) (fields []string) {
	for _, record := range ofKind(records, history.KindNode) {
		for _, change := range record.Changes {
			fields = append(fields, string(change.Field)+" "+change.To)
		}
	}
	return fields
}

func TestLog_Lease(t *testing.T) {
	n, _ := newTestNode(t, nil)
	n.log.LeaseChanged(false, "connection refused")
	n.step(0)
	n.log.LeaseChanged(true, "")
	n.step(0)
	if got := fmt.Sprint(nodeFields(all(t, n.log))); got != "[lease expired lease renewed]" {
		t.Errorf("got %s, want that the lease expired and was renewed", got)
	}
}

func TestLog_LoadLevel(t *testing.T) {
	n, _ := newTestNode(t, nil)
	n.log.LoadLevelChanged("normal", "busy", "memory", .8333)
	n.log.LoadLevelChanged("busy", "idle", "", 0)
	n.step(0)
	var got []string
	for _, record := range ofKind(all(t, n.log), history.KindNode) {
		for _, change := range record.Changes {
			got = append(got, fmt.Sprintf("%s %s %s %q %q %s", change.Field, change.From, change.To, change.Reason, change.Message, record.Cause))
		}
	}
	if want := []string{`load normal busy "memory" "0.83" node`, `load busy idle "" "" node`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLog_Alerts(t *testing.T) {
	n, _ := newTestNode(t, nil)
	labels := alert.Labels{"alertname": "PodFailed", "namespace": "shop", "pod": "web"}
	fired := alert.Alert{
		Labels: labels, State: alert.Firing, StartsAt: n.now, Episode: 2, Annotations: map[string]string{"summary": strings.Repeat("x", 300)},
	}
	n.log.AlertChanged(&fired, n.now)
	n.step(time.Second)
	fired.State, fired.EndsAt, fired.Reason = alert.Resolved, n.now, "object gone"
	n.log.AlertChanged(&fired, n.now)
	n.log.AlertChanged(&alert.Alert{Labels: alert.Labels{"alertname": "NodeRuntimeDown"}, State: alert.Recovering}, n.now)
	n.step(time.Second)
	page, err := n.log.Query(t.Context(), history.Query{Namespace: "shop", Name: "web", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, record := range page.Records {
		got = append(got, fmt.Sprintf("%s %s %d %s %d", record.Alert.State, record.Alert.Labels.Key(), len(record.Alert.Summary),
			record.Alert.Reason, record.Alert.Episode))
	}
	key := labels.Key()
	if want := []string{"resolved " + key + " 256 object gone 2", "firing " + key + " 256  2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if records := ofKind(all(t, n.log), history.KindAlert); len(records) != 3 {
		t.Errorf("got %d records of alerts, want 3", len(records))
	}
}

func TestLog_Actions(t *testing.T) {
	n, _ := newTestNode(t, nil)
	record := history.ActionRecord{ID: 7, Type: "restart-container", Rule: "Stuck", Alert: "{}", Container: "web", Decision: "do", Outcome: "running"}
	n.log.ActionRecorded("shop", "web", record, n.now)
	n.step(time.Second)
	record.Outcome, record.Message = "done", strings.Repeat("x", 300)
	n.log.ActionRecorded("shop", "web", record, n.now)
	n.log.ActionRecorded("", "", history.ActionRecord{Type: "cordon", Decision: "dry-run"}, n.now)
	n.step(time.Second)
	page, err := n.log.Query(t.Context(), history.Query{Namespace: "shop", Name: "web", Limit: 10})
	if err != nil || len(page.Records) != 2 {
		t.Fatalf("got %+v, %v, want two records of the pod", page.Records, err)
	}
	if got := page.Records[0].Action; got.Outcome != "done" || len(got.Message) != transition.MaxMessage || got.ID != 7 {
		t.Errorf("got %+v, want the outcome", got)
	}
	if records := ofKind(all(t, n.log), history.KindAction); len(records) != 3 {
		t.Errorf("got %d records of actions, want 3", len(records))
	}
}

func TestLog_Reboot(t *testing.T) {
	var noticed []string
	onChange := func(change transition.Change, _ time.Time) {
		noticed = append(noticed, string(change.Field)+" "+change.To)
	}
	n, disk := newTestNode(t, func(c *history.Config) { c.BootID = "one" })
	for _, boot := range []string{"one", "two", "two"} {
		if err := n.log.Stop(n.now); err != nil {
			t.Fatal(err)
		}
		n.restart(openOn(t, disk, func(c *history.Config) { c.BootID, c.OnNodeChange = boot, onChange }))
	}
	if got := fmt.Sprint(nodeFields(all(t, n.log))); got != "[bootID two]" {
		t.Errorf("got %s, want one reboot", got)
	}
	if !slices.Equal(noticed, []string{"bootID two"}) {
		t.Errorf("got calls %q, want one", noticed)
	}
}

// TestLog_KnownPods checks that a pod that left while no agent ran has a last record, and that others do not.
func TestLog_KnownPods(t *testing.T) {
	n, disk := newTestNode(t, nil)
	n.set("gone", status(v1.PodRunning, running(), 1))
	n.set("stays", status(v1.PodRunning, running(), 2))
	n.step(2 * time.Second)
	n.restart(openOn(t, disk, nil))
	for range 2 {
		n.log.KnownPods(map[types.UID]bool{"stays": true})
		n.step(2 * time.Second)
	}
	n.log.KnownPods(nil) // only the first call counts
	n.step(2 * time.Second)
	records := all(t, n.log)
	checkChains(t, records)
	var removed []history.Record
	for _, record := range ofKind(records, history.KindPod) {
		if isRemoval(record) {
			removed = append(removed, record)
		}
	}
	if len(removed) != 1 || removed[0].UID != "gone" || removed[0].After != "Running 1/1 (1 restart)" ||
		removed[0].Cause != transition.CauseRestart {
		t.Errorf("got removals %+v, want that of gone with its last summary", removed)
	}
}
