package alert_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert"
)

func TestMatcher(t *testing.T) {
	labels := alert.Labels{"alertname": "PodFailed", "pod": "web-0"}
	tests := map[string]bool{
		`alertname="PodFailed"`: true, `alertname = PodFailed`: true, `alertname!=PodFailed`: false,
		`pod=~"web-.*"`: true, `pod=~"web"`: false, `pod!~"web"`: true, `missing=""`: true, `missing!=""`: false,
	}
	for text, want := range tests {
		matcher, err := alert.ParseMatcher(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := matcher.Matches(labels); got != want {
			t.Errorf("%s: got %v", text, got)
		}
		data, err := json.Marshal(matcher)
		if err != nil {
			t.Fatal(err)
		}
		var again alert.Matcher
		if err := json.Unmarshal(data, &again); err != nil || again.String() != matcher.String() {
			t.Errorf("%s: got %s, %v from JSON", text, again, err)
		}
	}
	for _, text := range []string{"", "=x", "pod", `pod="x`, "pod=a,b", "pod=~(", "pod~x"} {
		if _, err := alert.ParseMatcher(text); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestSilence_Matches(t *testing.T) {
	matcher, err := alert.ParseMatcher("pod=web")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	silence := alert.Silence{Matchers: []alert.Matcher{matcher}, StartsAt: start, EndsAt: start.Add(time.Hour)}
	for at, want := range map[time.Duration]bool{-1: false, 0: true, time.Hour - 1: true, time.Hour: false} {
		if got := silence.Matches(alert.Labels{"pod": "web"}, start.Add(at)); got != want {
			t.Errorf("%s: got %v", at, got)
		}
	}
	if (&alert.Silence{StartsAt: start, EndsAt: start.Add(time.Hour)}).Matches(alert.Labels{}, start) {
		t.Error("a silence without matchers matches")
	}
}

func TestLabels_Key(t *testing.T) {
	if got := (alert.Labels{"b": `x"y`, "a": "1"}).Key(); got != `{a="1",b="x\"y"}` {
		t.Error(got)
	}
}
