package cri

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// leastGrace is what is always left to a container after its hook, so that it can end by itself (PW-24).
const leastGrace = 2 * time.Second

// StopContainer runs the preStop hook, asks the container to end and kills it when the grace is over. The hook's time is
// deducted from the grace (PW-24). pod is nil for a container whose spec is not known: it has no hook. A container that
// is not there is stopped.
func (r *Runtime) StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error {
	if pod != nil && stop.Container != nil {
		events := r.eventsOf(pod, stop.Container.Name)
		events.id = stop.ID.ID
		message := stop.Message
		if message == "" {
			message = "Stopping container " + stop.Container.Name
		}
		events.normal(eventKilling, message)
		begun := time.Now()
		r.preStop(ctx, pod, stop, events)
		stop.Grace -= time.Since(begun)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("cri: stopping container %s: %w", stop.ID, ctx.Err())
	}
	_, err := r.pods.StopContainer(ctx, &runtimeapi.StopContainerRequest{
		ContainerId: stop.ID.ID, Timeout: wholeSeconds(max(stop.Grace, leastGrace)),
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("cri: stopping container %s: %w", stop.ID, err)
	}
	return nil
}

// preStop runs the hook within the grace. That it failed keeps no container from ending.
func (r *Runtime) preStop(ctx context.Context, pod *v1.Pod, stop plan.Stop, events *containerEvents) {
	container := stop.Container
	if container.Lifecycle == nil || container.Lifecycle.PreStop == nil || stop.Grace <= 0 {
		return
	}
	within, cancel := context.WithTimeout(ctx, stop.Grace)
	defer cancel()
	h := hook{pod: pod, container: container, handler: container.Lifecycle.PreStop, id: stop.ID.ID}
	var err error
	if h.handler.HTTPGet != nil && h.handler.HTTPGet.Host == "" {
		h.ips, err = r.addressesOf(within, pod)
	}
	if err == nil {
		err = r.runHook(within, h)
	}
	if err != nil && ctx.Err() == nil {
		r.config.Logger.Info("a preStop hook failed", "pod", describe(pod), "container", container.Name, "error", err)
		events.warn(eventFailedPreStop, "PreStopHook failed") // its output may hold secrets
	}
}

// addressesOf are the addresses at which the pod's containers listen.
func (r *Runtime) addressesOf(ctx context.Context, pod *v1.Pod) ([]netip.Addr, error) {
	if pod.Spec.HostNetwork {
		return r.config.NodeIPs(), nil
	}
	seen, err := r.InspectPod(ctx, podid.UID(pod.UID))
	if err != nil {
		return nil, err
	}
	return seen.IPs, nil
}

// wholeSeconds rounds up: no container loses a part of its grace to the protocol.
func wholeSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
