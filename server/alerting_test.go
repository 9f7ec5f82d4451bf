package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/view"
)

func goldenSilence(t *testing.T) alert.Silence {
	t.Helper()
	matcher, err := alert.ParseMatcher(`pod=~"cart-.*"`)
	if err != nil {
		t.Fatal(err)
	}
	return alert.Silence{
		ID: "5f1c", Matchers: []alert.Matcher{matcher}, StartsAt: goldenNow, EndsAt: goldenNow.Add(2 * time.Hour),
		CreatedBy: "alice (uid 0)", Comment: "maintenance",
	}
}

func goldenAlerts() []view.Alert {
	labels := alert.Labels{
		alert.LabelName: "PodCrashLooping", alert.LabelJob: "herald", alert.LabelInstance: "n1", alert.LabelNode: "n1", alert.LabelNamespace: "shop",
		alert.LabelPod: "cart-n1", alert.LabelContainer: "web", alert.LabelScope: "container", alert.LabelSeverity: "warning",
	}
	return []view.Alert{
		{
			Alert: alert.Alert{
				Labels: labels, Annotations: map[string]string{alert.AnnotationSummary: "shop/cart-n1 web: exit 3"}, State: alert.Firing, Value: new(14.0),
				ActiveAt: goldenNow.Add(-time.Hour), StartsAt: goldenNow.Add(-time.Hour), Episode: 2, Flaps: 1,
				Freeze:    &alert.Freeze{Since: goldenNow, Reason: "the runtime does not answer"},
				Mute:      alert.Mute{SilencedBy: []string{"5f1c"}, InhibitedBy: []string{`{alertname="NodeRuntimeDown"}`}},
				Condition: &alert.Condition{Type: "CartBroken", Reason: "CartIsBroken"},
			},
			Deliveries: []view.Delivery{{Receiver: "webhook/hook", State: "failing", Problem: "503", NextTry: view.NewTime(goldenNow)}},
		},
		{
			Alert:  alert.Alert{Labels: alert.Labels{alert.LabelName: "PodNotReady"}, State: alert.Pending, ActiveAt: goldenNow},
			NextAt: view.NewTime(goldenNow.Add(15 * time.Minute)),
		},
	}
}

func goldenRules() view.RuleList {
	return view.RuleList{
		APIVersion: view.APIVersion, Kind: "RuleList",
		Files: []view.RuleFile{{
			Path: "/etc/herald/alerts.d/shop.yaml", State: "error", Rules: 1, LastChange: view.NewTime(goldenNow),
			Problem: "shop.yaml:7: groups[0].rules[0].expr: undefined field 'colour'", LastGood: view.NewTime(goldenNow),
		}},
		Items: []view.Rule{{
			Name: "PodCrashLooping", Group: "shop", File: "/etc/herald/alerts.d/shop.yaml", Scope: "container",
			Expression: "container.reason == 'CrashLoopBackOff'", KeepFiringForMs: 600_000, Labels: alert.Labels{"severity": "warning"},
			Actions: []string{"snapshot"}, MaxCost: 12,
			RuleState: view.RuleState{State: "firing", Firing: 1},
		}},
	}
}

func goldenActions() view.ActionList {
	return view.ActionList{
		APIVersion: view.APIVersion, Kind: "ActionList", Suspended: "9 of 27 pods fire PodCrashLooping", SuspendedUntil: view.NewTime(goldenNow),
		Items: []view.Action{{
			ID: "48213", At: view.NewTime(goldenNow), Type: "restart-container", Rule: "PodCrashLooping", Alert: `{alertname="PodCrashLooping"}`,
			Object: "shop/cart-n1 web", Decision: "refuse", Reason: "young", Outcome: "unknown", Message: "interrupted", TookMs: 12,
		}},
	}
}

// The node implements Alerting and Actions.

func (n *node) Alerts() []view.Alert {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.alerts)
}

func (n *node) Rules() view.RuleList { return view.RuleList{} }

func (n *node) Silences() []alert.Silence {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.silences)
}

func (n *node) AddSilence(_ context.Context, silence alert.Silence) (alert.Silence, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	silence.ID = "1"
	n.silences = append(n.silences, silence)
	return silence, nil
}

func (n *node) ExpireSilence(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := len(n.silences)
	n.silences = slices.DeleteFunc(n.silences, func(s alert.Silence) bool { return s.ID == id })
	if len(n.silences) == before {
		return alert.ErrNoSilence
	}
	return nil
}

func (n *node) Actions(_ context.Context, limit int) (view.ActionList, error) {
	return view.ActionList{Items: goldenActions().Items[:min(limit, 1)]}, nil
}

func (n *node) Resume(_ context.Context, by string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resumed = append(n.resumed, by)
	return len(n.resumed) == 1, nil
}

func TestAlerting_Lists(t *testing.T) {
	n := newNode(t)
	n.alerts = slices.Clone(goldenAlerts())
	slices.Reverse(n.alerts)
	s := n.newServer(t)
	for parameters, want := range map[string]string{
		"": "PodCrashLooping PodNotReady", "?state=pending": "PodNotReady", "?state=pending,firing": "PodCrashLooping PodNotReady",
		"?namespace=shop": "PodCrashLooping", "?namespace=x": "",
	} {
		var names []string
		for _, item := range getJSON[view.AlertList](t, s, "alerts"+parameters, http.StatusOK).Items {
			names = append(names, item.Labels[alert.LabelName])
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", parameters, got, want)
		}
	}
	getJSON[failure](t, s, "alerts?state=angry", http.StatusBadRequest)
	getJSON[failure](t, s, "actions?limit=0", http.StatusBadRequest)
	if list := getJSON[view.RuleList](t, s, "rules", http.StatusOK); list.Kind != "RuleList" || list.Items == nil || list.Files == nil {
		t.Errorf("got %+v", list)
	}
	off, err := server.New(server.Config{Agent: n, Inspector: n, History: n.log})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"alerts", "rules", "silences", "actions", "watch?topics=alerts"} {
		if body := getJSON[failure](t, off, path, http.StatusNotFound); !strings.Contains(body.Message, "alerting is off") {
			t.Errorf("%s: got %q", path, body.Message)
		}
	}
}

func TestAlerting_Silences(t *testing.T) {
	n := newNode(t)
	socket := n.serveOn(t, "unix://"+filepath.Join(t.TempDir(), "herald.sock"))
	client := newClient(socket.String())
	defer client.CloseIdleConnections()
	post := poster{client: client, address: "localhost"}
	end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for name, test := range map[string]struct {
		body string
		code int
		want string
	}{
		"silence":     {`{"matchers":["pod=web"],"endsAt":"` + end + `","comment":"c","createdBy":"alice"}`, 200, "alice (uid "},
		"no matcher":  {`{"matchers":[],"endsAt":"` + end + `","comment":"c"}`, 400, "matchers are required"},
		"bad matcher": {`{"matchers":["pod"],"endsAt":"` + end + `","comment":"c"}`, 400, "operator"},
		"no comment":  {`{"matchers":["pod=web"],"endsAt":"` + end + `"}`, 400, "comment is required"},
		"past":        {`{"matchers":["pod=web"],"endsAt":"2020-01-01T00:00:00Z","comment":"c"}`, 400, "future"},
		"for ever":    {`{"matchers":["pod=web"],"endsAt":"2999-01-01T00:00:00Z","comment":"c"}`, 400, "366 days"},
	} {
		if code, body := post.post(t, "silences", test.body); code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%s: got %d %s, want %d %s", name, code, body, test.code, test.want)
		}
	}
	remove := func(address, id, token string) int {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+address+"/herald/v1/silences/"+id, nil)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if code := remove("localhost", "2", ""); code != http.StatusNotFound {
		t.Errorf("unknown silence: got %d", code)
	}
	if code := remove("localhost", "1", ""); code != http.StatusOK || len(n.Silences()) != 0 {
		t.Errorf("got %d, and %v is left", code, n.Silences())
	}
	for i, want := range []int{200, 409} {
		if code, body := post.post(t, "actions/resume", "{}"); code != want {
			t.Errorf("resume %d: got %d %s, want %d", i, code, body, want)
		}
	}
}

// TestAlerting_Authorization checks that over TCP changes need the token.
func TestAlerting_Authorization(t *testing.T) {
	n := newNode(t)
	s := n.newServer(t)
	for _, test := range [][2]string{{"POST", "silences"}, {"DELETE", "silences/1"}, {"POST", "actions/resume"}} {
		if response := request(s, test[0], api+test[1]); response.Code != http.StatusForbidden {
			t.Errorf("%s %s: got %d %s", test[0], test[1], response.Code, response.Body)
		}
	}
}

// TestAlerting_Watch checks that a watch begins with all alerts, and sends what changed after a record of an alert.
func TestAlerting_Watch(t *testing.T) {
	n := newNode(t)
	n.alerts = goldenAlerts()
	address := n.serveOn(t, "127.0.0.1:0").String()
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/herald/v1/watch?topics=alerts", nil)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	var got []string
	for len(got) < 6 && lines.Scan() {
		var event view.WatchEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(event.Type)+" "+event.Topic)
		if event.Type == view.Synced { // one is resolved, one is forgotten, one is new
			n.mu.Lock()
			resolved, fired := n.alerts[0], n.alerts[1]
			resolved.State = alert.Resolved
			fired.Labels = alert.Labels{alert.LabelName: "PodFailed"}
			n.alerts = []view.Alert{resolved, fired}
			n.mu.Unlock()
			n.log.AlertChanged(&resolved.Alert, time.Now())
		}
	}
	if want := []string{
		"ADDED alerts", "ADDED alerts", "SYNCED alerts", "ADDED alerts", "MODIFIED alerts", "DELETED alerts",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
