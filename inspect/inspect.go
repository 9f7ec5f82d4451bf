package inspect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
	"github.com/heraldnode/herald/probe/judge"
	"github.com/heraldnode/herald/stats"
	"github.com/heraldnode/herald/view"
	"github.com/heraldnode/herald/worker"
)

// Config configures an Inspector. Agent is required.
type Config struct {
	Agent *agent.Agent
	// Node is the node object. Default: none; the view of the node has no status.
	Node *node.Node
	// History is read for pods that are gone, last lines of logs and what happened before this agent started. Default: none.
	History *history.Log
	// Tally counts restarts. Default: a new one, which counts nothing unless it is told.
	Tally *Tally
	// Stats has the load of the node and its pods. Default: none; views have no load.
	Stats *stats.Collector
	// Version of the agent, and the URL of the API server; empty without one.
	Version, Cluster string
	// RuntimeLatency and APILatency return the times that 99 of 100 calls to the runtime and requests to the API server did not exceed,
	// and false if they are not known. Default: unknown.
	RuntimeLatency, APILatency func(now time.Time) (time.Duration, bool)
	// Alerting returns the state of rules and alerts, or nil. It must not block. Default: nil.
	Alerting func() *view.Alerting
	// CertificateExpires returns when the certificate ends with which the agent authenticates to the API server, or the zero time. It must
	// not block for long. Default: the zero time.
	CertificateExpires func() time.Time
	// CertificateProblem returns what keeps the node from having valid certificates, or nil. It must not block. Default: nil.
	CertificateProblem func() error
	// RuntimeVersion returns name and version of the container runtime. It must not block. Default: unknown.
	RuntimeVersion func() (name, version string)
}

// Inspector answers questions about the node. All methods are safe for concurrent use.
type Inspector struct {
	config    Config
	startedAt time.Time
	seed      sync.Once // reads the tally of earlier runs
}

// ErrNotFound reports that the node does not have the pod.
var ErrNotFound = errors.New("pod not found")

// New returns an Inspector.
func New(config Config) (*Inspector, error) {
	if config.Agent == nil {
		return nil, errors.New("inspect.Config: Agent is required")
	}
	if config.Tally == nil {
		config.Tally = NewTally()
	}
	for _, latency := range []*func(time.Time) (time.Duration, bool){&config.RuntimeLatency, &config.APILatency} {
		if *latency == nil {
			*latency = func(time.Time) (time.Duration, bool) { return 0, false }
		}
	}
	if config.Alerting == nil {
		config.Alerting = func() *view.Alerting { return nil }
	}
	if config.CertificateExpires == nil {
		config.CertificateExpires = func() time.Time { return time.Time{} }
	}
	if config.CertificateProblem == nil {
		config.CertificateProblem = func() error { return nil }
	}
	if config.RuntimeVersion == nil {
		config.RuntimeVersion = func() (string, string) { return "", "" }
	}
	return &Inspector{config: config, startedAt: time.Now()}, nil
}

// Pods returns the views of the pods of agent.LocalPods, in its order.
func (i *Inspector) Pods(ctx context.Context) []view.PodView {
	pods := i.config.Agent.LocalPods()
	c := i.newCollector(ctx)
	views := make([]view.PodView, len(pods))
	for n, pod := range pods {
		views[n] = view.NewPod(c.facts(pod))
	}
	return views
}

// Pod returns the view of one pod. It returns false if the node does not have it.
func (i *Inspector) Pod(ctx context.Context, name podid.FullName) (view.PodView, bool) {
	pod, found := i.find(name)
	if !found {
		return view.PodView{}, false
	}
	return view.NewPod(i.newPodCollector(ctx, pod).facts(pod)), true
}

// find returns the pod of that name with its local status: the desired one if there are several.
func (i *Inspector) find(name podid.FullName) (*v1.Pod, bool) {
	if desired, isDesired := i.config.Agent.Pods.GetPodByFullName(name); isDesired {
		return i.config.Agent.LocalPod(desired), true
	}
	for _, pod := range i.config.Agent.LocalPods() {
		if podid.FullNameOf(pod) == name {
			return pod, true
		}
	}
	return nil, false
}

// Explain returns the answer to a question about a pod. It returns false if the node does not have the pod and has no record of it.
func (i *Inspector) Explain(ctx context.Context, name podid.FullName, q explain.Question) (explain.Verdict, bool) {
	facts, found := i.Facts(ctx, name)
	if !found {
		return explain.Verdict{}, false
	}
	return explain.Pod(facts, q), true
}

// Facts returns everything that is known about a pod, with what the history knows. It returns false if there is nothing.
func (i *Inspector) Facts(ctx context.Context, name podid.FullName) (explain.Facts, bool) {
	pod, found := i.find(name)
	if !found {
		facts := explain.Facts{Now: time.Now(), Name: name, Left: i.left(ctx, name), Source: newSource("", i.problems()[name])}
		return facts, facts.Left != nil || facts.Source.Problem != ""
	}
	facts := i.newPodCollector(ctx, pod).facts(pod)
	facts.LastLines = i.lastLines(ctx, pod)
	return facts, true
}

// Restart restarts a container of a pod. An empty container means the only one.
func (i *Inspector) Restart(ctx context.Context, name podid.FullName, container, reason string) (view.Restart, error) {
	return i.restart(ctx, name, container, reason, i.config.Agent.Workers.RestartContainer)
}

// RestartByAction restarts a container of a pod as an action of an alert rule, see worker.Workers.RestartContainerByAction.
func (i *Inspector) RestartByAction(ctx context.Context, name podid.FullName, container, reason string) (view.Restart, error) {
	return i.restart(ctx, name, container, reason, i.config.Agent.Workers.RestartContainerByAction)
}

func (i *Inspector) restart(
	ctx context.Context, name podid.FullName, container, reason string,
	restart func(ctx context.Context, uid podid.UID, container, reason string) (worker.Restarted, error),
) (view.Restart, error) {
	pod, found := i.find(name)
	if !found {
		return view.Restart{}, fmt.Errorf("restart pod %s: %w", name, ErrNotFound)
	}
	if container == "" && len(pod.Spec.Containers) == 1 {
		container = pod.Spec.Containers[0].Name
	}
	restarted, err := restart(ctx, podid.UID(pod.UID), container, reason)
	if err != nil {
		return view.Restart{}, err
	}
	answer := view.Restart{
		APIVersion: view.APIVersion, Kind: "Restart", Namespace: name.Namespace, Pod: name.Name, Container: container,
		ExitCode: int32(restarted.ExitCode), TookMs: restarted.Took.Milliseconds(),
	}
	if restarted.ID.ID != "" {
		answer.ContainerID = restarted.ID.String()
	}
	return answer, nil
}

// CheckProbe checks the probes of a pod once, without changing their results. An empty container or kind means all.
func (i *Inspector) CheckProbe(
	ctx context.Context, name podid.FullName, container string, kind explain.ProbeKind,
) ([]view.ProbeCheck, error) {
	pod, found := i.find(name)
	if !found {
		return nil, fmt.Errorf("check probes of pod %s: %w", name, ErrNotFound)
	}
	uid := podid.UID(pod.UID)
	var checks []view.ProbeCheck
	for _, state := range i.config.Agent.Prober.State(uid) {
		if container != "" && state.Container != container || kind != "" && probeKind(state.Kind) != kind {
			continue
		}
		target, answer, err := i.config.Agent.Prober.CheckNow(ctx, uid, state.Container, state.Kind)
		if err != nil {
			return nil, fmt.Errorf("check probes of pod %s: %w", name, err)
		}
		checks = append(checks, view.ProbeCheck{
			APIVersion: view.APIVersion, Kind: "ProbeCheck", Namespace: name.Namespace, Pod: name.Name,
			Container: state.Container, ProbeKind: probeKind(state.Kind), Target: target, Answer: *view.NewAnswer(newAnswer(answer)),
		})
	}
	if len(checks) == 0 {
		return nil, fmt.Errorf("check probes of pod %s: %w", name, probe.ErrNoProbe)
	}
	return checks, nil
}

func probeKind(kind judge.Kind) explain.ProbeKind {
	return [...]explain.ProbeKind{judge.Startup: explain.Startup, judge.Readiness: explain.Readiness, judge.Liveness: explain.Liveness}[kind]
}
