// Package runtimesuite is a conformance test suite for pod runtimes: containerd, the process runtime, and any other
// implementation of the container runtime interface.
//
// The tests run real containers and take the time that those need.
package runtimesuite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Runtime is the runtime under test. *cri.Runtime implements it.
type Runtime interface {
	PodStarter
	PodStopper
	PodObserver
	// Exec runs a command in a container and returns its output and exit code.
	Exec(ctx context.Context, id observed.ContainerID, command []string) (output []byte, exitCode int, err error)
}

// PodStarter starts sandboxes and containers.
type PodStarter interface {
	// StartSandbox starts the sandbox of this attempt and returns its ID. If it exists, StartSandbox returns its ID.
	StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error)
	// StartContainer starts the container with this restart count. If it is running, StartContainer does nothing.
	StartContainer(ctx context.Context, pod *v1.Pod, sandboxID string, start plan.Start) error
}

// PodStopper stops and removes sandboxes and containers.
type PodStopper interface {
	// StopContainer stops a container within its grace period.
	StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error
	// StopSandbox stops the sandbox and the containers in it.
	StopSandbox(ctx context.Context, id string) error
	// RemovePod removes everything that belongs to a stopped pod.
	RemovePod(ctx context.Context, uid podid.UID) error
}

// PodObserver reports the state of pods.
type PodObserver interface {
	// ListPods returns all pods, without details.
	ListPods(ctx context.Context) ([]*observed.Pod, error)
	// InspectPod returns one pod with all details.
	InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error)
	// WatchPods calls changed for each pod that changes, until ctx ends. It returns errors.ErrUnsupported if it cannot.
	WatchPods(ctx context.Context, changed func(podid.UID)) error
}

// Programs returns command lines of programs in the fixture's image.
type Programs struct {
	// Wait prints a line, runs until SIGTERM and exits with 0.
	Wait []string
	// IgnoreTERM prints a line, ignores SIGTERM and runs on.
	IgnoreTERM []string
	// Exit exits with the code. If message is not empty, it writes message as the termination message first.
	Exit func(code int, message string) []string
	// PrintEnv prints the environment, one NAME=value per line.
	PrintEnv []string
	// PrintFile prints a file. If the file does not exist, it prints an error and exits with a code other than 0. Nil:
	// containers have no files of their own.
	PrintFile func(file string) []string
}

// Fixture describes the runtime under test.
type Fixture struct {
	// Runtime must use Provisioner for variables and volumes.
	Runtime Runtime
	// Name is the runtime name in container IDs, such as "containerd".
	Name string
	// Image is an image with the Programs. It must be present: the suite does not pull it.
	Image    string
	Programs Programs
	// HostNetwork is true if the runtime supports host-network pods only.
	HostNetwork bool
	// LogDir is the root directory of pod logs.
	LogDir string
	// Restart restarts the runtime's server. Nil: tests that need a restart are skipped.
	Restart func() error
}

// Run runs the suite.
func Run(t *testing.T, fixture Fixture) {
	t.Helper()
	tests := map[string]func(*harness){
		"pod lifecycle":                    testLifecycle,
		"F22 StartSandbox is idempotent":   testStartSandboxTwice,
		"F22 StartContainer is idempotent": testStartContainerTwice,
		"exit code and message":            testExitMessage,
		"environment and exit code":        testExec,
		"PW-24 SIGTERM ignored":            testStopIgnoredTERM,
		"BUG-27 stop canceled":             testStopCanceled,
		"PW-24 preStop hook":               testPreStop,
		"failed postStart hook":            testPostStartFails,
		"image never pulled":               testNeverPull,
		"program not found":                testProgramNotFound,
		"exec canceled":                    testExecCanceled,
		"watch":                            testWatch,
	}
	if fixture.Restart != nil {
		tests["F22 server restart"] = testServerRestart
	}
	if fixture.Programs.PrintFile != nil {
		tests["message falls back to log"] = testExitMessageFromLog
	}
	if fixture.Programs.PrintFile != nil && !fixture.HostNetwork { // otherwise containers see the host's files
		tests["volumes"] = testVolumes
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(newHarness(t, fixture)) })
	}
}

// Provisioner resolves literal environment variables and hostPath volumes. It implements cri.Provisioner.
type Provisioner struct{}

// Path returns the path of a hostPath volume.
func (Provisioner) Path(pod *v1.Pod, volumeName string) (string, error) {
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == volumeName && volume.HostPath != nil {
			return volume.HostPath.Path, nil
		}
	}
	return "", fmt.Errorf("volume %s of pod %s has no hostPath", volumeName, pod.Name)
}

// PrepareEnvironment does nothing.
func (Provisioner) PrepareEnvironment(*v1.Pod) {}

// Environment returns the container's variables unchanged.
func (Provisioner) Environment(_ context.Context, _ *v1.Pod, container *v1.Container, _ []netip.Addr) ([]v1.EnvVar, error) {
	return container.Env, nil
}
