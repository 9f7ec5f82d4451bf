package heraldtest_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
)

// runningStatus is the status of the pod in each patchTest: running, with two IPs, one condition of the kubelet and one of
// another controller.
const runningStatus = `{"status": {
	"phase": "Running", "observedGeneration": 1, "qosClass": "BestEffort",
	"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
	"hostIP": "192.168.0.1", "hostIPs": [{"ip": "192.168.0.1"}],
	"conditions": [
		{"type": "Ready", "status": "False", "reason": "Because", "message": "of something", "observedGeneration": 1},
		{"type": "example.test/other", "status": "True"}],
	"containerStatuses": [
		{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
			"state": {"terminated": {"exitCode": EXIT}}},
		{"name": "ghost", "image": "", "imageID": "", "ready": false, "restartCount": 0,
			"state": {"terminated": {"exitCode": 1}}}]}}`

type patchTest struct {
	patch string // UID and VERSION are replaced by the pod's
	kind  types.PatchType
	spec  func(*v1.PodSpec) // changes the spec before the pod is created
	exit  int               // exit code of the terminated container
	code  int
	field string                             // the field that a 422 names
	want  func(before, after *v1.Pod) string // returns a diff; nil: the pod must not change
}

// withRestartPolicy sets the pod's restart policy, and the container's policy and rules if own is not empty.
func withRestartPolicy(pod v1.RestartPolicy, own v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) func(*v1.PodSpec) {
	return func(spec *v1.PodSpec) {
		spec.RestartPolicy = pod
		if own != "" {
			spec.Containers[0].RestartPolicy, spec.Containers[0].RestartPolicyRules = &own, rules
		}
	}
}

func restartOnExit(operator v1.ContainerRestartRuleOnExitCodesOperator, code int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{
		Action:    v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: []int32{code}},
	}
}

// patchTests expect the measured behaviour of the real API server.
var patchTests = map[string]patchTest{
	"changed status": {
		patch: `{"metadata": {"uid": "UID"}, "status": {"message": "hello"}}`, code: http.StatusOK,
		want: func(before, after *v1.Pod) string {
			if after.ResourceVersion == before.ResourceVersion || after.Status.Message != "hello" {
				return "status not changed"
			}
			return ""
		},
	},
	"unchanged status keeps version": {
		patch: `{"metadata": {"uid": "UID"}, "status": {"phase": "Running"}}`, code: http.StatusOK,
	},
	"other UID": {
		patch: `{"metadata": {"uid": "other"}, "status": {"message": "hello"}}`, code: http.StatusUnprocessableEntity,
		field: "metadata.uid",
	},
	"other UID in merge patch": {
		kind:  types.MergePatchType,
		patch: `{"metadata": {"uid": "other"}, "status": {"message": "hello"}}`, code: http.StatusUnprocessableEntity,
		field: "metadata.uid",
	},
	"stale version": {
		patch: `{"metadata": {"uid": "UID", "resourceVersion": "1"}, "status": {"message": "hello"}}`, code: http.StatusConflict,
	},
	"other UID and stale version": {
		patch: `{"metadata": {"uid": "other", "resourceVersion": "1"}, "status": {"message": "hello"}}`, code: http.StatusConflict,
	},
	"current version": {
		patch: `{"metadata": {"uid": "UID", "resourceVersion": "VERSION"}, "status": {"message": "hello"}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.Message = "hello" }),
	},
	"podIPs are merged": {
		patch: `{"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}}`, code: http.StatusUnprocessableEntity,
		field: "status.podIPs",
	},
	"hostIPs are merged": {
		patch: `{"status": {"hostIP": "192.168.0.9", "hostIPs": [{"ip": "192.168.0.9"}]}}`, code: http.StatusUnprocessableEntity,
		field: "status.hostIPs",
	},
	"podIP overrides podIPs": {
		patch: `{"status": {"podIPs": [{"ip": "10.0.0.9"}]}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.PodIPs = status.PodIPs[:1] }),
	},
	"hostIPs without hostIP": {
		patch: `{"status": {"hostIPs": [{"$patch": "replace"}, {"ip": "192.168.0.9"}]}}`, code: http.StatusUnprocessableEntity,
		field: "status.hostIPs[0].ip",
	},
	"invalid IP": {
		patch: `{"status": {"podIP": "web", "podIPs": null}}`, code: http.StatusUnprocessableEntity, field: "status.podIPs[0]",
	},
	"podIPs replaced": {
		patch: `{"status": {"podIP": "10.0.0.9", "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.9"}]}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) {
			status.PodIP, status.PodIPs = "10.0.0.9", []v1.PodIP{{IP: "10.0.0.9"}}
		}),
	},
	"IPs cleared": {
		patch: `{"status": {"podIP": null, "podIPs": null}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.PodIP, status.PodIPs = "", nil }),
	},
	"podIPs cleared without podIP": {
		patch: `{"status": {"podIPs": null}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.PodIPs = status.PodIPs[:1] }),
	},
	"conditions merged by type": {
		patch: `{"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}`, code: http.StatusOK,
		want: wantConditions("Initialized=True", "Ready=False Because of something", "example.test/other=True"),
	},
	"condition missing in order": {
		patch: `{"status": {"$setElementOrder/conditions": [{"type": "Initialized"}, {"type": "Ready"}],
			"conditions": [{"type": "Initialized", "status": "True"}]}}`, code: http.StatusOK,
		want: wantConditions("Initialized=True", "Ready=False Because of something", "example.test/other=True"),
	},
	"condition deleted": {
		patch: `{"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}`, code: http.StatusOK,
		want: wantConditions("example.test/other=True"),
	},
	"absent condition deleted": {
		patch: `{"status": {"conditions": [{"$patch": "delete", "type": "Initialized"}]}}`, code: http.StatusOK,
	},
	"condition twice in patch": {
		patch: `{"status": {"conditions": [
			{"type": "Initialized", "status": "True"}, {"type": "Initialized", "status": "False"}]}}`, code: http.StatusOK,
		want: wantConditions("Initialized=False", "Ready=False Because of something", "example.test/other=True"),
	},
	"changed condition keeps reason": {
		patch: `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, code: http.StatusOK,
		want: wantConditions("Ready=True Because of something", "example.test/other=True"),
	},
	"changed condition clears reason": {
		patch: `{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": null, "message": null}]}}`, code: http.StatusOK,
		want: wantConditions("Ready=True", "example.test/other=True"),
	},
	"merge patch replaces conditions": {
		kind:  types.MergePatchType,
		patch: `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, code: http.StatusOK,
		want: wantConditions("Ready=True"),
	},
	"QoS class changed": {
		patch: `{"status": {"qosClass": "Guaranteed"}}`, code: http.StatusUnprocessableEntity, field: "status.qosClass",
	},
	"QoS class and observed generation cleared": {
		patch: `{"status": {"qosClass": null, "observedGeneration": null}}`, code: http.StatusOK,
		want: wantStatus(func(*v1.PodStatus) {}),
	},
	"times truncated to seconds": {
		patch: `{"status": {"startTime": "2026-01-02T03:04:05.678901Z"}}`, code: http.StatusOK,
		want: func(_, after *v1.Pod) string {
			return gocmp.Diff("2026-01-02T03:04:05Z", after.Status.StartTime.UTC().Format("2006-01-02T15:04:05.999999999Z07:00"))
		},
	},
	"invalid UTF-8 is replaced": {
		patch: "{\"status\": {\"message\": \"a\xffb\"}}", code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.Message = "a\uFFFDb" }),
	},
	"unknown field and phase": {
		patch: `{"status": {"phase": "Bogus", "bogus": 1}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.Phase = "Bogus" }),
	},
	"phase reverted, container statuses cleared": {
		patch: `{"status": {"phase": "Pending", "containerStatuses": null}}`, code: http.StatusOK,
		want: wantStatus(func(status *v1.PodStatus) { status.Phase, status.ContainerStatuses = v1.PodPending, nil }),
	},
	"restart policy Always": {
		patch: runningPatch, code: http.StatusOK, want: wantRunning,
	},
	"restart policy Never": {
		patch: runningPatch, spec: withRestartPolicy(v1.RestartPolicyNever, ""), exit: 1, code: http.StatusUnprocessableEntity,
		field: "status.containerStatuses[0].state",
	},
	"OnFailure, succeeded": {
		patch: runningPatch, spec: withRestartPolicy(v1.RestartPolicyOnFailure, ""), code: http.StatusUnprocessableEntity,
		field: "status.containerStatuses[0].state",
	},
	"OnFailure, failed": {
		patch: runningPatch, spec: withRestartPolicy(v1.RestartPolicyOnFailure, ""), exit: 1, code: http.StatusOK, want: wantRunning,
	},
	"container policy overrides pod policy": {
		patch: runningPatch, spec: withRestartPolicy(v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever), exit: 1,
		code: http.StatusUnprocessableEntity, field: "status.containerStatuses[0].state",
	},
	"rule overrides container policy": {
		patch: runningPatch, exit: 42, code: http.StatusOK, want: wantRunning,
		spec: withRestartPolicy(v1.RestartPolicyNever, v1.ContainerRestartPolicyNever, restartOnExit(v1.ContainerRestartRuleOnExitCodesOpIn, 42)),
	},
	"rule for other exit codes": {
		patch: runningPatch, exit: 42, code: http.StatusUnprocessableEntity, field: "status.containerStatuses[0].state",
		spec: withRestartPolicy(v1.RestartPolicyNever, v1.ContainerRestartPolicyNever, restartOnExit(v1.ContainerRestartRuleOnExitCodesOpNotIn, 42)),
	},
	"rule restarts all containers": {
		patch: runningPatch, code: http.StatusOK, want: wantRunning,
		spec: withRestartPolicy(v1.RestartPolicyNever, v1.ContainerRestartPolicyNever, v1.ContainerRestartRule{
			Action:    v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: restartOnExit(v1.ContainerRestartRuleOnExitCodesOpIn, 42).ExitCodes,
		}),
	},
	"container not in spec": {
		patch: strings.ReplaceAll(runningPatch, "main", "ghost"), code: http.StatusUnprocessableEntity,
		field: "status.containerStatuses[1].state",
	},
	"observed generation of condition cleared": {
		patch: `{"status": {"conditions": [{"type": "Ready", "observedGeneration": null}]}}`, code: http.StatusOK,
		want: wantStatus(func(*v1.PodStatus) {}),
	},
	"annotations, spec and owners": {
		patch: `{"metadata": {"annotations": {"a": "b"}, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
			"spec": {"nodeName": "n2", "activeDeadlineSeconds": 5}}`, code: http.StatusOK,
		want: func(before, after *v1.Pod) string {
			return gocmp.Diff(map[string]string{"a": "b"}, after.Annotations) + gocmp.Diff(before.Spec, after.Spec) +
				gocmp.Diff(before.OwnerReferences, after.OwnerReferences)
		},
	},
	"invalid JSON": {patch: `{"status"`, code: http.StatusBadRequest},
	"renamed pod":  {patch: `{"metadata": {"name": "other"}}`, code: http.StatusBadRequest},
	"object over 1.5 MiB": {
		patch: `{"status": {"message": "` + strings.Repeat("x", 1600<<10) + `"}}`, code: http.StatusInternalServerError,
	},
	"request over 3 MiB": {
		patch: `{"status": {"message": "` + strings.Repeat("x", 3<<20) + `"}}`, code: http.StatusRequestEntityTooLarge,
	},
}

const runningPatch = `{"status": {"containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 1,
	"state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}]}}`

func wantRunning(_, after *v1.Pod) string {
	if statuses := after.Status.ContainerStatuses; len(statuses) != 1 || statuses[0].State.Running == nil {
		return "container is not running"
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

func TestPodStatusPatch(t *testing.T) {
	for name, test := range patchTests {
		t.Run(name, func(t *testing.T) {
			runPatchTest(t, heraldtest.NewAPIServer().Config(), test)
		})
	}
}

// runPatchTest applies the patch to a new pod.
func runPatchTest(t *testing.T, cfg *rest.Config, test patchTest) {
	t.Helper()
	before := createRunningPod(t, cfg, test)
	patch := strings.NewReplacer("UID", string(before.UID), "VERSION", before.ResourceVersion).Replace(test.patch)
	kind := cmp.Or(test.kind, types.StrategicMergePatchType)
	err := newRESTClient(t, cfg).Patch(kind).Namespace("default").Resource("pods").Name("web").SubResource("status").
		Body([]byte(patch)).Do(t.Context()).Error()
	after := &v1.Pod{}
	if err := newRESTClient(t, cfg).Get().Namespace("default").Resource("pods").Name("web").Do(t.Context()).Into(after); err != nil {
		t.Fatal(err)
	}

	code, field := codeAndField(err)
	if code != test.code || field != test.field {
		t.Fatalf("got %d, field %q: %v, want %d, field %q", code, field, err, test.code, test.field)
	}
	if test.want == nil {
		if diff := gocmp.Diff(before, after); diff != "" {
			t.Fatalf("pod changed (-before +after):\n%s", diff)
		}
		return
	}
	if diff := test.want(before, after); diff != "" {
		t.Fatalf("wrong pod:\n%s", diff)
	}
}

func createRunningPod(t *testing.T, cfg *rest.Config, test patchTest) *v1.Pod {
	t.Helper()
	client, err := kubeapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pod := newPod("web", "n1")
	if test.spec != nil {
		test.spec(&pod.Spec)
	}
	if _, err := client.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	status := strings.ReplaceAll(runningStatus, "EXIT", fmt.Sprint(test.exit))
	if _, err := client.PatchPodStatus(t.Context(), metav1.NamespaceDefault, "web", []byte(status)); err != nil {
		t.Fatal(err)
	}
	pod, err = client.GetPod(t.Context(), metav1.NamespaceDefault, "web")
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestPodStatusPatch_Labels(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddPod(newPod("web", "n1"))
	_, err := newClient(t, server).PatchPodStatus(t.Context(), metav1.NamespaceDefault, "web", []byte(`{"metadata": {"labels": {"a": "b"}}}`))
	if !apierrors.IsForbidden(err) || server.Pod(defaultName("web")).Labels != nil {
		t.Fatalf("got %v, want forbidden and unchanged labels", err)
	}
}

// qosTests expect the measured behaviour of the real API server.
var qosTests = map[string]struct {
	resources v1.ResourceRequirements
	ofPod     bool
	want      v1.PodQOSClass
}{
	"no resources": {want: v1.PodQOSBestEffort},
	"ephemeral storage only": {
		resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}},
		want:      v1.PodQOSBestEffort,
	},
	"CPU request": {
		resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
		want:      v1.PodQOSBurstable,
	},
	"CPU limit": {
		resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
		want:      v1.PodQOSBurstable,
	},
	"both limits":   {resources: bothLimits, want: v1.PodQOSGuaranteed},
	"pod limits":    {resources: bothLimits, ofPod: true, want: v1.PodQOSGuaranteed},
	"lower request": {resources: lowerRequest, want: v1.PodQOSBurstable},
}

var (
	bothLimits = v1.ResourceRequirements{
		Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")},
	}
	lowerRequest = v1.ResourceRequirements{
		Limits:   bothLimits.Limits,
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Gi")},
	}
)

func TestPodCreate_QOSClass(t *testing.T) {
	for name, test := range qosTests {
		t.Run(name, func(t *testing.T) {
			testQOSClass(t, heraldtest.NewAPIServer().Config(), test.resources, test.ofPod, test.want)
		})
	}
}

func testQOSClass(t *testing.T, cfg *rest.Config, resources v1.ResourceRequirements, ofPod bool, want v1.PodQOSClass) {
	t.Helper()
	pod := newPod("web", "n1")
	if ofPod {
		pod.Spec.Resources = &resources
	} else {
		pod.Spec.Containers[0].Resources = resources
	}
	if got := create(t, newRESTClient(t, cfg), pod).Status.QOSClass; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}
