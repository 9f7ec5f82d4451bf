// Package node_test runs `herald run` with real components: etcd, kube-apiserver and kubectl on one side, containerd, runc and CNI
// on the other. The agent has the permissions of a node.
package node_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/program"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

func TestMain(m *testing.M) {
	// Tests mostly wait.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shared is used by the tests that do not disturb others. Sequential tests run before parallel ones and may kill the servers of the
// control plane.
var shared sharedFixture

// sharedFixture is a control plane and a node. The first test that needs a part starts it. All methods are safe for concurrent use.
type sharedFixture struct {
	mu         sync.Mutex // guards all below
	cluster    *recorder.Cluster
	started    *testNode
	programDir string
	program    string
}

// herald returns the path of the herald program.
func (s *sharedFixture) herald(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.program != "" {
		return s.program
	}
	var err error
	//nolint:usetesting // shared by all tests
	if s.programDir, err = os.MkdirTemp("", "herald-program-"); err != nil {
		t.Fatal(err)
	}
	if s.program, err = program.Herald(t.Context(), s.programDir); err != nil {
		t.Fatal(err)
	}
	return s.program
}

func (s *sharedFixture) controlPlane(t *testing.T) *recorder.Cluster {
	t.Helper()
	needs.Containers(t)
	needs.Kubectl(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		cluster, err := recorder.Start(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		s.cluster = cluster
	}
	return s.cluster
}

func (s *sharedFixture) node(t *testing.T) *testNode {
	t.Helper()
	herald, cluster := s.herald(t), s.controlPlane(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started == nil {
		started, err := startTestNode(context.WithoutCancel(t.Context()), cluster, herald, "shared")
		if err != nil {
			t.Fatal(err)
		}
		s.started = started
	}
	return s.started
}

func (s *sharedFixture) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.started != nil {
		errs = append(errs, s.started.close())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.programDir))...)
}
