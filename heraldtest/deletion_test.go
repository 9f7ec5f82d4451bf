package heraldtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
)

func withGrace(seconds int64) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{GracePeriodSeconds: &seconds}
}

// life is what is done to the pod "web", and what a watcher sees of it from then on, up to its end.
type life struct {
	deletes []*metav1.DeleteOptions
	edit    func(pod *v1.Pod) // before it is created
	before  string            // a patch of its status before the first delete
	patch   string            // and one after it
	want    []string
}

var lives = map[string]life{
	"a deletion with grace marks the pod, and one without removes it": {
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(0)},
		want:    []string{"MODIFIED 20s generation 2", "MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"the grace period of the pod is the default": {
		deletes: []*metav1.DeleteOptions{{}, withGrace(0)},
		want:    []string{"MODIFIED 30s generation 2", "MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"grace may be shortened and not lengthened": {
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(40), {}, withGrace(10), withGrace(0)},
		want: []string{
			"MODIFIED 20s generation 2", "MODIFIED 10s generation 2", "MODIFIED 0s generation 2", "DELETED 0s generation 2",
		},
	},
	"a deletion without grace is seen as a mark and a removal": {
		deletes: []*metav1.DeleteOptions{withGrace(0)},
		want:    []string{"MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"a pod that is on no node goes at once": {
		edit:    func(pod *v1.Pod) { pod.Spec.NodeName = "" },
		deletes: []*metav1.DeleteOptions{withGrace(20)},
		want:    []string{"MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"a pod that ended goes at once": {
		before:  `{"status": {"phase": "Failed"}}`,
		deletes: []*metav1.DeleteOptions{withGrace(20)},
		want:    []string{"MODIFIED 0s generation 2", "DELETED 0s generation 2"},
	},
	"less than no grace is a second": {
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(-7), withGrace(0)},
		want: []string{
			"MODIFIED 20s generation 2", "MODIFIED 1s generation 2", "MODIFIED 0s generation 2", "DELETED 0s generation 2",
		},
	},
	"a pod on its way out can be patched, and stays on its way": {
		patch:   `{"metadata": {"deletionTimestamp": null}, "status": {"message": "bye"}}`,
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(0)},
		want: []string{
			"MODIFIED 20s generation 2", "MODIFIED 20s generation 2 bye",
			"MODIFIED 0s generation 2 bye", "DELETED 0s generation 2 bye",
		},
	},
	"a pod that ended keeps the grace that it was given": {
		patch:   `{"status": {"phase": "Failed"}}`,
		deletes: []*metav1.DeleteOptions{withGrace(20), withGrace(30), withGrace(0)},
		want: []string{
			"MODIFIED 20s generation 2", "MODIFIED 20s generation 2",
			"MODIFIED 0s generation 2", "DELETED 0s generation 2",
		},
	},
}

func TestDeletionsTakeTheCourseThatTheyTakeOnTheRealServer(t *testing.T) {
	for name, life := range lives {
		t.Run(name, func(t *testing.T) {
			live(t, heraldtest.NewAPIServer().Config(), life)
		})
	}
}

func live(t *testing.T, cfg *rest.Config, life life) {
	t.Helper()
	pods, pod := newRaw(t, cfg), newPod("web", "n1")
	if life.edit != nil {
		life.edit(pod)
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
	if life.before != "" {
		start = patch(life.before)
	}
	for i, options := range life.deletes {
		if err := onWeb(pods.Delete()).Body(options).Do(t.Context()).Error(); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
		if i == 0 && life.patch != "" {
			patch(life.patch)
		}
	}
	if diff := gocmp.Diff(life.want, watchedUntilGone(t, pods, start.ResourceVersion)); diff != "" {
		t.Fatalf("the watcher saw (-want +got):\n%s", diff)
	}
}

// watchedUntilGone tells what a watch that starts at a version shows, up to a deletion.
func watchedUntilGone(t *testing.T, pods *rest.RESTClient, version string) []string {
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

func TestAShorterGraceCountsFromTheFirstDeletion(t *testing.T) {
	tests := map[string]struct {
		shorter, want int64
		left          time.Duration
	}{
		"to a time that is still to come":                        {shorter: 20, want: 20, left: 10 * time.Second},
		"to a time that is over: the node has a second to react": {shorter: 5, want: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				server.AddPod(newPod("web", "n1"))
				server.DeletePod(inDefault("web"), 30)
				time.Sleep(10 * time.Second)
				server.DeletePod(inDefault("web"), test.shorter)
				pod := server.Pod(inDefault("web"))
				if left := time.Until(pod.DeletionTimestamp.Time); left != test.left || *pod.DeletionGracePeriodSeconds != test.want {
					t.Fatalf("%v left, grace period %d", left, *pod.DeletionGracePeriodSeconds)
				}
			})
		})
	}
}
