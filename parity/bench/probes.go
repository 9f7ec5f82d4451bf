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

// startKubeletProber probes with the kubelet's code. Somebody takes its results, or it would stop.
func startKubeletProber(ctx context.Context, p *v1.Pod) (func(), error) {
	book := kubeletpod.NewBasicPodManager()
	book.AddPod(p)
	status := newKubeletStatus(&fake.Clientset{}, book)
	status.SetPodStatus(klog.Logger{}, p, p.Status)
	readiness := results.NewManager()
	manager := prober.NewManager(status, results.NewManager(), readiness, results.NewManager(), nil, &record.FakeRecorder{})
	ctx, stop := context.WithCancel(ctx)
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
		stop()
	}, nil
}

// probedNode is what Herald's prober sees of the pod, and tells.
type probedNode struct{ pod *observed.Pod }

func (n probedNode) Get(podid.UID) *observed.Pod                                 { return n.pod }
func (n probedNode) GetPodStatus(types.UID) (v1.PodStatus, bool)                 { return v1.PodStatus{}, false }
func (n probedNode) SetContainerReadiness(types.UID, observed.ContainerID, bool) {}
func (n probedNode) SetContainerStartup(types.UID, observed.ContainerID, bool)   {}

func startHeraldProber(ctx context.Context, p *v1.Pod) (func(), error) {
	node := probedNode{pod: &observed.Pod{UID: podid.UID(p.UID), IPs: []netip.Addr{netip.MustParseAddr(p.Status.PodIP)}}}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		node.pod.Containers = append(node.pod.Containers, observed.Container{
			ID: observed.ParseContainerID(c.ContainerID), Name: c.Name, State: observed.Running, StartedAt: c.State.Running.StartedAt.Time,
		})
	}
	ours, err := probe.New(probe.Config{PodCache: node, Statuses: node, Metrics: prometheus.NewRegistry()})
	if err != nil {
		return nil, fmt.Errorf("make a prober: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = ours.Run(ctx)
	}()
	ours.AddPod(p)
	return func() {
		stop()
		<-ended
	}, nil
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

// probedServer answers every connection the same way, on one thread that keeps its own account, so that what it costs can
// be told from what asking costs.
type probedServer struct {
	port         int32
	socket       int
	served, used atomic.Int64 // connections, and nanoseconds of processor time
	ended        chan struct{}
}

func newProbedServer() (*probedServer, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a server to probe: %w", err)
	}
	s := &probedServer{socket: socket, ended: make(chan struct{})}
	if err := s.listen(); err != nil {
		_ = syscall.Close(socket)
		return nil, fmt.Errorf("make a server to probe: %w", err)
	}
	go s.serve()
	return s, nil
}

func (s *probedServer) listen() error {
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

func (s *probedServer) serve() {
	defer close(s.ended)
	runtime.LockOSThread() // and never unlocked: the thread ends with its account
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
			_, _ = syscall.Write(conn, []byte(okAnswer))
		}
		_ = syscall.Close(conn)
		s.used.Store(int64(threadTime()))
		s.served.Add(1)
	}
}

func threadTime() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thisThread, &usage); err != nil {
		panic(fmt.Sprintf("bench: ask for the processor time of this thread: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// await waits until that many connections were served.
func (s *probedServer) await(served int64) error {
	for range 6000 {
		if s.served.Load() >= served {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("%d of %d probes in half a minute", s.served.Load(), served)
}

// close ends the server: a socket that is shut down accepts nobody.
func (s *probedServer) close() {
	_ = syscall.Shutdown(s.socket, syscall.SHUT_RDWR)
	<-s.ended
	_ = syscall.Close(s.socket)
}
