package node_test

import (
	"net/netip"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

func TestAPodRunsIsReachedAndIsDeletedInPeace(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	watch := tr.watchWithKubectl("web")
	tr.bind(tr.keepsDiary(newPod("web", runs("main", "work", diaryPath+"/main", "main", "--on-term", "200ms"))))
	p := tr.Await("web", "ready", isReady)
	address, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil || !address.Is4() || p.Status.HostIP != tr.settings.Address.String() {
		t.Errorf("its addresses are %q and %q", p.Status.PodIP, p.Status.HostIP)
	}
	if got := tr.kubectl("get", "pod", "web", "--no-headers"); !strings.HasPrefix(got, "web   1/1   Running   0 ") {
		t.Errorf("kubectl prints %q", got)
	}
	watch.mustHaveSeen(t, "Running")
	tr.mustHaveWritten("main", "main started")
	tr.kubectl("delete", "pod", "web")
	tr.AwaitDeleted("web")
	tr.mustHaveWritten("main", "main started", "main ended")
	watch.mustHaveSeen(t, "Running", "Terminating", "Completed")
}

func TestPW13AResizeIsNotAppliedAndItsPodSaysSo(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	p := newPod("sized", runs("main", "pause"))
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m")}
	tr.bind(p)
	tr.Await("sized", "ready", isReady)
	resize := func(cpu string) {
		tr.kubectl("patch", "pod", "sized", "--subresource", "resize",
			"--patch", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"`+cpu+`"}}}]}}`)
	}
	resize("20m")
	refused := tr.Await("sized", "not resized", func(p *v1.Pod) bool {
		pending := recorder.PodCondition(&p.Status, v1.PodResizePending)
		return pending.Reason == v1.PodReasonInfeasible && pending.ObservedGeneration == p.Generation
	})
	if has := containerOf(refused, "main").AllocatedResources[v1.ResourceCPU]; has.String() != "10m" {
		t.Errorf("it was granted %s", has.String())
	}
	tr.awaitEvent("sized", "ResizeInfeasible", "")
	resize("10m")
	got := tr.Await("sized", "as it was", func(p *v1.Pod) bool {
		return recorder.PodCondition(&p.Status, v1.PodResizePending).Status == ""
	})
	if !isReady(got) || containerOf(got, "main").RestartCount > 0 {
		t.Errorf("its status is %+v", got.Status)
	}
}
