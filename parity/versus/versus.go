// Package versus lets the same things happen to the same pods and nodes under two kinds of monitoring, and reports which of them noticed,
// after how long, and which told that it was over: real Prometheus with kube-state-metrics and published rules, and the rules of `herald
// run`. Prometheus runs twice, with the interval that most installations have and with the shortest that is sensible.
package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// The sides of the comparison.
const (
	Usual  = "prometheus-30s"
	Fast   = "prometheus-1s"
	Herald = "herald"

	// restarted are the names of those whose Prometheus is restarted.
	restarted = "restarted-"
)

// intervals are those at which Prometheus scrapes and evaluates. 30 s is the default of kube-prometheus.
var intervals = map[string]time.Duration{Usual: 30 * time.Second, Fast: time.Second}

// Times of both kinds of rules.
const (
	ruleFor    = 2 * time.Minute
	ruleWindow = 2 * time.Minute
)

// patience is how long an alert may take to arrive before it counts as missing: both rounds of the slow Prometheus, the time in which
// the control plane gives up a node, and time for a busy machine.
const patience = ruleFor + 4*time.Minute

// eventNames are the names of events in the order of the result.
var eventNames = []string{
	"oom", "oom-overwritten", "oom-young", "crash", "deleted", "node-cut", "cut-sick", "cut-well", "node-lost", "lost-sick",
	"firing", "healing", "pending", "source",
}

// Result is what happened.
type Result struct {
	Versions Versions `json:"versions"`
	Events   []*Event `json:"events"`
	Default  Default  `json:"default"`
}

// Default is when Herald's default rules told of events.
type Default struct {
	OOMKilled    *Seconds `json:"oomKilled"`
	CrashLooping *Seconds `json:"crashLooping"`
}

// Versions are those of the programs.
type Versions struct {
	Prometheus       string `json:"prometheus"`
	KubeStateMetrics string `json:"kubeStateMetrics"`
	Kubernetes       string `json:"kubernetes"`
}

// rig is a cluster under both kinds of monitoring.
type rig struct {
	progress io.Writer
	dir      string
	cluster  *recorder.Cluster
	admin    kubernetes.Interface
	herald   agents.Program
	receiver *receiver
	exporter map[string]*exporter   // of the monitoring that is left alone (""), and of the restarted one
	proms    map[string]*prometheus // by side
	nodes    map[string]*testNode

	mu     sync.Mutex // guards events and progress
	events []*Event
}

// Run runs everything. dir is an empty directory. The working directory must be inside the parity module.
func Run(ctx context.Context, dir string, progress io.Writer) (result *Result, err error) {
	r := &rig{progress: progress, dir: dir, exporter: map[string]*exporter{}, proms: map[string]*prometheus{}, nodes: map[string]*testNode{}}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	scenarios := []func(context.Context) error{
		r.oomKilled, r.oomOverwritten, r.oomYoung, r.crashLoop, r.deleted, r.cutOff, r.dead, r.restart,
	}
	if err := concurrently(scenarios, func(do func(context.Context) error) error { return do(ctx) }); err != nil {
		return nil, fmt.Errorf("%w\nmessages:\n%s", err, r.transcript())
	}
	for _, e := range r.events {
		e.judge(r.receiver)
	}
	r.logf("messages:\n%s", r.transcript())
	slices.SortStableFunc(r.events, func(a, b *Event) int { return slices.Index(eventNames, a.Name) - slices.Index(eventNames, b.Name) })
	return &Result{Events: r.events, Versions: r.versions(ctx), Default: r.defaultRules()}, nil
}

// defaultRules returns when Herald's default rules told of the same events.
func (r *rig) defaultRules() (d Default) {
	for _, e := range r.events {
		byDefault := *e
		switch e.Name {
		case oomPod:
			byDefault.herald.name = "ContainerOOMKilled"
			d.OOMKilled = byDefault.outcome(byDefault.messages(r.receiver, Herald)).Noticed
		case crashPod:
			byDefault.herald.name = "PodCrashLooping"
			d.CrashLooping = byDefault.outcome(byDefault.messages(r.receiver, Herald)).Noticed
		}
	}
	return d
}

func concurrently[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	var running sync.WaitGroup
	for i, item := range items {
		running.Go(func() { errs[i] = do(item) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (r *rig) start(ctx context.Context) (err error) {
	if r.cluster, err = recorder.Start(ctx); err != nil {
		return err
	}
	if r.admin, err = kubernetes.NewForConfig(r.cluster.AdminConfig()); err != nil {
		return err
	}
	if r.receiver, err = startReceiver(); err != nil {
		return err
	}
	if r.herald, err = agents.BuildHerald(ctx, r.dir); err != nil {
		return err
	}
	if err := r.startControllers(ctx); err != nil {
		return err
	}
	if err := r.startMonitoring(ctx); err != nil {
		return err
	}
	for _, name := range []string{steady, cut, lost, resumed} {
		r.nodes[name] = &testNode{rig: r, name: name}
	}
	if err := concurrently(slices.Collect(maps.Values(r.nodes)), func(n *testNode) error { return n.start(ctx) }); err != nil {
		return err
	}
	r.logf("all components run")
	return nil
}

// startControllers starts what declares a node lost.
func (r *rig) startControllers(ctx context.Context) error {
	binary, err := controlplane.BuildControllerManager(ctx, r.progress)
	if err != nil {
		return err
	}
	manager, err := r.cluster.NewControllerManager(binary, "node-lifecycle-controller")
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

// startMonitoring starts a kube-state-metrics and its Prometheus servers twice: those that are restarted must not disturb the others.
func (r *rig) startMonitoring(ctx context.Context) error {
	binary, err := buildKubeStateMetrics(ctx, r.progress)
	if err != nil {
		return err
	}
	for _, prefix := range []string{"", restarted} {
		if r.exporter[prefix], err = startExporter(ctx, r.cluster.ControlPlane, binary, prefix+"main"); err != nil {
			return err
		}
		for side, interval := range intervals {
			r.proms[prefix+side], err = startPrometheus(ctx, r.cluster.ControlPlane, prometheusSettings{
				side: prefix + side, interval: interval, target: r.exporter[prefix].address, receiver: r.receiver.address, dir: r.dir,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// stop stops what start has started. The control plane stops the servers that run beside it.
func (r *rig) stop() error {
	errs := []error{concurrently(slices.Collect(maps.Values(r.nodes)), (*testNode).stop)}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop())
	}
	if r.receiver != nil {
		errs = append(errs, r.receiver.server.Close())
	}
	return errors.Join(errs...)
}

func (r *rig) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.progress, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// add adds the event to the result. It is complete when its scenario has ended.
func (r *rig) add(e *Event) *Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	return e
}

// awaitTold waits until the sides have told that the alert of the event fires or is resolved, since a time. A side that tells nothing is
// not an error: that is what is measured.
func (r *rig) awaitTold(ctx context.Context, e *Event, firing bool, since time.Time, sides ...string) error {
	deadline := time.Now().Add(patience)
	for _, side := range sides {
		for !e.told(r.receiver, side, firing, since) && time.Now().Before(deadline) {
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	r.logf("%s: waited for firing=%v", e.Name, firing)
	return nil
}

// transcript returns all messages but the repeated ones.
func (r *rig) transcript() string {
	type state struct {
		firing   bool
		startsAt time.Time
	}
	var text string
	last := map[string]state{}
	for _, m := range r.receiver.all() {
		id := alertID{m.Labels["alertname"], m.Labels["pod"], ""}
		if m.Labels["pod"] == "" {
			id.node = m.Labels["node"]
		}
		key, now := m.Side+id.String(), state{m.Firing, m.StartsAt}
		if last[key] != now {
			text += fmt.Sprintf("%s %-24s %-45s firing=%-5v since %s\n", m.At.Format("15:04:05.000"), m.Side, id, m.Firing,
				m.StartsAt.Local().Format("15:04:05.000"))
		}
		last[key] = now
	}
	return text
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func pauseUntil(ctx context.Context, at time.Time) error { return pause(ctx, time.Until(at)) }
