package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

// lifecycle is what happens to a pod, step by step. The status of each step is always the same, as if reported by a container
// runtime that outlives the agents.
type lifecycle struct {
	policy v1.RestartPolicy
	// isDeleted reports whether the pod is deleted halfway.
	isDeleted bool
	// exitCode is the exit code in the last step; negative for a pod that keeps running.
	exitCode int32
}

// lastStep is the same in all lifecycles.
const lastStep = 16

// lifecycles are selected by the first part of a pod's name.
var lifecycles = map[string]lifecycle{
	"service": {policy: v1.RestartPolicyAlways, exitCode: -1},
	"leaver":  {policy: v1.RestartPolicyAlways, isDeleted: true, exitCode: 0},
	"job":     {policy: v1.RestartPolicyNever, exitCode: 0},
	"failure": {policy: v1.RestartPolicyNever, exitCode: 3},
	"static":  {policy: v1.RestartPolicyAlways, exitCode: -1},
}

func lifecycleOf(podName string) lifecycle {
	kind, _, _ := strings.Cut(podName, "-")
	return lifecycles[kind]
}

// hasEnded reports whether no container runs in the step.
func (l lifecycle) hasEnded(step int) bool { return l.exitCode >= 0 && step >= lastStep }

// firstStart is when the first containers start.
var firstStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// status returns the pod's status in a step. A container that may restart does so in every second step.
func (l lifecycle) status(pod *v1.Pod, step int) v1.PodStatus {
	restarts := int32(0)
	if l.policy == v1.RestartPolicyAlways {
		restarts = int32(step / 2)
	}
	isReady := step%2 == 1 && !l.hasEnded(step)
	startedAt := metav1.NewTime(firstStart.Add(time.Duration(restarts) * time.Minute))
	container := v1.ContainerStatus{
		Name: "main", Image: "web", ImageID: "web", RestartCount: restarts, Ready: isReady, Started: &isReady,
		ContainerID: fmt.Sprintf("test://%s/%d", pod.UID, restarts),
		State:       v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: startedAt}},
	}
	phase := v1.PodRunning
	if l.hasEnded(step) {
		phase = map[bool]v1.PodPhase{true: v1.PodSucceeded, false: v1.PodFailed}[l.exitCode == 0]
		container.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: l.exitCode, StartedAt: startedAt, FinishedAt: metav1.NewTime(startedAt.Add(time.Second)),
			ContainerID: container.ContainerID,
		}}
	}
	ready := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[isReady]
	return v1.PodStatus{
		Phase: phase, Message: recorder.NumberedMessage(step, pod.UID), ContainerStatuses: []v1.ContainerStatus{container},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}, {Type: v1.ContainersReady, Status: ready}},
	}
}

// agentEnv is an environment variable. If it is set, this test binary runs as an agent, a process that can be killed. The value
// is an agentConfig in JSON.
const agentEnv = "HERALD_E2E_AGENT"

type agentConfig struct {
	Kubeconfig, NodeName, StateDir, ManifestDir string
}

// agent consists of the pod sources, the Pod Manager, the mirror reconciler and the Status Manager. It reads the steps of the pods
// from standard input: lines of a pod's name and a step.
//
// The goroutine of consume owns steps and reported and calls the setters.
type agent struct {
	pods     *pod.Manager
	mirrors  *mirror.Reconciler
	mux      *source.Mux
	status   *status.Manager
	steps    map[string]int // newest step by pod name
	reported map[string]int // steps that were passed to the Status Manager

	mu    sync.Mutex // guards ended
	ended map[podid.UID]bool
}

// PodCouldHaveRunningContainers returns true until the last step of the pod.
func (a *agent) PodCouldHaveRunningContainers(uid podid.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.ended[uid]
}

// PodResourcesAreReclaimed returns true when no container runs.
func (a *agent) PodResourcesAreReclaimed(p *v1.Pod, _ *v1.PodStatus) bool {
	return !a.PodCouldHaveRunningContainers(podid.UID(p.UID))
}

// runAgent runs an agent until SIGTERM, and returns its exit code. At the end it prints the reported steps.
func runAgent(config string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := newAgent(config)
	if err == nil {
		err = a.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

func newAgent(encoded string) (*agent, error) {
	var config agentConfig
	if err := json.Unmarshal([]byte(encoded), &config); err != nil {
		return nil, err
	}
	clientConfig, err := clientcmd.BuildConfigFromFlags("", config.Kubeconfig)
	if err != nil {
		return nil, err
	}
	clientConfig.QPS = -1
	client, err := kubeapi.New(clientConfig)
	if err != nil {
		return nil, err
	}
	a := &agent{pods: pod.NewManager(), steps: map[string]int{}, reported: map[string]int{}, ended: map[podid.UID]bool{}}
	if a.mux, a.mirrors, err = newPodPipeline(config.NodeName, config.ManifestDir, a.pods, client); err != nil {
		return nil, err
	}
	state, err := checkpoint.Open(config.StateDir, checkpoint.Options{})
	if err != nil {
		return nil, err
	}
	a.status, err = status.New(status.Config{API: client, Pods: a.pods, Deletion: a, State: state})
	return a, err
}

// newPodPipeline returns the sources and the mirror reconciler of an agent.
func newPodPipeline(
	nodeName, manifestDir string, pods *pod.Manager, client *kubeapi.Client,
) (*source.Mux, *mirror.Reconciler, error) {
	files, err := source.NewFile(source.FileConfig{Path: manifestDir, NodeName: nodeName})
	if err != nil {
		return nil, nil, err
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: client.PodsOnNode(nodeName), NodeName: nodeName})
	if err != nil {
		return nil, nil, err
	}
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{files, api}})
	if err != nil {
		return nil, nil, err
	}
	mirrors, err := mirror.New(mirror.Config{
		NodeName: nodeName, Pods: pods, API: client,
		Terminating:        func(podid.FullName) bool { return false },
		StaticSourcesReady: func() bool { return mux.Ready(podid.File) },
	})
	return mux, mirrors, err
}

// run stops the components in the order of the data flow, so that the Status Manager sends everything that was reported to it.
func (a *agent) run(ctx context.Context) error {
	lines := make(chan string)
	go readLines(os.Stdin, lines) // ends with the process
	statusCtx, stopStatus := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = a.mux.Run(ctx) })
	running.Go(func() { _ = a.mirrors.Run(ctx) })
	running.Go(func() { a.consume(lines) })
	go func() {
		running.Wait()
		stopStatus()
	}()
	return errors.Join(a.status.Run(statusCtx), json.NewEncoder(os.Stdout).Encode(a.reported))
}

func readLines(reader io.Reader, lines chan<- string) {
	for scanner := bufio.NewScanner(reader); scanner.Scan(); {
		lines <- scanner.Text()
	}
}

// consume handles updates and steps until the sources stop.
func (a *agent) consume(lines <-chan string) {
	for {
		select {
		case update, open := <-a.mux.Updates():
			if !open {
				return
			}
			a.handleUpdate(update)
		case line := <-lines:
			var podName string
			var step int
			if _, err := fmt.Sscan(line, &podName, &step); err != nil {
				panic(fmt.Sprintf("line %q: %v", line, err))
			}
			a.steps[podName] = step
			a.reportStatus(podName)
		}
	}
}

func (a *agent) handleUpdate(update source.Update) {
	for _, p := range update.Pods {
		if update.Op == source.OpRemove {
			a.pods.RemovePod(p)
		} else {
			a.pods.UpdatePod(p)
			a.status.Reconcile(p)
			a.reportStatus(p.Name)
		}
		a.mirrors.Enqueue(podid.FullNameOf(p))
	}
	update.Ack()
}

// reportStatus passes the pod's status to the Status Manager, if both the pod and its step are known.
func (a *agent) reportStatus(podName string) {
	p, podKnown := a.pods.GetPodByName("default", podName)
	step, stepKnown := a.steps[podName]
	if !podKnown || !stepKnown {
		return
	}
	lifecycle := lifecycleOf(podName)
	if lifecycle.hasEnded(step) {
		a.mu.Lock()
		a.ended[podid.UID(p.UID)] = true
		a.mu.Unlock()
	}
	a.status.SetPodStatus(p, lifecycle.status(p, step))
	a.reported[podName] = step
	if lifecycle.hasEnded(step) {
		a.status.TerminatePod(p)
	}
}
