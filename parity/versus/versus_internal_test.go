package versus

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/parity/internal/needs"
)

var update = flag.Bool("update", false, "write the table of testdata/result.json to docs/alerts.md")

func readResult(t *testing.T) *Result {
	t.Helper()
	data, err := os.ReadFile("testdata/result.json")
	if err != nil {
		t.Fatal(err)
	}
	result := &Result{}
	if err := json.Unmarshal(data, result); err != nil {
		t.Fatal(err)
	}
	return result
}

// TestDocument checks that docs/alerts.md has the last result.
func TestDocument(t *testing.T) {
	const file = "../../docs/alerts.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readResult(t).Insert(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("%s is not up to date: run `go test ./versus -update` (-want +got):\n%s", file, diff)
	}
}

// TestResult checks what the documentation says about Herald: it tells of everything but its own death, once, and resolves everything.
func TestResult(t *testing.T) {
	result := readResult(t)
	if len(result.Events) != len(eventNames) {
		t.Errorf("got %d events, want %d", len(result.Events), len(eventNames))
	}
	for i, e := range result.Events {
		if e.Name != eventNames[i] {
			t.Errorf("event %d: got %s, want %s", i, e.Name, eventNames[i])
		}
		o := e.Outcomes[Herald]
		isSilent := e.FalseAlarm || e.Name == "node-"+lost
		switch {
		case isSilent && o.Starts > 0:
			t.Errorf("%s: got %+v, want nothing", e.Name, o)
		case isSilent:
		case o.Starts != 1 || o.Wrong != 0:
			t.Errorf("%s: got %+v, want one start and no wrong resolve", e.Name, o)
		case o.Noticed == nil && e.Name != "source", o.Resolved == nil && !e.Continues:
			t.Errorf("%s: got %+v, want it told and resolved", e.Name, o)
		}
	}
}

// TestRules checks that both files of rules are valid and wait equally long.
func TestRules(t *testing.T) {
	file, err := rule.Parse(heraldRules, "herald.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]time.Duration{}
	for _, r := range file.Rules {
		ours[r.Name] = r.For
	}
	var theirs struct {
		Groups []struct {
			Rules []struct{ Alert, For string }
		}
	}
	if err := yaml.Unmarshal(prometheusRules, &theirs); err != nil {
		t.Fatal(err)
	}
	same := map[string]string{
		promOOM: heraldOOM, promCrashLooping: heraldLooping, promNotReady: heraldNotReady, promNodeNotReady: heraldNoServer,
	}
	for _, group := range theirs.Groups {
		for _, r := range group.Rules {
			waits, err := time.ParseDuration(r.For)
			if our, found := ours[same[r.Alert]]; err != nil || !found || our != waits {
				t.Errorf("%s waits %s, %s %s, %v", r.Alert, r.For, same[r.Alert], our, err)
			}
			delete(ours, same[r.Alert])
		}
	}
	if len(ours) > 0 {
		t.Errorf("only Herald has %v", ours)
	}
}

func TestRules_Promtool(t *testing.T) {
	needs.Prometheus(t)
	if output, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", "rules/prometheus.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

func TestOutcome(t *testing.T) {
	began := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	s := func(value Seconds) *Seconds { return &value }
	fires := func(seconds, since int) Message {
		return Message{At: at(seconds), Firing: true, StartsAt: at(since), EndsAt: at(seconds + 240)}
	}
	resolved := func(seconds int) Message { return Message{At: at(seconds), EndsAt: at(seconds)} }
	tests := map[string]struct {
		event    Event
		messages []Message
		want     Outcome
	}{
		"nothing":          {want: Outcome{}},
		"told and over":    {messages: []Message{fires(5, 5), fires(65, 5), resolved(103)}, want: Outcome{Noticed: s(5), Resolved: s(3), Starts: 1}},
		"resolved twice":   {messages: []Message{fires(5, 5), resolved(103), resolved(163)}, want: Outcome{Noticed: s(5), Resolved: s(3), Starts: 1}},
		"resolved early":   {messages: []Message{fires(5, 5), resolved(9), fires(50, 50), resolved(101)}, want: Outcome{Noticed: s(5), Resolved: s(1), Wrong: 1, Starts: 2}},
		"fires again":      {messages: []Message{fires(5, 5), resolved(101), fires(110, 110)}, want: Outcome{Noticed: s(5), Expires: s(250), Starts: 2}},
		"never resolved":   {messages: []Message{fires(5, 5)}, want: Outcome{Noticed: s(5), Expires: s(145), Starts: 1}},
		"webhook, forever": {messages: []Message{{At: at(5), Firing: true, StartsAt: at(5)}}, want: Outcome{Noticed: s(5), Starts: 1}},
		"fired before": {
			event: Event{subject: subject{carried: true}}, messages: []Message{fires(-10, -10), resolved(104)}, want: Outcome{Resolved: s(4), Starts: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.event.Began, test.event.Ended = began, at(100)
			if diff := cmp.Diff(&test.want, test.event.outcome(test.messages)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInsert(t *testing.T) {
	result := &Result{Default: Default{OOMKilled: new(Seconds), CrashLooping: new(Seconds)}}
	got, err := result.Insert("before\n" + markerBegin + "PREVIOUS\n" + markerEnd + "\nafter\n")
	if err != nil || !strings.HasPrefix(got, "before\n"+markerBegin+"Prometheus") || !strings.HasSuffix(got, "|\n"+markerEnd+"\nafter\n") ||
		strings.Contains(got, "PREVIOUS") {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := result.Insert("no markers"); err == nil {
		t.Error("no error without markers")
	}
}
