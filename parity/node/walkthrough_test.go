package node_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/podid"
)

// apply gives kubectl a manifest.
func (tr *trial) apply(manifest string) {
	tr.t.Helper()
	cmd := tr.kubectlCommand(tr.t.Context(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		tr.t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

func TestFromReadyToKubectl(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	kubectl := tr.watchWithKubectl("my-web-server")
	herald := tr.watchWithHerald("my-web-server")
	tr.apply(`apiVersion: v1
kind: Pod
metadata: {name: my-web-server}
spec:
  nodeName: ` + tr.NodeName + `
  terminationGracePeriodSeconds: 5
  containers:
  - name: web
    image: ` + containerd.TestpodImage + `
    args: [serve]
    readinessProbe:
      httpGet: {path: /readyz, port: 8080}
      periodSeconds: 1
      failureThreshold: 1
`)
	const lost, found = "0/1     Running", "1/1     Running"
	address := tr.Await("my-web-server", "ready", isReady).Status.PodIP
	web := server{"web", 8080}
	tr.makeServer(web, "", true)
	before := tr.patches("my-web-server")
	tr.makeServer(web, address, false)
	kubectl.mustHaveSeen(t, found, lost)
	if sent := tr.patches("my-web-server") - before; sent != 1 {
		t.Errorf("one change was told with %d requests", sent)
	}
	tr.makeServer(web, address, true)
	for _, watch := range []*podWatch{kubectl, herald} {
		watch.mustHaveSeen(t, "ContainerCreating", lost, found, lost, found)
	}
	tr.kubectl("delete", "pod", "my-web-server")
	tr.AwaitDeleted("my-web-server")
	for _, watch := range []*podWatch{kubectl, herald} {
		watch.mustHaveSeen(t, "Terminating")
	}
}

// patches counts how often the agent wrote the pod's status.
func (tr *trial) patches(name string) int {
	tr.t.Helper()
	sent, err := tr.Cluster.StatusWrites(tr.NodeName, name)
	if err != nil {
		tr.t.Fatal(err)
	}
	return sent
}

// The API server is away when the file is found: a node runs its static pods all the same, and tells later. It is not
// parallel since it takes the control plane away.
func TestFromStaticFileToKubectl(t *testing.T) {
	tr := tryAlone(t, "island")
	server := tr.cluster.APIServer
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	back := sync.OnceFunc(func() {
		if err := server.Start(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(back)
	file := tr.writeManifest("logging-agent", "agent")
	name := "logging-agent-" + tr.NodeName
	recorder.Eventually(t, "what the node says by itself", func() (string, bool) {
		got, err := tr.heraldCommand(t.Context(), "get", "pods", name).CombinedOutput()
		return string(got), err == nil && strings.Contains(string(got), "1/1     Running")
	})
	tr.mustHaveWritten("logging-agent", "agent started")
	back()
	mirror := tr.Await(name, "ready", isReady)
	if !podid.IsMirror(mirror) {
		t.Errorf("it is no mirror: %+v", mirror.ObjectMeta)
	}
	if got := tr.kubectl("get", "pods", "--no-headers"); !strings.HasPrefix(got, name+"   1/1   Running   0 ") {
		t.Errorf("kubectl prints %q", got)
	}
	tr.kubectl("delete", "pod", name, "--wait=false")
	recorder.Eventually(t, "the mirror after its deletion", func() (string, bool) {
		got := tr.kubectl("get", "pods", name, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
		return got, got != "" && got != string(mirror.UID)
	})
	tr.Await(name, "ready again", isReady)
	tr.mustHaveWritten("logging-agent", "agent started")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	tr.AwaitDeleted(name)
	tr.mustHaveWritten("logging-agent", "agent started", "agent ended")
}
