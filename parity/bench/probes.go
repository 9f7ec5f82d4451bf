package bench

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
)

const (
	// probedContainers each have a probe with a period of one second.
	probedContainers = 1000
	// measuredProbes take about two seconds.
	measuredProbes = 2 * probedContainers
)

// startProberFunc probes all containers of the pod until stop is called.
type startProberFunc func(ctx context.Context, p *v1.Pod) (stop func(), err error)

// probeCPU measures the CPU time of 1,000 probes per second: the whole process without the target.
func probeCPU(ctx context.Context, env *Environment) ([]Result, error) {
	var results []Result
	for _, probed := range []struct{ name, handler string }{{"probe_cpu", "http"}, {"probe_cpu_tcp", "tcp"}} {
		name := probed.handler
		env.logf("%d %s probes per second", probedContainers, name)
		took, err := measureRounds(env.Profile.ProbeRounds,
			probeTimer(ctx, name, startKubeletProber), probeTimer(ctx, name, startHeraldProber))
		if err != nil {
			return nil, fmt.Errorf("%d %s probes per second: %w", probedContainers, name, err)
		}
		results = append(results, Result{
			Name: probed.name,
			Description: fmt.Sprintf("%d %s probes per second of a server on the same machine: Herald's CPU time per probe divided by the kubelet's",
				probedContainers, name),
			Kubelet: formatNanoseconds(median(took[0])), Herald: formatNanoseconds(median(took[1])),
			Value: ratio(took[1], took[0]), Goal: AtMost(1),
		})
	}
	return results, nil
}

func probeHandler(name string, port int32) v1.ProbeHandler {
	if name == "http" {
		return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port), Path: "/healthz"}}
	}
	return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}
}

// probeTimer returns a function that measures the CPU time of one probe in nanoseconds, after all containers were
// probed once.
func probeTimer(ctx context.Context, handler string, start startProberFunc) func() (float64, error) {
	return func() (float64, error) {
		target, err := newProbeTarget()
		if err != nil {
			return 0, err
		}
		defer target.close()
		stop, err := start(ctx, probedPod(probeHandler(handler, target.port)))
		if err != nil {
			return 0, err
		}
		defer stop()
		if err := target.waitForConnections(probedContainers); err != nil {
			return 0, err
		}
		cpuBefore, connectionsBefore, targetCPUBefore := processCPUTime(), target.connections.Load(), target.cpuTime.Load()
		if err := target.waitForConnections(connectionsBefore + measuredProbes); err != nil {
			return 0, err
		}
		proberCPU := int64(processCPUTime()-cpuBefore) - (target.cpuTime.Load() - targetCPUBefore)
		return float64(proberCPU) / float64(target.connections.Load()-connectionsBefore), nil
	}
}

// probedPod returns a pod that has been running for an hour at this machine's address.
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

// startKubeletProber probes with the kubelet's code. Its results must be consumed, or it would block.
func startKubeletProber(ctx context.Context, p *v1.Pod) (func(), error) {
	pods := kubeletpod.NewBasicPodManager()
	pods.AddPod(p)
	status := newKubeletStatusManager(&fake.Clientset{}, pods)
	status.SetPodStatus(klog.Logger{}, p, p.Status)
	readiness := results.NewManager()
	manager := prober.NewManager(status, results.NewManager(), readiness, results.NewManager(), nil, &record.FakeRecorder{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-readiness.Updates():
			}
		}
	}()
	manager.AddPod(ctx, p)
	return func() {
		manager.RemovePod(p)
		cancel()
	}, nil
}

// fakeNode is what Herald's prober depends on.
type fakeNode struct{ pod *observed.Pod }

func (n fakeNode) Get(podid.UID) *observed.Pod                                 { return n.pod }
func (n fakeNode) GetPodStatus(types.UID) (v1.PodStatus, bool)                 { return v1.PodStatus{}, false }
func (n fakeNode) SetContainerReadiness(types.UID, observed.ContainerID, bool) {}
func (n fakeNode) SetContainerStartup(types.UID, observed.ContainerID, bool)   {}

func startHeraldProber(ctx context.Context, p *v1.Pod) (func(), error) {
	node := fakeNode{pod: &observed.Pod{UID: podid.UID(p.UID), IPs: []netip.Addr{netip.MustParseAddr(p.Status.PodIP)}}}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		node.pod.Containers = append(node.pod.Containers, observed.Container{
			ID: observed.ParseContainerID(c.ContainerID), Name: c.Name, State: observed.Running, StartedAt: c.State.Running.StartedAt.Time,
		})
	}
	prober, err := probe.New(probe.Config{PodCache: node, Statuses: node, Metrics: prometheus.NewRegistry()})
	if err != nil {
		return nil, fmt.Errorf("create prober: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = prober.Run(ctx)
	}()
	prober.AddPod(p)
	return func() {
		cancel()
		<-done
	}, nil
}

const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

// probeTarget answers every connection the same way, on a single thread, so that its CPU time can be told from the
// prober's.
type probeTarget struct {
	port                 int32
	socket               int
	connections, cpuTime atomic.Int64 // served connections, CPU time in nanoseconds
	done                 chan struct{}
}

func newProbeTarget() (*probeTarget, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create probe target: %w", err)
	}
	s := &probeTarget{socket: socket, done: make(chan struct{})}
	if err := s.listen(); err != nil {
		_ = syscall.Close(socket)
		return nil, fmt.Errorf("create probe target: %w", err)
	}
	go s.serve()
	return s, nil
}

func (s *probeTarget) listen() error {
	if err := syscall.Bind(s.socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := syscall.Listen(s.socket, 4096); err != nil {
		return err
	}
	bound, err := syscall.Getsockname(s.socket)
	if err != nil {
		return err
	}
	s.port = int32(bound.(*syscall.SockaddrInet4).Port)
	return nil
}

func (s *probeTarget) serve() {
	defer close(s.done)
	runtime.LockOSThread() // never unlocked, so that the thread exits with the goroutine
	var request [4096]byte
	for {
		conn, _, err := syscall.Accept(s.socket)
		if err == syscall.EINTR || err == syscall.ECONNABORTED {
			continue
		}
		if err != nil {
			return
		}
		if n, err := syscall.Read(conn, request[:]); err == nil && n > 0 {
			_, _ = syscall.Write(conn, []byte(okResponse))
		}
		_ = syscall.Close(conn)
		s.cpuTime.Store(int64(threadCPUTime()))
		s.connections.Add(1)
	}
}

func threadCPUTime() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thisThread, &usage); err != nil {
		panic(fmt.Sprintf("bench: getrusage of the thread: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// waitForConnections waits until that many connections were served.
func (s *probeTarget) waitForConnections(served int64) error {
	for range 60_000 {
		if s.connections.Load() >= served {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("got %d probes in five minutes, want %d", s.connections.Load(), served)
}

// close stops the server: a socket that is shut down accepts no connections.
func (s *probeTarget) close() {
	_ = syscall.Shutdown(s.socket, syscall.SHUT_RDWR)
	<-s.done
	_ = syscall.Close(s.socket)
}
