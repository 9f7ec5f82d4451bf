package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert/manager"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/notify"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

const (
	// edgePause keeps the rate below that at which a webhook is called at most.
	edgePause = 150 * time.Millisecond
	edgeRules = "apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: bench\n  rules:\n"
	// edgeRule is a rule of one pod: alerts of the same rule would wait for each other.
	edgeRule = "  - {alert: Edge%[1]d, on: container, expr: \"pod.name == '%[2]s' && container.reason == 'CrashLoopBackOff'\"}\n"
)

// alertEdge measures the time from a version of a status until a webhook on loopback has the alert: the rule, the checkpoint and the
// request. It is wall time.
func alertEdge(ctx context.Context, env *Environment) (results []Result, err error) {
	samples := 20 * env.Profile.CallRounds
	env.logf("tell a webhook of %d alerts", samples)
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	dir := filepath.Join(env.ManifestDir, "alert-edge")
	receiver, err := newWebhookReceiver()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, receiver.server.Close()) }()
	pods := newCrashLoop(samples, time.Now())
	alerts, stop, err := startAlerts(ctx, dir, receiver.url, pods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var times []float64
	for i, pod := range pods.pods {
		running, waiting, now := crashStatus(0, i, time.Now()), crashStatus(2, i, time.Now()), time.Now()
		alerts.PodVersion(manager.Version{UID: podid.UID(pod.UID), Pod: pod, After: running, Version: 1, Time: now})
		time.Sleep(edgePause)
		now = time.Now()
		alerts.PodVersion(manager.Version{UID: podid.UID(pod.UID), Pod: pod, Before: running, After: waiting, Version: 2, Time: now})
		at, err := receiver.await(ctx, fmt.Sprintf("Edge%d", i))
		if err != nil {
			return nil, err
		}
		times = append(times, at.Sub(now).Seconds())
	}
	p50, p99 := quantile(times, 0.5), quantile(times, 0.99)
	return []Result{alertResult(
		"alert_edge_to_webhook_ms", fmt.Sprintf("alerts: from a status to a webhook, p99 of %d, in ms", samples),
		fmt.Sprintf("%s, p50 %s", formatSeconds(p99), formatSeconds(p50)), p99*1e3, AtMost(50),
	)}, nil
}

// startAlerts runs the rules and the delivery of an agent, with files in dir. stop waits until both have ended.
func startAlerts(ctx context.Context, dir, url string, pods *crashLoop) (alerts *manager.Manager, stop func() error, err error) {
	var rules strings.Builder
	rules.WriteString(edgeRules)
	for i, pod := range pods.pods {
		fmt.Fprintf(&rules, edgeRule, i, pod.Name)
	}
	file := filepath.Join(dir, "rules.yaml")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, []byte(rules.String()), 0o600)); err != nil {
		return nil, nil, err
	}
	state, err := checkpoint.Open(filepath.Join(dir, "state"), checkpoint.Options{})
	if err != nil {
		return nil, nil, err
	}
	notifier, err := notify.New(notify.Config{
		NodeName: "n1", Checkpoints: state, Webhooks: []notify.Webhook{{Name: "bench", HTTP: notify.HTTP{URL: url}}},
	})
	if err != nil {
		return nil, nil, errors.Join(err, state.Close())
	}
	alerts, err = manager.New(manager.Config{
		NodeName: "n1", Views: statusViews{}, Paths: []string{file}, NoDefaults: true, State: state, Notifier: notifier,
	})
	if err != nil {
		return nil, nil, errors.Join(err, state.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = notifier.Run(ctx) }) // both end with ctx
	running.Go(func() { _ = alerts.Run(ctx) })
	return alerts, func() error {
		cancel()
		running.Wait()
		return state.Close()
	}, nil
}

// statusViews implements manager.Views with the status alone.
type statusViews struct{}

func (statusViews) PodVersion(pod *v1.Pod, status *v1.PodStatus, _ uint64, at time.Time) *view.PodView {
	return ruleView(pod, status, at)
}

func (statusViews) PodNow(podid.UID) (*view.PodView, bool) { return nil, false }

func (statusViews) NodeNow() *view.NodeView { return &view.NodeView{} }

func (statusViews) Describe(context.Context, podid.FullName, string) (string, []string) {
	return "", nil
}

// webhookReceiver notes when each alert arrives first.
type webhookReceiver struct {
	server *http.Server
	url    string

	mu      sync.Mutex // guards arrived and changed
	arrived map[string]time.Time
	changed chan struct{} // closed and replaced with each message
}

func newWebhookReceiver() (*webhookReceiver, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	r := &webhookReceiver{url: "http://" + listener.Addr().String(), arrived: map[string]time.Time{}, changed: make(chan struct{})}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // returns only on Close
	return r, nil
}

func (r *webhookReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	var message struct {
		Alerts []struct {
			Labels map[string]string `json:"labels"`
		} `json:"alerts"`
	}
	if err := json.NewDecoder(req.Body).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range message.Alerts {
		if name := a.Labels["alertname"]; r.arrived[name].IsZero() {
			r.arrived[name] = at
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// await returns when the alert arrived.
func (r *webhookReceiver) await(ctx context.Context, name string) (time.Time, error) {
	for {
		r.mu.Lock()
		at, changed := r.arrived[name], r.changed
		r.mu.Unlock()
		if !at.IsZero() {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for alert %s: %w", name, ctx.Err())
		case <-changed:
		}
	}
}
