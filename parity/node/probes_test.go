package node_test

import (
	"fmt"
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

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// server is a container whose health a test decides from outside, by every kind of probe.
type server struct {
	name string
	port int // of HTTP; those of TLS, TCP and gRPC follow
}

func (s server) container() v1.Container {
	c := runs(s.name, "serve", "--port", strconv.Itoa(s.port), "--tls", strconv.Itoa(s.port+1),
		"--tcp", strconv.Itoa(s.port+2), "--grpc", strconv.Itoa(s.port+3))
	c.Ports = []v1.ContainerPort{{Name: s.name, ContainerPort: int32(s.port)}}
	return c
}

// kinds are the ways to ask a server how it is.
func (s server) kinds() map[string]v1.ProbeHandler {
	return map[string]v1.ProbeHandler{
		"http":  {HTTPGet: &v1.HTTPGetAction{Path: "/readyz?by=probe", Port: intstr.FromString(s.name)}},
		"https": {HTTPGet: &v1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt(s.port + 1), Scheme: v1.URISchemeHTTPS}},
		"tcp":   {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(s.port + 2)}},
		"grpc":  {GRPC: &v1.GRPCAction{Port: int32(s.port + 3)}},
		"exec":  {Exec: &v1.ExecAction{Command: []string{"/testpod", "cat", s.file()}}},
	}
}

// file is there while the server is well, for probes that execute.
func (s server) file() string { return diaryPath + "/" + s.name + ".well" }

// makeServer has the server answer so from now on.
func (tr *trial) makeServer(s server, address string, well bool) {
	tr.t.Helper()
	code, file := http.StatusOK, filepath.Join(tr.diary, filepath.Base(s.file()))
	if !well {
		code = http.StatusServiceUnavailable
		if err := os.Remove(file); err != nil {
			tr.t.Fatal(err)
		}
	} else if err := os.WriteFile(file, nil, 0o600); err != nil {
		tr.t.Fatal(err)
	}
	if address == "" {
		return
	}
	url := fmt.Sprintf("http://%s/readyz?code=%d", net.JoinHostPort(address, strconv.Itoa(s.port)), code)
	recorder.Eventually(tr.t, "the answer to "+url, func() (string, bool) {
		answer, err := http.Post(url, "", nil) //nolint:noctx // the address is a container's, nearby
		if err != nil {
			return err.Error(), false
		}
		return answer.Status, answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
}

func everySecond(handler v1.ProbeHandler) *v1.Probe {
	return &v1.Probe{ProbeHandler: handler, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1}
}

// The two servers of a pod: a sidecar, and the container that it is beside.
var (
	side = server{"side", 7000}
	main = server{"main", 8000}
)

// served is a pod of a sidecar and a container.
func (tr *trial) served(name string, edit func(c *v1.Container, s server)) *v1.Pod {
	sidecar, container := side.container(), main.container()
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	edit(&sidecar, side)
	edit(&container, main)
	p := newPod(name, container)
	p.Spec.InitContainers = []v1.Container{sidecar}
	tr.makeServer(side, "", true)
	tr.makeServer(main, "", true)
	return tr.keepsDiary(p)
}

func TestEveryKindOfReadinessProbeIsHeardOfContainersAndSidecars(t *testing.T) {
	for kind := range main.kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tr := tryOn(t, quiet.node(t))
			tr.bind(tr.served("web", func(c *v1.Container, s server) { c.ReadinessProbe = everySecond(s.kinds()[kind]) }))
			address := tr.Await("web", "ready", isReady).Status.PodIP
			for _, s := range []server{side, main} {
				tr.makeServer(s, address, false)
				lost := tr.Await("web", "not ready, for "+s.name, func(p *v1.Pod) bool { return !isReady(p) && !containerOf(p, s.name).Ready })
				if message := recorder.PodCondition(&lost.Status, v1.PodReady).Message; !strings.Contains(message, s.name) {
					t.Errorf("Ready says %q", message)
				}
				tr.makeServer(s, address, true)
				again := tr.Await("web", "ready again", isReady)
				if restarts := containerOf(again, s.name).RestartCount; restarts != 0 {
					t.Errorf("%s was restarted %d times", s.name, restarts)
				}
			}
			tr.awaitEvent("web", "Unhealthy", "Readiness probe failed")
		})
	}
}

func TestEveryKindOfLivenessProbeRestartsContainersAndSidecars(t *testing.T) {
	for kind := range main.kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tr := tryOn(t, quiet.node(t))
			tr.bind(tr.served("web", func(c *v1.Container, s server) { c.LivenessProbe = everySecond(s.kinds()[kind]) }))
			address := tr.Await("web", "ready", isReady).Status.PodIP
			for _, s := range []server{side, main} {
				tr.makeServer(s, address, false)
				tr.Await("web", "restarted: "+s.name, func(p *v1.Pod) bool { return containerOf(p, s.name).RestartCount > 0 })
				tr.makeServer(s, "", true) // a server that is started again is well by itself
				tr.Await("web", "ready again", isReady)
			}
			tr.awaitEvent("web", "Unhealthy", "Liveness probe failed")
			tr.awaitEvent("web", "Killing", "failed liveness probe")
		})
	}
}

func TestPRB17AStartupProbeHoldsTheOthersBack(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	const up = diaryPath + "/up"
	tr.bind(tr.served("slow", func(c *v1.Container, _ server) {
		c.StartupProbe = everySecond(v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/testpod", "cat", up}}})
		c.StartupProbe.FailureThreshold = 60
		// Both would fail until the start is complete, and the second would restart the container.
		c.ReadinessProbe = everySecond(c.StartupProbe.ProbeHandler)
		c.LivenessProbe = everySecond(c.StartupProbe.ProbeHandler)
	}))
	tr.Await("slow", "starting its sidecar", func(p *v1.Pod) bool { return containerOf(p, side.name).State.Running != nil })
	tr.awaitEvent("slow", "Unhealthy", "Startup probe failed")
	time.Sleep(3 * time.Second) // in which the others would have run
	for _, p := range tr.Versions("slow") {
		if started := containerOf(p, side.name).Started; started != nil && *started {
			t.Error("the sidecar has started although its probe failed")
		}
		if containerOf(p, main.name).State.Running != nil {
			t.Error("the container did not wait for its sidecar")
		}
	}
	if err := os.WriteFile(filepath.Join(tr.diary, "up"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := tr.Await("slow", "ready", isReady)
	for _, c := range recorder.ContainerStatuses(&p.Status) {
		if c.RestartCount != 0 || c.Started == nil || !*c.Started {
			t.Errorf("%s: %+v", c.Name, c)
		}
	}
}

func TestBUG25ReadinessIsHeardWhileAPodEnds(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	p := tr.served("leaving", func(c *v1.Container, s server) {
		if s == main {
			c.ReadinessProbe = everySecond(s.kinds()["exec"])
			c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/testpod", "sleep", "8s"}}}}
		}
	})
	p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	tr.bind(p)
	tr.Await("leaving", "ready", isReady)
	tr.delete("leaving")
	tr.Await("leaving", "to be deleted", func(p *v1.Pod) bool { return p.DeletionTimestamp != nil })
	tr.makeServer(main, "", false)
	tr.Await("leaving", "not ready while it still runs", func(p *v1.Pod) bool {
		c := containerOf(p, main.name)
		return c.State.Running != nil && !c.Ready && recorder.PodCondition(&p.Status, v1.PodReady).Status == v1.ConditionFalse
	})
	tr.AwaitDeleted("leaving")
}

func TestBUG26VerdictsOutliveTheAgent(t *testing.T) {
	t.Parallel()
	tr := tryAlone(t, "reborn")
	readiness := func(c *v1.Container, s server) {
		c.ReadinessProbe = everySecond(s.kinds()["exec"])
		c.ReadinessProbe.PeriodSeconds = 3
	}
	tr.bind(tr.served("well", readiness))
	tr.Await("well", "ready", isReady)
	unwell := tr.served("unwell", readiness)
	unwell.Spec.Containers[0].ReadinessProbe.Exec.Command = []string{"/testpod", "cat", "/nothing"}
	tr.bind(unwell)
	tr.Await("unwell", "running", func(p *v1.Pod) bool { return isRunning(p) && containerOf(p, main.name).State.Running != nil })
	known := len(tr.Versions("well"))
	for range 3 {
		tr.strike(tr.theAgent(), 0)
		time.Sleep(4 * time.Second) // longer than a period
	}
	// A status that is written only because the agent is another one would show.
	tr.bind(tr.worker("witness"))
	tr.Await("witness", "ready", isReady)
	for _, p := range tr.Versions("well")[known:] {
		if !isReady(p) {
			t.Errorf("a pod that was well became %s", recorder.PodCondition(&p.Status, v1.PodReady).Reason)
		}
	}
	if slices.ContainsFunc(tr.Versions("unwell"), isReady) {
		t.Error("a pod that was never well was ready for a moment")
	}
}
