package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/podid"
)

// writeManifest puts a static pod on the node, or another in its place.
func (tr *trial) writeManifest(name, word string) string {
	tr.t.Helper()
	file := filepath.Join(tr.settings.Manifests, tr.Namespace+"-"+name+".yaml")
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: main, image: %q, command: [/testpod, work, /diary/%s, %s], volumeMounts: [{name: diary, mountPath: /diary}]}
  volumes: [{name: diary, hostPath: {path: %s}}]
`, name, tr.Namespace, containerd.TestpodImage, name, word, tr.diary)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() { _ = os.Remove(file) }) // the test may have done so
	return file
}

func TestAStaticPodIsSeenWithKubectlEditedAndRemoved(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	file := tr.writeManifest("web", "one")
	mirror := "web-" + tr.NodeName
	first := tr.Await(mirror, "ready", isReady)
	if !podid.IsMirror(first) || first.Status.PodIP == "" {
		t.Errorf("the mirror is %+v", first.ObjectMeta)
	}
	if got := tr.kubectl("get", "pod", mirror, "--no-headers"); !strings.HasPrefix(got, mirror+"   1/1   Running   0 ") {
		t.Errorf("kubectl prints %q", got)
	}
	tr.writeManifest("web", "two")
	tr.Await(mirror, "of the second edition", func(p *v1.Pod) bool { return p.UID != first.UID && isReady(p) })
	tr.mustHaveWritten("web", "one started", "one ended", "two started")

	tr.kubectl("delete", "pod", mirror, "--wait=false")
	second := tr.Await(mirror, "back", func(p *v1.Pod) bool { return p.DeletionTimestamp == nil && isReady(p) })
	tr.mustHaveWritten("web", "one started", "one ended", "two started")

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	tr.AwaitDeleted(mirror)
	tr.mustHaveWritten("web", "one started", "one ended", "two started", "two ended")
	if id := containerOf(second, "main").ContainerID; id == "" {
		t.Error("the mirror showed no container")
	}
}
