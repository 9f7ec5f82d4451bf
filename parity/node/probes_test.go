package node_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// server is a container whose health a test sets, for every kind of probe.
type server struct {
	name string
	port int // HTTP; the ports of TLS, TCP and gRPC follow
}

func (s server) container() v1.Container {
	c := newContainer(s.name, "serve", "--port", strconv.Itoa(s.port), "--tls", strconv.Itoa(s.port+1),
		"--tcp", strconv.Itoa(s.port+2), "--grpc", strconv.Itoa(s.port+3))
	c.Ports = []v1.ContainerPort{{Name: s.name, ContainerPort: int32(s.port)}}
	return c
}

// probeHandlers returns one handler of each kind.
func (s server) probeHandlers() map[string]v1.ProbeHandler {
	return map[string]v1.ProbeHandler{
		"http":  {HTTPGet: &v1.HTTPGetAction{Path: "/readyz?by=probe", Port: intstr.FromString(s.name)}},
		"https": {HTTPGet: &v1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt(s.port + 1), Scheme: v1.URISchemeHTTPS}},
		"tcp":   {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(s.port + 2)}},
		"grpc":  {GRPC: &v1.GRPCAction{Port: int32(s.port + 3)}},
		"exec":  {Exec: &v1.ExecAction{Command: testpod("cat", s.healthFile())}},
	}
}

// healthFile exists while the server is healthy, for exec probes.
func (s server) healthFile() string { return workPath + "/" + s.name + ".healthy" }

// setHealth sets the health of the server. Without an address, it sets only the health file.
func (h *harness) setHealth(s server, address string, healthy bool) {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error { return h.trySetHealth(s, address, healthy) })
}

// trySetHealth is setHealth without retries. It may be called by any goroutine.
func (h *harness) trySetHealth(s server, address string, healthy bool) error {
	code, file := http.StatusOK, filepath.Join(h.workDir, filepath.Base(s.healthFile()))
	if healthy {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return err
		}
	} else {
		code = http.StatusServiceUnavailable
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if address == "" {
		return nil
	}
	url := fmt.Sprintf("http://%s/readyz?code=%d", net.JoinHostPort(address, strconv.Itoa(s.port)), code)
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Post(url, "", nil) //nolint:noctx // has a timeout
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST %s: got %s, want OK", url, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

// newProbe returns a probe that runs every second and fails at the first failure.
func newProbe(handler v1.ProbeHandler) *v1.Probe {
	return &v1.Probe{ProbeHandler: handler, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1}
}

// sideServer and mainServer are the sidecar and the container of a server pod.
var (
	sideServer = server{"side", 7000}
	mainServer = server{"main", 8000}
)

// newServerPod returns a pod with both servers, healthy.
func (h *harness) newServerPod(name string, mutate func(c *v1.Container, s server)) *v1.Pod {
	sidecar, container := newSidecar(sideServer.container()), mainServer.container()
	mutate(&sidecar, sideServer)
	mutate(&container, mainServer)
	p := newPod(name, container)
	p.Spec.InitContainers = []v1.Container{sidecar}
	h.setHealth(sideServer, "", true)
	h.setHealth(mainServer, "", true)
	return h.mountWorkDir(p)
}

func TestProbe_Readiness(t *testing.T) {
	for kind := range mainServer.probeHandlers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, shared.node(t))
			h.createPod(h.newServerPod("web", func(c *v1.Container, s server) { c.ReadinessProbe = newProbe(s.probeHandlers()[kind]) }))
			address := h.Await("web", "ready", isReady).Status.PodIP
			for _, s := range []server{sideServer, mainServer} {
				h.setHealth(s, address, false)
				unready := h.Await("web", "not ready because of "+s.name, func(p *v1.Pod) bool { return !isReady(p) && !containerStatus(p, s.name).Ready })
				if message := recorder.PodCondition(&unready.Status, v1.PodReady).Message; !strings.Contains(message, s.name) {
					t.Errorf("got Ready message %q, want %s in it", message, s.name)
				}
				h.setHealth(s, address, true)
				recovered := h.Await("web", "ready again", isReady)
				if restarts := containerStatus(recovered, s.name).RestartCount; restarts != 0 {
					t.Errorf("%s: got %d restarts, want none", s.name, restarts)
				}
			}
			h.awaitEvent("web", "Unhealthy", "Readiness probe failed")
		})
	}
}

func TestProbe_Liveness(t *testing.T) {
	for kind := range mainServer.probeHandlers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, shared.node(t))
			h.createPod(h.newServerPod("web", func(c *v1.Container, s server) { c.LivenessProbe = newProbe(s.probeHandlers()[kind]) }))
			address := h.Await("web", "ready", isReady).Status.PodIP
			for _, s := range []server{sideServer, mainServer} {
				h.setHealth(s, address, false)
				h.Await("web", "restarted in "+s.name, func(p *v1.Pod) bool { return containerStatus(p, s.name).RestartCount > 0 })
				h.setHealth(s, "", true) // a restarted server is healthy
				h.Await("web", "ready again", isReady)
			}
			h.awaitEvent("web", "Unhealthy", "Liveness probe failed")
			h.awaitEvent("web", "Killing", "failed liveness probe")
		})
	}
}

// Readiness and liveness probes start after the startup probe.
func TestPRB17_StartupProbe(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	const startedFile = workPath + "/started"
	h.createPod(h.newServerPod("slow", func(c *v1.Container, _ server) {
		c.StartupProbe = newProbe(v1.ProbeHandler{Exec: &v1.ExecAction{Command: testpod("cat", startedFile)}})
		c.StartupProbe.FailureThreshold = 60
		// Both would fail until the startup is complete, and the liveness probe would restart the container.
		c.ReadinessProbe = newProbe(c.StartupProbe.ProbeHandler)
		c.LivenessProbe = newProbe(c.StartupProbe.ProbeHandler)
	}))
	h.Await("slow", "with a running sidecar", func(p *v1.Pod) bool { return containerStatus(p, sideServer.name).State.Running != nil })
	h.awaitEvent("slow", "Unhealthy", "Startup probe failed")
	time.Sleep(3 * time.Second) // the other probes would run
	for _, p := range h.Versions("slow") {
		if started := containerStatus(p, sideServer.name).Started; started != nil && *started {
			t.Error("the sidecar is started although its startup probe fails")
		}
		if containerStatus(p, mainServer.name).State.Running != nil {
			t.Error("the container runs although its sidecar is not started")
		}
	}
	if err := os.WriteFile(filepath.Join(h.workDir, "started"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := h.Await("slow", "ready", isReady)
	for _, c := range recorder.ContainerStatuses(&p.Status) {
		if c.RestartCount != 0 || c.Started == nil || !*c.Started {
			t.Errorf("%s: got %+v, want started without restarts", c.Name, c)
		}
	}
}

// Readiness probes continue while a pod terminates.
func TestBUG25_ReadinessDuringTermination(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	p := h.newServerPod("leaving", func(c *v1.Container, s server) {
		if s == mainServer {
			c.ReadinessProbe = newProbe(s.probeHandlers()["exec"])
			c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: testpod("sleep", "8s")}}}
		}
	})
	p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	h.createPod(p)
	h.Await("leaving", "ready", isReady)
	h.deletePod("leaving")
	h.Await("leaving", "being deleted", func(p *v1.Pod) bool { return p.DeletionTimestamp != nil })
	h.setHealth(mainServer, "", false)
	h.Await("leaving", "not ready but running", func(p *v1.Pod) bool {
		c := containerStatus(p, mainServer.name)
		return c.State.Running != nil && !c.Ready && recorder.PodCondition(&p.Status, v1.PodReady).Status == v1.ConditionFalse
	})
	h.AwaitDeleted("leaving")
}

// Probe results survive a restart of the agent.
func TestBUG26_AgentRestart(t *testing.T) {
	t.Parallel()
	h := newOwnNode(t, "probe-restart")
	readiness := func(c *v1.Container, s server) {
		c.ReadinessProbe = newProbe(s.probeHandlers()["exec"])
		c.ReadinessProbe.PeriodSeconds = 3
	}
	h.createPod(h.newServerPod("healthy", readiness))
	h.Await("healthy", "ready", isReady)
	unhealthy := h.newServerPod("unhealthy", readiness)
	unhealthy.Spec.Containers[0].ReadinessProbe.Exec.Command = testpod("cat", "/nothing")
	h.createPod(unhealthy)
	h.Await("unhealthy", "running", func(p *v1.Pod) bool { return isRunning(p) && containerStatus(p, mainServer.name).State.Running != nil })
	known := len(h.Versions("healthy"))
	for range 3 {
		h.killAndRestart(h.agentComponent(), 0)
		time.Sleep(4 * time.Second) // longer than the probe period
	}
	// By then, unnecessary writes of the new agents are visible.
	h.createPod(h.newWorker("last"))
	h.Await("last", "ready", isReady)
	for _, p := range h.Versions("healthy")[known:] {
		if !isReady(p) {
			t.Errorf("healthy pod became unready: %s", recorder.PodCondition(&p.Status, v1.PodReady).Reason)
		}
	}
	if slices.ContainsFunc(h.Versions("unhealthy"), isReady) {
		t.Error("unhealthy pod became ready")
	}
}
