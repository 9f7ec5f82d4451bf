package nodeapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/deed"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
)

// apiPod is an inspector that knows one pod of the API server.
type apiPod struct{ pod *v1.Pod }

func (p apiPod) Facts(context.Context, podid.FullName) (explain.Facts, bool) {
	return explain.Facts{Pod: p.pod}, p.pod != nil
}

func (p apiPod) Pod(ctx context.Context, name podid.FullName) (view.PodView, bool) {
	facts, found := p.Facts(ctx, name)
	return view.NewPod(facts), found
}

func (apiPod) Node(context.Context) view.NodeView { return view.NodeView{} }

func (apiPod) AddLoads([]view.PodView) {}

func (apiPod) RestartByAction(context.Context, podid.FullName, string, string) (view.Restart, error) {
	return view.Restart{}, errors.ErrUnsupported
}

func (apiPod) CheckProbe(context.Context, podid.FullName, string, explain.ProbeKind) ([]view.ProbeCheck, error) {
	return nil, errors.ErrUnsupported
}

// do carries out an action with the permissions of a node.
func do(t *testing.T, nodeName string, kind remedy.Type, pod *v1.Pod) (string, error) {
	t.Helper()
	client, err := kubeapi.New(cluster.NodeConfig(nodeName))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseConnections()
	deeds, err := deed.New(deed.Config{NodeName: nodeName, Inspector: apiPod{pod}, API: client})
	if err != nil {
		t.Fatal(err)
	}
	request := action.Request{ID: 7, Type: kind, Alert: alert.Alert{Labels: alert.Labels{alert.LabelName: "DiskBroken"}}}
	if pod != nil {
		request.Object = remedy.Object{Namespace: pod.Namespace, Pod: pod.Name}
	}
	return deeds.Do(t.Context(), request)
}

func createNode(t *testing.T, name string) {
	t.Helper()
	client, err := kubeapi.New(cluster.NodeConfig(name))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseConnections()
	if _, err := client.CreateNode(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// TestR6_Cordon: a node may make itself unschedulable, and undoes only what it did itself.
func TestR6_Cordon(t *testing.T) {
	const name = "cordon"
	createNode(t, name)
	want := func(step string, unschedulable, annotated bool) {
		t.Helper()
		node := getNode(t, name)
		_, isAnnotated := node.Annotations[deed.CordonAnnotation]
		if node.Spec.Unschedulable != unschedulable || isAnnotated != annotated {
			t.Fatalf("%s: got unschedulable %v, annotations %v", step, node.Spec.Unschedulable, node.Annotations)
		}
	}
	mustDo := func(kind remedy.Type) string {
		t.Helper()
		message, err := do(t, name, kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		return message
	}
	mustDo(remedy.Cordon)
	want("cordon", true, true)
	if got := getNode(t, name).Annotations[deed.CordonAnnotation]; got != "action 7, alert DiskBroken" {
		t.Errorf("got annotation %q", got)
	}
	mustDo(remedy.Cordon)
	mustDo(remedy.Uncordon)
	want("uncordon", false, false)

	kubectl(t, "cordon", name)
	if _, err := do(t, name, remedy.Cordon, nil); !errors.Is(err, action.ErrRefused) {
		t.Errorf("got %v, want a refusal: the operator did it", err)
	}
	mustDo(remedy.Uncordon)
	want("the operator's cordon", true, false)
	kubectl(t, "uncordon", name)

	mustDo(remedy.Cordon)
	kubectl(t, "uncordon", name)
	mustDo(remedy.Uncordon)
	want("the operator was first", false, false)
}

// createPod creates a running pod on a node.
func createPod(t *testing.T, name, nodeName string) *v1.Pod {
	t.Helper()
	pods := admin(t).CoreV1().Pods("default")
	pod, err := pods.Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{
			NodeName: nodeName, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []v1.Container{{Name: "main", Image: "example.test/image"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = v1.PodRunning
	if pod, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestEviction: a node may evict its own pods unless a disruption budget forbids it, and no others.
func TestEviction(t *testing.T) {
	createNode(t, "evicts")
	createNode(t, "other")
	protected := createPod(t, "protected", "evicts")
	budgets := admin(t).PolicyV1().PodDisruptionBudgets("default")
	budget, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "protected"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: protected.Labels},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, ExpectedPods: 1, DesiredHealthy: 1, CurrentHealthy: 0}
	if _, err := budgets.UpdateStatus(t.Context(), budget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = do(t, "evicts", remedy.RestartPod, protected)
	if !errors.Is(err, action.ErrRefused) || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("got %v, want a refusal by the budget", err)
	}
	free := createPod(t, "free", "evicts")
	replaced := free.DeepCopy()
	replaced.UID = "another"
	if _, err := do(t, "evicts", remedy.RestartPod, replaced); !errors.Is(err, action.ErrRefused) {
		t.Errorf("got %v, want a refusal: the name belongs to another pod", err)
	}
	if _, err := do(t, "other", remedy.RestartPod, free); !errors.Is(err, action.ErrRefused) {
		t.Errorf("got %v, want a refusal: the pod is on another node", err)
	}
	for _, pod := range []*v1.Pod{free, protected} {
		stored, err := admin(t).CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil || stored.DeletionTimestamp != nil {
			t.Fatalf("got %v, %v, want a pod that nobody deleted", stored.DeletionTimestamp, err)
		}
	}
	if message, err := do(t, "evicts", remedy.RestartPod, free); err != nil || message != "evicted" {
		t.Fatalf("got %q, %v, want an eviction", message, err)
	}
	stored, err := admin(t).CoreV1().Pods("default").Get(t.Context(), "free", metav1.GetOptions{})
	if err != nil || stored.DeletionTimestamp == nil || *stored.DeletionGracePeriodSeconds != 30 {
		t.Errorf("got %v, %v, want a graceful deletion", stored.DeletionTimestamp, err)
	}
}
