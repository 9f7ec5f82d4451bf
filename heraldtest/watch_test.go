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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
)

var enabled, disabled = true, false

// watchTests watch the namespace default. It contains the pods old and web at version NOW. Then web gets the label
// tier=front, then tier=back, and is deleted. They expect the measured behaviour of the real API server.
var watchTests = map[string]struct {
	options metav1.ListOptions
	want    []string
}{
	"no version": {
		want: []string{"ADDED old", "ADDED web", "MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"any version": {
		options: metav1.ListOptions{ResourceVersion: "0"},
		want:    []string{"ADDED old", "ADDED web", "MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"current version": {
		options: metav1.ListOptions{ResourceVersion: "NOW"},
		want:    []string{"MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"streaming list": {
		options: metav1.ListOptions{
			SendInitialEvents: &enabled, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		},
		want: []string{
			"ADDED old", "ADDED web", "BOOKMARK initial events end",
			"MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back",
		},
	},
	"streaming list from current version": {
		options: metav1.ListOptions{
			SendInitialEvents: &enabled, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			ResourceVersion: "NOW",
		},
		want: []string{
			"ADDED old", "ADDED web", "BOOKMARK initial events end",
			"MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back",
		},
	},
	"no initial events": {
		options: metav1.ListOptions{
			SendInitialEvents: &disabled, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: "NOW",
		},
		want: []string{"MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"object starts and stops to match": {
		options: metav1.ListOptions{ResourceVersion: "NOW", LabelSelector: "tier=front"},
		want:    []string{"ADDED web front", "DELETED web front"},
	},
	"object starts to match": {
		options: metav1.ListOptions{ResourceVersion: "NOW", LabelSelector: "tier=back"},
		want:    []string{"ADDED web back", "MODIFIED web back", "DELETED web back"},
	},
	"name": {
		options: metav1.ListOptions{FieldSelector: "metadata.name=web"},
		want:    []string{"ADDED web", "MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
	"node": {
		options: metav1.ListOptions{FieldSelector: "spec.nodeName=n1"},
		want:    []string{"ADDED web", "MODIFIED web front", "MODIFIED web back", "MODIFIED web back", "DELETED web back"},
	},
}

func TestWatch(t *testing.T) {
	for name, test := range watchTests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runWatchTest(t, heraldtest.NewAPIServer().Config(), test.options, test.want)
			})
		})
	}
}

func runWatchTest(t *testing.T, cfg *rest.Config, options metav1.ListOptions, want []string) {
	t.Helper()
	pods := newRESTClient(t, cfg)
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
			t.Errorf("%s: got version %s, want one after %s: %v", describe(event), version, now, err)
		}
		now = version
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
}

// listTests list the namespace default: the pod old is on n2, the pod web has a label and is on n1. They expect the
// measured behaviour of the real API server.
var listTests = map[string]struct {
	options metav1.ListOptions
	code    int
	want    []string
}{
	"all":                            {want: []string{"old", "web"}},
	"any version":                    {options: metav1.ListOptions{ResourceVersion: "0"}, want: []string{"old", "web"}},
	"not older than current version": {options: metav1.ListOptions{ResourceVersion: "NOW"}, want: []string{"old", "web"}},
	"node":                           {options: metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}, want: []string{"web"}},
	"not node":                       {options: metav1.ListOptions{FieldSelector: "spec.nodeName!=n1"}, want: []string{"old"}},
	"name":                           {options: metav1.ListOptions{FieldSelector: "metadata.name=old"}, want: []string{"old"}},
	"label":                          {options: metav1.ListOptions{LabelSelector: "tier in (front)"}, want: []string{"web"}},
	"unsupported field":              {options: metav1.ListOptions{FieldSelector: "spec.bogus=1"}, code: http.StatusBadRequest},
	"invalid version":                {options: metav1.ListOptions{ResourceVersion: "x"}, code: http.StatusBadRequest},
	"future version":                 {options: metav1.ListOptions{ResourceVersion: "99999999"}, code: http.StatusGatewayTimeout},
	"match without version":          {options: metav1.ListOptions{ResourceVersionMatch: "Exact"}, code: http.StatusUnprocessableEntity},
	"streaming list without watch":   {options: metav1.ListOptions{SendInitialEvents: &enabled}, code: http.StatusUnprocessableEntity},
	"streaming list without match": {
		options: metav1.ListOptions{SendInitialEvents: &enabled, Watch: true}, code: http.StatusUnprocessableEntity,
	},
}

func TestList(t *testing.T) {
	for name, test := range listTests {
		t.Run(name, func(t *testing.T) {
			runListTest(t, heraldtest.NewAPIServer().Config(), test.options, test.code, test.want)
		})
	}
}

func runListTest(t *testing.T, cfg *rest.Config, options metav1.ListOptions, code int, want []string) {
	t.Helper()
	pods := newRESTClient(t, cfg)
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
		t.Fatalf("got %d, want %d: %v", got, code, err)
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
		t.Fatalf("got list version %s, want at least %s: %v", list.ResourceVersion, now, err)
	}
}

func TestList_ExactVersion(t *testing.T) {
	server := heraldtest.NewAPIServer()
	old := server.AddPod(newPod("old", "n1")).ResourceVersion
	now := server.AddPod(newPod("web", "n1")).ResourceVersion
	for version, want := range map[string]int{old: http.StatusGone, now: http.StatusOK} {
		options := metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		err := newRESTClient(t, server.Config()).Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).
			Do(t.Context()).Error()
		if code, _ := codeAndField(err); code != want {
			t.Errorf("version %s: got %v, want %d", version, err, want)
		}
	}
}

func TestWatch_UnchangedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		pod := server.AddPod(newPod("web", "n1"))
		watched := watchPods(t, server, metav1.ListOptions{ResourceVersion: pod.ResourceVersion})
		defer watched.Stop()
		patched, err := newClient(t, server).PatchPodStatus(t.Context(), metav1.NamespaceDefault, "web", []byte(`{"status": {"phase": "Pending"}}`))
		if err != nil || patched.ResourceVersion != pod.ResourceVersion {
			t.Fatalf("got version %s, %v, want %s", patched.ResourceVersion, err, pod.ResourceVersion)
		}
		synctest.Wait()
		select {
		case event := <-watched.ResultChan():
			t.Fatalf("got event %s, want none", describe(event))
		default:
		}
	})
}

func TestWatch_Compacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		before := server.AddPod(newPod("old", "n1")).ResourceVersion
		at := server.AddPod(newPod("web", "n1")).ResourceVersion
		server.Compact()
		expired := watchPods(t, server, metav1.ListOptions{ResourceVersion: before})
		defer expired.Stop()
		if got := describe(<-expired.ResultChan()); got != "ERROR 410 Expired" {
			t.Errorf("version before the compaction: got %s", got)
		}
		current := watchPods(t, server, metav1.ListOptions{ResourceVersion: at})
		defer current.Stop()
		server.DeletePod(defaultName("web"), 0)
		if got := describe(<-current.ResultChan()); got != "MODIFIED web" {
			t.Errorf("version of the compaction: got %s", got)
		}
	})
}

func TestWatch_FutureVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched := watchPods(t, heraldtest.NewAPIServer(), metav1.ListOptions{
			SendInitialEvents: &enabled, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			ResourceVersion: "99",
		})
		defer watched.Stop()
		if got := describe(<-watched.ResultChan()); got != "ERROR 504 Timeout" {
			t.Fatalf("got %s, want a timeout", got)
		}
	})
}

func TestWatch_Bookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, start := heraldtest.NewAPIServer(), time.Now()
		watched := watchPods(t, server, metav1.ListOptions{ResourceVersion: "1", AllowWatchBookmarks: true})
		defer watched.Stop()
		version := server.AddNode("n1").ResourceVersion
		event := <-watched.ResultChan()
		pod, ok := event.Object.(*v1.Pod)
		if event.Type != watch.Bookmark || !ok || pod.ResourceVersion != version || time.Since(start) != time.Minute {
			t.Fatalf("got %s %v after %v, want a bookmark after 1m", event.Type, event.Object, time.Since(start))
		}
	})
}

func TestWatch_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, seconds := time.Now(), int64(90)
		watched := watchPods(t, heraldtest.NewAPIServer(), metav1.ListOptions{TimeoutSeconds: &seconds})
		defer watched.Stop()
		if event, more := <-watched.ResultChan(); more {
			t.Fatalf("got event %s, want none", describe(event))
		}
		if time.Since(start) != 90*time.Second {
			t.Fatalf("got end after %v, want 90s", time.Since(start))
		}
	})
}
