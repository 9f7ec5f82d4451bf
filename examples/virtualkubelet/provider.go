package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Provider runs the containers of a pod as processes of this machine: command and args, once each. It takes pods with
// restartPolicy Never, and ignores images and volumes. Set NotifyPods before the first CreatePod.
type Provider struct {
	notify     func(*v1.Pod)
	publishing sync.Mutex // keeps statuses in order; taken before mu

	mu   sync.Mutex // guards all below, and the fields of instances
	pods map[types.UID]*instance
}

// instance is a pod that was started.
type instance struct {
	pod       *v1.Pod
	observed  observed.Pod
	processes []*exec.Cmd
	exited    sync.WaitGroup
}

// NewProvider returns a provider without pods.
func NewProvider() *Provider {
	return &Provider{pods: map[types.UID]*instance{}, notify: func(*v1.Pod) {}}
}

// NotifyPods sets the function that receives each pod whose status changed.
func (p *Provider) NotifyPods(_ context.Context, notify func(*v1.Pod)) { p.notify = notify }

// CreatePod starts the processes of a pod.
func (p *Provider) CreatePod(_ context.Context, pod *v1.Pod) error {
	if pod.Spec.RestartPolicy != v1.RestartPolicyNever {
		return fmt.Errorf("restartPolicy is %s: this provider runs pods with restartPolicy Never", pod.Spec.RestartPolicy)
	}
	p.mu.Lock()
	if _, found := p.pods[pod.UID]; found {
		p.mu.Unlock()
		return nil
	}
	started := &instance{pod: pod, observed: observed.Pod{
		UID: podid.UID(pod.UID), Name: podid.FullNameOf(pod),
		Sandboxes: []observed.Sandbox{{ID: string(pod.UID), Ready: true, HostNetwork: true, CreatedAt: time.Now()}},
	}}
	p.pods[pod.UID] = started
	for index := range pod.Spec.Containers {
		p.startLocked(started, &pod.Spec.Containers[index])
	}
	p.mu.Unlock()
	p.publish(started)
	return nil
}

// startLocked starts a process and records its exit when it comes. A process that cannot start has exited.
func (p *Provider) startLocked(started *instance, container *v1.Container) {
	index := len(started.observed.Containers)
	now := time.Now()
	started.observed.Containers = append(started.observed.Containers, observed.Container{
		Name: container.Name, SandboxID: string(started.pod.UID), State: observed.Running, CreatedAt: now, StartedAt: now,
		Image: observed.Image{Name: container.Image, Ref: container.Image},
	})
	record := &started.observed.Containers[index]
	command := append(append([]string{}, container.Command...), container.Args...)
	if len(command) == 0 {
		command = []string{"false"}
	}
	process := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // the pod's author decides what runs; DeletePod ends it
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		record.ID = observed.ContainerID{Runtime: "exec", ID: string(started.pod.UID) + "-" + container.Name}
		record.State, record.Exit = observed.Exited, &observed.Exit{Code: 128, Reason: "StartError", Message: err.Error(), FinishedAt: now}
		return
	}
	record.ID = observed.ContainerID{Runtime: "exec", ID: strconv.Itoa(process.Process.Pid)}
	started.processes = append(started.processes, process)
	started.exited.Go(func() {
		_ = process.Wait() // the state says how it ended
		p.mu.Lock()
		exited := &started.observed.Containers[index]
		exited.State = observed.Exited
		exited.Exit = &observed.Exit{Code: exitCode(process), Reason: "Completed", FinishedAt: time.Now()}
		if exited.Exit.Code != 0 {
			exited.Exit.Reason = "Error"
		}
		p.mu.Unlock()
		p.publish(started)
	})
}

// exitCode returns the exit code of an ended process, by the shell's convention for signals.
func exitCode(process *exec.Cmd) int {
	if state, ok := process.ProcessState.Sys().(syscall.WaitStatus); ok && state.Signaled() {
		return 128 + int(state.Signal())
	}
	return process.ProcessState.ExitCode()
}

// UpdatePod replaces the spec that statuses are computed from. Processes keep running.
func (p *Provider) UpdatePod(_ context.Context, pod *v1.Pod) error {
	p.mu.Lock()
	updated, found := p.pods[pod.UID]
	if found {
		updated.pod = pod
	}
	p.mu.Unlock()
	if found {
		p.publish(updated)
	}
	return nil
}

// DeletePod stops the processes of a pod and returns when they have ended: SIGTERM, then SIGKILL after the grace period.
func (p *Provider) DeletePod(ctx context.Context, pod *v1.Pod) error {
	p.mu.Lock()
	deleted, found := p.pods[pod.UID]
	if found {
		deleted.pod = pod
	}
	p.mu.Unlock()
	if !found {
		return nil
	}
	grace := 30 * time.Second
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	deleted.signal(syscall.SIGTERM)
	kill := time.AfterFunc(grace, func() { deleted.signal(syscall.SIGKILL) })
	defer kill.Stop()
	exited := make(chan struct{})
	go func() { deleted.exited.Wait(); close(exited) }()
	select {
	case <-exited:
	case <-ctx.Done():
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, ctx.Err())
	}
	p.publish(deleted)
	p.mu.Lock()
	delete(p.pods, pod.UID)
	p.mu.Unlock()
	return nil
}

// signal sends a signal to the process group of each container. A group that has ended is not an error.
func (i *instance) signal(signal syscall.Signal) {
	for _, process := range i.processes {
		_ = syscall.Kill(-process.Process.Pid, signal)
	}
}

// Stop ends all processes.
func (p *Provider) Stop(ctx context.Context) error {
	pods, err := p.GetPods(ctx)
	for _, pod := range pods {
		now := int64(0)
		pod.DeletionGracePeriodSeconds = &now
		err = errors.Join(err, p.DeletePod(ctx, pod))
	}
	return err
}

// GetPod returns a pod with its current status.
func (p *Provider) GetPod(_ context.Context, namespace, name string) (*v1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, started := range p.pods {
		if started.pod.Namespace == namespace && started.pod.Name == name {
			return started.withStatusLocked(), nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s not found", namespace, name)
}

// GetPodStatus returns the current status of a pod.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*v1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns all pods with their current statuses.
func (p *Provider) GetPods(context.Context) ([]*v1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pods []*v1.Pod
	for _, started := range p.pods {
		pods = append(pods, started.withStatusLocked())
	}
	return pods, nil
}

// publish passes the pod with its current status to the function that NotifyPods set.
func (p *Provider) publish(changed *instance) {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	p.mu.Lock()
	pod := changed.withStatusLocked()
	changed.pod = pod // the next status starts from this one
	p.mu.Unlock()
	p.notify(pod)
}

// withStatusLocked returns a copy of the pod with the status that its processes imply.
func (i *instance) withStatusLocked() *v1.Pod {
	pod := i.pod.DeepCopy()
	snapshot := i.observed
	snapshot.Containers = append([]observed.Container{}, i.observed.Containers...)
	pod.Status = derive.Status(derive.Input{
		Pod: i.pod, Previous: &i.pod.Status, Observed: &snapshot, Terminating: i.pod.DeletionTimestamp != nil, Now: time.Now(),
	})
	return pod
}

func (p *Provider) isRunning(uid podid.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	started, found := p.pods[types.UID(uid)]
	return found && slices.ContainsFunc(started.observed.Containers, func(c observed.Container) bool { return c.State == observed.Running })
}
