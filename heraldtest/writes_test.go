package heraldtest_test

import (
	"net/http"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
)

// deed is a request to do with the pod "web", which runs.
type deed struct {
	do   func(pods *rest.RESTClient, before *v1.Pod) *rest.Request
	code int
	want func(before, after *v1.Pod) string // as a row's
}

func onWeb(request *rest.Request) *rest.Request {
	return request.Namespace("default").Resource("pods").Name("web")
}

func deleteWeb(pods *rest.RESTClient, preconditions metav1.Preconditions) *rest.Request {
	return onWeb(pods.Delete()).Body(&metav1.DeleteOptions{Preconditions: &preconditions})
}

var deeds = map[string]deed{
	"a pod that is missing is 404": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Get().Namespace("default").Resource("pods").Name("missing")
		},
		code: http.StatusNotFound,
	},
	"the status of a pod that is missing is 404": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Patch(types.StrategicMergePatchType).Namespace("default").Resource("pods").Name("missing").
				SubResource("status").Body([]byte(`{"metadata": {"uid": "u"}, "status": {"message": "hello"}}`))
		},
		code: http.StatusNotFound,
	},
	"a name that is taken is 409": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Post().Namespace("default").Resource("pods").Body(newPod("web", "n1"))
		},
		code: http.StatusConflict,
	},
	"a new pod without a name is 422": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Post().Namespace("default").Resource("pods").Body(newPod("", "n1"))
		},
		code: http.StatusUnprocessableEntity,
	},
	"a new pod of another namespace than the path's is 400": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Post().Namespace("kube-system").Resource("pods").Body(newPod("new", "n1"))
		},
		code: http.StatusBadRequest,
	},
	"a new pod with a version is 500, of all codes": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			pod := newPod("new", "n1")
			pod.ResourceVersion = "1"
			return pods.Post().Namespace("default").Resource("pods").Body(pod)
		},
		code: http.StatusInternalServerError,
	},
	"a node among the pods is 400": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
			return pods.Post().Namespace("default").Resource("pods").Body(node)
		},
		code: http.StatusBadRequest,
	},
	"a delete with another uid is 409": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			other := types.UID("other")
			return deleteWeb(pods, metav1.Preconditions{UID: &other})
		},
		code: http.StatusConflict,
	},
	"a delete with a stale version is 409": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			old := "1"
			return deleteWeb(pods, metav1.Preconditions{ResourceVersion: &old})
		},
		code: http.StatusConflict,
	},
	"a put of the status without a version overwrites it": {
		do: func(pods *rest.RESTClient, before *v1.Pod) *rest.Request {
			wanted := before.DeepCopy()
			wanted.ResourceVersion, wanted.Spec.NodeName = "", "n2"
			wanted.Status = v1.PodStatus{Phase: v1.PodFailed}
			return onWeb(pods.Put()).SubResource("status").Body(wanted)
		},
		code: http.StatusOK,
		want: func(before, after *v1.Pod) string {
			kept := v1.PodStatus{Phase: v1.PodFailed, QOSClass: before.Status.QOSClass, ObservedGeneration: 1}
			return gocmp.Diff(before.Spec, after.Spec) + gocmp.Diff(kept, after.Status)
		},
	},
	"a put of the status with a stale version is 409": {
		do: func(pods *rest.RESTClient, before *v1.Pod) *rest.Request {
			wanted := before.DeepCopy()
			wanted.ResourceVersion = "1"
			return onWeb(pods.Put()).SubResource("status").Body(wanted)
		},
		code: http.StatusConflict,
	},
	"a put of the status with another uid is 409, unlike a patch": {
		do: func(pods *rest.RESTClient, before *v1.Pod) *rest.Request {
			wanted := before.DeepCopy()
			wanted.ResourceVersion, wanted.UID = "", "other"
			return onWeb(pods.Put()).SubResource("status").Body(wanted)
		},
		code: http.StatusConflict,
	},
	"a put of the pod leaves the status alone": {
		do: func(pods *rest.RESTClient, before *v1.Pod) *rest.Request {
			wanted := before.DeepCopy()
			wanted.Labels, wanted.Status = map[string]string{"a": "b"}, v1.PodStatus{Phase: v1.PodFailed}
			return onWeb(pods.Put()).Body(wanted)
		},
		code: http.StatusOK,
		want: func(before, after *v1.Pod) string {
			return gocmp.Diff(map[string]string{"a": "b"}, after.Labels) + gocmp.Diff(before.Status, after.Status) +
				gocmp.Diff(before.Generation, after.Generation)
		},
	},
	"a patch of the pod leaves the status alone, and a changed spec raises the generation": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return onWeb(pods.Patch(types.StrategicMergePatchType)).
				Body([]byte(`{"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Failed"}}`))
		},
		code: http.StatusOK,
		want: func(before, after *v1.Pod) string {
			return gocmp.Diff(before.Status, after.Status) + gocmp.Diff(before.Generation+1, after.Generation) +
				gocmp.Diff(int64(5), *after.Spec.ActiveDeadlineSeconds)
		},
	},
}

func TestRequestsAreAnsweredAsOnTheRealServer(t *testing.T) {
	for name, deed := range deeds {
		t.Run(name, func(t *testing.T) { perform(t, heraldtest.NewAPIServer().Config(), deed) })
	}
}

func perform(t *testing.T, cfg *rest.Config, deed deed) {
	t.Helper()
	pods, before := newRaw(t, cfg), arrange(t, cfg, row{})
	code, _ := codeAndField(deed.do(pods, before).Do(t.Context()).Error())
	if code != deed.code {
		t.Fatalf("answered %d, want %d", code, deed.code)
	}
	after := &v1.Pod{}
	if err := onWeb(pods.Get()).Do(t.Context()).Into(after); err != nil {
		t.Fatal(err)
	}
	if deed.want == nil {
		deed.want = func(before, after *v1.Pod) string { return gocmp.Diff(before, after) }
	}
	if wrong := deed.want(before, after); wrong != "" {
		t.Fatalf("the pod is not as it should be:\n%s", wrong)
	}
}

func TestANewPodGetsItsIdentityAndItsStatusFromTheServer(t *testing.T) {
	client := newClient(t, heraldtest.NewAPIServer())
	wanted := newPod("web", "n1")
	wanted.UID, wanted.Status.Phase, wanted.Generation = "mine", v1.PodRunning, 7
	created, err := client.CreatePod(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	status := v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort}
	if diff := gocmp.Diff(status, created.Status); diff != "" {
		t.Fatalf("status (-want +got):\n%s", diff)
	}
	if created.UID == "mine" || created.UID == "" || created.CreationTimestamp.IsZero() || created.Generation != 1 {
		t.Fatalf("created as %+v", created.ObjectMeta)
	}
	if _, err := client.CreatePod(t.Context(), wanted); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("created twice: %v", err)
	}
}

var classes = map[string]struct {
	resources v1.ResourceRequirements
	ofPod     bool
	want      v1.PodQOSClass
}{
	"nothing asked for": {want: v1.PodQOSBestEffort},
	"only what does not count": {
		resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}},
		want:      v1.PodQOSBestEffort,
	},
	"a request": {
		resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
		want:      v1.PodQOSBurstable,
	},
	"one limit": {
		resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
		want:      v1.PodQOSBurstable,
	},
	"both limits":                 {resources: bothLimits, want: v1.PodQOSGuaranteed},
	"both limits, of the pod":     {resources: bothLimits, ofPod: true, want: v1.PodQOSGuaranteed},
	"limits, and a lower request": {resources: lowerRequest, want: v1.PodQOSBurstable},
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

func TestANewPodIsOfTheClassThatItIsOfOnTheRealServer(t *testing.T) {
	for name, test := range classes {
		t.Run(name, func(t *testing.T) {
			classify(t, heraldtest.NewAPIServer().Config(), test.resources, test.ofPod, test.want)
		})
	}
}

func classify(t *testing.T, cfg *rest.Config, resources v1.ResourceRequirements, ofPod bool, want v1.PodQOSClass) {
	t.Helper()
	pod := newPod("web", "n1")
	if ofPod {
		pod.Spec.Resources = &resources
	} else {
		pod.Spec.Containers[0].Resources = resources
	}
	if got := create(t, newRaw(t, cfg), pod).Status.QOSClass; got != want {
		t.Fatalf("class %s, want %s", got, want)
	}
}

func TestWritersWhoMeetLoseNothing(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddPod(newPod("web", "n1"))
	const writers, writes = 8, 50
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range writes {
				server.UpdatePod(inDefault("web"), func(pod *v1.Pod) { pod.Status.Message += "x" })
			}
		})
	}
	all.Wait()
	if got := len(server.Pod(inDefault("web")).Status.Message); got != writers*writes {
		t.Fatalf("%d of %d writes are left", got, writers*writes)
	}
}

func TestLabelsCannotBeChangedThroughAPodsStatus(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddPod(newPod("web", "n1"))
	_, err := newClient(t, server).PatchPodStatus(t.Context(), metav1.NamespaceDefault, "web", []byte(`{"metadata": {"labels": {"a": "b"}}}`))
	if !apierrors.IsForbidden(err) || server.Pod(inDefault("web")).Labels != nil {
		t.Fatalf("labels changed through status: %v", err)
	}
}

func TestPatchesThatTheServerDoesNotKnowAre415(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddPod(newPod("web", "n1"))
	for _, kind := range []types.PatchType{types.JSONPatchType, types.ApplyYAMLPatchType} {
		err := onWeb(newRaw(t, server.Config()).Patch(kind)).Body([]byte(`[]`)).Do(t.Context()).Error()
		if !apierrors.IsUnsupportedMediaType(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
