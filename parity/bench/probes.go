package bench

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// probedContainers each have a probe with a period of a second.
	probedContainers = 1000
	// measuredProbes take about two seconds.
	measuredProbes = 2 * probedContainers
)

// startProber probes all containers of the pod until it is ended.
type startProber func(ctx context.Context, p *v1.Pod) (end func(), err error)

// probeCPU measures what 1,000 probes a second cost: the processor time of the whole process, without the server's.
func probeCPU(ctx context.Context, lab *Lab) ([]Row, error) {
	var rows []Row
	for _, probed := range []struct{ name, handler string }{{"probe_cpu", "http"}, {"probe_cpu_tcp", "tcp"}} {
		name := probed.handler
		lab.say("%d %s probes a second", probedContainers, name)
		took, err := inTurns(lab.Effort.Probes, timeProbes(ctx, name, startKubeletProber), timeProbes(ctx, name, startHeraldProber))
		if err != nil {
			return nil, fmt.Errorf("%d %s probes a second: %w", probedContainers, name, err)
		}
		rows = append(rows, Row{
			Name: probed.name,
			What: fmt.Sprintf("%d %s probes a second of a server on the same machine: Herald's processor time for one divided by the kubelet's",
				probedContainers, name),
			Kubelet: duration(median(took[0])), Herald: duration(median(took[1])), Value: ratio(took[1], took[0]), Goal: AtMost(1),
		})
	}
	return rows, nil
}

func handlerOf(name string, port int32) v1.ProbeHandler {
	if name == "http" {
		return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port), Path: "/healthz"}}
	}
	return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}
}

// timeProbes is the processor time for one probe in nanoseconds, after all containers were probed once.
func timeProbes(ctx context.Context, handler string, start startProber) func() (float64, error) {
	return func() (float64, error) {
		server, err := newProbedServer()
		if err != nil {
			return 0, err
		}
		defer server.close()
		end, err := start(ctx, probedPod(handlerOf(handler, server.port)))
		if err != nil {
			return 0, err
		}
		defer end()
		if err := server.await(probedContainers); err != nil {
			return 0, err
		}
		used, served, own := processorTime(), server.served.Load(), server.used.Load()
		if err := server.await(served + measuredProbes); err != nil {
			return 0, err
		}
		others := int64(processorTime()-used) - (server.used.Load() - own)
		return float64(others) / float64(server.served.Load()-served), nil
	}
}

// probedPod runs since an hour, at this machine's own address.
func probedPod(handler v1.ProbeHandler) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probed", Namespace: "bench", UID: types.UID("7d9c2f5e-0000-4000-8000-000000000001")},
		Status:     v1.PodStatus{Phase: v1.PodRunning, PodIP: "127.0.0.1", PodIPs: []v1.PodIP{{IP: "127.0.0.1"}}},
	}
	for i := range probedContainers {
		name := fmt.Sprintf("container-%d", i)
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, ReadinessProbe: &v1.Probe{
			ProbeHandler: handler, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1,
		}})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
			Name: name, ContainerID: "bench://" + name, Started: new(true),
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))}},
		})
	}
	return p
}
