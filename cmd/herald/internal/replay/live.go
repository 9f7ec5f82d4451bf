package replay

import (
	"context"
	"slices"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/view"
)

// Live is a node as it is now, with what happened in the last 24 hours.
type Live struct {
	now    time.Time
	node   view.NodeView
	pods   []view.PodView
	recent recent.Counter
}

// ReadLive asks an agent.
func ReadLive(ctx context.Context, agent Agent, now time.Time) (*Live, error) {
	b, err := Read(ctx, agent, now, now)
	if err != nil {
		return nil, err
	}
	l := &Live{now: now, node: b.Node}
	for i := range b.Records {
		record := &b.Records[i]
		switch record.Kind {
		case history.KindPod:
			l.recent.Observe(record.Namespace, record.Name, record.UID, record.Changes, record.Time)
		case history.KindNode:
			for _, change := range record.Changes {
				if kind, isEvent := nodeEvents[change.Field]; isEvent {
					l.recent.Add(recent.Object{}, kind, record.Time)
				}
			}
		}
	}
	for _, pod := range b.Pods {
		l.pods = append(l.pods, pod)
	}
	slices.SortFunc(l.pods, func(a, b view.PodView) int {
		return recent.Object{Namespace: a.Metadata.Namespace, Pod: a.Metadata.Name}.Compare(
			recent.Object{Namespace: b.Metadata.Namespace, Pod: b.Metadata.Name})
	})
	return l, nil
}

// Finding is an object for which a rule is true, or for which nobody knows.
type Finding struct {
	Labels      alert.Labels
	Result      rule.Result
	Annotations map[string]string
}

// Evaluate evaluates a rule for all its objects.
func (l *Live) Evaluate(r *rule.Rule) (findings []Finding) {
	evaluate := func(pod *view.PodView, container string) {
		in := rule.Input{Now: l.now, Pod: pod, Container: container, Node: &l.node, Recent: &l.recent}
		result := r.Eval(in)
		if result.Truth == rule.False {
			return
		}
		labels := alert.Labels{alert.LabelName: r.Name, alert.LabelNode: l.node.Metadata.Name, alert.LabelScope: string(r.Scope)}
		if pod != nil {
			labels[alert.LabelNamespace], labels[alert.LabelPod] = pod.Metadata.Namespace, pod.Metadata.Name
		}
		if container != "" {
			labels[alert.LabelContainer] = container
		}
		finding := Finding{Labels: labels, Result: result}
		if result.Truth == rule.True {
			finding.Annotations = r.Annotate(labels, result.Value, in)
		}
		findings = append(findings, finding)
	}
	switch r.Scope {
	case rule.Node:
		evaluate(nil, "")
	case rule.Pod:
		for i := range l.pods {
			evaluate(&l.pods[i], "")
		}
	case rule.Container:
		for i := range l.pods {
			for j := range l.pods[i].Spec.Containers {
				evaluate(&l.pods[i], l.pods[i].Spec.Containers[j].Name)
			}
		}
	}
	return findings
}
