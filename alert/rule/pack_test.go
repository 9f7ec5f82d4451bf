package rule_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/view"
)

// change changes the input of a healthy pod on a healthy node.
type change func(*rule.Input)

// packTest has inputs for a default rule. All changes of quiet must leave it false.
type packTest struct {
	fires   []change
	quiet   []change
	unknown change
}

func healthy(*rule.Input) {}

// happened adds something that happened to an object, the last time a minute ago.
func happened(object recent.Object, kind string, times int) change {
	return func(in *rule.Input) {
		counter, _ := in.Recent.(*recent.Counter)
		for i := range times {
			counter.Add(object, kind, now.Add(-time.Duration(times-i)*time.Minute))
		}
	}
}

func waits(reason string) change {
	return func(in *rule.Input) {
		in.Pod.Local.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: waiting(reason)}
	}
}

func all(changes ...change) change {
	return func(in *rule.Input) {
		for _, c := range changes {
			c(in)
		}
	}
}

func onPod(edit func(*view.PodView)) change   { return func(in *rule.Input) { edit(in.Pod) } }
func onNode(edit func(*view.NodeView)) change { return func(in *rule.Input) { edit(in.Node) } }

func notReady(v *view.PodView)   { v.Local.Status.Conditions[0].Status = v1.ConditionFalse }
func isJob(v *view.PodView)      { v.Metadata.OwnerKind = "Job" }
func isDeleting(v *view.PodView) { v.Metadata.DeletionTimestamp = view.NewTime(now.Add(time.Minute)) }
func isOverdue(v *view.PodView)  { v.Metadata.DeletionTimestamp = view.NewTime(now) }
func pending(v *view.PodView)    { v.Local.Status.Phase = v1.PodPending }
func failed(v *view.PodView)     { v.Local.Status.Phase = v1.PodFailed }

func behind(state explain.SyncState) change {
	return onPod(func(v *view.PodView) { v.Lag = view.Lag{State: state, Behind: 2} })
}

func isInit(v *view.PodView) {
	v.Spec.Containers[0].Kind = "init"
	v.Local.Status.StartTime = &metav1.Time{Time: now.Add(-time.Hour)}
}

func stopped(reason plan.StopReason) string { return recent.Ended(recent.StoppedBy(string(reason))) }

func memoryOfLimit(share *float64) change {
	return onPod(func(v *view.PodView) { v.Load.Containers[0].Memory.OfLimit = share })
}

func throttled(share float64) change {
	return onPod(func(v *view.PodView) { v.Load.Containers[0].CPU.Throttled = windows(share) })
}

func certificateFor(left time.Duration) change {
	return onNode(func(v *view.NodeView) { v.CertificateExpires = view.NewTime(now.Add(left)) })
}

func alerting(edit func(*view.Alerting)) change {
	return onNode(func(v *view.NodeView) { edit(v.Alerting) })
}

func relistTakes(ms int64) change {
	return onNode(func(v *view.NodeView) { v.Agent.Latencies.RelistP99Ms = &ms })
}

func disk(use float64, hours *float64) change {
	return onNode(func(v *view.NodeView) {
		v.Load.FileSystems[0].Use, v.Load.FileSystems[0].HoursToFull = &use, hours
	})
}

func isStale(in *rule.Input)    { in.Node.Runtime.Stale = true }
func noPod(in *rule.Input)      { in.Pod = nil }
func noNode(in *rule.Input)     { in.Node = nil }
func noRecent(in *rule.Input)   { in.Recent = nil }
func noPodLoad(v *view.PodView) { v.Load = nil }
func noLoad(v *view.NodeView)   { v.Load = nil }

var thePod = recent.Object{Namespace: "shop", Pod: "cart"}

var packTests = map[string]packTest{
	"PodCrashLooping": {
		fires:   []change{all(waits("CrashLoopBackOff"), happened(web, recent.Restart, 3))},
		quiet:   []change{healthy, waits("CrashLoopBackOff"), happened(web, recent.Restart, 3), all(waits("CrashLoopBackOff"), happened(web, recent.Restart, 2))},
		unknown: isStale,
	},
	"ContainerOOMKilled": {
		fires:   []change{happened(web, recent.Ended("OOMKilled"), 1)},
		quiet:   []change{healthy, happened(web, recent.Ended("Error"), 1), happened(recent.Object{Namespace: "shop", Pod: "other", Container: "web"}, recent.Ended("OOMKilled"), 1)},
		unknown: all(happened(web, recent.Ended("OOMKilled"), 1), isStale),
	},
	"ContainerOOMLoop": {
		fires: []change{happened(web, recent.Ended("OOMKilled"), 3)}, quiet: []change{healthy, happened(web, recent.Ended("OOMKilled"), 2)}, unknown: isStale,
	},
	"ContainerImagePull": {
		fires: []change{waits("ErrImagePull"), waits("ImagePullBackOff"), waits("RegistryUnavailable")}, quiet: []change{healthy, waits("ContainerCreating")}, unknown: isStale,
	},
	"ContainerCannotStart": {
		fires:   []change{waits("CreateContainerConfigError"), waits("RunContainerError"), waits("InvalidImageName"), waits("PostStartHookError")},
		quiet:   []change{healthy, waits("PodInitializing"), waits("CrashLoopBackOff")},
		unknown: isStale,
	},
	"ContainerKilledByLiveness": {
		fires:   []change{happened(web, stopped(plan.StopLivenessProbe), 2)},
		quiet:   []change{healthy, happened(web, stopped(plan.StopLivenessProbe), 1), happened(web, stopped(plan.StopStartupProbe), 2), happened(web, stopped(plan.StopUser), 2)},
		unknown: isStale,
	},
	"StartupProbeExhausted": {
		fires:   []change{happened(web, stopped(plan.StopStartupProbe), 2)},
		quiet:   []change{healthy, happened(web, stopped(plan.StopLivenessProbe), 2)},
		unknown: isStale,
	},
	"InitStuck": {
		fires: []change{onPod(isInit)},
		quiet: []change{
			healthy, onPod(func(v *view.PodView) { v.Spec.Containers[0].Kind = "init" }),
			all(onPod(isInit), onPod(func(v *view.PodView) { v.Spec.Containers[0].Kind = "sidecar" })),
			all(onPod(isInit), waits("PodInitializing")),
		},
		unknown: all(onPod(isInit), isStale),
	},
	"ContainerMemoryNearLimit": {
		fires: []change{memoryOfLimit(new(.96))},
		quiet: []change{
			healthy, memoryOfLimit(new(.95)),
			onPod(func(v *view.PodView) {
				v.Load.Containers[0].Memory.LimitBytes, v.Load.Containers[0].Memory.OfLimit = nil, nil
			}),
			all(onPod(noPodLoad), waits("CrashLoopBackOff")), // nothing runs
		},
		unknown: onPod(noPodLoad),
	},
	"ContainerThrottled": {
		fires: []change{throttled(.6)}, quiet: []change{healthy, throttled(.5)},
		unknown: onPod(func(v *view.PodView) { v.Load.Containers[0].CPU.Throttled = nil }),
	},
	"ReadinessFlapping": {
		fires: []change{happened(thePod, recent.Flip("Ready"), 6)},
		quiet: []change{healthy, happened(thePod, recent.Flip("Ready"), 5), happened(thePod, recent.Flip("Initialized"), 6)}, unknown: noRecent,
	},
	"PodNotReady": {
		fires: []change{onPod(notReady)},
		quiet: []change{
			healthy, all(onPod(notReady), onPod(isJob)), all(onPod(notReady), onPod(isDeleting)), all(onPod(notReady), onPod(pending)),
		},
		unknown: noPod,
	},
	"PodStuckPending": {
		fires: []change{onPod(pending)}, quiet: []change{healthy, all(onPod(pending), onPod(isDeleting))}, unknown: noPod,
	},
	"PodStuckTerminating": {fires: []change{onPod(isOverdue)}, quiet: []change{healthy, onPod(isDeleting)}, unknown: noPod},
	"PodFailed": {
		fires: []change{onPod(failed)},
		quiet: []change{
			healthy, all(onPod(failed), onPod(isJob)), all(onPod(failed), onPod(func(v *view.PodView) { v.Local.Status.Reason = "Terminated" })),
			all(onPod(failed), onPod(func(v *view.PodView) { v.Local.Status.Reason = "NodeShutdown" })),
		},
		unknown: noPod,
	},
	"StatusNotTold": {
		fires: []change{
			behind(explain.SyncSending), behind(explain.SyncWaiting), behind(explain.SyncRefused),
			all(behind(explain.SyncGone), onPod(func(v *view.PodView) { v.Spec.Static = true })),
		},
		quiet: []change{
			healthy, behind(explain.SyncWithheld), behind(explain.SyncGone),
			all(behind(explain.SyncWaiting), onNode(func(v *view.NodeView) { v.Lag.State = explain.SyncWaiting })),
			all(behind(explain.SyncNoServer), onNode(func(v *view.NodeView) { v.Cluster = "" })),
			all(behind(explain.SyncGone), onPod(func(v *view.PodView) { v.Spec.Static, v.Worker.Stage = true, "terminating" })),
		},
		unknown: all(behind(explain.SyncSending), noNode),
	},
	"StatusRefused": {fires: []change{behind(explain.SyncRefused)}, quiet: []change{healthy, behind(explain.SyncWaiting)}, unknown: noPod},
	"ApiServerUnreachable": {
		fires: []change{
			onNode(func(v *view.NodeView) { v.Lag.State = explain.SyncWaiting }),
			onNode(func(v *view.NodeView) { v.Lease.Problem = "connection refused" }), // the status is not due
		},
		quiet: []change{
			healthy, onNode(func(v *view.NodeView) { v.Connection, v.Lag = view.Connection{}, view.Lag{State: explain.SyncNoServer} }),
		},
		unknown: noNode,
	},
	"NodeRuntimeDown": {
		fires: []change{onNode(func(v *view.NodeView) { v.Runtime.Problem = "connection refused" })}, quiet: []change{healthy}, unknown: noNode,
	},
	"NodeNetworkNotReady": {
		fires: []change{onNode(func(v *view.NodeView) { v.Runtime.Network = "cni plugin not initialized" })}, quiet: []change{healthy}, unknown: noNode,
	},
	"RelistSlow": {
		fires: []change{relistTakes(10001)}, quiet: []change{healthy, relistTakes(10000)},
		unknown: onNode(func(v *view.NodeView) { v.Agent.Latencies.RelistP99Ms = nil }),
	},
	"NodeSaturated": {
		fires:   []change{onNode(func(v *view.NodeView) { v.Load.Level = "saturated" })},
		quiet:   []change{healthy, onNode(func(v *view.NodeView) { v.Load.Level = "busy" })},
		unknown: onNode(func(v *view.NodeView) { v.Load.Level = "unknown" }),
	},
	"NodePressure": {
		fires: []change{onNode(func(v *view.NodeView) { v.Local.Status.Conditions[1].Status = v1.ConditionTrue })}, quiet: []change{healthy},
		unknown: noNode,
	},
	"DiskFullSoon": {
		fires: []change{disk(.71, new(3.9))},
		quiet: []change{
			healthy, disk(.7, new(3.9)), disk(.71, new(4.)),
			disk(.99, nil), // it does not grow
			all(disk(.5, nil), onNode(func(v *view.NodeView) { v.Agent.StartedAt = view.NewTime(now) })),
		},
		unknown: all(disk(.71, nil), onNode(func(v *view.NodeView) { v.Agent.StartedAt = view.NewTime(now) })), // too early to say
	},
	"FilesystemReadOnly": {
		fires: []change{onNode(func(v *view.NodeView) { v.Load.FileSystems[0].ReadOnly = true })}, quiet: []change{healthy}, unknown: onNode(noLoad),
	},
	"ManifestRefused": {
		fires: []change{onNode(func(v *view.NodeView) { v.Sources[0].Problems = []view.Problem{{Message: "x"}} })},
		quiet: []change{healthy, onNode(func(v *view.NodeView) { v.Sources[1].Problems = []view.Problem{{Message: "unreachable"}} })}, unknown: noNode,
	},
	"ClockJumped": {
		fires: []change{happened(recent.Object{}, "clock", 1)}, quiet: []change{healthy, happened(recent.Object{}, "boot", 1)}, unknown: noRecent,
	},
	"ClientCertExpires": {
		fires: []change{certificateFor(7 * 24 * time.Hour), certificateFor(-time.Hour)},
		quiet: []change{
			healthy, certificateFor(7*24*time.Hour + time.Millisecond), onNode(func(v *view.NodeView) { v.CertificateExpires = nil }),
		},
		unknown: noNode,
	},
	"HeraldBlind": {
		fires: []change{alerting(func(a *view.Alerting) { a.RulesUnknown = 1 })}, quiet: []change{healthy, onNode(func(v *view.NodeView) { v.Alerting = nil })},
		unknown: noNode,
	},
	"HeraldRuleBroken": {
		fires: []change{alerting(func(a *view.Alerting) { a.RulesBroken = 1 }), alerting(func(a *view.Alerting) { a.FilesBroken = 1 })},
		quiet: []change{healthy}, unknown: noNode,
	},
	"HeraldSinkFailing":       {fires: []change{alerting(func(a *view.Alerting) { a.SinksFailing = 1 })}, quiet: []change{healthy}, unknown: noNode},
	"HeraldHistoryUnwritable": {fires: []change{onNode(func(v *view.NodeView) { v.History.Problem = "disk full" })}, quiet: []change{healthy}, unknown: noNode},
	"HeraldAlertsSuppressed":  {fires: []change{alerting(func(a *view.Alerting) { a.Suppressed = 1 })}, quiet: []change{healthy}, unknown: noNode},
	"RemediationExhausted":    {fires: []change{alerting(func(a *view.Alerting) { a.RemediesExhausted = 1 })}, quiet: []change{healthy}, unknown: noNode},
}

// TestA10_Pack evaluates every default rule for inputs for which it is true, false and unknown.
func TestA10_Pack(t *testing.T) {
	for _, r := range rule.Default().Rules {
		t.Run(r.Name, func(t *testing.T) {
			test := packTests[r.Name]
			if len(test.fires) == 0 || len(test.quiet) == 0 || test.unknown == nil {
				t.Fatal("needs inputs for which it is true, false and unknown")
			}
			eval := func(edit change) rule.Result {
				in := newInput()
				edit(&in)
				return r.Eval(in)
			}
			for i, edit := range test.fires {
				result := eval(edit)
				if result.Truth != rule.True || result.Err != nil || (result.Value == nil) != (r.Text.Value == "") {
					t.Errorf("input %d that fires: got %+v", i, result)
				}
				in := newInput()
				edit(&in)
				checkSummary(t, r, result.Value, in)
			}
			for i, edit := range test.quiet {
				if result := eval(edit); result.Truth != rule.False || result.Value != nil {
					t.Errorf("input %d that is quiet: got %+v", i, result)
				}
			}
			if result := eval(test.unknown); result.Truth != rule.Unknown || result.Reason == "" || result.Err != nil {
				t.Errorf("unknown: got %+v", result)
			}
		})
	}
	if len(packTests) != len(rule.Default().Rules) {
		t.Errorf("got %d tests for %d rules", len(packTests), len(rule.Default().Rules))
	}
}

func checkSummary(t *testing.T, r *rule.Rule, value *float64, in rule.Input) {
	t.Helper()
	summary := r.Annotate(labelsOf(r), value, in)["summary"]
	if summary == "" || strings.Contains(summary, "<") || strings.Contains(summary, "%!") || strings.Contains(summary, "unknown") ||
		strings.Contains(summary, "\n") || len(summary) > 400 {
		t.Errorf("got summary %q", summary)
	}
	t.Log(summary)
	if r.Labels["severity"] == "" {
		t.Error("there is no severity")
	}
}
