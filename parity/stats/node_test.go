// Package stats_test compares the numbers of the real kubelet and of Herald: both serve /stats/summary and /metrics/resource of the same
// containers, one after the other, on a node that changes hands. It runs on the installed containerd, and with CONTAINERD=2 on 2.x.
package stats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

const (
	nodeName  = "measured"
	namespace = "stats"
	// heldMebibytes is what the pod holder has in memory.
	heldMebibytes = 64
	// fileSize is the size of the file in the emptyDir of the pod disk.
	fileSize = 1 << 20
)

// node is one node with two agents, of which at most one runs.
type node struct {
	*recorder.Recorder
	t          *testing.T
	containerd *containerd.Containerd
	kubelet    *agents.Agent
	herald     agents.Program
	place      agents.Config
	running    *agents.Agent
}

func newNode(t *testing.T) *node {
	t.Helper()
	needs.Containers(t)
	kubelet, err := agents.BuildKubelet(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t}
	if n.herald, err = agents.BuildHerald(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	cluster := recorder.ForTest(t)
	n.containerd = containerd.ForTest(t)
	n.place = agents.Config{
		ControlPlane: cluster.ControlPlane, Containerd: n.containerd, NodeName: nodeName, Handover: true, ServeHTTP: true,
	}
	if n.kubelet, err = kubelet.NewAgent(n.place); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	n.createNamespace(cluster)
	n.Recorder = recorder.Watch(t, cluster, nodeName, namespace)
	return n
}

func (n *node) createNamespace(cluster *recorder.Cluster) {
	n.t.Helper()
	core, ctx := recorder.NewClient(n.t, cluster.AdminConfig()).CoreV1(), n.t.Context()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, namespaceErr := core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: meta(namespace)}, metav1.CreateOptions{})
	_, accountErr := core.ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta("default")}, metav1.CreateOptions{})
	settings := &v1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"colour": "green"}}
	_, settingsErr := core.ConfigMaps(namespace).Create(ctx, settings, metav1.CreateOptions{})
	if err := errors.Join(namespaceErr, accountErr, settingsErr); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) close() {
	if n.t.Failed() && n.running != nil {
		n.t.Logf("end of the log:\n%s", n.running.LogTail())
	}
	var errs []error
	if n.running != nil {
		errs = append(errs, n.running.Stop())
	}
	if err := errors.Join(append(errs, n.containerd.Close(), n.kubelet.RemoveCgroups())...); err != nil {
		n.t.Error(err)
	}
}

func (n *node) start(agent *agents.Agent) {
	n.t.Helper()
	if err := agent.Start(n.t.Context()); err != nil {
		_ = agent.Kill() // it may have exited on its own
		n.t.Fatal(err)
	}
	n.running = agent
}

// handOver stops the kubelet and starts Herald on the same containers.
func (n *node) handOver() *agents.Agent {
	n.t.Helper()
	found, err := n.Admin.CoreV1().Nodes().Get(n.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, address := range found.Status.Addresses {
		if address.Type == v1.NodeInternalIP {
			n.place.NodeIP = address.Address
		}
	}
	herald, err := n.herald.NewAgent(n.place)
	if err != nil {
		n.t.Fatal(err)
	}
	n.running = nil
	if err := n.kubelet.Stop(); err != nil {
		n.t.Fatal(err)
	}
	n.start(herald)
	return herald
}

// createPods creates the pods and waits until they run.
func (n *node) createPods() {
	n.t.Helper()
	for _, pod := range pods() {
		if _, err := n.Admin.CoreV1().Pods(namespace).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	for _, pod := range pods() {
		n.Await(pod.Name, "ready", func(pod *v1.Pod) bool {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == v1.PodReady {
					return condition.Status == v1.ConditionTrue
				}
			}
			return false
		})
	}
	uid := n.Await("disk", "created", func(*v1.Pod) bool { return true }).UID
	dir := filepath.Join(n.kubelet.RootDir(), "pods", string(uid), "volumes/kubernetes.io~empty-dir/data")
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, fileSize), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// pods returns one pod of each kind of use.
func pods() []*v1.Pod {
	limits := func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("200m"), v1.ResourceMemory: resource.MustParse("256Mi"),
		}
	}
	return []*v1.Pod{
		newPod("busy", []string{"spin"}, limits),
		newPod("holder", []string{"hold", fmt.Sprint(heldMebibytes)}, limits),
		newPod("idle", []string{"pause"}, func(pod *v1.Pod) {
			second := pod.Spec.Containers[0]
			second.Name = "second"
			pod.Spec.Containers = append(pod.Spec.Containers, second)
		}),
		newPod("disk", []string{"pause"}, func(pod *v1.Pod) {
			volume := func(name string, source v1.VolumeSource) {
				pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
				pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
			}
			volume("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
			volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
				Medium: v1.StorageMediumMemory, SizeLimit: new(resource.MustParse("8Mi")),
			}})
			volume("settings", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "settings"},
			}})
			volume("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/usr/share"}})
		}),
		newPod("host", []string{"pause"}, func(pod *v1.Pod) { pod.Spec.HostNetwork = true }),
	}
}

func newPod(name string, command []string, mutate ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1.PodSpec{
			NodeName: nodeName, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []v1.Container{{
				Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent,
				Command: append([]string{"/testpod"}, command...),
			}},
		},
	}
	for _, change := range mutate {
		change(pod)
	}
	return pod
}

// get returns what the agent serves at a path.
func get(ctx context.Context, agent *agents.Agent, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+agent.HTTPAddress()+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %s", path, response.Status, content)
	}
	return string(content), err
}
