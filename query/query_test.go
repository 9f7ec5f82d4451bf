package query_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/query"
	"github.com/heraldnode/herald/view"
)

var now = time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC)

func scene() query.Scene {
	return query.Scene{Now: now, Node: func() *view.NodeView { return &view.NodeView{} }}
}

func newEnvironment(tb testing.TB) *expression.Environment {
	tb.Helper()
	environment, err := expression.NewEnvironment()
	if err != nil {
		tb.Fatal(err)
	}
	return environment
}

func newPods() []view.PodView {
	newPod := func(namespace, name, app string, phase v1.PodPhase) view.PodView {
		return view.PodView{
			Metadata: view.Metadata{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
			Spec:     view.Spec{NodeName: "n1", RestartPolicy: "Always"},
			Local:    view.Status{Status: v1.PodStatus{Phase: phase, PodIP: "10.0.0." + name[len(name)-1:]}},
		}
	}
	return []view.PodView{
		newPod("shop", "web-1", "web", v1.PodRunning), newPod("shop", "db-2", "db", v1.PodPending), newPod("bank", "web-3", "web", v1.PodRunning),
	}
}

func TestFilter(t *testing.T) {
	tests := map[string]struct {
		selection query.Selection
		want      string
	}{
		"all":                     {query.Selection{}, "web-1 db-2 web-3"},
		"namespace":               {query.Selection{Namespace: "shop"}, "web-1 db-2"},
		"label":                   {query.Selection{LabelSelector: "app=web"}, "web-1 web-3"},
		"set of labels":           {query.Selection{LabelSelector: "app in (db,cache),!old"}, "db-2"},
		"phase":                   {query.Selection{FieldSelector: "status.phase!=Running"}, "db-2"},
		"several fields":          {query.Selection{FieldSelector: "metadata.namespace=shop,metadata.name=web-1,spec.nodeName=n1"}, "web-1"},
		"restart policy and host": {query.Selection{FieldSelector: "spec.restartPolicy=Always,spec.hostNetwork=true"}, ""},
		"addresses":               {query.Selection{FieldSelector: "status.podIP=10.0.0.3"}, "web-3"},
		"expression":              {query.Selection{Where: "pod.phase == 'Running' && pod.namespace == 'bank'"}, "web-3"},
		"all at once": {
			query.Selection{Namespace: "shop", LabelSelector: "app", FieldSelector: "status.phase=Running", Where: "!pod.ready"}, "web-1",
		},
	}
	environment := newEnvironment(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			filter, err := query.Parse(test.selection, environment)
			if err != nil {
				t.Fatal(err)
			}
			pods, err := filter.Pods(newPods(), scene())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for i := range pods {
				names = append(names, pods[i].Metadata.Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParse_Errors(t *testing.T) {
	environment := newEnvironment(t)
	for want, selection := range map[string]query.Selection{
		"labelSelector: ": {LabelSelector: "a in b"},
		"fieldSelector: ": {FieldSelector: "status.phase"},
		"fieldSelector: field label not supported: spec.color": {FieldSelector: "spec.color=red"},
		"where: column 4: undefined field 'color'":             {Where: "pod.color == 'red'"},
	} {
		if _, err := query.Parse(selection, environment); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestFilter_Cost checks that an expression that is cheap for one pod is refused for many.
func TestFilter_Cost(t *testing.T) {
	filter, err := query.Parse(query.Selection{Where: "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, a + b > 0)) && pod.ready"}, newEnvironment(t))
	if err != nil {
		t.Fatal(err)
	}
	pods := make([]view.PodView, 20_000)
	if _, err := filter.Pods(pods[:100], scene()); err != nil {
		t.Error(err)
	}
	if _, err := filter.Pods(pods, scene()); !query.IsCost(err) {
		t.Errorf("got %v, want an error about the cost", err)
	}
}

// TestFilter_FailingExpression checks that an expression that fails for a pod is an error that names the pod, not a pod that does not match.
func TestFilter_FailingExpression(t *testing.T) {
	filter, err := query.Parse(query.Selection{Where: "pod.containers[0].ready"}, newEnvironment(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filter.Pods(newPods(), scene()); err == nil || !strings.Contains(err.Error(), "shop/web-1") {
		t.Errorf("got %v, want the pod", err)
	}
}

func TestTransition(t *testing.T) {
	tests := []struct {
		before  query.Membership
		matches bool
		want    view.WatchType
	}{
		{query.Outside, true, view.Added},
		{query.Inside, true, view.Modified},
		{query.Unknown, true, view.Modified},
		{query.Outside, false, ""},
		{query.Inside, false, view.Deleted},
		{query.Unknown, false, view.Deleted},
	}
	for _, test := range tests {
		if got := query.Transition(test.before, test.matches); got != test.want {
			t.Errorf("%v, %v: got %q, want %q", test.before, test.matches, got, test.want)
		}
	}
}

func TestPageParameters(t *testing.T) {
	if limit, err := query.ParseLimit(""); limit != query.DefaultLimit || err != nil {
		t.Errorf("got %d, %v", limit, err)
	}
	for _, text := range []string{"0", "-1", "1001", "x"} {
		if _, err := query.ParseLimit(text); err == nil {
			t.Errorf("limit %s is no error", text)
		}
	}
	if _, err := query.ParseSequence("cursor", "-1"); err == nil {
		t.Error("cursor -1 is no error")
	}
	for text, want := range map[string]time.Time{"": {}, "10m": now.Add(-10 * time.Minute), "2026-11-15T13:00:00Z": now.Add(-time.Hour)} {
		if got, err := query.ParseTime("since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	if _, err := query.ParseTime("since", "yesterday", now); err == nil {
		t.Error("yesterday is no error")
	}
}
