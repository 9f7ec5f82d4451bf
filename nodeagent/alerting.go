package nodeagent

import (
	"context"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert/manager"
	"github.com/heraldnode/herald/deed"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/notify"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

// AlertingConfig configures alert rules and who is told. The zero value has the default rules; alerts are logged and recorded as events.
type AlertingConfig struct {
	// Disabled evaluates no rules.
	Disabled bool
	// RuleFiles are files with rules and folders of them, see manager.Config. Defaults to none.
	RuleFiles []string
	// NoDefaults leaves the default rules out. Disable has names of rules that are not used.
	NoDefaults bool
	Disable    []string
	// ExternalURL is where people find this agent, for links. Defaults to none.
	ExternalURL string
	// Alertmanagers and Webhooks are told of alerts. Default to none.
	Alertmanagers []notify.Alertmanager
	Webhooks      []notify.Webhook
	// NoEvents records no Kubernetes Events.
	NoEvents bool
	// Programs are what actions of the type run may name. Actions of the type webhook name Webhooks. Defaults to none.
	Programs []deed.Program
	// DryRun makes every disruptive action a dry-run, whatever its rule says.
	DryRun bool
}

// newAlerting builds the manager of alerts and their notifier. It precedes the agent, which tells it about statuses that are restored.
func (n *NodeAgent) newAlerting() (err error) {
	config := &n.config.Alerting
	if config.Disabled {
		return nil
	}
	notifications := notify.Config{
		NodeName: n.config.NodeName, ExternalURL: config.ExternalURL, Alertmanagers: config.Alertmanagers, Webhooks: config.Webhooks,
		Checkpoints: n.state, FailingChanged: n.refreshAlerting, Logger: n.config.Logger, Metrics: n.config.Metrics,
		Pod: func(namespace, name string) (*v1.Pod, bool) {
			return n.Agent.Pods.GetPodByFullName(podid.FullName{Namespace: namespace, Name: name})
		},
	}
	if !config.NoEvents {
		notifications.Events = n.Events
	}
	if n.notifier, err = notify.New(notifications); err != nil {
		return err
	}
	if err := n.newActions(); err != nil {
		return err
	}
	n.Alerts, err = manager.New(manager.Config{
		NodeName: n.config.NodeName, Views: ruleViews{n}, Paths: config.RuleFiles, NoDefaults: config.NoDefaults, Disable: config.Disable,
		ExternalURL: config.ExternalURL, State: n.state, Notifier: n.notifier, Actor: n.Actions, Remedies: n.remedies,
		Journal:      alertJournal{n.History},
		OnConditions: func() { n.Node.Refresh() }, Logger: n.config.Logger, Metrics: n.config.Metrics,
	})
	return err
}

// ruleViews implements manager.Views with the inspector, which is created after the manager.
type ruleViews struct{ *NodeAgent }

// PodVersion implements manager.Views.
func (r ruleViews) PodVersion(pod *v1.Pod, status *v1.PodStatus, version uint64, at time.Time) *view.PodView {
	return r.Inspector.PodVersion(pod, status, version, at)
}

// PodNow implements manager.Views.
func (r ruleViews) PodNow(uid podid.UID) (*view.PodView, bool) { return r.Inspector.PodNow(uid) }

// NodeNow implements manager.Views.
func (r ruleViews) NodeNow() *view.NodeView { return r.Inspector.NodeNow() }

// Describe implements manager.Views.
func (r ruleViews) Describe(ctx context.Context, pod podid.FullName, container string) (string, []string) {
	return r.Inspector.Describe(ctx, pod, container)
}

// alertJournal implements manager.Journal with the history.
type alertJournal struct{ *history.Log }

// RulesChanged implements manager.Journal.
func (j alertJournal) RulesChanged(path, message string) {
	j.SourceChanged(history.SourceProblem{
		Source: "rules", Location: path, Message: strings.TrimPrefix(message, path+":"), Resolved: message == "",
	})
}

// refreshAlerting lets rules about the node be evaluated if it has changed.
func (n *NodeAgent) refreshAlerting() {
	if n.Alerts != nil {
		n.Alerts.NodeChanged()
	}
}

// tellNodeEvent tells rules that something happened to the node.
func (n *NodeAgent) tellNodeEvent(kind string, at time.Time) {
	if n.Alerts != nil {
		n.Alerts.NodeEvent(kind, at)
		n.Alerts.NodeChanged()
	}
}

// tellNodeChange tells rules what the history noticed.
func (n *NodeAgent) tellNodeChange(change transition.Change, at time.Time) {
	switch change.Field {
	case transition.FieldClock:
		n.tellNodeEvent("clock", at)
	case transition.FieldBootID:
		n.tellNodeEvent("boot", at)
	}
}

// tellRuntimeHealth tells rules that the health of the runtime changed.
func (n *NodeAgent) tellRuntimeHealth() {
	if n.Agent != nil && n.Agent.RuntimeHealth().Err != nil {
		n.tellNodeEvent("runtime", time.Now())
		return
	}
	n.refreshAlerting()
}

// tellLevel tells rules that the level of the node's load changed.
func (n *NodeAgent) tellLevel(before, after load.Node) {
	n.recordLevel(before, after)
	n.tellNodeEvent("load", time.Now())
}

// nodeConditions returns the conditions of the Node that rules have.
func (n *NodeAgent) nodeConditions() []v1.NodeCondition {
	if n.Alerts == nil {
		return nil
	}
	return n.Alerts.Conditions()
}

// alertingState returns the state of rules and alerts, or nil.
func (n *NodeAgent) alertingState() *view.Alerting {
	if n.Alerts == nil {
		return nil
	}
	return n.Alerts.Alerting()
}

// runAlerting evaluates rules and delivers alerts until ctx ends.
func (n *NodeAgent) runAlerting(ctx context.Context) {
	if n.Alerts == nil {
		return
	}
	delivering, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the last alert is known
	var others sync.WaitGroup
	others.Go(func() { _ = n.notifier.Run(delivering) })
	others.Go(func() { _ = n.Actions.Run(ctx) })
	_ = n.Alerts.Run(ctx)
	stop()
	others.Wait()
}

// Sinks returns the states of those who are told of alerts.
func (n *NodeAgent) Sinks() []notify.SinkState {
	if n.notifier == nil {
		return nil
	}
	return n.notifier.Sinks()
}
