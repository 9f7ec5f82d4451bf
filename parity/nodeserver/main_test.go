// Package nodeserver_test calls the HTTPS server of `herald run`, and that of the kubelet beside it, with real components: etcd and
// kube-apiserver authenticate and authorize, containerd runs the containers.
package nodeserver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shared is the cluster of all tests and its nodes. The first test that needs a part starts it.
var shared fixture

type fixture struct {
	mu         sync.Mutex // guards all below
	cluster    *controlplane.ControlPlane
	users      *users
	nodes      map[string]*node // by name, which is that of the program
	programDir string
}

// node is a node with one agent.
type node struct {
	name       string
	cluster    *controlplane.ControlPlane
	containerd *containerd.Containerd
	users      *users
	*agents.Agent
}

// herald returns a node that runs Herald, and who uses its server.
func (f *fixture) herald(t *testing.T) (*node, *users) {
	t.Helper()
	return f.node(t, "herald", func(ctx context.Context) (agents.Program, error) { return agents.BuildHerald(ctx, f.programDir) })
}

// kubelet returns a node that runs the kubelet, and who uses its server.
func (f *fixture) kubelet(t *testing.T) (*node, *users) {
	t.Helper()
	return f.node(t, "kubelet", func(ctx context.Context) (agents.Program, error) { return agents.BuildKubelet(ctx, os.Stderr) })
}

func (f *fixture) node(t *testing.T, name string, build func(context.Context) (agents.Program, error)) (*node, *users) {
	t.Helper()
	needs.Containers(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cluster == nil {
		f.start(t)
	}
	if f.nodes[name] != nil {
		return f.nodes[name], f.users
	}
	ctx := context.WithoutCancel(t.Context())
	program, err := build(ctx)
	if err != nil {
		t.Fatal(err)
	}
	runtime, err := containerd.Start(ctx, containerd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{name: name, cluster: f.cluster, containerd: runtime, users: f.users}
	f.nodes[name] = n
	n.Agent, err = program.NewAgent(agents.Config{ControlPlane: f.cluster, Containerd: runtime, NodeName: name})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return n, f.users
}

func (f *fixture) start(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if f.programDir, err = os.MkdirTemp("", "herald-program-"); err != nil { //nolint:usetesting // shared by all tests
		t.Fatal(err)
	}
	if f.cluster, err = controlplane.Start(ctx, controlplane.Config{Binaries: binaries}); err != nil {
		t.Fatal(err)
	}
	admin, err := kubernetes.NewForConfig(f.cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: metav1.NamespaceDefault}}
	if _, err := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.users = newUsers(t, f.cluster, admin)
	f.nodes = map[string]*node{}
}

// close stops everything. Containers stop before their cgroup is removed.
func (f *fixture) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, n := range f.nodes {
		if n.Agent != nil {
			errs = append(errs, n.Stop())
		}
		errs = append(errs, n.containerd.Close())
		if n.Agent != nil {
			errs = append(errs, n.RemoveCgroups())
		}
	}
	if f.cluster != nil {
		errs = append(errs, f.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(f.programDir))...)
}
