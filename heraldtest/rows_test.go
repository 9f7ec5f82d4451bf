package heraldtest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The pod to which each row below is applied: running, with two addresses, and with one condition that a node owns and
// one that somebody else does.
const runningStatus = `{"status": {
	"phase": "Running", "observedGeneration": 1, "qosClass": "BestEffort",
	"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
	"hostIP": "192.168.0.1", "hostIPs": [{"ip": "192.168.0.1"}],
	"conditions": [
		{"type": "Ready", "status": "False", "reason": "Because", "message": "of something", "observedGeneration": 1},
		{"type": "example.test/theirs", "status": "True"}],
	"containerStatuses": [
		{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
			"state": {"terminated": {"exitCode": EXIT}}},
		{"name": "ghost", "image": "", "imageID": "", "ready": false, "restartCount": 0,
			"state": {"terminated": {"exitCode": 1}}}]}}`

type row struct {
	patch string // UID, VERSION stand for those of the pod
	kind  types.PatchType
	spec  func(*v1.PodSpec) // changes the pod before it is created
	exit  int               // the container's exit code before
	code  int
	field string                             // the one that the answer blames
	want  func(before, after *v1.Pod) string // what is wrong with the pod afterwards; nil if it must not have changed
}

// restarting sets the policy of the pod, and that of its container with a rule for its exit code, if it is given one.
func restarting(pod v1.RestartPolicy, own v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) func(*v1.PodSpec) {
	return func(spec *v1.PodSpec) {
		spec.RestartPolicy = pod
		if own != "" {
			spec.Containers[0].RestartPolicy, spec.Containers[0].RestartPolicyRules = &own, rules
		}
	}
}

func onExit(operator v1.ContainerRestartRuleOnExitCodesOperator, code int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{
		Action:    v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: []int32{code}},
	}
}

var rows = map[string]row{
	"a change under the right uid is a new version": {
		patch: `{"metadata": {"uid": "UID"}, "status": {"message": "hello"}}`, code: http.StatusOK,
		want: func(before, after *v1.Pod) string {
			if after.ResourceVersion == before.ResourceVersion || after.Status.Message != "hello" {
				return "not changed"
			}
			return ""
		},
	},
	"a patch that changes nothing keeps the version": {
		patch: `{"metadata": {"uid": "UID"}, "status": {"phase": "Running"}}`, code: http.StatusOK,
	},
	"another uid is 422, not 409": {
		patch: `{"metadata": {"uid": "other"}, "status": {"message": "hello"}}`, code: http.StatusUnprocessableEntity,
		field: "metadata.uid",
	},
	"another uid in a JSON merge patch is 422 too": {
		kind:  types.MergePatchType,
		patch: `{"metadata": {"uid": "other"}, "status": {"message": "hello"}}`, code: http.StatusUnprocessableEntity,
		field: "metadata.uid",
	},
	"a stale version is 409": {
		patch: `{"metadata": {"uid": "UID", "resourceVersion": "1"}, "status": {"message": "hello"}}`, code: http.StatusConflict,
	},
	"another uid and a stale version are 409: the version is looked at first": {
		patch: `{"metadata": {"uid": "other", "resourceVersion": "1"}, "status": {"message": "hello"}}`, code: http.StatusConflict,
	},
	"the current version is accepted": {
		patch: `{"metadata": {"uid": "UID", "resourceVersion": "VERSION"}, "status": {"message": "hello"}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.Message = "hello" }),
	},
	"a plain list of pod addresses is joined with the old one, and refused": {
		patch: `{"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}}`, code: http.StatusUnprocessableEntity,
		field: "status.podIPs",
	},
	"a plain list of host addresses is joined with the old one, and refused": {
		patch: `{"status": {"hostIP": "192.168.0.9", "hostIPs": [{"ip": "192.168.0.9"}]}}`, code: http.StatusUnprocessableEntity,
		field: "status.hostIPs",
	},
	"podIP wins over podIPs that do not begin with it, and nobody complains": {
		patch: `{"status": {"podIPs": [{"ip": "10.0.0.9"}]}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.PodIPs = status.PodIPs[:1] }),
	},
	"hostIPs that do not begin with hostIP are refused": {
		patch: `{"status": {"hostIPs": [{"$patch": "replace"}, {"ip": "192.168.0.9"}]}}`, code: http.StatusUnprocessableEntity,
		field: "status.hostIPs[0].ip",
	},
	"an address that is none is refused": {
		patch: `{"status": {"podIP": "web", "podIPs": null}}`, code: http.StatusUnprocessableEntity, field: "status.podIPs[0]",
	},
	"a list of addresses that says replace is replaced": {
		patch: `{"status": {"podIP": "10.0.0.9", "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.9"}]}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) {
			status.PodIP, status.PodIPs = "10.0.0.9", []v1.PodIP{{IP: "10.0.0.9"}}
		}),
	},
	"null clears addresses": {
		patch: `{"status": {"podIP": null, "podIPs": null}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.PodIP, status.PodIPs = "", nil }),
	},
	"podIPs cannot be cleared while podIP stays": {
		patch: `{"status": {"podIPs": null}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.PodIPs = status.PodIPs[:1] }),
	},
	"conditions are merged by type, and those of others stay": {
		patch: `{"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}`, code: http.StatusOK,
		want: wantConditions("Initialized=True", "Ready=False Because of something", "example.test/theirs=True"),
	},
	"an order that leaves out a condition of others keeps it, at the end": {
		patch: `{"status": {"$setElementOrder/conditions": [{"type": "Initialized"}, {"type": "Ready"}],
			"conditions": [{"type": "Initialized", "status": "True"}]}}`, code: http.StatusOK,
		want: wantConditions("Initialized=True", "Ready=False Because of something", "example.test/theirs=True"),
	},
	"a condition is removed by type": {
		patch: `{"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}`, code: http.StatusOK,
		want: wantConditions("example.test/theirs=True"),
	},
	"removing an absent condition changes nothing": {
		patch: `{"status": {"conditions": [{"$patch": "delete", "type": "Initialized"}]}}`, code: http.StatusOK,
	},
	"of a type that stands twice in a patch the last wins": {
		patch: `{"status": {"conditions": [
			{"type": "Initialized", "status": "True"}, {"type": "Initialized", "status": "False"}]}}`, code: http.StatusOK,
		want: wantConditions("Initialized=False", "Ready=False Because of something", "example.test/theirs=True"),
	},
	"a condition that flips keeps its old reason and message": {
		patch: `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, code: http.StatusOK,
		want: wantConditions("Ready=True Because of something", "example.test/theirs=True"),
	},
	"a condition that flips with nulls loses them": {
		patch: `{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": null, "message": null}]}}`, code: http.StatusOK,
		want: wantConditions("Ready=True", "example.test/theirs=True"),
	},
	"a JSON merge patch drops the conditions of others": {
		kind:  types.MergePatchType,
		patch: `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, code: http.StatusOK,
		want: wantConditions("Ready=True"),
	},
	"the QoS class is immutable": {
		patch: `{"status": {"qosClass": "Guaranteed"}}`, code: http.StatusUnprocessableEntity, field: "status.qosClass",
	},
	"the QoS class and the observed generation cannot be cleared": {
		patch: `{"status": {"qosClass": null, "observedGeneration": null}}`, code: http.StatusOK,
		want: wantStatus(func(*v1.PodStatus) {}),
	},
	"times lose what is below a second": {
		patch: `{"status": {"startTime": "2026-01-02T03:04:05.678901Z"}}`, code: http.StatusOK,
		want: func(_, after *v1.Pod) string {
			return gocmp.Diff("2026-01-02T03:04:05Z", after.Status.StartTime.UTC().Format("2006-01-02T15:04:05.999999999Z07:00"))
		},
	},
	"invalid UTF-8 is replaced": {
		patch: "{\"status\": {\"message\": \"a\xffb\"}}", code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.Message = "a\uFFFDb" }),
	},
	"an unknown field and an unknown phase are accepted": {
		patch: `{"status": {"phase": "Bogus", "bogus": 1}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.Phase = "Bogus" }),
	},
	"a phase may go back, and container statuses may go: nobody guards them": {
		patch: `{"status": {"phase": "Pending", "containerStatuses": null}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.Phase, status.ContainerStatuses = v1.PodPending, nil }),
	},
	"a container that may restart may run again": {
		patch: runAgain, code: http.StatusOK, want: wantRunning,
	},
	"a container of a pod that never restarts stays terminated": {
		patch: runAgain, spec: restarting(v1.RestartPolicyNever, ""), exit: 1, code: http.StatusUnprocessableEntity,
		field: "status.containerStatuses[0].state",
	},
	"a container that succeeded stays terminated if only failures restart": {
		patch: runAgain, spec: restarting(v1.RestartPolicyOnFailure, ""), code: http.StatusUnprocessableEntity,
		field: "status.containerStatuses[0].state",
	},
	"a container that failed may run again if failures restart": {
		patch: runAgain, spec: restarting(v1.RestartPolicyOnFailure, ""), exit: 1, code: http.StatusOK, want: wantRunning,
	},
	"a container's own policy goes before the pod's": {
		patch: runAgain, spec: restarting(v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever), exit: 1,
		code: http.StatusUnprocessableEntity, field: "status.containerStatuses[0].state",
	},
	"a rule for the exit code goes before the container's policy": {
		patch: runAgain, exit: 42, code: http.StatusOK, want: wantRunning,
		spec: restarting(v1.RestartPolicyNever, v1.ContainerRestartPolicyNever, onExit(v1.ContainerRestartRuleOnExitCodesOpIn, 42)),
	},
	"a rule for other exit codes does not match": {
		patch: runAgain, exit: 42, code: http.StatusUnprocessableEntity, field: "status.containerStatuses[0].state",
		spec: restarting(v1.RestartPolicyNever, v1.ContainerRestartPolicyNever, onExit(v1.ContainerRestartRuleOnExitCodesOpNotIn, 42)),
	},
	"a rule that restarts the whole pod makes no state final": {
		patch: runAgain, code: http.StatusOK, want: wantRunning,
		spec: restarting(v1.RestartPolicyNever, v1.ContainerRestartPolicyNever, v1.ContainerRestartRule{
			Action:    v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: onExit(v1.ContainerRestartRuleOnExitCodesOpIn, 42).ExitCodes,
		}),
	},
	"a container that the spec does not have stays terminated": {
		patch: strings.ReplaceAll(runAgain, "main", "ghost"), code: http.StatusUnprocessableEntity,
		field: "status.containerStatuses[1].state",
	},
	"the observed generation of a condition cannot be cleared": {
		patch: `{"status": {"conditions": [{"type": "Ready", "observedGeneration": null}]}}`, code: http.StatusOK,
		want: wantStatus(func(*v1.PodStatus) {}),
	},
	"annotations can be changed through status, the spec and owners cannot": {
		patch: `{"metadata": {"annotations": {"a": "b"}, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
			"spec": {"nodeName": "n2", "activeDeadlineSeconds": 5}}`, code: http.StatusOK,
		want: func(before, after *v1.Pod) string {
			return gocmp.Diff(map[string]string{"a": "b"}, after.Annotations) + gocmp.Diff(before.Spec, after.Spec) +
				gocmp.Diff(before.OwnerReferences, after.OwnerReferences)
		},
	},
	"a patch that is not JSON is 400":     {patch: `{"status"`, code: http.StatusBadRequest},
	"a patch that renames the pod is 400": {patch: `{"metadata": {"name": "other"}}`, code: http.StatusBadRequest},
	"an object of over 1.5 MiB does not fit into etcd": {
		patch: `{"status": {"message": "` + strings.Repeat("x", 1600<<10) + `"}}`, code: http.StatusInternalServerError,
	},
	"a request of over 3 MiB is not read": {
		patch: `{"status": {"message": "` + strings.Repeat("x", 3<<20) + `"}}`, code: http.StatusRequestEntityTooLarge,
	},
}

const runAgain = `{"status": {"containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 1,
	"state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}]}}`

func wantRunning(_, after *v1.Pod) string {
	if statuses := after.Status.ContainerStatuses; len(statuses) != 1 || statuses[0].State.Running == nil {
		return "the container does not run"
	}
	return ""
}

func wantStatus(edit func(*v1.PodStatus)) func(before, after *v1.Pod) string {
	return func(before, after *v1.Pod) string {
		want := before.Status.DeepCopy()
		edit(want)
		return gocmp.Diff(want, &after.Status)
	}
}

func wantConditions(want ...string) func(before, after *v1.Pod) string {
	return func(_, after *v1.Pod) string {
		var got []string
		for _, c := range after.Status.Conditions {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)))
		}
		slices.Sort(want)
		slices.Sort(got)
		return gocmp.Diff(want, got)
	}
}
