package agent_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// newConfig returns a complete config of a standalone node.
func newConfig(t *testing.T, mutate func(*agent.Config)) agent.Config {
	t.Helper()
	events, err := broadcaster.New(broadcaster.Config{NodeName: nodeName, Scheme: kubeapi.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	config := agent.Config{NodeName: nodeName, Sources: []source.Source{newFakeSource()}, Runtime: fakeruntime.New(), Events: events}
	mutate(&config)
	return config
}

func TestConfig_Invalid(t *testing.T) {
	tests := map[string]struct {
		mutate func(*agent.Config)
		want   string
	}{
		"NodeName": {func(c *agent.Config) { c.NodeName = "" }, "agent.Config: NodeName is required"},
		"Sources":  {func(c *agent.Config) { c.Sources = nil }, "agent.Config: Sources is required"},
		"Runtime":  {func(c *agent.Config) { c.Runtime = nil }, "agent.Config: Runtime is required"},
		"Events":   {func(c *agent.Config) { c.Events = nil }, "agent.Config: Events is required"},
		"HousekeepingInterval": {
			func(c *agent.Config) { c.HousekeepingInterval = -time.Second }, "agent.Config: HousekeepingInterval must not be negative",
		},
		"Resync": {func(c *agent.Config) { c.Resync = -time.Second }, "Resync"},
		"two sources of one name": {
			func(c *agent.Config) { c.Sources = append(c.Sources, newFakeSource()) }, `source.MuxConfig: Sources contains two sources named "file"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := agent.New(newConfig(t, test.mutate)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
		})
	}
	t.Run("several fields", func(t *testing.T) {
		_, err := agent.New(agent.Config{})
		for _, field := range []string{"NodeName", "Sources", "Runtime", "Events"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("got %v, want an error that names %s", err, field)
			}
		}
	})
}

func TestNew_Metrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	setMetrics := func(config *agent.Config) { config.Metrics = registry }
	if _, err := agent.New(newConfig(t, setMetrics)); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, family := range families {
		names[family.GetName()] = true
	}
	for _, name := range []string{"kubelet_desired_pods", "kubelet_mirror_pods"} {
		if !names[name] {
			t.Errorf("got no metric %s", name)
		}
	}
	if _, err := agent.New(newConfig(t, setMetrics)); err == nil {
		t.Error("second agent with the same registry: got nil, want an error")
	}
}

func TestRun_ComponentFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		a, err := agent.New(newConfig(t, func(config *agent.Config) { config.Metrics = registry }))
		if err != nil {
			t.Fatal(err)
		}
		// The sources register their metrics in Run and fail because the name is taken.
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "herald_manifest_problems"}))
		err = a.Run(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "agent: sources: register") {
			t.Fatalf("got %v, want the error of the sources", err)
		}
		if strings.Count(err.Error(), "agent: ") != 1 {
			t.Errorf("got %v, want no error of other components", err)
		}
	})
}

// hangingTransport blocks every request until its context ends.
type hangingTransport struct{}

func (hangingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

func TestRun_EndsWithinFlushTimeout(t *testing.T) {
	tests := map[string]func(*harness){
		"API server hangs": func(h *harness) { h.node.transport.redirect(hangingTransport{}); h.runCommands("exit web main 1") },
		"API server down":  func(h *harness) { h.runCommands("api-down", "exit web main 1") },
		"runtime hangs":    func(h *harness) { h.runCommands("hang", "delete web 5s") },
	}
	for name, inject := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.runCommands("start agent", "bind web.yaml", "wait 5s")
				inject(h)
				h.runCommands("wait 1m")
				begin := time.Now()
				h.runCommands("stop agent")
				if took := time.Since(begin) - settleTime; took > 5*time.Second+10*readLatency {
					h.Errorf("got %v, want at most 5s", took)
				}
			})
		})
	}
}

func TestCFG43_AdmissionOrder(t *testing.T) {
	run(t, func(h *harness) {
		now := time.Now()
		for name, age := range map[string]time.Duration{"a": time.Hour, "b": 3 * time.Hour, "c": 2 * time.Hour, "d": 0} {
			h.server.AddPod(heraldtest.NewPod(name, heraldtest.OnNode(nodeName), func(pod *v1.Pod) {
				pod.Namespace, pod.CreationTimestamp = namespace, metav1.NewTime(now.Add(-age))
			}))
		}
		var mu sync.Mutex
		var order []string
		h.configure = func(config *agent.Config) {
			config.Admit = func(pod *v1.Pod) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, pod.Name)
				if pods := len(h.node.Pods.GetPods()); pods != 4 {
					h.Errorf("at the admission of %s: got %d pods in the pod manager, want 4", pod.Name, pods)
				}
				return nil
			}
		}
		h.runCommands("start agent", "wait 1s")
		if want := []string{"b", "c", "a", "d"}; !slices.Equal(order, want) {
			h.Errorf("got %v, want %v", order, want)
		}
	})
}

// stopObserver is a runtime that calls onStop before it stops a container.
type stopObserver struct {
	agent.Runtime
	onStop func()
}

func (r stopObserver) StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error {
	r.onStop()
	return r.Runtime.StopContainer(ctx, pod, stop)
}

func TestCFG44_RemovedBeforeStopped(t *testing.T) {
	run(t, func(h *harness) {
		stopped := false
		h.configure = func(config *agent.Config) {
			config.Runtime = stopObserver{config.Runtime, func() {
				stopped = true
				if pods := h.node.Pods.GetPods(); len(pods) > 0 {
					h.Errorf("got %s in the pod manager, want none", pods[0].Name)
				}
			}}
		}
		h.runCommands("start agent", "put-manifest web.yaml", "wait 1s", "remove-manifest web", "wait 1s")
		if !stopped {
			h.Error("got no stopped container, want one")
		}
	})
}

func TestBUG14_MirrorDeleted(t *testing.T) {
	// The API server reports a graceful deletion as an update.
	for name, gracePeriod := range map[string]string{"graceful": "30s", "forced": "0s"} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.runCommands("start agent", "put-manifest web.yaml", "wait 1s")
				before := h.server.Pod(fullName("web-node-1"))
				h.runCommands("delete web-node-1 " + gracePeriod)
				mirror := h.server.Pod(fullName("web-node-1"))
				if mirror == nil || mirror.UID == before.UID || mirror.DeletionTimestamp != nil || mirror.Status.Phase != v1.PodRunning {
					h.Errorf("after %v: got %v, want a new running mirror", settleTime, mirror)
				}
				if stops := h.runtime.CallCount("StopContainer"); stops > 0 {
					h.Errorf("got %d stops, want 0", stops)
				}
			})
		})
	}
}

// failPod sets a pod to Failed as another component.
func (h *harness) failPod(name string) {
	h.server.UpdatePod(fullName(name), func(pod *v1.Pod) { pod.Status.Phase, pod.Status.Reason = v1.PodFailed, "NodeLost" })
	h.runCommands("wait 10s")
}

func TestPW7_PodFailedByOther(t *testing.T) { // PH-20
	run(t, func(h *harness) {
		h.runCommands("start agent", "bind web.yaml", "wait 5s")
		h.failPod("web")
		status := h.server.Pod(fullName("web")).Status
		if h.runningUID("web") != "" || status.Reason != "NodeLost" || status.ContainerStatuses[0].State.Terminated == nil {
			h.Errorf("got %+v and running pod %q, want a stopped pod with reason NodeLost", status, h.runningUID("web"))
		}
	})
}

func TestPH20_MirrorFailedByOther(t *testing.T) {
	tests := map[string]func(*harness){
		"running": func(h *harness) { h.failPod("web-node-1") },
		"backoff": func(h *harness) {
			h.runCommands("exit web-node-1 main 1", "exit web-node-1 main 1")
			h.failPod("web-node-1")
		},
		"agent restart": func(h *harness) { h.failPod("web-node-1"); h.runCommands("restart agent") },
	}
	for name, fail := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.runCommands("start agent", "put-manifest web.yaml", "wait 5s")
				fail(h)
				h.runCommands("wait 5m")
				if h.runningUID("web-node-1") == "" {
					h.Error("got no running pod, want one")
				}
				h.runCommands("delete web-node-1 0s", "wait 1m")
				mirror := h.server.Pod(fullName("web-node-1"))
				if mirror == nil || mirror.Status.Phase != v1.PodRunning || mirror.Status.Reason != "" {
					h.Errorf("got %v, want a running mirror", mirror)
				}
			})
		})
	}
}

func TestPW50_SlowRuntime(t *testing.T) { // PW-51
	run(t, func(h *harness) {
		heal := h.runtime.Inject(fakeruntime.Method("ListPods"), fakeruntime.Fault{Delay: 30 * time.Second})
		defer heal()
		h.runCommands("run-orphan web.yaml", "start agent", "wait 5m")
		if uid := h.runningUID("web"); uid != "" {
			h.Errorf("got orphan %s running, want none; healthy: %v", uid, h.node.Healthy())
		}
	})
}

func TestPM16_LocalPods(t *testing.T) {
	run(t, func(h *harness) {
		h.runCommands("standalone", "start agent", "put-manifest web.yaml", "wait 1s")
		pods := h.node.LocalPods()
		if len(pods) != 1 || pods[0].Status.Phase != v1.PodRunning {
			h.Fatalf("got %v, want one running pod", pods)
		}
		managed, _ := h.node.Pods.GetPodByUID(podid.UID(pods[0].UID))
		if managed == pods[0] || managed.Status.Phase == v1.PodRunning {
			h.Error("got a modified pod in the pod manager, want a copy in LocalPods")
		}
	})
}

// TestBUG10_LocalPodsAfterBoot checks that nothing is claimed to run after a power loss before it was observed, neither of what the
// agent has stored nor of what the API server has. A11
func TestBUG10_LocalPodsAfterBoot(t *testing.T) {
	for name, commands := range map[string][]string{
		"standalone": {"standalone", "start agent", "put-manifest web.yaml"},
		"static pod": {"start agent", "put-manifest web.yaml"},
		"API pod":    {"start agent", "bind web.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.runCommands(commands...)
				h.runCommands("wait 5s", "kill agent", "reboot", "wait 1m")
				heal := h.runtime.Inject(fakeruntime.Method("InspectPod"), fakeruntime.Fault{Delay: fakeruntime.Forever})
				boot := time.Now()
				h.configure = func(config *agent.Config) { config.BootTime = boot }
				h.runCommands("start agent", "wait 5s")
				phases := func() (phases []v1.PodPhase) {
					for _, pod := range h.node.LocalPods() {
						phases = append(phases, pod.Status.Phase)
					}
					return phases
				}
				if got := phases(); len(got) != 1 || got[0] == v1.PodRunning {
					h.Errorf("got phases %v before the pod was observed, want one that is not Running", got)
				}
				heal()
				h.runCommands("wait 5m")
				if got := phases(); !slices.Equal(got, []v1.PodPhase{v1.PodRunning}) {
					h.Errorf("got phases %v after the pod was observed, want Running", got)
				}
			})
		})
	}
}

func TestDispatch_WaitsForHealthCheck(t *testing.T) {
	run(t, func(h *harness) {
		heal := h.runtime.Inject(fakeruntime.Method("Ready"), fakeruntime.Fault{Delay: 3 * time.Second})
		output := slices.Concat(h.execute("bind web.yaml"), h.execute("start agent"), h.execute("wait 10s"))
		heal()
		if text := strings.Join(output, "\n"); strings.Contains(text, "NetworkNotReady") || !strings.Contains(text, "3.0s  runtime  start") {
			h.Errorf("got\n%s\nwant a start after 3s without NetworkNotReady", text)
		}
	})
}

func TestOnRuntimeHealth(t *testing.T) {
	run(t, func(h *harness) {
		var calls atomic.Int32
		h.configure = func(config *agent.Config) { config.OnRuntimeHealth = func() { calls.Add(1) } }
		h.runCommands("start agent", "wait 1m")
		calls.Store(0)
		h.runCommands("wait 5m")
		if got := calls.Load(); got != 0 {
			t.Errorf("got %d calls while nothing changed", got)
		}
		heal := h.runtime.Inject(fakeruntime.Method("Ready"), fakeruntime.Fault{Err: errors.New("down")})
		h.runCommands("wait 10s")
		if got := calls.Load(); got != 1 || h.node.RuntimeHealth().Err == nil {
			t.Errorf("got %d calls after the runtime failed, want 1", got)
		}
		heal()
		h.runCommands("wait 10s")
		if got := calls.Load(); got != 2 || h.node.RuntimeHealth().Err != nil {
			t.Errorf("got %d calls after the runtime recovered, want 2", got)
		}
		heal = h.runtime.Inject(fakeruntime.Method("ListPods"), fakeruntime.Fault{Err: errors.New("down")})
		h.runCommands("wait 1m")
		if got := calls.Load(); got != 3 || !h.node.PLEG.Stale() {
			t.Errorf("got %d calls while pods were not listed, want 3", got)
		}
		heal()
		h.runCommands("wait 5s")
		if got := calls.Load(); got < 4 || h.node.PLEG.Stale() {
			t.Errorf("got %d calls when pods were listed again, want 4 or 5", got)
		}
	})
}
