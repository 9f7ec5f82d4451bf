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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/machine"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/process"
	"github.com/heraldnode/herald/provision"
)

// begin runs a node on this machine until the test ends, ten times as eager as in production.
func begin(t *testing.T, name string, cfg *rest.Config, change ...func(*node.Config)) *node.Node {
	t.Helper()
	client, err := kubeapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	here, err := machine.New(machine.Config{DataDir: t.TempDir(), Version: "v0.1.0-test"})
	if err != nil {
		t.Fatal(err)
	}
	events, err := broadcaster.New(broadcaster.Config{NodeName: name, Scheme: kubeapi.NewScheme(), API: client})
	if err != nil {
		t.Fatal(err)
	}
	config := node.Config{
		NodeName: name, MachineInfo: here.Info, API: client, Reconnect: client.CloseConnections, Events: events,
		UpdateFrequency: time.Second, LeaseDuration: 4 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&config)
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

func ready(n *v1.Node) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{}
}

func awaitReady(t *testing.T, name string, status v1.ConditionStatus) v1.NodeCondition {
	t.Helper()
	var c v1.NodeCondition
	recorder.Eventually(t, fmt.Sprintf("node %s with Ready %s", name, status), func() (string, bool) {
		found, err := admin(t).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		c = ready(found)
		return fmt.Sprint(c), c.Status == status
	})
	return c
}

func TestKubectlSeesANodeThatIsReadyAndAlive(t *testing.T) {
	n := begin(t, "seen", cluster.NodeConfig("seen"), func(c *node.Config) {
		c.Labels = map[string]string{"example.test/pool": "edge"}
		c.Taints = []v1.Taint{{Key: "example.test/new", Effect: v1.TaintEffectNoSchedule}}
	})
	if err := n.WaitForRegistration(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, "seen", v1.ConditionTrue)
	line := strings.Fields(kubectl(t, "get", "node", "seen", "--no-headers"))
	if len(line) != 5 || line[1] != "Ready" || line[4] != "v1.36.3+herald.0.1.0-test" {
		t.Errorf("kubectl get nodes prints %q", line)
	}
	got := getNode(t, "seen")
	if got.Labels["example.test/pool"] != "edge" || got.Labels[v1.LabelOSStable] != "linux" {
		t.Errorf("labels %v", got.Labels)
	}
	if !slices.ContainsFunc(got.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == "example.test/new" }) {
		t.Errorf("taints %v", got.Spec.Taints)
	}
	described := kubectl(t, "describe", "node", "seen")
	for _, part := range []string{"KubeletReady", "ephemeral-storage", "InternalIP", "RenewTime", "MemoryPressure"} {
		if !strings.Contains(described, part) {
			t.Errorf("kubectl describe node does not show %s:\n%s", part, described)
		}
	}
	recorder.Eventually(t, "events of the node", func() (string, bool) {
		described := kubectl(t, "describe", "node", "seen")
		return described, strings.Contains(described, "Starting herald.") && strings.Contains(described, "NodeReady")
	})
}

func TestTheLeaseIsRenewedAndBelongsToTheNode(t *testing.T) {
	n := begin(t, "alive", cluster.NodeConfig("alive"))
	if err := n.WaitForRegistration(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[time.Time]bool{}
	recorder.Eventually(t, "a lease that is renewed", func() (string, bool) {
		lease, err := admin(t).CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "alive", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		seen[lease.Spec.RenewTime.Time] = true
		owners := lease.OwnerReferences
		return fmt.Sprint(lease), len(seen) > 2 && len(owners) == 1 && owners[0].UID == getNode(t, "alive").UID
	})
}

func TestANodeIsNotReadyWhenItsRuntimeDies(t *testing.T) {
	folder := t.TempDir()
	socket := filepath.Join(folder, "cri.sock")
	server, err := process.New(process.Config{Root: filepath.Join(folder, "root"), Socket: socket, Shim: []string{"/proc/self/exe"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(kill)
	volumes, err := provision.New(provision.Config{Root: filepath.Join(folder, "pods")})
	if err != nil {
		t.Fatal(err)
	}
	containers, err := cri.New(cri.Config{Endpoint: "unix://" + socket, Provisioner: volumes, Root: folder, LogDir: folder})
	if err != nil {
		t.Fatal(err)
	}
	defer containers.Close()
	ask := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		down, network := containers.Ready(ctx)
		return errors.Join(down, network)
	}
	begin(t, "runs", cluster.NodeConfig("runs"), func(c *node.Config) { c.Ready, c.RuntimeVersion = ask, containers.Version })
	awaitReady(t, "runs", v1.ConditionTrue)
	if version := getNode(t, "runs").Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(version, "process://") {
		t.Errorf("runtime %q", version)
	}
	kill()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if c := awaitReady(t, "runs", v1.ConditionFalse); c.Reason != "KubeletNotReady" || !strings.Contains(c.Message, "cri: get runtime status") {
		t.Errorf("%+v", c)
	}
}

func TestI7WhatOthersDidToTheNodeSurvives(t *testing.T) {
	made := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{"node-restriction.kubernetes.io/team": "a"}},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "example.test/theirs", Effect: v1.TaintEffectNoExecute}}},
		Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{{Type: "Theirs", Status: v1.ConditionTrue}},
			Addresses:  []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "198.51.100.1"}},
		},
	}
	if _, err := admin(t).CoreV1().Nodes().Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	begin(t, "theirs", cluster.NodeConfig("theirs"), func(c *node.Config) {
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
		t.Errorf("the labels do not say what the machine is: %v", got.Labels)
	}
	if got.Labels["node-restriction.kubernetes.io/team"] != "a" || got.Labels["example.test/later"] != "1" || !got.Spec.Unschedulable {
		t.Errorf("labels %v, unschedulable %t", got.Labels, got.Spec.Unschedulable)
	}
	for _, key := range []string{"example.test/theirs", "example.test/later"} {
		if !slices.ContainsFunc(got.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == key }) {
			t.Errorf("the taint %s is gone: %v", key, got.Spec.Taints)
		}
	}
	if !slices.ContainsFunc(got.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == "Theirs" }) {
		t.Errorf("conditions %v", got.Status.Conditions)
	}
	if !slices.Contains(got.Status.Addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "198.51.100.1"}) {
		t.Errorf("addresses %v", got.Status.Addresses)
	}
}

func TestANodeAsksForNothingThatItMayNotHave(t *testing.T) {
	n := begin(t, "modest", cluster.NodeConfig("modest"))
	if err := n.WaitForRegistration(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"create events", "create leases", "create nodes", "get leases", "get nodes", "update leases"}
	recorder.Eventually(t, "requests of the node", func() (string, bool) {
		var asked []string
		for _, r := range requests(t, "modest") {
			if r.Response.Code == 403 || r.Response.Code == 422 || r.Response.Code == 401 {
				t.Fatalf("refused: %+v", r)
			}
			asked = append(asked, r.Verb+" "+r.Object.Resource)
		}
		slices.Sort(asked)
		asked = slices.Compact(asked)
		return cmp.Diff(want, asked), slices.Equal(want, asked)
	})
}

func TestI10AHealthyNodeIsNotToldOfAgain(t *testing.T) {
	n := begin(t, "quiet", cluster.NodeConfig("quiet"))
	if err := n.WaitForRegistration(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorder.Eventually(t, "looks at the node", func() (string, bool) {
		looks := 0
		for _, r := range requests(t, "quiet") {
			if r.Verb == "patch" {
				t.Fatalf("%+v although nothing changed: %+v", r, getNode(t, "quiet").Status)
			}
			if r.Verb == "get" {
				looks++
			}
		}
		return fmt.Sprint(looks), looks > 4
	})
}

// write replaces a file as a careful program does.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
