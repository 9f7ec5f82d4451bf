package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/podid"
)

// newPodsInAllStates returns pods and the status that kubectl shows for each in its final state.
func (h *harness) newPodsInAllStates() map[*v1.Pod]string {
	image := newPod("no-image", newContainer("main", "pause"))
	image.Spec.Containers[0].Image = "127.0.0.1:1/absent:1"
	never := newPod("never-pulled", newContainer("main", "pause"))
	never.Spec.Containers[0].Image, never.Spec.Containers[0].ImagePullPolicy = "herald.test/absent:1", v1.PullNever
	initializing := newPod("initializing", newContainer("main", "pause"))
	initializing.Spec.InitContainers = []v1.Container{newContainer("first", "exit", "0"), newContainer("second", "sleep", "1h")}
	failedInit := newPod("failed-init", newContainer("main", "pause"))
	failedInit.Spec.InitContainers = []v1.Container{newContainer("first", "exit", "9")}
	steady := newPod("steady", newContainer("main", "pause"))
	steady.Labels = map[string]string{"app": "web"}
	gated := newPod("gated", newContainer("main", "pause"), newContainer("other", "pause"))
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/open"}}
	unready := h.newServerPod("unready", func(c *v1.Container, _ server) {
		c.ReadinessProbe = newProbe(v1.ProbeHandler{Exec: &v1.ExecAction{Command: testpod("exit", "1")}})
	})
	unconfigured := newPod("unconfigured", newContainer("main", "pause"))
	unconfigured.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: objectRef("absent")}}}
	return map[*v1.Pod]string{
		steady: "Running",
		newJob("completed", newContainer("main", "exit", "0")):                               "Completed",
		newJob("failed", newContainer("main", "exit", "3")):                                  "Error",
		newPod("crashing", newContainer("main", "exit", "1"), newContainer("fine", "pause")): "CrashLoopBackOff",
		image: "ImagePullBackOff", never: "ErrImageNeverPull", initializing: "Init:1/2", failedInit: "Init:CrashLoopBackOff",
		gated: "Running", unready: "Running", unconfigured: "CreateContainerConfigError",
	}
}

func TestHeraldGetPods_SameAsKubectl(t *testing.T) {
	t.Parallel()
	h := newOwnNode(t, "tables")
	pods := h.newPodsInAllStates()
	for p := range pods {
		h.createPod(p)
	}
	for p, status := range pods {
		heraldtest.Eventually(t, func() error {
			if got := h.kubectl("get", "pod", p.Name, "--no-headers"); !strings.Contains(got, " "+status+" ") {
				return fmt.Errorf("kubectl get pod: got %q, want %s", got, status)
			}
			return nil
		})
	}
	h.writeManifest("static", "static")
	h.Await("static-"+h.NodeName, "ready", isReady)
	for name, flags := range map[string][]string{
		"list":                   nil,
		"wide":                   {"-o", "wide"},
		"names":                  {"-o", "name"},
		"no headers":             {"--no-headers"},
		"one pod":                {"steady"},
		"some pods":              {"steady", "failed", "-o", "wide"},
		"by label":               {"-l", "app=web"},
		"by label without match": {"-l", "app=none"},
		"by field":               {"--field-selector", "status.phase=Running"},
	} {
		t.Run(name, func(t *testing.T) {
			awaitEqual(t, func() (string, string) {
				args := append([]string{"get", "pods"}, flags...)
				return h.kubectl(args...), h.herald(args...)
			})
		})
	}
	t.Run("all namespaces", func(t *testing.T) {
		awaitEqual(t, func() (string, string) {
			return h.kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName="+h.NodeName), h.herald("get", "pods", "-A")
		})
	})
	t.Run("objects", func(t *testing.T) { awaitEqual(t, func() (string, string) { return h.readStatuses(t) }) })
}

// awaitEqual waits until both outputs are equal: between two queries, an age or a pod may change.
func awaitEqual(t *testing.T, query func() (kubectl, herald string)) {
	t.Helper()
	heraldtest.Eventually(t, func() error {
		kubectl, herald := query()
		if diff := cmp.Diff(maskStaticAge(kubectl), maskStaticAge(herald)); diff != "" {
			return fmt.Errorf("outputs differ (-kubectl +herald):\n%s", diff)
		}
		return nil
	})
}

var age = regexp.MustCompile(`([0-9]+[dhms])+`)

// maskStaticAge returns the lines of a table without the ages of static pods: a mirror pod is created a moment after its static
// pod, which may be in the next second.
func maskStaticAge(table string) []string {
	lines := strings.Split(table, "\n")
	for i, line := range lines {
		if strings.Contains(line, "static-") {
			lines[i] = age.ReplaceAllString(line, "AGE")
		}
	}
	return lines
}

// readStatuses returns the statuses of all pods as printed by kubectl and herald.
func (h *harness) readStatuses(t *testing.T) (kubectl, herald string) {
	t.Helper()
	return statuses(t, h.kubectl("get", "pods", "-o", "json")), statuses(t, h.herald("get", "pods", "-o", "json"))
}

func statuses(t *testing.T, list string) string {
	t.Helper()
	var pods v1.PodList
	if err := json.Unmarshal([]byte(list), &pods); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(pods.Items, func(a, b v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var all strings.Builder
	for _, p := range pods.Items {
		status, err := json.MarshalIndent(p.Status, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %s\n", p.Name, status)
	}
	return all.String()
}

// writeManifest writes the manifest of a static pod, whose container logs under workName, and returns its path.
func (h *harness) writeManifest(name, workName string) string {
	h.t.Helper()
	file := filepath.Join(h.config.ManifestDir, h.Namespace+"-"+name+".yaml")
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: main, image: %q, command: [/testpod, work, /work/%s, %s], volumeMounts: [{name: work, mountPath: /work}]}
  volumes: [{name: work, hostPath: {path: %s}}]
`, name, h.Namespace, containerd.TestpodImage, name, workName, h.workDir)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = os.Remove(file) }) // the test may have removed it
	return file
}

func TestStaticPod_Kubectl(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	file := h.writeManifest("web", "one")
	mirror := "web-" + h.NodeName
	first := h.Await(mirror, "ready", isReady)
	if !podid.IsMirror(first) || first.Status.PodIP == "" {
		t.Errorf("got %+v with podIP %q, want a mirror with an address", first.ObjectMeta, first.Status.PodIP)
	}
	if got := h.kubectl("get", "pod", mirror, "--no-headers"); !strings.HasPrefix(got, mirror+"   1/1   Running   0 ") {
		t.Errorf("kubectl get pod: got %q", got)
	}
	h.writeManifest("web", "two")
	h.Await(mirror, "replaced after the change", func(p *v1.Pod) bool { return p.UID != first.UID && isReady(p) })
	h.awaitWorkLog("web", "one started", "one ended", "two started")

	h.kubectl("delete", "pod", mirror, "--wait=false")
	second := h.Await(mirror, "recreated", func(p *v1.Pod) bool { return p.DeletionTimestamp == nil && isReady(p) })
	h.awaitWorkLog("web", "one started", "one ended", "two started")

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	h.AwaitDeleted(mirror)
	h.awaitWorkLog("web", "one started", "one ended", "two started", "two ended")
	if id := containerStatus(second, "main").ContainerID; id == "" {
		t.Error("recreated mirror: got no container ID")
	}
}

// apply runs kubectl apply.
func (h *harness) apply(manifest string) {
	h.t.Helper()
	cmd := h.kubectlCommand(h.t.Context(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

func TestReadiness_Kubectl(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	kubectl := h.watchKubectl("my-web-server")
	herald := h.watchHerald("my-web-server")
	h.apply(`apiVersion: v1
kind: Pod
metadata: {name: my-web-server}
spec:
  nodeName: ` + h.NodeName + `
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
	const unready, ready = "0/1     Running", "1/1     Running"
	address := h.Await("my-web-server", "ready", isReady).Status.PodIP
	web := server{"web", 8080}
	h.setHealth(web, "", true)
	before := h.statusWrites("my-web-server")
	h.setHealth(web, address, false)
	kubectl.awaitOutput(t, ready, unready)
	if sent := h.statusWrites("my-web-server") - before; sent != 1 {
		t.Errorf("got %d status writes for one change, want 1", sent)
	}
	h.setHealth(web, address, true)
	herald.awaitOutput(t, "ContainerCreating", unready, ready, unready, ready)
	kubectl.awaitOutput(t, ready, unready, ready) // until it is ready, a pod that starts soon may take one request (ADR 19)
	h.kubectl("delete", "pod", "my-web-server")
	h.AwaitDeleted("my-web-server")
	for _, watch := range []*commandOutput{kubectl, herald} {
		watch.awaitOutput(t, "Terminating")
	}
}

// statusWrites counts the agent's writes of the pod's status.
func (h *harness) statusWrites(name string) int {
	h.t.Helper()
	sent, err := h.Cluster.StatusWrites(h.NodeName, name)
	if err != nil {
		h.t.Fatal(err)
	}
	return sent
}

// A node starts a static pod while the API server is down, and creates the mirror later. The test is sequential because it kills the
// API server.
func TestStaticPod_APIServerDown(t *testing.T) {
	h := newOwnNode(t, "island")
	server := h.cluster.APIServer
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	restartServer := sync.OnceFunc(func() {
		if err := server.Start(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(restartServer)
	file := h.writeManifest("logging-agent", "agent")
	name := "logging-agent-" + h.NodeName
	heraldtest.Eventually(t, func() error {
		got, err := h.heraldCommand(t.Context(), "get", "pods", name).CombinedOutput()
		if err != nil || !strings.Contains(string(got), "1/1     Running") {
			return fmt.Errorf("herald get pods: got %s, %w; want a running pod", got, err)
		}
		return nil
	})
	h.awaitWorkLog("logging-agent", "agent started")
	restartServer()
	mirror := h.Await(name, "ready", isReady)
	if !podid.IsMirror(mirror) {
		t.Errorf("got %+v, want a mirror", mirror.ObjectMeta)
	}
	if got := h.kubectl("get", "pods", "--no-headers"); !strings.HasPrefix(got, name+"   1/1   Running   0 ") {
		t.Errorf("kubectl get pod: got %q", got)
	}
	h.kubectl("delete", "pod", name, "--wait=false")
	heraldtest.Eventually(t, func() error {
		got := h.kubectl("get", "pods", name, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
		if got == "" || got == string(mirror.UID) {
			return fmt.Errorf("UID of the deleted mirror: got %q, want a new one", got)
		}
		return nil
	})
	h.Await(name, "ready again", isReady)
	h.awaitWorkLog("logging-agent", "agent started")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	h.AwaitDeleted(name)
	h.awaitWorkLog("logging-agent", "agent started", "agent ended")
}
