package process_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/process"
)

// startWithSlowShims runs a server whose shims begin when somebody opens the gate, each once.
func (w *world) startWithSlowShims() (gate string) {
	w.t.Helper()
	gate = filepath.Join(w.t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		w.t.Fatal(err)
	}
	config := w.config()
	config.Shim = append([]string{"/bin/sh", "-c", `read line <` + gate + `; exec "$0" "$@"`}, config.Shim...)
	server, err := process.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.serve(server)
	return gate
}

// An agent that is killed while a container is started leaves a question to the next one: was it?
func TestPW53WhatIsBeingStartedIsNotSaidToBeMerelyCreated(t *testing.T) {
	w := newIdleWorld(t)
	gate := w.startWithSlowShims()
	id := w.create(w.sandbox("web"), shell("main", "sleep 1000"))
	agent, kill := context.WithCancel(w.ctx)
	killed := make(chan error, 1)
	go func() {
		_, err := w.StartContainer(agent, &runtimeapi.StartContainerRequest{ContainerId: id})
		killed <- err
	}()
	for asked := false; !asked; time.Sleep(time.Millisecond) {
		_, err := os.Stat(filepath.Join(w.root, "containers", id, "alive"))
		asked = err == nil
	}
	kill()
	if err := <-killed; status.Code(err) != codes.Canceled {
		t.Fatalf("the start: %v", err)
	}
	impatient, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
	defer cancel()
	if got, err := w.ContainerStatus(impatient, &runtimeapi.ContainerStatusRequest{ContainerId: id}); err == nil {
		t.Errorf("it is said to be %v", got.GetStatus().GetState())
	}
	if err := os.WriteFile(gate, []byte("open\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.wantState(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
}
