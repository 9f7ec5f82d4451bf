// Package node_test runs `herald run` on real parts: etcd, kube-apiserver and kubectl on one side, containerd, runc and CNI on
// the other, with the rights of a node and nothing more.
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
	// Tests wait much more than they work.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := quiet.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// quiet is what tests share that disturb nobody: a control plane, and a node on it. Tests that are not parallel run before
// those that are, and may end the control plane's servers meanwhile.
var quiet shared

// shared is started by the first test that needs it. All methods may be called by any goroutine.
type shared struct {
	mu      sync.Mutex // guards what follows
	cluster *recorder.Cluster
	machine *machine
	folder  string // has the program
	program string
}

// herald is the program that users run.
func (s *shared) herald(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.program != "" {
		return s.program
	}
	var err error
	//nolint:usetesting // it is for all tests
	if s.folder, err = os.MkdirTemp("", "herald-program-"); err != nil {
		t.Fatal(err)
	}
	if s.program, err = program.Herald(t.Context(), s.folder); err != nil {
		t.Fatal(err)
	}
	return s.program
}

func (s *shared) controlPlane(t *testing.T) *recorder.Cluster {
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

func (s *shared) node(t *testing.T) *machine {
	t.Helper()
	herald, cluster := s.herald(t), s.controlPlane(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine == nil {
		started, err := startMachine(context.WithoutCancel(t.Context()), cluster, herald, "shared")
		if err != nil {
			t.Fatal(err)
		}
		s.machine = started
	}
	return s.machine
}

func (s *shared) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.machine != nil {
		errs = append(errs, s.machine.close())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.folder))...)
}
