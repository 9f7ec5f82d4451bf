package status_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// openManager makes a manager that keeps its state in the folder until the test ends or close is called.
func openManager(t *testing.T, folder string) (m *status.Manager, closeState func()) {
	t.Helper()
	dir, err := checkpoint.Open(folder, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeState = sync.OnceFunc(func() { dir.Close() })
	t.Cleanup(closeState)
	if m, err = status.New(status.Config{Pods: pod.NewManager(), State: dir}); err != nil {
		t.Fatal(err)
	}
	return m, closeState
}

func podWithRequests(uid types.UID) *v1.Pod {
	cpu := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid)}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Requests: cpu}}},
		Containers:     []v1.Container{{Name: "web", Resources: v1.ResourceRequirements{Requests: cpu}}, {Name: "log"}},
	}}
}

func TestSM83AnAllocationSurvivesARestart(t *testing.T) {
	folder := t.TempDir()
	m, closeState := openManager(t, folder)
	if _, found := m.GetContainerResourceAllocation("u", "web"); found {
		t.Fatal("something was granted before anything was")
	}
	if err := m.SetPodAllocation(podWithRequests("u")); err != nil {
		t.Fatal(err)
	}
	if err := m.SetPodResizeStatus("u", v1.PodResizeStatusDeferred); err != nil {
		t.Fatal(err)
	}
	closeState()
	m, _ = openManager(t, folder)
	granted, found := m.GetContainerResourceAllocation("u", "web")
	if !found || granted.Cpu().String() != "100m" {
		t.Fatalf("granted: %v, %v", granted, found)
	}
	if _, found := m.GetContainerResourceAllocation("u", "log"); !found {
		t.Fatal("a container without requests is not there")
	}
	if _, found := m.GetContainerResourceAllocation("u", "init"); !found { // SM-87
		t.Fatal("an init container is not there")
	}
	if decision, found := m.GetPodResizeStatus("u"); !found || decision != v1.PodResizeStatusDeferred { // SM-84
		t.Fatalf("decided: %q, %v", decision, found)
	}
}

func TestSM82TheCallerCannotChangeWhatWasGranted(t *testing.T) {
	m, _ := openManager(t, t.TempDir())
	p := podWithRequests("u")
	if err := m.SetPodAllocation(p); err != nil {
		t.Fatal(err)
	}
	p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("9")
	mine, _ := m.GetContainerResourceAllocation("u", "web")
	mine[v1.ResourceCPU] = resource.MustParse("8")
	if granted, _ := m.GetContainerResourceAllocation("u", "web"); granted.Cpu().String() != "100m" {
		t.Fatalf("granted: %v", granted)
	}
}

func TestSM84AnEmptyDecisionForgetsTheLastOne(t *testing.T) {
	m, _ := openManager(t, t.TempDir())
	if err := m.SetPodResizeStatus("u", v1.PodResizeStatusDeferred); err != nil {
		t.Fatal(err)
	}
	if err := m.SetPodResizeStatus("u", ""); err != nil {
		t.Fatal(err)
	}
	if decision, found := m.GetPodResizeStatus("u"); found {
		t.Fatalf("decided: %q", decision)
	}
}

func TestSM81AndSM85UnknownAllocationsKeepTheManagerFromStarting(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "pod-allocations"), []byte("{ torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := checkpoint.Open(folder, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err = status.New(status.Config{Pods: pod.NewManager(), State: dir}); err == nil || !strings.Contains(err.Error(), "drain the node") {
		t.Fatalf("the error is %v", err)
	}
}

func TestSM86APodThatIsForgottenTakesItsAllocationWithIt(t *testing.T) {
	folder := t.TempDir()
	m, closeState := openManager(t, folder)
	for _, uid := range []types.UID{"gone", "here"} {
		if err := m.SetPodAllocation(podWithRequests(uid)); err != nil {
			t.Fatal(err)
		}
		if err := m.SetPodResizeStatus(podid.UID(uid), v1.PodResizeStatusDeferred); err != nil {
			t.Fatal(err)
		}
	}
	m.RemoveOrphanedStatuses(map[types.UID]bool{"here": true})
	if err := m.SetPodResizeStatus("here", v1.PodResizeStatusInfeasible); err != nil { // SM-87: the next change writes
		t.Fatal(err)
	}
	closeState()
	m, _ = openManager(t, folder)
	for uid, want := range map[podid.UID]bool{"gone": false, "here": true} {
		_, granted := m.GetContainerResourceAllocation(uid, "web")
		_, decided := m.GetPodResizeStatus(uid)
		if granted != want || decided != want {
			t.Fatalf("%s: granted %v, decided %v", uid, granted, decided)
		}
	}
}

func TestAllocationsOfManyPodsAreSetAtOnceAndNoneIsLost(t *testing.T) {
	folder := t.TempDir()
	m, closeState := openManager(t, folder)
	uids := []types.UID{"a", "b", "c", "d", "e", "f"}
	var setters sync.WaitGroup
	for _, uid := range uids {
		setters.Go(func() {
			if err := m.SetPodAllocation(podWithRequests(uid)); err != nil {
				t.Error(err)
			}
			m.RemoveOrphanedStatuses(map[types.UID]bool{"a": true, "b": true, "c": true, "d": true, "e": true, "f": true})
		})
	}
	setters.Wait()
	closeState()
	m, _ = openManager(t, folder)
	for _, uid := range uids {
		if _, found := m.GetContainerResourceAllocation(podid.UID(uid), "web"); !found {
			t.Errorf("%s was lost", uid)
		}
	}
}
