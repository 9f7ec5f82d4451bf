// Package runtimesuite is what every runtime has to do for pods, as tests: one suite for containerd, for the process
// runtime, and for whatever else speaks the container runtime interface.
//
// The tests run real containers and take the time that those need.
package runtimesuite

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Pods makes and ends what pods are made of.
type Pods interface {
	// StartSandbox makes the pod's environment, or finds the one of that attempt.
	StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error)
	// StartContainer makes and starts a container in it, or finds the one of that restart count.
	StartContainer(ctx context.Context, pod *v1.Pod, sandbox string, start plan.Start) error
	// StopContainer ends a container within its grace.
	StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error
	// StopSandbox ends what still runs in it.
	StopSandbox(ctx context.Context, id string) error
	// RemovePod leaves nothing of a pod that has ended.
	RemovePod(ctx context.Context, uid podid.UID) error
}

// Observations tell what there is.
type Observations interface {
	// ListPods is every pod, without details.
	ListPods(ctx context.Context) ([]*observed.Pod, error)
	// InspectPod is one pod in full.
	InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error)
	// WatchPods tells of changes until ctx ends.
	WatchPods(ctx context.Context, changed func(podid.UID)) error
}

// Commands run in containers.
type Commands interface {
	// Exec runs one and returns what it wrote and its exit code.
	Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error)
}

// Runtime is what is tested.
type Runtime interface {
	Pods
	Observations
	Commands
}

// Programs gives the command lines of programs that are in the fixture's image.
type Programs struct {
	// Wait lives until SIGTERM, then ends with 0.
	Wait []string
	// Stubborn lives on after SIGTERM.
	IgnoreTERM []string
	// Exit ends with the code. A message that is not empty is left as the termination message before.
	Exit func(code int, message string) []string
	// Environment prints the variables, one NAME=value in a line.
	PrintEnv []string
	// Print prints a file; a file that is not there ends it with a code other than 0. Nil: files are not the container's.
	PrintFile func(file string) []string
}

// Fixture is a runtime and what it can do.
type Fixture struct {
	// Runtime is under test. It uses Provisioner for variables and volumes.
	Runtime Runtime
	// Name is what container IDs begin with.
	Name string
	// Image is there, and has the Programs.
	Image    string
	Programs Programs
	// HostNetwork tells that pods can only be in the machine's network.
	HostNetwork bool
	// LogDir is where logs go.
	LogDir string
	// Restart makes the runtime's server end and start again. Nil: it cannot.
	Restart func() error
}

// Run runs the suite.
func Run(t *testing.T, fixture Fixture) {
	t.Helper()
	tests := map[string]func(*scene){
		"a pod lives from its sandbox to its removal":           life,
		"F22 a sandbox that is asked for twice is made once":    sandboxTwice,
		"F22 a container that is asked for twice starts once":   containerTwice,
		"an exit has its code and its message":                  exitMessage,
		"an exit without a message may show the end of its log": exitLog,
		"variables reach the program and its arguments":         variables,
		"PW-24 who ignores SIGTERM is killed after the grace":   stubborn,
		"BUG-27 a stop ends with its context":                   stopCancelled,
		"PW-24 the preStop hook runs before the end":            preStop,
		"a failed postStart hook ends the container":            postStart,
		"an image that may not be pulled is not":                neverPull,
		"a program that does not exist fails alone":             noProgram,
		"a command ends with its context":                       execCancelled,
		"what changes is told, or said to be unsupported":       watch,
	}
	if fixture.Restart != nil {
		tests["F22 a runtime that restarts is found again"] = restart
	}
	if fixture.Programs.PrintFile != nil && !fixture.HostNetwork { // else containers see the machine's files, wherever they are
		tests["volumes are seen at their place"] = volumes
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(newScene(t, fixture)) })
	}
}
