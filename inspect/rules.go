package inspect

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// PodVersion returns the view of a version of a pod's status for rules: the status is that of the version, which was accepted at that time,
// everything else is as it is now. It has no summaries and no status of the API server. Components must not call it: it asks them.
func (i *Inspector) PodVersion(pod *v1.Pod, status *v1.PodStatus, version uint64, at time.Time) *view.PodView {
	facts := i.ruleFacts(pod, status)
	facts.Sync.Version, facts.Sync.At = version, at
	return i.newRuleView(facts)
}

// PodNow returns the view of a pod for rules as it is now, and false if the node does not have the pod or no status of it.
func (i *Inspector) PodNow(uid podid.UID) (*view.PodView, bool) {
	status, found := i.config.Agent.Statuses.GetPodStatus(types.UID(uid))
	if !found {
		return nil, false
	}
	pod, found := i.config.Agent.Pods.GetPodByUID(uid)
	if !found {
		state, _ := i.config.Agent.Workers.Pod(uid)
		pod = state.Pod
	}
	if pod == nil {
		return nil, false
	}
	return i.newRuleView(i.ruleFacts(pod, &status)), true
}

func (i *Inspector) ruleFacts(pod *v1.Pod, status *v1.PodStatus) explain.Facts {
	uid, local := podid.UID(pod.UID), *pod
	local.Status = *status
	if local.CreationTimestamp.IsZero() && status.StartTime != nil { // as in agent.LocalPods
		local.CreationTimestamp = *status.StartTime
	}
	facts := explain.Facts{
		Now: time.Now(), Name: podid.FullNameOf(pod), Pod: &local, Source: explain.Source{Name: podid.SourceOf(pod)}, Runtime: i.runtimeFacts(),
	}
	facts.Recent = i.config.Tally.recent(uid, facts.Now)
	if sync, found := i.config.Agent.Statuses.Sync(pod.UID); found {
		facts.Sync = newSync(&sync)
	}
	if state, found := i.config.Agent.Workers.Pod(uid); found {
		facts.Worker = newWorker(&state)
	}
	i.addProbes(&facts, uid)
	if observed := i.config.Agent.PLEG.Get(uid); !observed.At.IsZero() {
		facts.Observed = observed
	}
	return facts
}

func (i *Inspector) newRuleView(facts explain.Facts) *view.PodView {
	v := view.NewRulePod(facts)
	if i.config.Stats != nil {
		if measured, found := i.config.Stats.PeekPod(podid.UID(facts.Pod.UID)); found {
			v.Load = view.NewPodLoad(measured, facts.Pod)
		}
	}
	return &v
}

// NodeNow returns the view of the node for rules: without pods other than their number, and without what costs a system call.
func (i *Inspector) NodeNow() *view.NodeView {
	facts := view.NodeFacts{
		Agent: view.Agent{Version: i.config.Version, StartedAt: view.NewTime(i.startedAt)}, Runtime: i.runtimeView(),
		Cluster: i.config.Cluster, Sources: i.Sources(),
	}
	if i.config.History != nil {
		facts.History.Problem = i.config.History.Problem()
	}
	if i.config.Node != nil {
		i.addNode(&facts)
	}
	facts.Agent.Latencies = i.latencies(&facts, time.Now())
	if i.config.Stats != nil {
		facts.Load = i.nodeLoad()
	}
	v := view.NewNode(facts)
	v.Pods.Total = len(i.config.Agent.Pods.GetPods())
	i.addConnection(&v)
	return &v
}

// addConnection adds what is known about alerts and the connection to the API server.
func (i *Inspector) addConnection(v *view.NodeView) {
	v.Alerting = i.config.Alerting()
	v.CertificateExpires = view.NewTime(i.config.CertificateExpires())
	if err := i.config.CertificateProblem(); err != nil {
		v.CertificateProblem = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
}

// Describe returns what is wrong with a pod in one line, and the last lines of the container's last instance that failed, if there are any.
// An empty container means none. It reads the history.
func (i *Inspector) Describe(ctx context.Context, name podid.FullName, container string) (what string, lastLines []string) {
	facts, found := i.Facts(ctx, name)
	if !found {
		return "", nil
	}
	return explain.Short(explain.Pod(facts, explain.WhatIsWrong), facts.Now), facts.LastLines[container]
}
