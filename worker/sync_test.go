package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

func TestPW1_PodStarts(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.wantTranscript("sandbox web_shop #0", "start web_shop/app #0")
		h.wantPhase(web, v1.PodRunning)
		if !h.volumes.has(web.UID) {
			h.Fatal("volumes: got none, want mounted")
		}
	})
}

func TestPW27_PodCompletes(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: 5 * time.Second})
		job := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever))
		h.create(job)
		h.advance(6 * time.Second)
		h.wantStage(job, "finished")
		h.wantPhase(job, v1.PodSucceeded)
		h.wantTranscript("sandbox job_shop #0", "start job_shop/app #0", "stop sandbox job_shop #0")
		if h.volumes.has(job.UID) {
			h.Fatal("volumes: got mounted, want none")
		}
	})
}

func TestPW26_ResponseLost(t *testing.T) { // F22
	for _, method := range []string{"StartSandbox", "StartContainer", "StopContainer", "StopSandbox", "RemovePod"} {
		t.Run(method, func(t *testing.T) {
			run(t, func(h *harness) {
				heal := h.runtime.Inject(fakeruntime.Method(method), fakeruntime.Fault{LostResponse: true, Err: errFake})
				web := newAPIPod("web")
				h.create(web)
				h.advance(20 * time.Second)
				heal()
				h.advance(20 * time.Second)
				h.wantPhase(web, v1.PodRunning)
				h.wantTranscript("sandbox web_shop #0", "start web_shop/app #0")
				h.runtime.Inject(fakeruntime.Method(method), fakeruntime.Fault{LostResponse: true, Err: errFake})
				h.delete(web, 1)
				h.advance(20 * time.Second)
				h.wantRunning(web, false)
			})
		})
	}
}

func TestPW35_StatusBeforeSlowCalls(t *testing.T) { // GEN-30
	run(t, func(h *harness) {
		h.volumes.set(true, nil)
		web := newAPIPod("web")
		h.create(web)
		h.wantPhase(web, v1.PodPending)
		if h.condition(web, v1.PodReadyToStartContainers) != v1.ConditionFalse {
			h.Fatal("PodReadyToStartContainers without a sandbox: got true, want false")
		}
		h.volumes.set(false, nil)
		h.runtime.SetScript("app", fakeruntime.Script{PullDuration: time.Hour})
		h.advance(5 * time.Minute)
		if h.condition(web, v1.PodReadyToStartContainers) != v1.ConditionTrue {
			h.Fatal("PodReadyToStartContainers during a pull: got false, want true")
		}
		h.advance(time.Hour)
		h.wantPhase(web, v1.PodRunning)
	})
}

// runtimeError is a runtime error with a waiting reason and a retry hint.
type runtimeError struct {
	reason     string
	retryAfter time.Duration
}

func (e runtimeError) Error() string { return "failed: " + e.reason }

func (e runtimeError) WaitingReason() string { return e.reason }

func (e runtimeError) RetryAfter() time.Duration { return e.retryAfter }

func TestPW31_RetryInterval(t *testing.T) {
	tests := map[string]struct {
		err         error
		least, most int // attempts in 10m
	}{
		"backoff":                 {errFake, 40, 60},
		"retry hint":              {runtimeError{"ImagePullBackOff", 30 * time.Second}, 20, 20},
		"retry hint above resync": {runtimeError{"ImagePullBackOff", time.Hour}, 10, 10},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.runtime.Inject(fakeruntime.Method("StartContainer"), fakeruntime.Fault{Err: test.err})
				h.create(newAPIPod("web"))
				h.advance(10*time.Minute - time.Second)
				if got := h.runtime.CallCount("StartContainer"); got < test.least || got > test.most {
					h.Fatalf("got %d attempts in 10m, want %d to %d", got, test.least, test.most)
				}
			})
		})
	}
}

func TestPW31_FastFirstRetries(t *testing.T) {
	tests := map[string]func(*harness) (heal func()){
		"volumes": func(h *harness) func() {
			h.volumes.set(false, errFake)
			return func() { h.volumes.set(false, nil) }
		},
	}
	for _, method := range []string{"InspectPod", "StartSandbox", "StartContainer"} {
		tests[method] = func(h *harness) func() {
			return h.runtime.Inject(fakeruntime.Method(method), fakeruntime.Fault{Err: errFake})
		}
	}
	for name, inject := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				heal := inject(h)
				web := newAPIPod("web")
				h.create(web)
				h.advance(500 * time.Millisecond)
				heal()
				h.advance(time.Second)
				h.wantPhase(web, v1.PodRunning)

				heal = h.runtime.Inject(fakeruntime.Method("StopContainer"), fakeruntime.Fault{Err: errFake})
				h.delete(web, 1)
				h.advance(500 * time.Millisecond)
				heal()
				h.advance(time.Second)
				h.wantStage(web, "finished")
			})
		})
	}
}

func TestSync_WakeUpsRespectBackoff(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.Inject(fakeruntime.Method("StartSandbox"), fakeruntime.Fault{Err: errFake})
		web := newAPIPod("web")
		h.create(web)
		for range 120 {
			h.Wake(podid.UID(web.UID))
			h.advance(time.Second)
		}
		if got := h.runtime.CallCount("StartSandbox"); got < 14 || got > 20 {
			h.Fatalf("got %d attempts in 2m, want 14 to 20", got)
		}
		if h.countEvents("FailedCreatePodSandBox") != 0 {
			h.Fatal("the event is the runtime's, not the worker's")
		}
		before := h.runtime.CallCount("StartSandbox")
		h.UpdatePod(worker.Update{Op: plan.OpUpdate, Pod: web})
		synctest.Wait()
		if h.runtime.CallCount("StartSandbox") != before+1 {
			h.Fatal("an update did not cause an attempt at once")
		}
	})
}

func TestSync_WaitingReason(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{PullErr: runtimeError{"ErrImagePull", 10 * time.Second}})
		web := newAPIPod("web", withContainers("app", "other"))
		h.create(web)
		h.advance(time.Second)
		if got := h.waitingReason(web, "app"); got != "ErrImagePull" {
			h.Fatalf("waiting reason of app: got %q, want ErrImagePull", got)
		}
		if got := h.waitingReason(web, "other"); got != "" {
			h.Fatalf("waiting reason of other: got %q, want none", got)
		}
		h.runtime.SetScript("app", fakeruntime.Script{})
		h.advance(20 * time.Second)
		if got := h.waitingReason(web, "app"); got != "" {
			h.Fatalf("waiting reason of app: got %q, want none", got)
		}
	})
}

func TestSync_CrashLoop(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second, ExitCode: 1})
		web := newAPIPod("web")
		h.create(web)
		h.advance(5 * time.Second)
		if got := h.waitingReason(web, "app"); got != "CrashLoopBackOff" {
			h.Fatalf("waiting reason: got %q, want CrashLoopBackOff", got)
		}
		h.advance(10 * time.Minute)
		starts := h.runtime.CallCount("StartContainer")
		if starts < 6 || starts > 9 {
			h.Fatalf("got %d starts in 10m, want 6 to 9", starts)
		}
		if events := h.countEvents("BackOff"); events < starts-2 || events > starts {
			h.Fatalf("got %d BackOff events, want about %d", events, starts)
		}
		h.wantEvent("web/spec.containers{app} BackOff: Back-off restarting failed container app in pod web_shop(" + string(web.UID) + ")")
	})
}

func TestSync_CrashLoopStatus(t *testing.T) {
	run(t, func(h *harness) {
		ctx, cancel := context.WithCancel(h.Context())
		var states []string
		var running sync.WaitGroup
		running.Go(func() {
			for change := range h.statuses.Changes(ctx) {
				for _, c := range change.Status.ContainerStatuses {
					states = append(states, stateOf(c))
				}
			}
		})
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second, ExitCode: 1})
		h.create(newAPIPod("web"))
		h.advance(5 * time.Minute)
		cancel()
		running.Wait()
		for i, state := range states[1:] {
			if states[i] == plan.ReasonCrashLoopBackOff && state == "terminated" {
				h.Fatalf("got terminated after CrashLoopBackOff: %s", strings.Join(states, ", "))
			}
		}
		if !slices.Contains(states, plan.ReasonCrashLoopBackOff) {
			h.Errorf("got no CrashLoopBackOff: %s", strings.Join(states, ", "))
		}
	})
}

func stateOf(container v1.ContainerStatus) string {
	switch {
	case container.State.Running != nil:
		return "running"
	case container.State.Terminated != nil:
		return "terminated"
	case container.State.Waiting != nil:
		return container.State.Waiting.Reason
	}
	return ""
}

func TestPW32_Resync(t *testing.T) { // PW-33, PW-34
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.volumes.takeMounts()
		h.advance(10 * time.Minute)
		if got := h.volumes.takeMounts(); got < 6 || got > 10 {
			h.Fatalf("got %d syncs in 10m, want 6 to 10", got)
		}
	})
}

func TestSync_NetworkNotReady(t *testing.T) { // PW-31
	var ready atomic.Bool
	network := func(config *worker.Config) {
		config.NetworkReady = func() error {
			if ready.Load() {
				return nil
			}
			return errFake
		}
	}
	runWith(t, network, func(h *harness) {
		web, host := newAPIPod("web"), newAPIPod("host", func(pod *v1.Pod) { pod.Spec.HostNetwork = true })
		h.create(web)
		h.create(host)
		h.wantPhase(host, v1.PodRunning)
		h.wantPhase(web, v1.PodPending)
		h.wantReason("NetworkNotReady")
		h.advance(time.Minute)
		h.mu.Lock()
		events := len(h.events)
		h.mu.Unlock()
		if events != 1 {
			h.Fatalf("got %d events in a minute, want 1", events)
		}
		ready.Store(true)
		h.advance(2 * time.Second)
		h.wantPhase(web, v1.PodRunning)
	})
}

func TestSync_SandboxReplaced(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.runtime.Reboot()
		h.advance(time.Minute)
		h.wantPhase(web, v1.PodRunning)
		h.wantTranscript("sandbox web_shop #0", "start web_shop/app #0", "reboot", "sandbox web_shop #1", "start web_shop/app #1")
		h.wantReason("SandboxChanged")
	})
}

// A runtime may report a stop before it has noticed the end of the container. The harness fails the test if two instances run at
// once.
func TestF26_ShimKilled(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{PreStopDuration: time.Millisecond})
		web := newAPIPod("web")
		h.create(web)
		h.runtime.KillShim(podid.UID(web.UID), 2*time.Second)
		h.advance(time.Minute)
		h.wantPhase(web, v1.PodRunning)
		h.wantTranscript("sandbox web_shop #0", "start web_shop/app #0", "kill shim web_shop", "preStop web_shop/app",
			"sandbox web_shop #1", "start web_shop/app #1")
		if last := h.status(web).ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 137 {
			h.Errorf("got last termination %+v, want exit code 137", last)
		}
	})
}

func TestSync_DeadlineExceeded(t *testing.T) {
	run(t, func(h *harness) {
		limit := int64(30)
		web := newAPIPod("web", func(pod *v1.Pod) { pod.Spec.ActiveDeadlineSeconds = &limit })
		h.create(web)
		h.advance(29 * time.Second)
		h.wantPhase(web, v1.PodRunning)
		h.advance(2 * time.Second)
		h.wantPhase(web, v1.PodFailed)
		h.wantStage(web, "finished")
		if status := h.status(web); status.Reason != "DeadlineExceeded" {
			h.Fatalf("reason: got %q, want DeadlineExceeded", status.Reason)
		}
		h.wantEvent("web DeadlineExceeded: Pod was active on the node longer than the specified deadline")
		if events := h.countEvents("DeadlineExceeded"); events != 1 {
			h.Errorf("got %d events, want 1", events)
		}
	})
}

func TestSync_InitContainerFails(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("setup", fakeruntime.Script{RunDuration: time.Second, PullErr: errFake})
		web := newAPIPod("web", func(pod *v1.Pod) { pod.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "setup:1"}} })
		h.create(web)
		h.advance(time.Minute)
		h.wantTranscript("sandbox web_shop #0")
		h.runtime.SetScript("setup", fakeruntime.Script{RunDuration: time.Second})
		h.advance(time.Minute)
		h.wantTranscript("sandbox web_shop #0", "start web_shop/setup #0", "start web_shop/app #0")
	})
}

func TestF22_RuntimeHangsForOnePod(t *testing.T) {
	run(t, func(h *harness) {
		stuck := func(c fakeruntime.Call) bool { return c.PodUID == "uid-stuck" }
		h.runtime.Inject(stuck, fakeruntime.Fault{Delay: fakeruntime.Forever})
		h.create(newAPIPod("stuck"))
		for i := range 20 {
			pod := newAPIPod(fmt.Sprintf("web%d", i))
			h.create(pod)
			h.wantPhase(pod, v1.PodRunning)
		}
		h.advance(3 * time.Minute)
		h.wantReason("FailedSync")
	})
}

func TestPW53_AgentRestart(t *testing.T) { // F15
	run(t, func(h *harness) {
		web, etcd := newAPIPod("web", withContainers("app", "other")), newStaticPod("etcd", "u1")
		h.create(web)
		h.create(etcd)
		before := h.runtime.Transcript()
		for range 3 {
			h.restartAgent()
			h.create(web)
			h.create(etcd)
			h.advance(5 * time.Minute)
			h.housekeep()
		}
		h.wantTranscript(before...)
		h.wantPhase(web, v1.PodRunning)
		h.wantPhase(etcd, v1.PodRunning)
	})
}

func TestSync_Probes(t *testing.T) {
	probes := &fakeProbes{}
	runWith(t, func(config *worker.Config) { config.Probes = probes }, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		probes.setUnhealthy(h.cache.Get(podid.UID(web.UID)).Containers[0].ID)
		h.Wake(podid.UID(web.UID))
		h.advance(11 * time.Second)
		h.wantTranscript("sandbox web_shop #0", "start web_shop/app #0", "stop web_shop/app", "start web_shop/app #1")
		h.delete(web, 30)
		if got, want := probes.recorded(), "add stop-liveness remove"; got != want {
			h.Fatalf("probe calls: got %q, want %q", got, want)
		}
	})
}

// A container that was stopped in order to restart has not completed, whatever its exit code: here it exits with 0, and its
// replacement cannot start at once.
func TestSync_StoppedToRestartExitsWithZero(t *testing.T) {
	for name, policy := range map[string]v1.RestartPolicy{"OnFailure": v1.RestartPolicyOnFailure, "Never, edited": v1.RestartPolicyNever} {
		t.Run(name, func(t *testing.T) {
			probes := &fakeProbes{}
			runWith(t, func(config *worker.Config) { config.Probes = probes }, func(h *harness) {
				web := newAPIPod("web", withRestartPolicy(policy))
				h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
				h.create(web)
				repair := h.runtime.Inject(func(call fakeruntime.Call) bool { return call.Method == "StartContainer" },
					fakeruntime.Fault{Err: errors.New("no image")})
				if policy == v1.RestartPolicyOnFailure {
					probes.setUnhealthy(h.cache.Get(podid.UID(web.UID)).Containers[0].ID)
					h.Wake(podid.UID(web.UID))
				} else {
					web = web.DeepCopy()
					withImage("other")(web)
					h.update(web, plan.OpSync)
				}
				h.advance(time.Second)
				h.runtime.ExitContainer(podid.UID(web.UID), "app", 0) // in its grace period
				h.advance(time.Minute)
				if exit := h.cache.Get(podid.UID(web.UID)).Containers[0].Exit; exit == nil || exit.Code != 0 {
					h.Fatalf("got exit %+v, want 0", exit)
				}
				h.wantPhase(web, v1.PodRunning)
				repair()
				h.advance(time.Minute)
				h.wantPhase(web, v1.PodRunning)
				h.wantRunning(web, true)
			})
		})
	}
}

func TestSync_PanicRecovered(t *testing.T) {
	tests := map[string]struct {
		broken func(*harness)
		stage  string
	}{
		"admission": {nil, "sync"},
		"volumes":   {func(h *harness) { h.volumes.setPanic("poison") }, "sync"},
		"stop": {func(h *harness) {
			h.runtime.Inject(func(call fakeruntime.Call) bool {
				if call.Method == "StopContainer" {
					panic("stop panics")
				}
				return false
			}, fakeruntime.Fault{})
			h.delete(newAPIPod("poison"), 1)
		}, "terminating"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var admits atomic.Bool
			admit := func(pod *v1.Pod) error {
				if pod.Name == "poison" && !admits.Load() {
					panic("admission panics")
				}
				return nil
			}
			admits.Store(test.broken != nil)
			var logs strings.Builder
			configure := func(config *worker.Config) {
				config.Admit = admit
				config.Logger = slog.New(slog.NewTextHandler(&logs, nil))
			}
			runWith(t, configure, func(h *harness) {
				poison, web := newAPIPod("poison"), newAPIPod("web")
				h.create(poison)
				if test.broken != nil {
					test.broken(h)
				}
				h.UpdatePod(worker.Update{Op: plan.OpSync, Pod: poison})
				h.advance(time.Minute)
				h.create(web)
				h.wantPhase(web, v1.PodRunning)
				h.wantStage(poison, test.stage)
				if err := h.Pods()[0].Err; err == nil || !strings.Contains(err.Error(), "panic") {
					h.Errorf("sync error: got %v, want a panic", err)
				}
				if got := h.count("herald_worker_panics_total"); got < 3 || got > 20 {
					h.Errorf("got %d panics in a minute, want 3 to 20", got)
				}
				if !strings.Contains(logs.String(), "goroutine") || !strings.Contains(logs.String(), "pod=shop/poison") {
					h.Errorf("got log without stack or pod: %s", logs.String())
				}
			})
		})
	}
}

// Upstream e2e "should restart all containers on regular container exit", "... on sidecar container exit"
func TestSync_RestartAllContainers(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	rules := []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	hook := &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 20}}}
	sidecarExits := func(pod *v1.Pod) {
		pod.Spec.InitContainers = []v1.Container{
			{Name: "init", Image: "i:1"}, {Name: "sidecar", Image: "s:1", RestartPolicy: &always, Lifecycle: hook},
			{Name: "source", Image: "s:1", RestartPolicy: &always, RestartPolicyRules: rules},
		}
	}
	ignoresTERM := fakeruntime.Script{StopDuration: fakeruntime.Forever, PreStopDuration: 20 * time.Second}
	tests := map[string]struct {
		pod   *v1.Pod
		runs  time.Duration // until the container "source" exits
		names string
	}{
		"regular container exits": {newAPIPod("web", withContainers("source", "regular"), func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{
				{Name: "init", Image: "i:1"}, {Name: "sidecar", Image: "s:1", RestartPolicy: &always, Lifecycle: hook},
			}
			pod.Spec.Containers[0].RestartPolicy, pod.Spec.Containers[0].RestartPolicyRules = &never, rules
		}), 10 * time.Millisecond, "init sidecar source regular"},
		"sidecar exits":               {newAPIPod("web", withContainers("regular"), sidecarExits), 30 * time.Second, "init sidecar source regular"},
		"sidecar exits during a pull": {newAPIPod("web", withContainers("regular"), sidecarExits), 50 * time.Millisecond, "init sidecar source regular"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				test.pod.Spec.RestartPolicy = v1.RestartPolicyNever
				h.runtime.SetScript("init", fakeruntime.Script{RunDuration: time.Millisecond})
				h.runtime.SetScript("sidecar", ignoresTERM)
				h.runtime.SetScript("source", fakeruntime.Script{RunDuration: test.runs, ExitCode: 42, StopDuration: fakeruntime.Forever})
				slow := ignoresTERM
				slow.PullDuration = 100 * time.Millisecond // started after the first exit of source
				h.runtime.SetScript("regular", slow)
				h.create(test.pod)
				h.advance(test.runs)
				h.runtime.SetScript("source", ignoresTERM)
				h.advance(10 * time.Second)
				h.wantPhase(test.pod, v1.PodRunning)
				status := h.status(test.pod)
				restarted := map[string]bool{}
				for _, container := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
					restarted[container.Name] = container.RestartCount == 1 && container.LastTerminationState.Terminated != nil
				}
				for container := range strings.FieldsSeq(test.names) {
					if !restarted[container] {
						h.Errorf("container %s: got no restart after 10s; transcript:\n%s", container, strings.Join(h.runtime.Transcript(), "\n"))
					}
				}
			})
		})
	}
}
