package runtimesuite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest"
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

// processServer is a process runtime server that can be restarted.
type processServer struct {
	config process.Config
	cancel context.CancelFunc
	done   chan error
}

func (s *processServer) start() error {
	server, err := process.New(s.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan error, 1)
	go func() { s.done <- server.Run(ctx) }()
	return nil
}

func (s *processServer) restart() error {
	s.cancel()
	if err := <-s.done; err != nil {
		return err
	}
	return s.start()
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestProcessRuntime(t *testing.T) {
	dir, err := os.MkdirTemp("", "suite") //nolint:usetesting // a socket path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pods := filepath.Join(dir, "pods")
	server := &processServer{config: process.Config{
		Root: filepath.Join(dir, "process"), Socket: filepath.Join(dir, "cri.sock"), Shim: []string{"/proc/self/exe"}, PodsRoot: pods,
	}}
	if err := server.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.cancel()
		if err := <-server.done; err != nil {
			t.Error(err)
		}
	})
	runtime, err := cri.New(cri.Config{
		Endpoint: "unix://" + server.config.Socket, Provisioner: runtimesuite.Provisioner{}, Root: pods, LogDir: filepath.Join(dir, "logs"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	heraldtest.Eventually(t, func() error {
		_, _, err := runtime.Version(t.Context())
		return err
	})
	runtimesuite.Run(t, runtimesuite.Fixture{
		Runtime: runtime, Name: "process", Image: "host", HostNetwork: true, LogDir: filepath.Join(dir, "logs"), Restart: server.restart,
		Programs: runtimesuite.Programs{
			Wait:       shell("trap 'exit 0' TERM; echo waiting; while :; do sleep 0.05; done"),
			IgnoreTERM: shell("trap '' TERM; echo running; while :; do sleep 0.05; done"),
			Exit: func(code int, message string) []string {
				return shell(fmt.Sprintf(`printf %%s '%s' >"$HERALD_TERMINATION_LOG"; exit %d`, message, code))
			},
			PrintEnv:  []string{"/usr/bin/env"},
			PrintFile: func(file string) []string { return []string{"/bin/cat", file} },
		},
	})
}
