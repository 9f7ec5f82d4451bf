package node_test

import (
	"net/netip"
	"strings"
	"testing"
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
	tr.AwaitEnd("web")
	tr.mustHaveWritten("main", "main started", "main ended")
	watch.mustHaveSeen(t, "Running", "Terminating", "Completed")
}
