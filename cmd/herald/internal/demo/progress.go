package demo

import (
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/history"
)

// expectedStates lists the states that each pod reaches, in order.
var expectedStates = map[string][]expectedState{
	"web":  {{"becomes ready", isReady}, {"becomes unready", isRunningUnready}, {"becomes ready again", isReady}},
	"slow": {{"runs unready", isRunningUnready}, {"becomes ready after its startup probe", isReady}},
	"job":  {{"runs", isRunning}, {"completes", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded }}},
	"cart": {{"backs off after a crash", isCrashLooping}, {"runs after the edit", isEditedCart}},
}

type expectedState struct {
	text      string
	isReached func(*v1.Pod) bool
}

func isRunning(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning }

func isReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

func isRunningUnready(p *v1.Pod) bool { return isRunning(p) && !isReady(p) }

func isCrashLooping(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	})
}

func isEditedCart(p *v1.Pod) bool {
	return isReady(p) && slices.Contains(p.Spec.Containers[0].Env, v1.EnvVar{Name: databaseVariable, Value: goodDatabase})
}

// expectedChanges lists what happens to the alerts and manifests of the demo, in order.
var expectedChanges = map[string][]string{
	"WebNotReady":  {"firing", "resolved"},
	"CrashBackOff": {"firing", "snapshot dry-run"},
	brokenEdit.file: {
		"refused", "accepted",
	},
}

// progress is what has happened so far.
type progress struct {
	reached map[string]int // the number of states that each pod, alert and manifest has reached
	// web is the instance of web that runs while its manifest is refused. disturbed says what happened to it, if anything did.
	web       types.UID
	disturbed string
}

func newProgress() *progress { return &progress{reached: map[string]int{}} }

// milestone is a state of a pod, an alert or a manifest: the first, second or third of those that are expected.
type milestone struct {
	object string
	count  int
}

func (p *progress) has(milestones []milestone) bool {
	return !slices.ContainsFunc(milestones, func(m milestone) bool { return p.reached[m.object] < m.count })
}

// updatePod updates the progress with a change of a pod.
func (p *progress) updatePod(pod *v1.Pod) {
	for name, states := range expectedStates {
		if next := p.reached[name]; pod.Name == podName(name) && next < len(states) && states[next].isReached(pod) {
			p.reached[name]++
		}
	}
	if pod.Name == podName("web") {
		p.updateWeb(pod)
	}
}

// updateWeb notices if the refused manifest does anything to the pod.
func (p *progress) updateWeb(pod *v1.Pod) {
	switch p.reached[brokenEdit.file] {
	case 0:
		p.web = pod.UID
	case 1:
		for i := range pod.Status.ContainerStatuses {
			if restarts := pod.Status.ContainerStatuses[i].RestartCount; restarts > 0 {
				p.disturbed = fmt.Sprintf("web was restarted %d times by a broken edit", restarts)
			}
		}
		if pod.UID != p.web || pod.DeletionTimestamp != nil {
			p.disturbed = "web was replaced by a broken edit"
		}
	}
}

// updateRecord updates the progress with a record of an alert, an action or a manifest.
func (p *progress) updateRecord(record *history.Record) {
	name, change := describeRecord(record)
	if changes := expectedChanges[name]; p.reached[name] < len(changes) && changes[p.reached[name]] == change {
		p.reached[name]++
	}
}

// describeRecord returns the alert or manifest of a record, and what happened.
func describeRecord(record *history.Record) (name, change string) {
	switch {
	case record.Alert != nil:
		return record.Alert.Labels[alert.LabelName], string(record.Alert.State)
	case record.Action != nil:
		return record.Action.Rule, record.Action.Type + " " + record.Action.Decision
	case record.Source != nil && record.Source.Resolved:
		return filepath.Base(record.Source.Location), "accepted"
	case record.Source != nil:
		return filepath.Base(record.Source.Location), "refused"
	default:
		return "", ""
	}
}

// missing returns what was expected and has not happened, and what has happened and should not have.
func (p *progress) missing() []string {
	var missing []string
	for name, states := range expectedStates {
		for _, state := range states[p.reached[name]:] {
			missing = append(missing, fmt.Sprintf("%s %s", name, state.text))
		}
	}
	for name, changes := range expectedChanges {
		for _, change := range changes[p.reached[name]:] {
			missing = append(missing, fmt.Sprintf("%s: %s", name, change))
		}
	}
	slices.Sort(missing)
	if p.disturbed != "" {
		missing = append(missing, p.disturbed)
	}
	return missing
}
