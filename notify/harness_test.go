package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behaviour is how a receiver answers.
type behaviour string

const (
	healthy    behaviour = "healthy"
	dead       behaviour = "dead"
	slow       behaviour = "slow"
	hanging    behaviour = "hanging"
	answerLost behaviour = "answer lost" // it accepts, but the sender does not learn of it
	refusing   behaviour = "refusing"
	unknown    behaviour = "404"
	broken     behaviour = "500"
	busy       behaviour = "429"
	flapping   behaviour = "flapping"
)

var behaviours = []behaviour{healthy, dead, slow, hanging, answerLost, refusing, unknown, broken, busy, flapping}

// receivedAlert is an alert in a message of either format.
type receivedAlert struct {
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

func (a *receivedAlert) key() string { return alert.Labels(a.Labels).Key() }

// receipt is a message that a receiver has accepted, for one alert.
type receipt struct {
	receivedAlert
	at time.Time
}

// receiver is a server of webhooks or Alertmanager's API.
type receiver struct {
	mu        sync.Mutex
	behaviour behaviour
	requests  []time.Time
	bodies    []string
	accepted  map[string][]receipt // by the alert's key
	faults    []string
	// refuses returns whether the receiver refuses a message because of this alert.
	refuses func(*receivedAlert) bool
}

func newReceiver() *receiver { return &receiver{behaviour: healthy, accepted: map[string][]receipt{}} }

func (r *receiver) set(b behaviour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behaviour = b
}

func (r *receiver) serve(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.requests = append(r.requests, time.Now())
	r.bodies = append(r.bodies, string(body))
	answer := r.behaviour
	if answer == flapping {
		answer = []behaviour{healthy, broken, dead}[len(r.requests)%3]
	}
	r.mu.Unlock()
	alerts, err := decode(body, strings.HasSuffix(request.URL.Path, "/api/v2/alerts"))
	if err != nil {
		r.fault("%v", err)
	}
	switch answer {
	case slow:
		time.Sleep(3 * time.Second)
	case hanging:
		<-request.Context().Done()
		return nil, request.Context().Err()
	case dead:
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	case refusing:
		return response(http.StatusBadRequest, "", nil), nil
	case unknown:
		return response(http.StatusNotFound, "", nil), nil
	case broken:
		return response(http.StatusInternalServerError, "", nil), nil
	case busy:
		return response(http.StatusTooManyRequests, "", http.Header{"Retry-After": {"40"}}), nil
	}
	if r.refuses != nil && slices.ContainsFunc(alerts, func(a receivedAlert) bool { return r.refuses(&a) }) {
		return response(http.StatusBadRequest, "bad alert", nil), nil
	}
	r.accept(alerts)
	if answer == answerLost {
		return nil, errors.New("connection reset")
	}
	return response(http.StatusOK, "", nil), nil
}

// accept notes the alerts, and checks that nothing is resolved that did not fire (A2).
func (r *receiver) accept(alerts []receivedAlert) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range alerts {
		before := r.accepted[a.key()]
		hasFired := slices.ContainsFunc(before, func(b receipt) bool { return b.Status == "firing" && b.StartsAt.Equal(a.StartsAt) })
		if a.Status == "resolved" && !hasFired {
			r.faults = append(r.faults, fmt.Sprintf("A2: %s of %s is resolved, but never fired", a.key(), a.StartsAt))
		}
		if a.Status == "resolved" && a.EndsAt.Before(a.StartsAt) {
			r.faults = append(r.faults, fmt.Sprintf("%s ends before it starts", a.key()))
		}
		r.accepted[a.key()] = append(before, receipt{receivedAlert: a, at: time.Now()})
	}
}

func (r *receiver) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// last returns what the receiver was told last about the alert.
func (r *receiver) last(key string) receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.accepted[key]; len(all) > 0 {
		return all[len(all)-1]
	}
	return receipt{}
}

// changes returns what the receiver was told about the alert, without repetitions.
func (r *receiver) changes(key string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, a := range r.accepted[key] {
		all = append(all, fmt.Sprintf("%s %d", a.Status, a.StartsAt.Unix()-epoch))
	}
	return slices.Compact(all)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

// decode reads a message of either format. Alertmanager's API tells that an alert is resolved by its end.
func decode(body []byte, isAPI bool) ([]receivedAlert, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if !isAPI {
		var message struct{ Alerts []receivedAlert }
		err := decoder.Decode(&message)
		return message.Alerts, err
	}
	var alerts []receivedAlert
	err := decoder.Decode(&alerts)
	for i := range alerts {
		alerts[i].Status = "firing"
		if !alerts[i].EndsAt.After(time.Now()) {
			alerts[i].Status = "resolved"
		}
	}
	return alerts, err
}

func response(code int, body string, header http.Header) *http.Response {
	return &http.Response{StatusCode: code, Header: header.Clone(), Body: io.NopCloser(strings.NewReader(body))}
}

// epoch is when the clock of a synctest bubble starts.
const epoch = 946684800

// receivers is the network: it routes requests by host.
type receivers map[string]*receiver

// RoundTrip implements http.RoundTripper.
func (r receivers) RoundTrip(request *http.Request) (*http.Response, error) {
	return r[request.URL.Hostname()].serve(request)
}

// run is a run of a Notifier.
type run struct {
	*notify.Notifier
	dir  *checkpoint.Dir
	stop func() error
}

// start starts a Notifier on the checkpoints in the folder.
func start(t *testing.T, folder string, config notify.Config) *run {
	t.Helper()
	dir, err := checkpoint.Open(folder, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config.NodeName, config.Checkpoints = "n1", dir
	notifier, err := notify.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- notifier.Run(ctx) }()
	return &run{Notifier: notifier, dir: dir, stop: sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-done, dir.Close())
	})}
}

// firingAlert returns an alert that fires now.
func firingAlert(name, pod string, number uint64) alert.Alert {
	now := time.Now()
	return alert.Alert{
		Labels:      alert.Labels{"alertname": name, "job": "herald", "node": "n1", "namespace": "shop", "pod": pod, "severity": "warning"},
		Annotations: map[string]string{"summary": name + " of " + pod},
		State:       alert.Firing, ActiveAt: now, StartsAt: now, Episode: number,
	}
}

// resolvedAlert returns the alert as resolved now.
func resolvedAlert(a alert.Alert) alert.Alert {
	a.State, a.EndsAt = alert.Resolved, time.Now()
	return a
}

// inBubble runs a test on a fake clock, with a webhook at "hook" and an Alertmanager at "am", and stops the Notifier at its end.
func inBubble(t *testing.T, body func(t *testing.T, n *run, network receivers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := receivers{"hook": newReceiver(), "am": newReceiver()}
		n := start(t, t.TempDir(), testConfig(network))
		defer func() {
			if err := n.stop(); err != nil {
				t.Error(err)
			}
			for name, r := range network {
				for _, fault := range r.faults {
					t.Errorf("%s: %s", name, fault)
				}
			}
		}()
		body(t, n, network)
	})
}

func testConfig(network receivers) notify.Config {
	return notify.WithTransport(notify.Config{
		Alertmanagers: []notify.Alertmanager{{HTTP: notify.HTTP{URL: "http://am"}}},
		Webhooks:      []notify.Webhook{{Name: "hook", HTTP: notify.HTTP{URL: "https://hook"}}},
	}, network)
}

// pass lets the time pass, and everything that is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
