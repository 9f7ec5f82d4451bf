package notify_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/notify"
)

// hangLimit ends a test that hangs.
const hangLimit = 2 * time.Minute

// request is a request that a server has received.
type request struct {
	header http.Header
	path   string
	body   []byte
}

// newServer returns a server that answers with the code, and its requests.
func newServer(t *testing.T, secure bool, code int) (*httptest.Server, <-chan request) {
	t.Helper()
	requests := make(chan request, 1000)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
		w.WriteHeader(code)
		requests <- request{header: r.Header, path: r.URL.Path, body: body}
	})
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, requests
}

// startReal starts a Notifier without fake transport.
func startReal(t *testing.T, config notify.Config) *run {
	t.Helper()
	n := start(t, t.TempDir(), config)
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func receive(t *testing.T, requests <-chan request) request {
	t.Helper()
	select {
	case r := <-requests:
		return r
	case <-time.After(hangLimit):
		t.Fatal("no request")
		return request{}
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// verify is what a receiver does, written without the code under test.
func verify(header string, body []byte, secret string) bool {
	parts := strings.Split(header, ",")
	at, ok := strings.CutPrefix(parts[0], "t=")
	if !ok {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s:%s", at, body)
	return slices.Contains(parts[1:], "v1="+hex.EncodeToString(mac.Sum(nil)))
}

func TestWebhook_Signature(t *testing.T) {
	server, requests := newServer(t, false, http.StatusOK)
	secret := writeFile(t, "first\n")
	n := startReal(t, notify.Config{Webhooks: []notify.Webhook{{Name: "hook", HTTP: notify.HTTP{URL: server.URL}, SecretFile: secret}}})
	for i, secrets := range [][]string{{"first"}, {"second", "first"}, {"second"}} {
		if err := os.WriteFile(secret, []byte(strings.Join(secrets, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		n.Update([]alert.Alert{firingAlert(fmt.Sprintf("Rule%d", i), "web", 1)})
		got := receive(t, requests)
		header := got.header.Get("X-Herald-Signature")
		for _, s := range []string{"first", "second", "third"} {
			if verify(header, got.body, s) != slices.Contains(secrets, s) {
				t.Errorf("secrets %q: %s is verified by %s: %v", secrets, header, s, !slices.Contains(secrets, s))
			}
		}
		if verify(header, append(got.body, ' '), secrets[0]) {
			t.Error("a modified body is verified")
		}
	}
}

func TestWebhook_BadSecretFile(t *testing.T) {
	server, requests := newServer(t, false, http.StatusOK)
	for content, want := range map[string]string{" \n": "is empty", "a\nb\nc": "has 3 secrets"} {
		n := startReal(t, notify.Config{
			Webhooks: []notify.Webhook{{Name: "hook", HTTP: notify.HTTP{URL: server.URL}, SecretFile: writeFile(t, content)}},
		})
		n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
		waitForError(t, n, want)
	}
	if len(requests) != 0 {
		t.Error("a message was sent without a signature")
	}
}

// waitForError waits until the first sink has failed, and checks why.
func waitForError(t *testing.T, n *run, want string) {
	t.Helper()
	for deadline := time.Now().Add(hangLimit); ; time.Sleep(time.Millisecond) {
		state := n.Sinks()[0]
		if strings.Contains(state.LastError, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got error %q, want %q", state.LastError, want)
		}
	}
}

func TestHTTP_Authentication(t *testing.T) {
	server, requests := newServer(t, true, http.StatusOK)
	authority := writeFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	n := startReal(t, notify.Config{
		Alertmanagers: []notify.Alertmanager{
			{HTTP: notify.HTTP{URL: server.URL + "/token/", CAFile: authority, TokenFile: writeFile(t, "t0ken\n")}},
			{HTTP: notify.HTTP{URL: server.URL + "/basic", CAFile: authority, Username: "u", PasswordFile: writeFile(t, "p")}},
		},
	})
	n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
	got := map[string]string{}
	for range 2 {
		r := receive(t, requests)
		got[r.path] = r.header.Get("Authorization")
	}
	if got["/token/api/v2/alerts"] != "Bearer t0ken" || got["/basic/api/v2/alerts"] != "Basic dTpw" {
		t.Errorf("got %q", got)
	}
}

func TestHTTP_UnknownAuthority(t *testing.T) {
	server, requests := newServer(t, true, http.StatusOK)
	n := startReal(t, notify.Config{Webhooks: []notify.Webhook{{Name: "hook", HTTP: notify.HTTP{URL: server.URL + "/secret-path"}}}})
	n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
	waitForError(t, n, "certificate")
	if len(requests) != 0 {
		t.Error("the server got a request")
	}
	if text := n.Sinks()[0].LastError; strings.Contains(text, "secret-path") {
		t.Errorf("the error has the URL: %s", text)
	}
}

func TestHTTP_NoRedirects(t *testing.T) {
	server, requests := newServer(t, false, http.StatusTemporaryRedirect)
	n := startReal(t, notify.Config{Webhooks: []notify.Webhook{{Name: "hook", HTTP: notify.HTTP{URL: server.URL}}}})
	n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
	receive(t, requests)
	waitForError(t, n, "receiver answers 307 Temporary Redirect")
}

func TestNew_InvalidConfig(t *testing.T) {
	webhook := func(h notify.HTTP) notify.Config {
		return notify.Config{NodeName: "n1", Webhooks: []notify.Webhook{{Name: "hook", HTTP: h}}}
	}
	replica := func(h notify.HTTP) notify.Config {
		return notify.Config{NodeName: "n1", Alertmanagers: []notify.Alertmanager{{HTTP: h}}}
	}
	tests := map[string]struct {
		config notify.Config
		want   string
	}{
		"no node":             {notify.Config{}, "NodeName"},
		"no name":             {notify.Config{NodeName: "n1", Webhooks: []notify.Webhook{{HTTP: notify.HTTP{URL: "https://x"}}}}, "name is required"},
		"no URL":              {webhook(notify.HTTP{}), "http"},
		"plain":               {webhook(notify.HTTP{URL: "http://example.com"}), "https"},
		"plain, like local":   {webhook(notify.HTTP{URL: "http://localhost.example.com"}), "https"},
		"scheme":              {webhook(notify.HTTP{URL: "ftp://x"}), "http"},
		"password in URL":     {webhook(notify.HTTP{URL: "https://u:p@x"}), "user"},
		"plain credentials":   {replica(notify.HTTP{URL: "http://am:9093", TokenFile: "/t"}), "credentials"},
		"two authentications": {replica(notify.HTTP{URL: "https://am", TokenFile: "/t", Username: "u", PasswordFile: "/p"}), "exclude"},
		"half a certificate":  {replica(notify.HTTP{URL: "https://am", CertFile: "/c"}), "key"},
		"no authority":        {replica(notify.HTTP{URL: "https://am", CAFile: "/does/not/exist"}), "/does/not/exist"},
		"external URL":        {notify.Config{NodeName: "n1", ExternalURL: "n1:10248"}, "ExternalURL"},
		"twice": {notify.Config{NodeName: "n1", Alertmanagers: []notify.Alertmanager{
			{HTTP: notify.HTTP{URL: "http://am"}}, {HTTP: notify.HTTP{URL: "https://am/"}},
		}}, "two sinks"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := notify.New(test.config); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	for _, address := range []string{"https://example.com/hook?x=1", "http://127.0.0.1:1", "http://[::1]:1/", "http://localhost:1"} {
		if _, err := notify.New(webhook(notify.HTTP{URL: address})); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// The value is that of prometheus/common, computed by model.LabelSet.Fingerprint; parity/alertmanager compares with a real one.
func TestFingerprint(t *testing.T) {
	if got := notify.Fingerprint(alert.Labels{}); got != "cbf29ce484222325" {
		t.Errorf("got %s", got)
	}
}

// recordedEvents is an event.Recorder.
type recordedEvents struct {
	mu     sync.Mutex
	events []string
}

// Event implements event.Recorder.
func (r *recordedEvents) Event(object runtime.Object, eventType, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref := object.(*v1.ObjectReference)
	r.events = append(r.events, fmt.Sprintf("%s %s/%s %s: %s %s %s", ref.Kind, ref.Namespace, ref.Name, ref.FieldPath, eventType, reason, message))
}

func TestEventsAndLog(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"},
		Spec:       v1.PodSpec{InitContainers: []v1.Container{{Name: "setup"}}, Containers: []v1.Container{{Name: "web"}}},
	}
	synctest.Test(t, func(t *testing.T) {
		recorder, output := &recordedEvents{}, &bytes.Buffer{}
		n := start(t, t.TempDir(), notify.Config{
			Events: recorder, Logger: slog.New(slog.NewJSONHandler(output, nil)),
			Pod: func(namespace, name string) (*v1.Pod, bool) { return pod, namespace == "shop" && name == "web" },
		})
		var all []alert.Alert
		for _, labels := range []alert.Labels{
			{"alertname": "A", "namespace": "shop", "pod": "web", "container": "web"},
			{"alertname": "B", "namespace": "shop", "pod": "web", "container": "setup"},
			{"alertname": "C", "namespace": "shop", "pod": "web"},
			{"alertname": "D", "namespace": "shop", "pod": "gone"},
			{"alertname": "E"},
		} {
			a := firingAlert("", "", 1)
			a.Labels, a.Annotations = labels, map[string]string{"summary": "it fails\nmore"}
			all = append(all, a)
		}
		n.Update(all)
		pass(time.Minute)
		ended := resolvedAlert(all[0])
		ended.Reason = "object gone"
		n.Update([]alert.Alert{ended})
		pass(time.Minute)
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		slices.Sort(recorder.events)
		want := []string{
			"Node /n1 : Warning D it fails", "Node /n1 : Warning E it fails", "Pod shop/web : Warning C it fails",
			"Pod shop/web spec.containers{web}: Normal A Resolved: it fails (object gone)", "Pod shop/web spec.containers{web}: Warning A it fails",
			"Pod shop/web spec.initContainers{setup}: Warning B it fails",
		}
		if !slices.Equal(recorder.events, want) {
			t.Errorf("got %q, want %q", recorder.events, want)
		}
		if got := strings.Count(output.String(), `"msg":"Alert fires"`); got != 5 {
			t.Errorf("got %d lines of firing, want 5:\n%s", got, output)
		}
		if got := strings.Count(output.String(), `"msg":"Alert is resolved"`); got != 1 {
			t.Errorf("got %d lines of resolved, want 1:\n%s", got, output)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := receivers{"hook": newReceiver(), "am": newReceiver()}
		network["hook"].set(unknown)
		registry := prometheus.NewRegistry()
		config := testConfig(network)
		config.Metrics = registry
		changes := 0
		config.FailingChanged = func() { changes++ }
		n := start(t, t.TempDir(), config)
		n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
		pass(11 * time.Minute)
		if changes != 1 {
			t.Errorf("FailingChanged was called %d times, want 1", changes)
		}
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP herald_notifications_failing Number of receivers of alerts that have accepted nothing for 10 minutes although there is something to deliver.
# TYPE herald_notifications_failing gauge
herald_notifications_failing 1
# HELP herald_notifications_total Number of messages to receivers of alerts, by sink and result: success, failed, refused, expired or dropped.
# TYPE herald_notifications_total counter
herald_notifications_total{result="failed",sink="alertmanager/am"} 0
herald_notifications_total{result="failed",sink="log"} 0
herald_notifications_total{result="failed",sink="webhook/hook"} 0
herald_notifications_total{result="refused",sink="webhook/hook"} 1
herald_notifications_total{result="success",sink="alertmanager/am"} 12
herald_notifications_total{result="success",sink="log"} 1
herald_notifications_total{result="success",sink="webhook/hook"} 0
`), "herald_notifications_total", "herald_notifications_failing")
		if err != nil {
			t.Error(err)
		}
		if got := testutil.CollectAndCount(registry, "herald_notification_latency_seconds"); got != 2 {
			t.Errorf("got %d latencies, want those of two sinks", got)
		}
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A restart tells nothing that was acknowledged, except to Alertmanager, which forgets.
func TestRestart_TellsNothingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, folder := receivers{"hook": newReceiver(), "am": newReceiver()}, t.TempDir()
		n := start(t, folder, testConfig(network))
		fires, ended := firingAlert("PodFailed", "fires", 1), firingAlert("Other", "ended", 1)
		n.Update([]alert.Alert{fires, ended})
		pass(time.Minute)
		ended = resolvedAlert(ended)
		n.Update([]alert.Alert{ended})
		pass(time.Minute)
		for range 3 {
			if err := n.stop(); err != nil {
				t.Fatal(err)
			}
			n = start(t, folder, testConfig(network))
			n.Update([]alert.Alert{fires, ended})
			n.Reconcile([]alert.Alert{fires, ended})
			pass(2 * time.Minute)
		}
		if got := network["hook"].count(); got != 3 {
			t.Errorf("the webhook got %d requests, want 3", got)
		}
		if got := network["am"].last(fires.Key()); time.Since(got.at) > time.Minute || got.Status != "firing" {
			t.Errorf("Alertmanager was not refreshed: %+v", got)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRestart_DamagedCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, folder := receivers{"hook": newReceiver(), "am": newReceiver()}, t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "notify"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		n := start(t, folder, testConfig(network))
		a := firingAlert("PodFailed", "web", 1)
		n.Update([]alert.Alert{a})
		pass(time.Minute)
		if got := network["hook"].last(a.Key()).Status; got != "firing" {
			t.Errorf("got %q, want firing", got)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// The clock was set back by a year: what was saved is in the future.
func TestRestart_ClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, folder := receivers{"hook": newReceiver(), "am": newReceiver()}, t.TempDir()
		future := time.Now().AddDate(1, 0, 0)
		a := firingAlert("PodFailed", "web", 1)
		a.StartsAt = future
		dir, err := checkpoint.Open(folder, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]any{"status": "firing", "of": map[string]any{"episode": 1, "startsAt": future}, "at": future}
		content, err := json.Marshal(map[string]any{"alerts": map[string]any{a.Key(): map[string]any{
			"alert": a, "told": map[string]any{"webhook/hook": told, "alertmanager/am": told},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Save("notify", 1, content); err != nil {
			t.Fatal(err)
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
		network["am"].accepted[a.Key()] = []receipt{{receivedAlert: receivedAlert{Status: "firing", StartsAt: time.Now()}}}
		n := start(t, folder, testConfig(network))
		ended := a
		ended.State, ended.EndsAt = alert.Resolved, future.Add(time.Second)
		n.Update([]alert.Alert{ended})
		pass(time.Minute)
		for name, r := range network {
			if got := r.last(a.Key()); got.Status != "resolved" || got.EndsAt.After(time.Now()) || got.EndsAt.Before(got.StartsAt) {
				t.Errorf("%s: got %+v, want resolved", name, got)
			}
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRun_EndsDuringRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := receivers{"hook": newReceiver(), "am": newReceiver()}
		network["hook"].set(hanging)
		n := start(t, t.TempDir(), testConfig(network))
		n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
		synctest.Wait()
		begin := time.Now()
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("stopping took %s", took)
		}
	})
}
