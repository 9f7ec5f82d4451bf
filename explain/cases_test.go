package explain_test

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// exampleCase is a question about a pod. testdata/cases.txt has the answers.
type exampleCase struct {
	name     string
	question explain.Question
	facts    explain.Facts
}

// gone returns the facts about a pod that the node does not have.
func gone(name string, change option) explain.Facts {
	f := explain.Facts{Now: now, Name: podid.FullName{Namespace: "shop", Name: name}}
	change(&f)
	return f
}

const (
	wrong      = explain.WhatIsWrong
	notReady   = explain.WhyNotReady
	notRunning = explain.WhyNotRunning
	notDeleted = explain.WhyNotDeleted
	restarting = explain.WhyRestarting
)

// exampleCases has at least one case for each code.
func exampleCases() []exampleCase {
	var cases []exampleCase
	for _, group := range [][]exampleCase{
		sourceCases(), deletionCases(), terminalCases(), nodeCases(), imageCases(), initCases(), containerCases(), probeCases(),
		conditionCases(), readyCases(),
	} {
		cases = append(cases, group...)
	}
	return cases
}

func sourceCases() []exampleCase {
	refused := func(f *explain.Facts) {
		f.Source = explain.Source{
			Name: podid.File, Problem: "db.yaml:14 spec.containers[0].imag: unknown field", Since: ago(48 * time.Minute),
		}
	}
	full := "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110; spec: use another node"
	return []exampleCase{
		{"unknown here", wrong, gone("nobody", func(*explain.Facts) {})},
		{"left", wrong, gone("old-1", func(f *explain.Facts) {
			f.Left = &explain.Left{At: ago(61 * time.Second), Summary: "Completed 0/1"}
		})},
		{"left, asked whether it is deleted", notDeleted, gone("old-1", func(f *explain.Facts) {
			f.Left = &explain.Left{At: ago(49 * time.Hour), Summary: "Completed 0/1"}
		})},
		{"manifest refused", wrong, gone("db", refused)},
		{"newer manifest refused", wrong, newFacts("db-n1", ready, refused)},
		{"newer manifest refused, not ready", wrong, newFacts("db-n1", webIs(waits("CrashLoopBackOff", "")), refused)},
		{"waits for its name", wrong, newFacts("web2-n1", static, phase(v1.PodPending), worker(func(w *explain.Worker) {
			w.WaitsFor = "6f1c"
		}))},
		{"static pod rejected", wrong, newFacts("big-1", static, phase(v1.PodPending), reason("OutOfpods", full),
			worker(func(w *explain.Worker) { w.RetryAt = in(2 * time.Minute) }))},
		{"rejected", notRunning, newFacts("big-1", phase(v1.PodFailed), reason("OutOfpods", full))},
		{"rejected for lack of CPU", wrong, newFacts("big-1", phase(v1.PodFailed), reason("OutOfcpu",
			"Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 3800, capacity: 4000"))},
		{"rejected by an older agent", wrong, newFacts("big-1", phase(v1.PodFailed), reason("NodeAffinity", "Pod Predicate NodeAffinity failed"))},
		{"rejected, unexpected error", wrong, newFacts("big-1", phase(v1.PodFailed),
			reason("UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to no devices left"))},
		{"rejected, not in the status yet", wrong, newFacts("big-1", phase(v1.PodPending),
			worker(func(w *explain.Worker) { w.Rejected = errors.New("no place") }))},
		{"waits for resources", notRunning, newFacts("big-1", phase(v1.PodPending), worker(func(w *explain.Worker) {
			w.Rejected, w.RetryAt = waitingError{}, in(2*time.Second)
		}))},
		{"no status yet", wrong, newFacts("new-1", phase(""))},
	}
}

// waitingError is the rejection of a pod that waits for others to end.
type waitingError struct{}

func (waitingError) Error() string {
	return "Node didn't have enough resource: cpu, requested: 500, used: 3800, capacity: 4000; spec.containers[*].resources.requests: " +
		"none needed: it waits for shop/old, ending"
}
func (waitingError) RejectionReason() string { return "OutOfcpu" }
func (waitingError) IsTemporary() bool       { return true }

func deletionCases() []exampleCase {
	stopping := func(s explain.Stopping) option {
		return worker(func(w *explain.Worker) {
			w.Stage = plan.Terminating
			w.Stopping = []explain.Stopping{{Container: "other", KillAt: in(time.Hour)}, s}
		})
	}
	stage := func(s plan.Stage) option { return worker(func(w *explain.Worker) { w.Stage = s }) }
	app := explain.Stopping{Container: "web", Reason: plan.StopPodTerminating, Since: ago(31 * time.Second), KillAt: in(19 * time.Second)}
	hook, late := app, app
	hook.PreStop = true
	late.KillAt = ago(5 * time.Minute)
	return []exampleCase{
		{"container ignores TERM", wrong, newFacts("old-1", ready, deleted, stopping(app))},
		{"being deleted and Ready", notReady, newFacts("old-1", ready, deleted, stopping(app))},
		{"preStop hook", notDeleted, newFacts("old-1", ready, deleted, stopping(hook))},
		{"grace period over", wrong, newFacts("old-1", ready, deleted, stopping(late))},
		{"still runs, no worker", wrong, newFacts("old-1", ready, deleted)},
		{"cannot be stopped", wrong, newFacts("old-1", deleted, stage(plan.Terminating), trouble("kill container web: ttrpc: closed", 3))},
		{"stops, nothing known", wrong, newFacts("old-1", deleted, stage(plan.Terminating))},
		{"static pod removed from its source", wrong, newFacts("old-n1", ready, static, stage(plan.Terminating))},
		{"deleted, runtime down", wrong, newFacts("old-1", ready, deleted,
			runtime(explain.Runtime{Err: errors.New("deadline exceeded"), Since: ago(time.Minute), NextTry: in(time.Second)}))},
		{"volumes are being released", wrong, newFacts("old-1", deleted, stage(plan.Terminated))},
		{"volumes could not be released", wrong, newFacts("old-1", deleted, stage(plan.Terminated),
			trouble("unmount volume certs: device or resource busy", 4))},
		{"API server does not answer", wrong, newFacts("old-2", deleted, stage(plan.Finished), sync(explain.Sync{
			State: explain.SyncWaiting, Reason: "connection refused", Failures: 2, NextTry: in(4 * time.Second),
		}))},
		{"finalizer", wrong, newFacts("old-2", deleted, stage(plan.Finished), func(f *explain.Facts) {
			f.Pod.DeletionTimestamp = new(metaAgo(3 * time.Hour))
			f.Sync = explain.Sync{State: explain.SyncSynced, Finalizers: []string{"example.com/backup"}}
		})},
		{"object is being deleted", notDeleted, newFacts("old-2", deleted, webIs(exited(0, "Completed", time.Hour)))},
		{"nobody deletes it", notDeleted, newFacts("web-1", ready)},
		{"static pod, not deleted", notDeleted, newFacts("web-n1", ready, static)},
	}
}

func terminalCases() []exampleCase {
	failed := func(options ...option) []option {
		return append([]option{phase(v1.PodFailed), policy(v1.RestartPolicyNever)}, options...)
	}
	lost := exited(137, "ContainerStatusUnknown", 0)
	lost.Terminated.FinishedAt = lost.Terminated.StartedAt
	told := exited(2, "Error", 4*time.Minute)
	told.Terminated.Message = "cannot read /data\n"
	return []exampleCase{
		{"succeeded", wrong, newFacts("etl-1", phase(v1.PodSucceeded), policy(v1.RestartPolicyNever), webIs(exited(0, "Completed", time.Minute)))},
		{"succeeded, asked for Ready", notReady, newFacts("etl-1", phase(v1.PodSucceeded), webIs(exited(0, "Completed", time.Minute)))},
		{"out of memory", wrong, newFacts("etl-1", failed(memoryLimit("512Mi"), webIs(exited(137, "OOMKilled", 4*time.Minute)))...)},
		{"failed", wrong, newFacts("etl-1", failed(webIs(told), func(f *explain.Facts) {
			f.LastLines = map[string][]string{"web": {"open /data: no such file or directory"}}
		})...)},
		{"end not observed", wrong, newFacts("etl-1", failed(webIs(lost))...)},
		{"init container failed", wrong, newFacts("db-0", append([]option{
			initContainers(map[string]v1.ContainerState{"migrate": exited(1, "Error", time.Second)}, "migrate"),
		}, failed()...)...)},
		{"deadline", wrong, newFacts("etl-1", failed(reason("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
			func(f *explain.Facts) { f.Pod.Spec.ActiveDeadlineSeconds = new(int64(600)) })...)},
		{"evicted", wrong, newFacts("log-1", failed(reason("Evicted", `Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".`))...)},
		{"evicted, memory", wrong, newFacts("log-1", failed(reason("Evicted",
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container c was using 2Gi, request is 0, has larger consumption of memory. "))...)},
		{"evicted, inodes", wrong, newFacts("log-1", failed(reason("Evicted",
			"The node was low on resource: inodes. Threshold quantity: 100, available: 90. "))...)},
		{"rejected under pressure", wrong, newFacts("log-1", failed(reason("Evicted",
			"The node had condition: [DiskPressure]. spec.nodeName: use another node"))...)},
		{"preempted", wrong, newFacts("low-1", failed(reason("Preempting", "Preempted in order to admit critical pod"))...)},
		{"node shut down", wrong, newFacts("web-1", failed(reason("Terminated", "Pod was terminated in response to imminent node shutdown."))...)},
		{"other reason", wrong, newFacts("web-1", failed(reason("NodeLost", "Node n1 which was running pod web-1 is unresponsive"))...)},
		{"phase of another writer", wrong, newFacts("web-1", failed(status(v1.ContainerStatus{Name: "web", State: running(time.Hour)}))...)},
		{"succeeded by another writer", wrong, newFacts("web-1", phase(v1.PodSucceeded), webIs(running(time.Hour)),
			sync(explain.Sync{State: explain.SyncWithheld}))},
	}
}

func nodeCases() []exampleCase {
	down := runtime(explain.Runtime{
		Err:   errors.New("/run/containerd/containerd.sock: context deadline exceeded"),
		Since: ago(3 * time.Minute), NextTry: in(time.Second), Observed: ago(54 * time.Second),
	})
	noNetwork := runtime(explain.Runtime{Network: errors.New("cni plugin not initialized")})
	secret := trouble(`mount volume certs: secret "tls" not found`, 7)
	return []exampleCase{
		{"runtime down", wrong, newFacts("web-n1", ready, down)},
		{"runtime down, asked for Ready", notReady, newFacts("web-n1", ready, down)},
		{"runtime down, not ready", notReady, newFacts("web-n1", unready(true), down)},
		{"runtime stale", wrong, newFacts("web-n1", ready, runtime(explain.Runtime{Stale: true, Observed: ago(4 * time.Minute)}))},
		{"network not ready", wrong, newFacts("web-n1", pending("ContainerCreating", ""), noNetwork)},
		{"network not ready, container waits for its image", wrong, newFacts("img-7cf", pending("ErrImagePull", "x"), noNetwork,
			with(v1.PodReadyToStartContainers, v1.ConditionTrue, time.Minute))},
		{"secret not found", wrong, newFacts("vol-1", pending("ContainerCreating", ""), secret,
			worker(func(w *explain.Worker) { w.VolumesPending = true }))},
		{"volumes are being mounted", wrong, newFacts("vol-1", pending("ContainerCreating", ""),
			worker(func(w *explain.Worker) { w.VolumesPending = true }))},
		{"sandbox failed", wrong, newFacts("web-n1", pending("ContainerCreating", ""), trouble("failed to set up sandbox: no IP left", 2),
			worker(func(w *explain.Worker) { w.SandboxPending = true }))},
		{"sandbox is being created", wrong, newFacts("web-n1", pending("ContainerCreating", ""),
			worker(func(w *explain.Worker) { w.SandboxPending = true }))},
		{"sync failed", wrong, newFacts("web-n1", pending("ContainerCreating", ""), trouble("create cgroup: permission denied", 1))},
	}
}

func imageCases() []exampleCase {
	pull := func(message string) explain.Facts {
		return newFacts("img-7cf", image("reg/x:9"), pending("ErrImagePull", message))
	}
	return []exampleCase{
		{"image not found", wrong, newFacts("img-7cf", image("reg/x:9"),
			pending("ImagePullBackOff", `Back-off pulling image "reg/x:9": ErrImagePull: reg says 404 manifest unknown`),
			start("web", explain.Start{Reason: "ImagePullBackOff", At: in(38 * time.Second), Failures: 6}))},
		{"image not found, no worker", wrong, pull(`failed to pull and unpack image "reg/x:9": reg/x:9: not found`)},
		{"access denied", wrong, pull("pull access denied, repository does not exist or may require authorization")},
		{"registry unavailable", wrong, pull("dial tcp: lookup reg: no such host")},
		{"pull failed", wrong, pull("no space left on device")},
		{"signature", wrong, newFacts("img-7cf", image("reg/x:9"), pending("SignatureValidationFailed", "no signature"))},
		{"invalid name", wrong, newFacts("img-8", image("Reg/x:9"),
			pending("InvalidImageName", `Failed to apply default image tag "Reg/x:9": upper case in repository`))},
		{"never pull", wrong, newFacts("img-8", image("reg/x:9"), pending("ErrImageNeverPull", "Container image is not present"))},
		{"inspect error", wrong, newFacts("img-8", image("reg/x:9"), pending("ImageInspectError", "Failed to inspect image"))},
		{"config error", wrong, newFacts("web-n1", pending("CreateContainerConfigError", `secret "db" not found`))},
		{"create error", wrong, newFacts("web-n1", pending("CreateContainerError", "failed to reserve container name"))},
		{"run error", wrong, newFacts("web-n1", pending("RunContainerError", `exec: "/no": stat /no: no such file or directory`),
			start("web", explain.Start{Reason: "RunContainerError", At: in(9400 * time.Millisecond), Failures: 2}))},
		{"hook error", wrong, newFacts("web-n1", pending("PostStartHookError", "exited with 1"))},
		{"other start error", wrong, newFacts("web-n1", pending("PreStartHookError", "exited with 1"))},
		{"start error, no status", wrong, newFacts("web-n1", phase(v1.PodPending),
			start("web", explain.Start{Reason: "CreateContainerError", Message: "disk is full"}))},
	}
}

func initCases() []exampleCase {
	names := []string{"wait", "migrate", "seed"}
	states := func(state v1.ContainerState) map[string]v1.ContainerState {
		return map[string]v1.ContainerState{"wait": exited(0, "Completed", time.Second), "migrate": state}
	}
	sidecar := func(f *explain.Facts) {
		f.Pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		f.Pod.Spec.InitContainers[0].StartupProbe = &v1.Probe{}
	}
	return []exampleCase{
		{"init container runs", wrong, newFacts("db-0", initContainers(states(running(14*time.Minute)), names...))},
		{"init container runs, with a deadline", wrong, newFacts("db-0", initContainers(states(running(14*time.Minute)), names...),
			func(f *explain.Facts) { f.Pod.Spec.ActiveDeadlineSeconds = new(int64(3600)) })},
		{"init container fails", wrong, newFacts("db-0", initContainers(states(waits("CrashLoopBackOff", "")), names...),
			func(f *explain.Facts) {
				migrate := &f.Pod.Status.InitContainerStatuses[1]
				migrate.RestartCount, migrate.LastTerminationState = 4, exited(1, "Error", 3*time.Second)
				migrate.LastTerminationState.Terminated.Message = "no such table"
				f.LastLines = map[string][]string{"migrate": {"dial tcp 10.0.0.5:5432: connection refused"}}
			}, start("migrate", explain.Start{Reason: "CrashLoopBackOff", At: in(245 * time.Second)}))},
		{"init container is being started", wrong, newFacts("db-0", initContainers(nil, names...))},
		{"init container's image", wrong, newFacts("db-0", initContainers(states(waits("ErrImagePull", "unauthorized")), names...))},
		{"sidecar has not started", wrong, newFacts("db-0",
			initContainers(map[string]v1.ContainerState{"proxy": running(5 * time.Second)}, "proxy"), sidecar)},
	}
}

func containerCases() []exampleCase {
	crash := status(v1.ContainerStatus{
		Name: "web", RestartCount: 14, State: waits("CrashLoopBackOff", "back-off 5m0s restarting failed container=web"),
		LastTerminationState: exited(3, "Error", time.Second),
	})
	oom := status(v1.ContainerStatus{
		Name: "web", RestartCount: 3, State: waits("CrashLoopBackOff", ""), LastTerminationState: exited(137, "OOMKilled", time.Minute),
	})
	precise := func(f *explain.Facts) {
		f.Observed = &observed.Pod{Containers: []observed.Container{{
			ID: observed.ContainerID{Runtime: "containerd", ID: "old"}, Name: "web", State: observed.Exited,
			StartedAt: ago(3226 * time.Millisecond), Exit: &observed.Exit{Code: 3, FinishedAt: ago(2 * time.Second)},
		}}}
	}
	lines := func(f *explain.Facts) {
		f.LastLines = map[string][]string{"web": {"open /data: no such file or directory"}}
	}
	next := start("web", explain.Start{Reason: "CrashLoopBackOff", At: in(298 * time.Second), Failures: 14, Delay: 5 * time.Minute})
	second := func(state v1.ContainerState) option {
		return func(f *explain.Facts) {
			f.Pod.Spec.Containers = append(f.Pod.Spec.Containers, v1.Container{Name: "job"})
			status(v1.ContainerStatus{Name: "web", Ready: true, State: running(time.Hour)})(f)
			status(v1.ContainerStatus{Name: "job", State: state})(f)
		}
	}
	stops := func(reason plan.StopReason, message string) option {
		return worker(func(w *explain.Worker) {
			w.Stopping = []explain.Stopping{{Container: "web", Reason: reason, Message: message, Since: ago(time.Second), KillAt: in(29 * time.Second)}}
		})
	}
	killed := status(v1.ContainerStatus{Name: "web", State: running(time.Minute)})
	lost := v1.ContainerStatus{Name: "web", State: waits("ContainerCreating", ""), LastTerminationState: exited(137, "ContainerStatusUnknown", 0)}
	unknown := func(f *explain.Facts) {
		f.Observed = &observed.Pod{Containers: []observed.Container{{Name: "web", State: observed.Unknown}}}
	}
	return []exampleCase{
		{"crash loop", wrong, newFacts("cart-n1", crash, next, precise, lines)},
		{"crash loop, no worker", notReady, newFacts("cart-n1", crash)},
		{"crash loop, asked for Running", notRunning, newFacts("cart-n1", crash, next)},
		{"crash loop, asked for restarts", restarting, newFacts("cart-n1", crash, next, lines)},
		{"crash loop out of memory", wrong, newFacts("cart-n1", oom, memoryLimit("64Mi"))},
		{"crash loop by the liveness probe", wrong, newFacts("cart-n1", crash, next, func(f *explain.Facts) {
			f.Recent = map[string]explain.Recent{"web": {Restarts: 14, StoppedBy: string(plan.StopLivenessProbe)}}
		})},
		{"exited, restarts", wrong, newFacts("cart-n1", webIs(exited(1, "Error", time.Second)))},
		{"exited, does not restart", notReady, newFacts("two-1", policy(v1.RestartPolicyNever), second(exited(0, "Completed", time.Minute)))},
		{"lost, restarts", wrong, newFacts("web-n1", status(lost))},
		{"all restart", wrong, newFacts("web-n1", webIs(exited(1, "Error", time.Second)), with(v1.AllContainersRestarting, v1.ConditionTrue, 0))},
		{"all restart, removed", wrong, newFacts("web-n1", webIs(waits("RestartingAllContainers", "")))},
		{"state unknown", wrong, newFacts("web-n1", webIs(waits("", "")), unknown)},
		{"no status of a container", wrong, newFacts("web-n1", second(running(time.Hour)), func(f *explain.Facts) {
			f.Pod.Status.ContainerStatuses = f.Pod.Status.ContainerStatuses[:1]
		})},
		{"is being created", wrong, newFacts("web-n1", pending("ContainerCreating", ""))},
		{"definition changed", wrong, newFacts("web-n1", killed, stops(plan.StopDefinitionChanged, "Container web definition changed, will be restarted"))},
		{"liveness probe failed", wrong, newFacts("web-n1", killed, stops(plan.StopLivenessProbe, "Container web failed liveness probe, will be restarted"))},
		{"startup probe failed", wrong, newFacts("web-n1", killed, stops(plan.StopStartupProbe, ""))},
	}
}

func probeCases() []exampleCase {
	failing := explain.Answer{At: ago(4 * time.Second), Message: `503 "db down"`}
	return []exampleCase{
		{"startup probe", wrong, newFacts("slow-n1", unready(false), probe(explain.Probe{
			Kind: explain.Startup, Target: "GET :8080/started", Result: explain.Undecided, Streak: 12, StreakFailed: true, Threshold: 30,
			Last: explain.Answer{At: ago(time.Second), Message: "connection refused"}, Next: in(400 * time.Millisecond),
		}))},
		{"startup probe, not asked", wrong, newFacts("slow-n1", unready(false), probe(explain.Probe{Kind: explain.Startup, Next: in(time.Second)}))},
		{"startup probe, errors", wrong, newFacts("slow-n1", unready(false), probe(explain.Probe{
			Kind: explain.Startup, Errors: 2, Last: explain.Answer{At: ago(time.Second), Message: "exec: runtime error"},
		}))},
		{"startup probe, no prober", wrong, newFacts("slow-n1", unready(false), func(f *explain.Facts) { web(f).StartupProbe = &v1.Probe{} })},
		{"readiness probe fails", wrong, newFacts("web-n1", unready(true), probe(explain.Probe{
			Kind: explain.Readiness, Target: "GET :8080/ready", Result: explain.Failing, Streak: 9, StreakFailed: true, Threshold: 3,
			Last: failing, Next: in(6 * time.Second),
		}))},
		{"readiness probe needs more successes", wrong, newFacts("web-n1", unready(true), probe(explain.Probe{
			Kind: explain.Readiness, Target: "tcp :80", Streak: 1, Threshold: 3, Last: explain.Answer{At: ago(time.Second), OK: true}, Next: in(time.Second),
		}))},
		{"readiness probe fails, two successes needed", wrong, newFacts("web-n1", unready(true), probe(explain.Probe{
			Kind: explain.Readiness, Result: explain.Failing, Streak: 1, StreakFailed: true, Last: explain.Answer{At: ago(time.Second)},
		}), func(f *explain.Facts) { web(f).ReadinessProbe.SuccessThreshold = 2 })},
		{"readiness probe not asked", wrong, newFacts("web-n1", unready(true),
			probe(explain.Probe{Kind: explain.Readiness, Next: in(19 * time.Second)}),
			func(f *explain.Facts) { web(f).ReadinessProbe.InitialDelaySeconds = 30 })},
		{"readiness probe errors", wrong, newFacts("api-n1", unready(true), probe(explain.Probe{
			Kind: explain.Readiness, Target: "exec", Errors: 3, Last: explain.Answer{At: ago(time.Second), Message: "runtime error"},
			LastSuccess: ago(2 * time.Minute), Next: in(4 * time.Second),
		}))},
		{"readiness probe has passed", wrong, newFacts("web-n1", unready(true), probe(explain.Probe{
			Kind: explain.Readiness, Result: explain.Passing, Last: explain.Answer{At: now, OK: true},
		}))},
		{"readiness probe, no prober", wrong, newFacts("web-n1", unready(true), func(f *explain.Facts) { web(f).ReadinessProbe = &v1.Probe{} })},
	}
}

func conditionCases() []exampleCase {
	const gate = "target-health.elbv2"
	gated := func(status v1.ConditionStatus) option {
		return func(f *explain.Facts) {
			ready(f)
			f.Pod.Status.Conditions[1].Status = v1.ConditionFalse
			f.Pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: gate}}
			if status != "" {
				with(gate, status, 4*time.Minute)(f)
				f.Pod.Status.Conditions[2].Reason = "Target.ResponseCodeMismatch"
			}
		}
	}
	other := &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}}
	return []exampleCase{
		{"gate is False", wrong, newFacts("lb-5", gated(v1.ConditionFalse))},
		{"gate is Unknown", wrong, newFacts("lb-5", gated(v1.ConditionUnknown), func(f *explain.Facts) { f.Pod.Status.Conditions[2].Reason = "" })},
		{"gate does not exist", notReady, newFacts("lb-5", gated(""))},
		{"status not computed yet", notReady, newFacts("web-n1", ready, func(f *explain.Facts) {
			f.Pod.Status.Conditions[1].Status, f.Pod.Status.Conditions[1].Reason = v1.ConditionFalse, "ContainersNotReady"
		})},
		{"phase not computed yet", notRunning, newFacts("web-n1", ready, phase(v1.PodPending))},
		{"condition overwritten", wrong, newFacts("web-n1", ready, sync(explain.Sync{
			State: explain.SyncSending, Synced: other, Repairs: 3, NextTry: in(16 * time.Second), Since: ago(4 * time.Second),
		}))},
		{"API behind", wrong, newFacts("web-n1", ready, sync(explain.Sync{
			State: explain.SyncWaiting, Synced: other, Behind: 2, Since: ago(161 * time.Second),
			Reason: "API server does not answer (connection refused)", Failures: 9, NextTry: in(166 * time.Second),
		}))},
		{"API behind, asked for Ready", notReady, newFacts("web-n1", ready, sync(explain.Sync{State: explain.SyncWaiting, Failures: 1}))},
		{"status under way", wrong, newFacts("web-n1", ready, sync(explain.Sync{State: explain.SyncSending, Synced: other, Behind: 1, Since: ago(time.Second)}))},
		{"status refused", wrong, newFacts("web-n1", ready, sync(explain.Sync{
			State: explain.SyncRefused, Reason: "admission webhook denied the request", Failures: 3, Since: ago(time.Minute), NextTry: in(time.Minute),
		}))},
		{"object gone", wrong, newFacts("web-n1", ready, sync(explain.Sync{State: explain.SyncGone, Since: ago(2 * time.Second)}))},
	}
}

func readyCases() []exampleCase {
	recent := func(r explain.Recent) option {
		return func(f *explain.Facts) { f.Recent = map[string]explain.Recent{"web": r} }
	}
	restarted := func(f *explain.Facts) {
		f.Pod.Status.ContainerStatuses[0].RestartCount = 4
		f.Pod.Status.ContainerStatuses[0].LastTerminationState = exited(137, "Error", 3*time.Minute)
	}
	debug := func(f *explain.Facts) {
		f.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "busybox"},
		}}
		f.Pod.Status.EphemeralContainerStatuses = []v1.ContainerStatus{{Name: "debug", State: waits("ErrImagePull", "not found")}}
	}
	resizing := func(conditionType v1.PodConditionType, reason, message string) option {
		return func(f *explain.Facts) {
			ready(f)
			with(conditionType, v1.ConditionTrue, 90*time.Second)(f)
			last := &f.Pod.Status.Conditions[len(f.Pod.Status.Conditions)-1]
			last.Reason, last.Message = reason, message
		}
	}
	liveness := explain.Recent{Restarts: 4, StoppedBy: string(plan.StopLivenessProbe)}
	return []exampleCase{
		{"ready", wrong, newFacts("web-n1", ready)},
		{"ready, asked for Ready", notReady, newFacts("web-n1", ready)},
		{"running", notRunning, newFacts("web-n1", ready)},
		{"ephemeral container", wrong, newFacts("web-n1", ready, debug)},
		{"resize deferred", wrong, newFacts("web-n1", resizing(
			v1.PodResizePending, v1.PodReasonDeferred, "Node didn't have enough resource: cpu, requested: 900, used: 500, capacity: 1000",
		))},
		{"resize infeasible", wrong, newFacts("web-n1", resizing(
			v1.PodResizePending, v1.PodReasonInfeasible, "the process runtime does not limit the resources of containers",
		))},
		{"resize failed", wrong, newFacts("web-n1", resizing(
			v1.PodResizeInProgress, v1.PodReasonError,
			"cannot decrease memory limits: attempting to set pod memory limit (1048576) below current usage (2097152)",
		))},
		{"resize in progress", wrong, newFacts("web-n1", resizing(v1.PodResizeInProgress, "", ""))},
		{"resize deferred, asked for Ready", notReady, newFacts("web-n1", resizing(v1.PodResizePending, v1.PodReasonDeferred, "no room"))},
		{"restarted by its liveness probe", wrong, newFacts("web-n1", ready, restarted, recent(liveness))},
		{"readiness flips", wrong, newFacts("web-n1", ready, recent(explain.Recent{Flips: 6}))},
		{"restarted once on purpose", wrong, newFacts("web-n1", ready, recent(explain.Recent{Restarts: 1, StoppedBy: string(plan.StopDefinitionChanged)}))},
		{"asked for restarts", restarting, newFacts("web-n1", ready, restarted, recent(liveness))},
		{"asked for restarts, no history", restarting, newFacts("web-n1", ready, restarted)},
		{"asked for restarts, none", restarting, newFacts("web-n1", ready)},
	}
}
