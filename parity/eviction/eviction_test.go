// Package eviction_test fills a small disk of a node with real components: an API server, containerd, and Herald as a process. The disk
// is a tmpfs of the test's own.
package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

const (
	nodeName  = "small"
	namespace = "full"
)

// config has a threshold that only the small disk can be below. A pressure holds until the end of the
// test.
const config = `rootDir: %s
evictionHard: {nodefs.available: 19Mi}
evictionPressureTransitionPeriod: 1h
`

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: protected, namespace: ` + namespace + `}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "%s", imagePullPolicy: IfNotPresent, command: [/testpod, store, /data/file, "20"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, emptyDir: {}}]
`

// node is a node whose pods have a disk of 64 MiB.
type node struct {
	*recorder.Recorder
	t *testing.T
}

func newNode(t *testing.T) *node {
	t.Helper()
	needs.Containers(t)
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=64m,mode=0700"); err != nil { // before containerd, which must see it
		t.Skipf("cannot mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	herald, err := agents.BuildHerald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cluster, runtime := recorder.ForTest(t), containerd.ForTest(t)
	agent, err := herald.NewAgent(agents.Config{
		ControlPlane: cluster.ControlPlane, Containerd: runtime, NodeName: nodeName, HeraldConfig: fmt.Sprintf(config, root),
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t}
	n.createNamespace(cluster)
	n.Recorder = recorder.Watch(t, cluster, nodeName, namespace)
	manifest := fmt.Sprintf(staticPod, containerd.TestpodImage)
	if err := os.WriteFile(filepath.Join(agent.ManifestDir(), "protected.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log:\n%s", agent.LogTail())
		}
		if err := errors.Join(agent.Stop(), runtime.Close(), agent.RemoveCgroups()); err != nil {
			t.Error(err)
		}
	})
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) createNamespace(cluster *recorder.Cluster) {
	n.t.Helper()
	core, ctx := recorder.NewClient(n.t, cluster.AdminConfig()).CoreV1(), n.t.Context()
	_, namespaceErr := core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, accountErr := core.ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err := errors.Join(namespaceErr, accountErr); err != nil {
		n.t.Fatal(err)
	}
}

// create creates a pod that writes a file of that size to an emptyDir.
func (n *node) create(name string, mebibytes int, sizeLimit *resource.Quantity) {
	n.t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1.PodSpec{
			NodeName: nodeName, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []v1.Container{{
				Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent,
				Command:      []string{"/testpod", "store", "/data/file", fmt.Sprint(mebibytes)},
				VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: sizeLimit}}}},
		},
	}
	if _, err := n.Admin.CoreV1().Pods(namespace).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func isRunning(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning }

// requireEvicted waits for the end of the pod and checks its status.
func (n *node) requireEvicted(name, message string) {
	n.t.Helper()
	pod := n.Await(name, "ended", func(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodFailed })
	target := recorder.PodCondition(&pod.Status, v1.DisruptionTarget)
	if pod.Status.Reason != "Evicted" || !strings.HasPrefix(pod.Status.Message, message) || target.Status != v1.ConditionTrue ||
		target.Reason != "TerminationByKubelet" || target.Message != pod.Status.Message {
		n.t.Errorf("pod %s: got reason %s, message %q, condition %+v", name, pod.Status.Reason, pod.Status.Message, target)
	}
}

// requireEvent waits for an event about the object.
func (n *node) requireEvent(namespace, object, reason, message, annotation string) {
	n.t.Helper()
	heraldtest.Eventually(n.t, func() error {
		events, err := n.Admin.CoreV1().Events(namespace).List(n.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == object && strings.HasPrefix(e.Message, message) && e.Annotations["starved_resource"] == annotation {
				return nil
			}
		}
		return fmt.Errorf("no event %s of %s among %d", reason, object, len(events.Items))
	})
}

func (n *node) condition(ctx context.Context) v1.NodeCondition {
	object, err := n.Admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == v1.NodeDiskPressure {
			return condition
		}
	}
	return v1.NodeCondition{}
}

func TestEVI16_EVI18_EVI25_FullDisk(t *testing.T) {
	n := newNode(t)
	static := "protected-" + nodeName
	n.Await(static, "running", isRunning)
	n.create("small", 1, nil)
	n.Await("small", "running", isRunning)

	n.create("limited", 3, new(resource.MustParse("1Mi")))
	n.requireEvicted("limited", `Usage of EmptyDir volume "data" exceeds the limit "1Mi". `)
	if condition := n.condition(t.Context()); condition.Status != v1.ConditionFalse {
		t.Errorf("before the disk is full: got %+v", condition)
	}

	// The static pod has 20 MiB, and 19 must be left.
	n.create("large", 30, nil)
	const message = "The node was low on resource: ephemeral-storage. Threshold quantity: 19Mi, available: "
	n.requireEvicted("large", message)
	n.requireEvent(namespace, "large", "Evicted", message, "ephemeral-storage")
	n.requireEvent(metav1.NamespaceDefault, nodeName, "EvictionThresholdMet", "Attempting to reclaim ephemeral-storage", "")
	heraldtest.Eventually(t, func() error {
		if condition := n.condition(t.Context()); condition.Status != v1.ConditionTrue || condition.Reason != "KubeletHasDiskPressure" {
			return fmt.Errorf("got %+v", condition)
		}
		return nil
	})

	// ADM-22: the pressure holds.
	n.create("new", 1, nil)
	rejected := n.Await("new", "rejected", func(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodFailed })
	if rejected.Status.Reason != "Evicted" || !strings.Contains(rejected.Status.Message, "The node had condition: [DiskPressure]. ") {
		t.Errorf("got reason %s, message %q", rejected.Status.Reason, rejected.Status.Message)
	}
	for _, name := range []string{static, "small"} {
		if pod := n.Await(name, "known", func(*v1.Pod) bool { return true }); !isRunning(pod) {
			t.Errorf("pod %s: got phase %s, reason %s", name, pod.Status.Phase, pod.Status.Reason)
		}
	}
}
