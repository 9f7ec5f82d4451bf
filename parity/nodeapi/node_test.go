package nodeapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/machine"

	"github.com/heraldnode/herald/process"
	"github.com/heraldnode/herald/provision"
)

// startNode runs a node on this machine until the test ends. Its intervals are a tenth of the defaults.
func startNode(t *testing.T, name string, clientConfig *rest.Config, mutate ...func(*node.Config)) *node.Node {
	t.Helper()
	client, err := kubeapi.New(clientConfig)
	if err != nil {
		t.Fatal(err)
	}
	host, err := machine.New(machine.Config{DataDir: t.TempDir(), Version: "v0.1.0-test"})
	if err != nil {
		t.Fatal(err)
	}
	events, err := broadcaster.New(broadcaster.Config{NodeName: name, Scheme: kubeapi.NewScheme(), API: client})
	if err != nil {
		t.Fatal(err)
	}
	config := node.Config{
		NodeName: name, MachineInfo: host.Info, API: client, Reconnect: client.CloseConnections, Events: events,
		UpdateFrequency: time.Second, LeaseDuration: 4 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, change := range mutate {
		change(&config)
	}
	n, err := node.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = n.Run(ctx) })
	running.Go(func() { _ = events.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		client.CloseConnections()
	})
	return n
}

func readyCondition(n *v1.Node) v1.NodeCondition {
	for _, condition := range n.Status.Conditions {
		if condition.Type == v1.NodeReady {
			return condition
		}
	}
	return v1.NodeCondition{}
}

// awaitReady waits until the node's Ready condition has this status, and returns it.
func awaitReady(t *testing.T, name string, status v1.ConditionStatus) v1.NodeCondition {
	t.Helper()
	var condition v1.NodeCondition
	heraldtest.Eventually(t, func() error {
		found, err := admin(t).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if condition = readyCondition(found); condition.Status != status {
			return fmt.Errorf("node %s: got %v, want Ready=%s", name, condition, status)
		}
		return nil
	})
	return condition
}

func TestNode_Kubectl(t *testing.T) {
	n := startNode(t, "seen", cluster.NodeConfig("seen"), func(c *node.Config) {
		c.Labels = map[string]string{"example.test/pool": "edge"}
		c.Taints = []v1.Taint{{Key: "example.test/new", Effect: v1.TaintEffectNoSchedule}}
	})
	if err := n.WaitForRegistration(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, "seen", v1.ConditionTrue)
	line := strings.Fields(kubectl(t, "get", "node", "seen", "--no-headers"))
	if len(line) != 5 || line[1] != "Ready" || line[4] != "v1.36.3+herald.0.1.0-test" {
		t.Errorf("kubectl get node: got %q", line)
	}
	got := getNode(t, "seen")
	if got.Labels["example.test/pool"] != "edge" || got.Labels[v1.LabelOSStable] != "linux" {
		t.Errorf("got labels %v", got.Labels)
	}
	if !slices.ContainsFunc(got.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == "example.test/new" }) {
		t.Errorf("got taints %v", got.Spec.Taints)
	}
	described := kubectl(t, "describe", "node", "seen")
	for _, part := range []string{"KubeletReady", "ephemeral-storage", "InternalIP", "RenewTime", "MemoryPressure"} {
		if !strings.Contains(described, part) {
			t.Errorf("kubectl describe node: got\n%s\nwant %s in it", described, part)
		}
	}
	heraldtest.Eventually(t, func() error {
		described := kubectl(t, "describe", "node", "seen")
		if !strings.Contains(described, "Starting herald.") || !strings.Contains(described, "NodeReady") {
			return fmt.Errorf("events of the node are missing:\n%s", described)
		}
		return nil
	})
}

func TestNode_LeaseRenewed(t *testing.T) {
	n := startNode(t, "alive", cluster.NodeConfig("alive"))
	if err := n.WaitForRegistration(t.Context()); err != nil {
		t.Fatal(err)
	}
	renewals := map[time.Time]bool{}
	heraldtest.Eventually(t, func() error {
		lease, err := admin(t).CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "alive", metav1.GetOptions{})
		if err != nil {
			return err
		}
		renewals[lease.Spec.RenewTime.Time] = true
		owners := lease.OwnerReferences
		if len(renewals) <= 2 || len(owners) != 1 || owners[0].UID != getNode(t, "alive").UID {
			return fmt.Errorf("got %d renewals of %v, want three and the node as owner", len(renewals), lease)
		}
		return nil
	})
}

func TestNode_RuntimeDown(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "cri.sock")
	server, err := process.New(process.Config{Root: filepath.Join(dir, "root"), Socket: socket, Shim: []string{"/proc/self/exe"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	exited := make(chan error, 1)
	go func() { exited <- server.Run(ctx) }()
	t.Cleanup(kill)
	volumes, err := provision.New(provision.Config{Root: filepath.Join(dir, "pods")})
	if err != nil {
		t.Fatal(err)
	}
	containers, err := cri.New(cri.Config{Endpoint: "unix://" + socket, Provisioner: volumes, Root: dir, LogDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer containers.Close()
	isReady := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		runtimeErr, networkErr := containers.Ready(ctx)
		return errors.Join(runtimeErr, networkErr)
	}
	startNode(t, "runs", cluster.NodeConfig("runs"), func(c *node.Config) { c.Ready, c.RuntimeVersion = isReady, containers.Version })
	awaitReady(t, "runs", v1.ConditionTrue)
	if version := getNode(t, "runs").Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(version, "process://") {
		t.Errorf("got runtime version %q, want process://", version)
	}
	kill()
	if err := <-exited; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if c := awaitReady(t, "runs", v1.ConditionFalse); c.Reason != "KubeletNotReady" || !strings.Contains(c.Message, "cri: get runtime status") {
		t.Errorf("got %+v, want KubeletNotReady", c)
	}
}

func TestI7_ForeignNodeFields(t *testing.T) {
	existing := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{"node-restriction.kubernetes.io/team": "a"}},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "example.test/theirs", Effect: v1.TaintEffectNoExecute}}},
		Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{{Type: "Theirs", Status: v1.ConditionTrue}},
			Addresses:  []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "198.51.100.1"}},
		},
	}
	if _, err := admin(t).CoreV1().Nodes().Create(t.Context(), existing, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	startNode(t, "theirs", cluster.NodeConfig("theirs"), func(c *node.Config) {
		c.Ready = func() error {
			if broken.Load() {
				return errors.New("broken")
			}
			return nil
		}
	})
	awaitReady(t, "theirs", v1.ConditionTrue)
	kubectl(t, "taint", "node", "theirs", "example.test/later=1:NoSchedule")
	kubectl(t, "label", "node", "theirs", "example.test/later=1")
	kubectl(t, "cordon", "theirs")
	broken.Store(true)
	awaitReady(t, "theirs", v1.ConditionFalse)

	got := getNode(t, "theirs")
	if got.Labels[v1.LabelArchStable] != runtime.GOARCH {
		t.Errorf("got labels %v, want the architecture", got.Labels)
	}
	if got.Labels["node-restriction.kubernetes.io/team"] != "a" || got.Labels["example.test/later"] != "1" || !got.Spec.Unschedulable {
		t.Errorf("got labels %v, unschedulable %t; want foreign changes kept", got.Labels, got.Spec.Unschedulable)
	}
	for _, key := range []string{"example.test/theirs", "example.test/later"} {
		if !slices.ContainsFunc(got.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == key }) {
			t.Errorf("got taints %v, want %s", got.Spec.Taints, key)
		}
	}
	if !slices.ContainsFunc(got.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == "Theirs" }) {
		t.Errorf("got conditions %v, want Theirs", got.Status.Conditions)
	}
	if !slices.Contains(got.Status.Addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "198.51.100.1"}) {
		t.Errorf("got addresses %v, want 198.51.100.1", got.Status.Addresses)
	}
}

func TestNode_AuthorizedRequestsOnly(t *testing.T) {
	n := startNode(t, "modest", cluster.NodeConfig("modest"))
	if err := n.WaitForRegistration(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"create events", "create leases", "create nodes", "get leases", "get nodes", "update leases"}
	heraldtest.Eventually(t, func() error {
		var got []string
		for _, r := range requests(t, "modest") {
			if r.Response.Code == 403 || r.Response.Code == 422 || r.Response.Code == 401 {
				t.Fatalf("rejected request: %+v", r)
			}
			got = append(got, r.Verb+" "+r.Object.Resource)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			return fmt.Errorf("requests of the node (-want +got):\n%s", diff)
		}
		return nil
	})
}

// A node that does not change is read, but not written.
func TestI10_HealthyNodeNotPatched(t *testing.T) {
	n := startNode(t, "quiet", cluster.NodeConfig("quiet"))
	if err := n.WaitForRegistration(t.Context()); err != nil {
		t.Fatal(err)
	}
	heraldtest.Eventually(t, func() error {
		reads := 0
		for _, r := range requests(t, "quiet") {
			if r.Verb == "patch" {
				t.Fatalf("%+v although nothing changed: %+v", r, getNode(t, "quiet").Status)
			}
			if r.Verb == "get" {
				reads++
			}
		}
		if reads <= 4 {
			return fmt.Errorf("got %d reads of the node, want five", reads)
		}
		return nil
	})
}

// replaceFile replaces a file atomically.
func replaceFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestSM58_ReadOfMissingPod: the API server answers 403 to a node that reads a pod that is gone. That is no rejection of its status.
func TestSM58_ReadOfMissingPod(t *testing.T) {
	createNode(t, "reads")
	pod := createPod(t, "short", "reads")
	client, err := kubeapi.New(cluster.NodeConfig("reads"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseConnections()
	if err := admin(t).CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	for { // the authorizer may know the pod for a moment; the server then finds nothing
		_, err := client.GetPod(t.Context(), pod.Namespace, pod.Name)
		if apierror.IsUnrelated(err) {
			return
		}
		if !apierrors.IsNotFound(err) {
			t.Fatalf("got %v, want that the object is unrelated", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
