package heraldtest_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
)

// requestTest is a request about the running pod web.
type requestTest struct {
	do   func(pods *rest.RESTClient, before *v1.Pod) *rest.Request
	code int
	want func(before, after *v1.Pod) string // like patchTest.want
}

func deleteWeb(pods *rest.RESTClient, preconditions metav1.Preconditions) *rest.Request {
	return onWeb(pods.Delete()).Body(&metav1.DeleteOptions{Preconditions: &preconditions})
}

// requestTests expect the measured behaviour of the real API server.
var requestTests = map[string]requestTest{
	"missing pod": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Get().Namespace("default").Resource("pods").Name("missing")
		},
		code: http.StatusNotFound,
	},
	"status of missing pod": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Patch(types.StrategicMergePatchType).Namespace("default").Resource("pods").Name("missing").
				SubResource("status").Body([]byte(`{"metadata": {"uid": "u"}, "status": {"message": "hello"}}`))
		},
		code: http.StatusNotFound,
	},
	"existing name": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Post().Namespace("default").Resource("pods").Body(newPod("web", "n1"))
		},
		code: http.StatusConflict,
	},
	"no name": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Post().Namespace("default").Resource("pods").Body(newPod("", "n1"))
		},
		code: http.StatusUnprocessableEntity,
	},
	"other namespace": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			return pods.Post().Namespace("kube-system").Resource("pods").Body(newPod("new", "n1"))
		},
		code: http.StatusBadRequest,
	},
	"create with version": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			pod := newPod("new", "n1")
			pod.ResourceVersion = "1"
			return pods.Post().Namespace("default").Resource("pods").Body(pod)
		},
		code: http.StatusInternalServerError,
	},
	"other kind": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
			return pods.Post().Namespace("default").Resource("pods").Body(node)
		},
		code: http.StatusBadRequest,
	},
	"delete with other UID": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			other := types.UID("other")
			return deleteWeb(pods, metav1.Preconditions{UID: &other})
		},
		code: http.StatusConflict,
	},
	"delete with stale version": {
		do: func(pods *rest.RESTClient, _ *v1.Pod) *rest.Request {
			old := "1"
			return deleteWeb(pods, metav1.Preconditions{ResourceVersion: &old})
		},
		code: http.StatusConflict,
	},
	"status update without version": {
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
	"status update with stale version": {
		do: func(pods *rest.RESTClient, before *v1.Pod) *rest.Request {
			wanted := before.DeepCopy()
			wanted.ResourceVersion = "1"
			return onWeb(pods.Put()).SubResource("status").Body(wanted)
		},
		code: http.StatusConflict,
	},
	"status update with other UID": {
		do: func(pods *rest.RESTClient, before *v1.Pod) *rest.Request {
			wanted := before.DeepCopy()
			wanted.ResourceVersion, wanted.UID = "", "other"
			return onWeb(pods.Put()).SubResource("status").Body(wanted)
		},
		code: http.StatusConflict,
	},
	"update keeps status": {
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
	"patch of spec": {
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

func TestPodRequests(t *testing.T) {
	for name, test := range requestTests {
		t.Run(name, func(t *testing.T) { runRequestTest(t, heraldtest.NewAPIServer().Config(), test) })
	}
}

func runRequestTest(t *testing.T, cfg *rest.Config, test requestTest) {
	t.Helper()
	pods, before := newRESTClient(t, cfg), createRunningPod(t, cfg, patchTest{})
	code, _ := codeAndField(test.do(pods, before).Do(t.Context()).Error())
	if code != test.code {
		t.Fatalf("got %d, want %d", code, test.code)
	}
	after := &v1.Pod{}
	if err := onWeb(pods.Get()).Do(t.Context()).Into(after); err != nil {
		t.Fatal(err)
	}
	if test.want == nil {
		test.want = func(before, after *v1.Pod) string { return gocmp.Diff(before, after) }
	}
	if diff := test.want(before, after); diff != "" {
		t.Fatalf("wrong pod:\n%s", diff)
	}
}

func TestPodCreate(t *testing.T) {
	client := newClient(t, heraldtest.NewAPIServer())
	wanted := newPod("web", "n1")
	wanted.UID, wanted.Status.Phase, wanted.Generation = "custom", v1.PodRunning, 7
	created, err := client.CreatePod(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	status := v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort}
	if diff := gocmp.Diff(status, created.Status); diff != "" {
		t.Fatalf("status (-want +got):\n%s", diff)
	}
	if created.UID == "custom" || created.UID == "" || created.CreationTimestamp.IsZero() || created.Generation != 1 {
		t.Fatalf("got metadata %+v", created.ObjectMeta)
	}
	if _, err := client.CreatePod(t.Context(), wanted); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("second create: got %v, want already exists", err)
	}
}

func withGrace(seconds int64) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{GracePeriodSeconds: &seconds}
}

// deleteTest deletes the pod web. want lists the watch events up to its removal.
type deleteTest struct {
	deletes []*metav1.DeleteOptions
	edit    func(pod *v1.Pod) // before the pod is created
	before  string            // status patch before the first delete
	patch   string            // status patch after the first delete
	want    []string
}

// deleteTests expect the measured behaviour of the real API server.
var deleteTests = map[string]deleteTest{
	"with grace, then without": {
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(0)},
		want:    []string{"MODIFIED 20s generation 2", "MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"grace period of pod": {
		deletes: []*metav1.DeleteOptions{{}, withGrace(0)},
		want:    []string{"MODIFIED 30s generation 2", "MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"grace shortened, not extended": {
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(40), {}, withGrace(10), withGrace(0)},
		want: []string{
			"MODIFIED 20s generation 2", "MODIFIED 10s generation 2", "MODIFIED 0s generation 2", "DELETED 0s generation 2",
		},
	},
	"without grace": {
		deletes: []*metav1.DeleteOptions{withGrace(0)},
		want:    []string{"MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"pod without node": {
		edit:    func(pod *v1.Pod) { pod.Spec.NodeName = "" },
		deletes: []*metav1.DeleteOptions{withGrace(20)},
		want:    []string{"MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"failed pod": {
		before:  `{"status": {"phase": "Failed"}}`,
		deletes: []*metav1.DeleteOptions{withGrace(20)},
		want:    []string{"MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"negative grace": {
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(-7), withGrace(0)},
		want: []string{
			"MODIFIED 20s generation 2", "MODIFIED 1s generation 2", "MODIFIED 0s generation 2", "DELETED 0s generation 2",
		},
	},
	"deleted pod patched": {
		patch:   `{"metadata": {"deletionTimestamp": null}, "status": {"message": "bye"}}`,
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(0)},
		want: []string{
			"MODIFIED 20s generation 2", "MODIFIED 20s generation 2 bye",
			"MODIFIED 0s generation 2 bye", "DELETED 0s generation 2 bye",
		},
	},
	"deleted pod fails": {
		patch:   `{"status": {"phase": "Failed"}}`,
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(30), withGrace(0)},
		want: []string{
			"MODIFIED 20s generation 2", "MODIFIED 20s generation 2",
			"MODIFIED 0s generation 2", "DELETED 0s generation 2",
		},
	},
}

func TestPodDelete(t *testing.T) {
	for name, test := range deleteTests {
		t.Run(name, func(t *testing.T) {
			runDeleteTest(t, heraldtest.NewAPIServer().Config(), test)
		})
	}
}

func runDeleteTest(t *testing.T, cfg *rest.Config, test deleteTest) {
	t.Helper()
	pods, pod := newRESTClient(t, cfg), newPod("web", "n1")
	if test.edit != nil {
		test.edit(pod)
	}
	start := create(t, pods, pod)
	patch := func(patch string) *v1.Pod {
		patched := &v1.Pod{}
		request := onWeb(pods.Patch(types.StrategicMergePatchType)).SubResource("status").Body([]byte(patch))
		if err := request.Do(t.Context()).Into(patched); err != nil {
			t.Fatalf("patch: %v", err)
		}
		return patched
	}
	if test.before != "" {
		start = patch(test.before)
	}
	for i, options := range test.deletes {
		if err := onWeb(pods.Delete()).Body(options).Do(t.Context()).Error(); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
		if i == 0 && test.patch != "" {
			patch(test.patch)
		}
	}
	if diff := gocmp.Diff(test.want, watchUntilDeleted(t, pods, start.ResourceVersion)); diff != "" {
		t.Fatalf("watch events (-want +got):\n%s", diff)
	}
}

// watchUntilDeleted returns the events of a watch that starts at the version, up to a deletion.
func watchUntilDeleted(t *testing.T, pods *rest.RESTClient, version string) []string {
	t.Helper()
	watched, err := pods.Get().Namespace("default").Resource("pods").
		VersionedParams(&metav1.ListOptions{Watch: true, ResourceVersion: version}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	var seen []string
	for event := range watched.ResultChan() {
		pod, ok := event.Object.(*v1.Pod)
		if !ok {
			t.Fatalf("%s: %v", event.Type, event.Object)
		}
		line := fmt.Sprintf("%s %ds generation %d", event.Type, *pod.DeletionGracePeriodSeconds, pod.Generation)
		if pod.Status.Message != "" {
			line += " " + pod.Status.Message
		}
		seen = append(seen, line)
		if event.Type == watch.Deleted {
			break
		}
	}
	return seen
}

func TestPodDelete_ShorterGrace(t *testing.T) {
	tests := map[string]struct {
		shorter, want int64
		left          time.Duration
	}{
		"deadline in future": {shorter: 20, want: 20, left: 10 * time.Second},
		"deadline in past":   {shorter: 5, want: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				server.AddPod(newPod("web", "n1"))
				server.DeletePod(defaultName("web"), 30)
				time.Sleep(10 * time.Second)
				server.DeletePod(defaultName("web"), test.shorter)
				pod := server.Pod(defaultName("web"))
				if left := time.Until(pod.DeletionTimestamp.Time); left != test.left || *pod.DeletionGracePeriodSeconds != test.want {
					t.Fatalf("got deadline in %v, grace period %d", left, *pod.DeletionGracePeriodSeconds)
				}
			})
		})
	}
}

func TestPodDelete_Finalizers(t *testing.T) {
	server := heraldtest.NewAPIServer()
	pod := newPod("web", "n1")
	pod.Finalizers = []string{"example.test/hold"}
	added := server.AddPod(pod)
	if err := newClient(t, server).DeletePod(t.Context(), metav1.NamespaceDefault, "web", added.UID); err != nil {
		t.Fatal(err)
	}
	held := server.Pod(defaultName("web"))
	if held == nil || held.DeletionTimestamp == nil || *held.DeletionGracePeriodSeconds != 0 {
		t.Fatalf("after deletion: got %+v, want a deleted pod without grace", held)
	}
	patch := []byte(`{"metadata": {"finalizers": null}}`)
	if err := onWeb(newRESTClient(t, server.Config()).Patch("application/merge-patch+json")).Body(patch).
		Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if left := server.Pod(defaultName("web")); left != nil {
		t.Fatalf("without finalizers: got %+v, want no pod", left)
	}
}
