package replay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/cmd/herald/internal/replay"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

var start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// agent answers with records, as the server of an agent does, in pages of two.
type agent struct {
	records []history.Record
	pods    []view.PodView
}

func (a *agent) Node(context.Context) (view.NodeView, error) {
	return view.NodeView{Metadata: view.Metadata{Name: "n1"}}, nil
}

func (a *agent) PodViews(context.Context, url.Values) (view.PodViewList, error) {
	return view.PodViewList{Items: a.pods}, nil
}

func (a *agent) History(_ context.Context, parameters url.Values) (list server.HistoryList, err error) {
	var before uint64
	_, _ = fmt.Sscan(parameters.Get("cursor"), &before)
	since, _ := time.Parse(time.RFC3339Nano, parameters.Get("since"))
	for i := len(a.records) - 1; i >= 0; i-- {
		record := a.records[i]
		if before != 0 && record.Seq >= before || record.Time.Before(since) || !strings.Contains(parameters.Get("kind"), string(record.Kind)) ||
			parameters.Get("uid") != "" && parameters.Get("uid") != record.UID {
			continue
		}
		if len(list.Items) == 2 {
			list.Continue = fmt.Sprint(list.Items[1].Seq)
			return list, nil
		}
		list.Items = append(list.Items, record)
	}
	return list, nil
}

// add adds the record of a pod's new status.
func (a *agent) add(at time.Duration, pod string, before, after *v1.PodStatus, changes ...transition.Change) {
	record := history.Record{
		Seq: uint64(len(a.records) + 1), Time: start.Add(at), Kind: history.KindPod, PodRef: history.PodRef{Namespace: "shop", Name: pod, UID: pod},
	}
	record.Changes = changes
	if after != nil {
		record.Changes = transition.AppendPod(changes, before, after)
	}
	for i := range a.records {
		if a.records[i].UID == pod {
			record.Prev = a.records[i].Seq
		}
	}
	a.records = append(a.records, record)
}

func newStatus(ready bool, state v1.ContainerState, restarts int32) *v1.PodStatus {
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	return &v1.PodStatus{
		Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: status}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "web", Ready: ready, State: state, RestartCount: restarts, Started: new(ready)}},
	}
}

var (
	running = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	backOff = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
)

func parseRules(t *testing.T, rules string) *rule.Set {
	t.Helper()
	file, err := rule.Parse([]byte("apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: g\n  rules:\n"+rules), "r.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := rule.Merge(nil, file)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func describe(report *replay.Report) string {
	var text []string
	for i := range report.Rules {
		r := &report.Rules[i]
		text = append(text, fmt.Sprintf("%s %d longest %s total %s firing %d", r.Rule.Name, len(r.Episodes), r.Longest(report.Until), r.Total(report.Until), r.Firing()))
	}
	for _, s := range report.Skipped {
		text = append(text, "skipped "+s.Rule.Name+": "+s.Reads)
	}
	return strings.Join(text, "\n")
}

func TestReplay(t *testing.T) {
	a := &agent{}
	a.add(0, "old", nil, newStatus(false, backOff, 7)) // long before the book, and still so
	a.add(200*time.Hour, "web", nil, newStatus(true, running, 0))
	for i := range 3 {
		at := 201*time.Hour + time.Duration(i)*time.Hour
		a.add(at, "web", newStatus(true, running, 0), newStatus(false, running, 0))
		a.add(at+time.Duration(i+1)*10*time.Minute, "web", newStatus(false, running, 0), newStatus(true, running, 0))
	}
	a.add(210*time.Hour, "gone", nil, newStatus(false, running, 0))
	a.add(210*time.Hour+time.Minute, "gone", nil, nil, transition.Change{Field: transition.FieldRemoved})
	a.pods = []view.PodView{{Metadata: view.Metadata{Namespace: "shop", Name: "old", UID: "old"}}}
	until := start.Add(220 * time.Hour)
	book, err := replay.Read(t.Context(), a, until.Add(-24*time.Hour), until)
	if err != nil {
		t.Fatal(err)
	}
	set := parseRules(t, `
  - {alert: NotReady, on: pod, expr: "pod.phase == 'Running' && !pod.ready", for: 15m}
  - {alert: CrashLoop, on: container, expr: "container.reason == 'CrashLoopBackOff'"}
  - {alert: Flips, on: pod, expr: "pod.flipped('Ready', '30m') >= 2"}
  - {alert: Throttled, on: container, expr: "container.load.throttled > 0.5"}
  - {alert: Probe, on: container, expr: "container.probe_failing"}
  - {alert: Behind, on: pod, expr: "pod.behind > 0"}
  - {alert: Unreachable, on: node, expr: "!node.api_reachable"}
`)
	// The pod old fires since the start; web was not ready for 10, 20 and 30 minutes.
	want := `NotReady 3 longest 219h45m0s total 220h5m0s firing 1
CrashLoop 1 longest 220h0m0s total 220h0m0s firing 1
Flips 2 longest 20m0s total 30m0s firing 0
skipped Throttled: the load
skipped Probe: answers of probes
skipped Behind: what the API server has
skipped Unreachable: the state of the node`
	if got := describe(book.Run(set)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	other := book.Run(replay.WithFor(set, 5*time.Minute))
	if got, _, _ := strings.Cut(describe(other), "\n"); got != "NotReady 4 longest 219h55m0s total 220h40m0s firing 1" {
		t.Errorf("with for: 5m: got %s", got)
	}
	if book.Run(set).Pods != 3 {
		t.Errorf("got %d pods", book.Run(set).Pods)
	}
}

// TestH7_Rebuild applies the changes of random statuses and checks that rules see the same as they would have with the statuses.
func TestH7_Rebuild(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		pod := heraldtest.NewPod("web")
		p := replay.NewPod(&history.Record{PodRef: history.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: "1"}})
		var before *v1.PodStatus
		for step := range 20 {
			after := randomStatus(random, step)
			changes := transition.AppendPod(nil, before, after)
			p.Apply(changes, start)
			before = after
			rebuilt := p.Status()
			for _, change := range transition.AppendPod(nil, rebuilt, after) {
				// Messages are cut and IDs are not recorded.
				if change.Field != transition.FieldOther && change.Field != transition.FieldStarted || change.From != change.To {
					t.Fatalf("step %d: %+v differs: %s, rebuilt %+v, want %+v", step, change, change.Field, rebuilt, after)
				}
			}
		}
	}
}

func randomStatus(random *rand.Rand, step int) *v1.PodStatus {
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	status := &v1.PodStatus{Phase: v1.PodPhase(pick("Pending", "Running", "Failed")), Reason: pick("", "Evicted")}
	for _, conditionType := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		if random.IntN(4) > 0 {
			status.Conditions = append(status.Conditions, v1.PodCondition{Type: conditionType, Status: v1.ConditionStatus(pick("True", "False")), Reason: pick("", "x")})
		}
	}
	for _, name := range []string{"a", "b"} {
		c := v1.ContainerStatus{Name: name, RestartCount: int32(step), Ready: random.IntN(2) == 0, Started: new(random.IntN(2) == 0)}
		switch random.IntN(3) {
		case 0:
			c.State.Running = &v1.ContainerStateRunning{}
		case 1:
			c.State.Waiting = &v1.ContainerStateWaiting{Reason: pick("CrashLoopBackOff", "ErrImagePull"), Message: pick("", "y")}
		case 2:
			c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: int32(random.IntN(3)), Reason: pick("Error", "OOMKilled"), FinishedAt: metav1.NewTime(start)}
		}
		if random.IntN(5) > 0 {
			status.ContainerStatuses = append(status.ContainerStatuses, c)
		}
	}
	return status
}
