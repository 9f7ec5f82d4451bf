package runtimesuite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/process"
)

func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
		return
	}
	os.Exit(m.Run())
}

// server is the process runtime as a fixture needs it: it can end and start again.
type server struct {
	config process.Config
	cancel context.CancelFunc
	ended  chan error
}

func (s *server) start() error {
	made, err := process.New(s.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- made.Run(ctx) }()
	return nil
}

func (s *server) restart() error {
	s.cancel()
	if err := <-s.ended; err != nil {
		return err
	}
	return s.start()
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestTheProcessRuntimeDoesWhatPodsNeed(t *testing.T) {
	dir, err := os.MkdirTemp("", "suite") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pods := filepath.Join(dir, "pods")
	s := &server{config: process.Config{
		Root: filepath.Join(dir, "process"), Socket: filepath.Join(dir, "cri.sock"), Shim: []string{"/proc/self/exe"}, PodsRoot: pods,
	}}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cancel()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
	r, err := cri.New(cri.Config{
		Endpoint: "unix://" + s.config.Socket, Provisioner: runtimesuite.Provisioner{}, Root: pods, LogDir: filepath.Join(dir, "logs"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	awaitAnswer(t, r)
	runtimesuite.Run(t, runtimesuite.Fixture{
		Runtime: r, Name: "process", Image: "host", HostNetwork: true, LogDir: filepath.Join(dir, "logs"), Restart: s.restart,
		Programs: runtimesuite.Programs{
			Wait:       shell("trap 'exit 0' TERM; echo waiting; while :; do sleep 0.05; done"),
			IgnoreTERM: shell("trap '' TERM; echo staying; while :; do sleep 0.05; done"),
			Exit: func(code int, message string) []string {
				return shell(fmt.Sprintf(`printf %%s '%s' >"$HERALD_TERMINATION_LOG"; exit %d`, message, code))
			},
			PrintEnv:  []string{"/usr/bin/env"},
			PrintFile: func(file string) []string { return []string{"/bin/cat", file} },
		},
	})
}

// awaitAnswer returns when the server that was just started listens.
func awaitAnswer(t *testing.T, r *cri.Runtime) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for range 1000 {
		if _, _, err := r.Version(t.Context()); err == nil {
			return
		}
		<-again.C
	}
	t.Fatal("the process runtime does not answer")
}
