package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/process"
	"github.com/heraldnode/herald/provision"
	"github.com/heraldnode/herald/source"
)

// machine is a folder with all that a node has: manifests, state, pods, logs, and the socket of a runtime of processes.
type machine string

func (m machine) path(name string) string { return filepath.Join(string(m), name) }

// newServer makes the runtime. Its shims are this program, without the second that one with the race detector takes to end.
func (m machine) newServer() (*process.Server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return process.New(process.Config{
		Root: m.path("process"), Socket: m.path("cri.sock"), PodsRoot: m.path("pods"),
		Shim: []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", program},
	})
}

// assembly is an agent with what whoever assembles one has to run and to close.
type assembly struct {
	*agent.Agent
	events  *broadcaster.Broadcaster
	runtime *cri.Runtime
	state   *checkpoint.Dir
}

// assemble makes an agent of the real parts, on a node alone.
func (m machine) assemble() (*assembly, error) {
	events, err := broadcaster.New(broadcaster.Config{NodeName: nodeName, Scheme: kubeapi.NewScheme()})
	if err != nil {
		return nil, err
	}
	volumes, err := provision.New(provision.Config{Root: m.path("pods"), Events: events})
	if err != nil {
		return nil, err
	}
	runtime, err := cri.New(cri.Config{
		Endpoint: "unix://" + m.path("cri.sock"), Provisioner: volumes, Root: m.path("pods"), LogDir: m.path("logs"), Events: events,
	})
	if err != nil {
		return nil, err
	}
	manifests, err := source.NewFile(source.FileConfig{Path: m.path("manifests"), NodeName: nodeName})
	if err != nil {
		return nil, err
	}
	state, err := checkpoint.Open(m.path("state"), checkpoint.Options{})
	if err != nil {
		return nil, err
	}
	a, err := agent.New(agent.Config{
		NodeName: nodeName, Sources: []source.Source{manifests}, Runtime: runtime, Volumes: volumes, State: state, Events: events,
	})
	return &assembly{a, events, runtime, state}, err
}

func (a *assembly) run(ctx context.Context) error {
	var recording sync.WaitGroup
	recording.Go(func() { _ = a.events.Run(ctx) })
	err := a.Run(ctx)
	recording.Wait()
	return errors.Join(err, a.runtime.Close(), a.state.Close())
}
