package localapi_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

var measuredAt = time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC)

// fakeStats has measured the pods default-a and shop-c, and of default-b only the memory.
type fakeStats struct{}

func (fakeStats) Node() load.Node { return load.Node{Cores: load.Known(1.25)} }

func (fakeStats) Machine() (load.MachineSample, time.Time) {
	return load.MachineSample{WorkingSet: load.Known(3 << 30)}, measuredAt
}

func (fakeStats) Pod(uid podid.UID) (load.Pod, bool) {
	if uid == "default-b" {
		return load.Pod{}, true
	}
	used := load.UsageLoad{CPU: load.Windows{OneMinute: load.Window{Mean: load.Known(.25)}}}
	return load.Pod{Containers: []load.Container{{Name: "main", UsageLoad: used}}}, true
}

func (fakeStats) PodSamples() (samples []load.PodSample, at time.Time) {
	for _, uid := range []podid.UID{"default-a", "default-b", "shop-c", "gone"} {
		samples = append(samples, load.PodSample{UID: uid, Containers: []load.ContainerSample{
			{Name: "main", Usage: load.Usage{WorkingSet: load.Known(64 << 20)}}, {Name: "starting"},
		}})
	}
	return samples, measuredAt
}

func newMetricsHarness(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t, newPod("default", "a", withLabel("web")), newPod("default", "b", withLabel("web")), newPod("shop", "c"))
	h.nodes <- &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "z"}}}
	h.nodes <- nil
	h.nodes <- &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "z"}}}
	h.settle()
	return h
}

const metricsAPI = "/apis/metrics.k8s.io/v1beta1"

func TestMetrics_Pods(t *testing.T) {
	h := newMetricsHarness(t)
	for path, want := range map[string][]string{
		"/pods":                                       {"default/a", "shop/c"}, // b has no first reading
		"/namespaces/default/pods":                    {"default/a"},
		"/namespaces/absent/pods":                     nil,
		"/pods?labelSelector=app%3Dweb":               {"default/a"},
		"/pods?fieldSelector=metadata.name%3Dc":       {"shop/c"},
		"/pods?labelSelector=app%3Dweb%2Ctier%3Dback": nil,
	} {
		list := get[metricsv1beta1.PodMetricsList](h, metricsAPI+path, "Accept", "application/vnd.kubernetes.protobuf, */*")
		var got []string
		for _, item := range list.Items {
			got = append(got, item.Namespace+"/"+item.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" || list.Kind != "PodMetricsList" || list.APIVersion != "metrics.k8s.io/v1beta1" {
			t.Errorf("%s: kind %s of %s, items (-want +got):\n%s", path, list.Kind, list.APIVersion, diff)
		}
	}
	pod := get[metricsv1beta1.PodMetrics](h, metricsAPI+"/namespaces/default/pods/a")
	usage := fmt.Sprint(len(pod.Containers), pod.Containers[0].Usage.Cpu(), " ", pod.Containers[0].Usage.Memory(), " ", pod.Window.Duration)
	if usage != "1 250m 64Mi 1m0s" || !pod.Timestamp.Equal(new(metav1.NewTime(measuredAt))) || pod.Kind != "PodMetrics" {
		t.Errorf("got %s of %v", usage, pod)
	}
	for path, want := range map[string]string{
		"/namespaces/default/pods/b": `podmetrics.metrics.k8s.io "default/b" not found`,
		"/pods?watch=true":           "watch is not supported",
		"/secrets":                   "secrets.metrics.k8s.io",
		"/nodes/other":               `nodemetrics.metrics.k8s.io "other" not found`,
	} {
		if status := get[metav1.Status](h, metricsAPI+path); !strings.Contains(status.Message, want) || status.Kind != "Status" {
			t.Errorf("%s: got %q, want %q", path, status.Message, want)
		}
	}
}

func TestMetrics_Node(t *testing.T) {
	h := newMetricsHarness(t)
	list := get[metricsv1beta1.NodeMetricsList](h, metricsAPI+"/nodes?labelSelector=zone%3Dz")
	if len(list.Items) != 1 || list.Items[0].Usage.Cpu().String() != "1250m" || list.Items[0].Usage.Memory().String() != "3Gi" {
		t.Errorf("got %+v", list)
	}
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	rows := get[metav1.Table](h, metricsAPI+"/nodes", "Accept", table).Rows
	if len(rows) != 1 || fmt.Sprint(rows[0].Cells) != "[n1 1250m 3Gi 1m0s]" {
		t.Errorf("got %+v", rows)
	}
}

func TestMetrics_Discovery(t *testing.T) {
	h := newMetricsHarness(t)
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for path, accept := range map[string]string{"/apis": aggregated, "/apis/": "application/json", metricsAPI: "application/json"} {
		body := h.open(path, "Accept", accept)
		content, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil || !strings.Contains(string(content), "metrics.k8s.io") {
			t.Errorf("%s: got %s, error %v", path, content, err)
		}
	}
	list := get[metav1.APIResourceList](h, metricsAPI)
	if len(list.APIResources) != 2 || !list.APIResources[1].Namespaced || strings.Join(list.APIResources[1].Verbs, " ") != "get list" {
		t.Errorf("got %+v", list)
	}
}
