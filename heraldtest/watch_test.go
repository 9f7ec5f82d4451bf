package heraldtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
)

var yes, no = true, false

// views are watches of namespace default, where the pods "old" and "web" are when they begin, at version NOW; then web
// gets the label tier=front, then the label tier=back, and then goes.
var views = map[string]struct {
	options metav1.ListOptions
	want    []string
}{
	"from no version: what there is, then what happens": {
		want: []string{"ADDED old", "ADDED web", "MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"from any version, the same": {
		options: metav1.ListOptions{ResourceVersion: "0"},
		want:    []string{"ADDED old", "ADDED web", "MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"from now: what happens": {
		options: metav1.ListOptions{ResourceVersion: "NOW"},
		want:    []string{"MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"a streamed list ends with a bookmark": {
		options: metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		},
		want: []string{
			"ADDED old", "ADDED web", "BOOKMARK end of the list",
			"MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back",
		},
	},
	"a streamed list not older than now is the same": {
		options: metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			ResourceVersion: "NOW",
		},
		want: []string{
			"ADDED old", "ADDED web", "BOOKMARK end of the list",
			"MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back",
		},
	},
	"a stream without the list is what happens": {
		options: metav1.ListOptions{
			SendInitialEvents: &no, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: "NOW",
		},
		want: []string{"MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"what begins to match is new, and what stops to match is gone": {
		options: metav1.ListOptions{ResourceVersion: "NOW", LabelSelector: "tier=front"},
		want:    []string{"ADDED web front", "DELETED web front"},
	},
	"what was never there cannot go": {
		options: metav1.ListOptions{ResourceVersion: "NOW", LabelSelector: "tier=back"},
		want:    []string{"ADDED web back", "MODIFIED web back", "DELETED web back"},
	},
	"one pod by name": {
		options: metav1.ListOptions{FieldSelector: "metadata.name=web"},
		want:    []string{"ADDED web", "MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"the pods of a node": {
		options: metav1.ListOptions{FieldSelector: "spec.nodeName=n1"},
		want:    []string{"ADDED web", "MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
}

func TestAWatchShowsWhatItShowsOnTheRealServer(t *testing.T) {
	for name, view := range views {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watchLife(t, heraldtest.NewAPIServer().Config(), view.options, view.want)
			})
		})
	}
}

func watchLife(t *testing.T, cfg *rest.Config, options metav1.ListOptions, want []string) {
	t.Helper()
	pods := newRaw(t, cfg)
	create(t, pods, newPod("old", "n2"))
	now := create(t, pods, newPod("web", "n1")).ResourceVersion
	options.ResourceVersion = strings.ReplaceAll(options.ResourceVersion, "NOW", now)
	options.Watch = true
	watched, err := pods.Get().Namespace("default").Resource("pods").
		VersionedParams(&options, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	for _, tier := range []string{"front", "back"} {
		patch := fmt.Sprintf(`{"metadata": {"labels": {"tier": %q}}}`, tier)
		if err := onWeb(pods.Patch(types.MergePatchType)).Body([]byte(patch)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if err := onWeb(pods.Delete()).Body(withGrace(0)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range want {
		event := <-watched.ResultChan()
		got = append(got, describe(event))
		if event.Type == watch.Added || event.Type == watch.Bookmark {
			continue
		}
		version := event.Object.(*v1.Pod).ResourceVersion
		if order, err := resourceversion.CompareResourceVersion(version, now); err != nil || order <= 0 {
			t.Errorf("%s: version %s after %s: %v", describe(event), version, now, err)
		}
		now = version
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("seen (-want +got):\n%s", diff)
	}
}

func create(t *testing.T, pods *rest.RESTClient, pod *v1.Pod) *v1.Pod {
	t.Helper()
	created := &v1.Pod{}
	if err := pods.Post().Namespace("default").Resource("pods").Body(pod).Do(t.Context()).Into(created); err != nil {
		t.Fatal(err)
	}
	return created
}

func describe(event watch.Event) string {
	if status, failed := event.Object.(*metav1.Status); failed {
		return fmt.Sprintf("%s %d %s", event.Type, status.Code, status.Reason)
	}
	described, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Sprintf("%s: %v", event.Type, err)
	}
	line := fmt.Sprintf("%s %s %s", event.Type, described.GetName(), described.GetLabels()["tier"])
	if described.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		line = fmt.Sprintf("%s end of the list", event.Type)
	}
	return strings.TrimSpace(line)
}

// collections are questions about all pods of namespace default, where "old" is on n2 and "web", labelled, on n1.
var collections = map[string]struct {
	options metav1.ListOptions
	code    int
	want    []string
}{
	"all":                            {want: []string{"old", "web"}},
	"any version":                    {options: metav1.ListOptions{ResourceVersion: "0"}, want: []string{"old", "web"}},
	"not older than now":             {options: metav1.ListOptions{ResourceVersion: "NOW"}, want: []string{"old", "web"}},
	"those of a node":                {options: metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}, want: []string{"web"}},
	"those not of a node":            {options: metav1.ListOptions{FieldSelector: "spec.nodeName!=n1"}, want: []string{"old"}},
	"one by name":                    {options: metav1.ListOptions{FieldSelector: "metadata.name=old"}, want: []string{"old"}},
	"those with a label":             {options: metav1.ListOptions{LabelSelector: "tier in (front)"}, want: []string{"web"}},
	"a field that cannot be asked":   {options: metav1.ListOptions{FieldSelector: "spec.bogus=1"}, code: http.StatusBadRequest},
	"a version that is no number":    {options: metav1.ListOptions{ResourceVersion: "x"}, code: http.StatusBadRequest},
	"a version of the future":        {options: metav1.ListOptions{ResourceVersion: "99999999"}, code: http.StatusGatewayTimeout},
	"a match without a version":      {options: metav1.ListOptions{ResourceVersionMatch: "Exact"}, code: http.StatusUnprocessableEntity},
	"a streamed list is for watches": {options: metav1.ListOptions{SendInitialEvents: &yes}, code: http.StatusUnprocessableEntity},
	"a streamed list without its match": {
		options: metav1.ListOptions{SendInitialEvents: &yes, Watch: true}, code: http.StatusUnprocessableEntity,
	},
}

func TestAListHoldsWhatItHoldsOnTheRealServer(t *testing.T) {
	for name, collection := range collections {
		t.Run(name, func(t *testing.T) {
			listPods(t, heraldtest.NewAPIServer().Config(), collection.options, collection.code, collection.want)
		})
	}
}

func listPods(t *testing.T, cfg *rest.Config, options metav1.ListOptions, code int, want []string) {
	t.Helper()
	pods := newRaw(t, cfg)
	create(t, pods, newPod("old", "n2"))
	labelled := newPod("web", "n1")
	labelled.Labels = map[string]string{"tier": "front"}
	now := create(t, pods, labelled).ResourceVersion
	options.ResourceVersion = strings.ReplaceAll(options.ResourceVersion, "NOW", now)
	list := &v1.PodList{}
	err := pods.Get().Namespace("default").Resource("pods").VersionedParams(&options, metav1.ParameterCodec).
		MaxRetries(0).Do(t.Context()).Into(list)
	if code == 0 {
		code = http.StatusOK
	}
	if got, _ := codeAndField(err); got != code {
		t.Fatalf("answered %d, want %d: %v", got, code, err)
	}
	var got []string
	for _, pod := range list.Items {
		got = append(got, pod.Name)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("listed (-want +got):\n%s", diff)
	}
	if err != nil {
		return
	}
	if order, err := resourceversion.CompareResourceVersion(list.ResourceVersion, now); err != nil || order < 0 {
		t.Fatalf("the list is of version %s, its newest pod of %s: %v", list.ResourceVersion, now, err)
	}
}

func TestAnExactVersionThatIsNotTheNewestIsExpired(t *testing.T) {
	server := heraldtest.NewAPIServer()
	old := server.AddPod(newPod("old", "n1")).ResourceVersion
	now := server.AddPod(newPod("web", "n1")).ResourceVersion
	for version, want := range map[string]int{old: http.StatusGone, now: http.StatusOK} {
		options := metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		err := newRaw(t, server.Config()).Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).
			Do(t.Context()).Error()
		if code, _ := codeAndField(err); code != want {
			t.Errorf("version %s of %s: %v", version, now, err)
		}
	}
}

func watchPods(t *testing.T, server *heraldtest.APIServer, options metav1.ListOptions) watch.Interface {
	t.Helper()
	options.Watch = true
	watched, err := newRaw(t, server.Config()).Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return watched
}

func TestAPatchThatChangesNothingIsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		pod := server.AddPod(newPod("web", "n1"))
		watched := watchPods(t, server, metav1.ListOptions{ResourceVersion: pod.ResourceVersion})
		defer watched.Stop()
		patched, err := newClient(t, server).PatchPodStatus(t.Context(), metav1.NamespaceDefault, "web", []byte(`{"status": {"phase": "Pending"}}`))
		if err != nil || patched.ResourceVersion != pod.ResourceVersion {
			t.Fatalf("version %s became %s: %v", pod.ResourceVersion, patched.ResourceVersion, err)
		}
		synctest.Wait()
		select {
		case event := <-watched.ResultChan():
			t.Fatalf("seen: %s", describe(event))
		default:
		}
	})
}

func TestAWatchThatStartsBeforeACompactionIsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		before := server.AddPod(newPod("old", "n1")).ResourceVersion
		at := server.AddPod(newPod("web", "n1")).ResourceVersion
		server.Compact()
		expired := watchPods(t, server, metav1.ListOptions{ResourceVersion: before})
		defer expired.Stop()
		if got := describe(<-expired.ResultChan()); got != "ERROR 410 Expired" {
			t.Errorf("from before the compaction: %s", got)
		}
		current := watchPods(t, server, metav1.ListOptions{ResourceVersion: at})
		defer current.Stop()
		server.DeletePod(inDefault("web"), 0)
		if got := describe(<-current.ResultChan()); got != "MODIFIED web" {
			t.Errorf("from the compaction on: %s", got)
		}
	})
}

func TestAWatchForTheFutureIsToldToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched := watchPods(t, heraldtest.NewAPIServer(), metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			ResourceVersion: "99",
		})
		defer watched.Stop()
		if got := describe(<-watched.ResultChan()); got != "ERROR 504 Timeout" {
			t.Fatal(got)
		}
	})
}

func TestBookmarksTellTheVersionEveryMinuteToThoseWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, start := heraldtest.NewAPIServer(), time.Now()
		watched := watchPods(t, server, metav1.ListOptions{ResourceVersion: "1", AllowWatchBookmarks: true})
		defer watched.Stop()
		version := server.AddNode("n1").ResourceVersion
		event := <-watched.ResultChan()
		pod, ok := event.Object.(*v1.Pod)
		if event.Type != watch.Bookmark || !ok || pod.ResourceVersion != version || time.Since(start) != time.Minute {
			t.Fatalf("after %v: %s %v", time.Since(start), event.Type, event.Object)
		}
	})
}

func TestAWatchEndsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, seconds := time.Now(), int64(90)
		watched := watchPods(t, heraldtest.NewAPIServer(), metav1.ListOptions{TimeoutSeconds: &seconds})
		defer watched.Stop()
		if event, more := <-watched.ResultChan(); more {
			t.Fatalf("seen: %s", describe(event))
		}
		if time.Since(start) != 90*time.Second {
			t.Fatalf("ended after %v", time.Since(start))
		}
	})
}
