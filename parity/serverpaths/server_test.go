package serverpaths_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/controlplane"
)

// TestSRV_SameAnswersAsKubelet sends the same requests to both agents.
func TestSRV_SameAnswersAsKubelet(t *testing.T) {
	r := startRig(t, "")
	r.createPods(t)
	client := r.client(t, controlplane.KubeletClientUser)
	t.Run("exact answers", func(t *testing.T) { compareExact(t, r, client) })
	t.Run("codes and types", func(t *testing.T) { compareTypes(t, r, client) })
	t.Run("pods", func(t *testing.T) { comparePods(t, r, client) })
	t.Run("configz", func(t *testing.T) { compareConfigz(t, r, client) })
	t.Run("strangers", func(t *testing.T) { compareStrangers(t, r) })
	t.Run("node object", func(t *testing.T) { checkEndpoint(t, r) })
	t.Run("through the API server", func(t *testing.T) { compareProxied(t, r) })
	t.Run("log that is gone", func(t *testing.T) { compareGoneLogs(t, r, client) }) // last: it removes the logs
}

// compareExact compares answers to the last byte. POD stands for the pod of the node. An UPGRADE is a POST for a stream: without the
// header Herald answers 400 before all else (STR-6).
func compareExact(t *testing.T, r *rig, client *http.Client) {
	t.Helper()
	for _, request := range []string{
		"GET /healthz", "POST /healthz", "GET /healthz/ping", "GET /healthz/syncloop", "GET /healthz?exclude=ping", "GET /healthz/absent",
		"POST /pods", "DELETE /pods", "GET /pods/x", "POST /runningpods/", "GET /stats/absent", "DELETE /stats/summary",
		"GET /absent", "GET /", "GET /run/server/POD/main", "POST /run/server/absent/main?cmd=ls", "PUT /exec/server/POD/main",
		"UPGRADE /exec/server/absent/main?command=ls&output=1", "UPGRADE /exec/server/POD/main", "GET /exec/server",
		"UPGRADE /exec/server/POD/absent?command=ls&output=1", "UPGRADE /attach/server/POD/absent?output=1",
		"UPGRADE /portForward/server/absent", "UPGRADE /attach/server/absent/main?output=1", "POST /containerLogs/server/POD/main", "GET /containerLogs/server/POD/main?tailLines=x",
		"GET /containerLogs/server/POD/main?tailLines=-1", "GET /containerLogs/server/absent/main", "GET /containerLogs/server/POD",
		"GET /logs/absent-file", "POST /logs/", "POST /debug/pprof/heap", "GET /logs", "GET /runningpods", "GET /stats", "GET /debug/pprof",
	} {
		method, path, _ := strings.Cut(request, " ")
		var answers []answer
		var headers []string
		if method == "UPGRADE" {
			method, headers = http.MethodPost, []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}
		}
		for _, n := range r.nodes() {
			got := n.ask(t, client, method, strings.ReplaceAll(path, "POD", n.name), headers...)
			got.Body = strings.ReplaceAll(got.Body, n.name, "POD")
			answers = append(answers, got)
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s: the kubelet (-) and Herald (+) differ:\n%s", request, diff)
		}
	}
}

// compareTypes compares codes and content types where bodies have values of their own.
func compareTypes(t *testing.T, r *rig, client *http.Client) {
	t.Helper()
	for _, request := range []string{
		"GET /pods", "GET /runningpods/", "GET /stats/summary", "POST /stats/summary?only_cpu_and_memory=true", "GET /metrics",
		"GET /metrics/resource", "GET /metrics/probes", "GET /metrics/slis", "GET /configz", "GET /logs/", "GET /debug/pprof/goroutine?debug=1",
		"GET /debug/pprof/cmdline", "GET /pods Accept application/yaml", "GET /pods Accept application/json",
	} {
		fields := strings.Fields(request)
		kubelet, herald := r.kubelet.ask(t, client, fields[0], fields[1], fields[2:]...), r.herald.ask(t, client, fields[0], fields[1], fields[2:]...)
		kubelet.Body, herald.Body = "", ""
		if diff := cmp.Diff(kubelet, herald); diff != "" {
			t.Errorf("%s: the kubelet (-) and Herald (+) differ:\n%s", request, diff)
		}
	}
}

// comparePods compares which fields a pod has in the lists.
func comparePods(t *testing.T, r *rig, client *http.Client) {
	t.Helper()
	for _, path := range []string{"/pods", "/runningpods/"} {
		var shapes []map[string]any
		for _, n := range r.nodes() {
			pod := podOf(t, client, n, path)
			shapes = append(shapes, map[string]any{
				"namespace": pod.Namespace, "has UID": pod.UID != "", "containers": len(pod.Spec.Containers), "container": pod.Spec.Containers[0].Name,
				"has image": pod.Spec.Containers[0].Image != "", "phase": pod.Status.Phase, "node": strings.TrimSuffix(pod.Spec.NodeName, n.name),
				"labels": len(pod.Labels), "has command": len(pod.Spec.Containers[0].Command) > 0,
			})
		}
		if diff := cmp.Diff(shapes[0], shapes[1]); diff != "" {
			t.Errorf("%s: the kubelet (-) and Herald (+) differ:\n%s", path, diff)
		}
	}
}

// podOf returns the pod of the node in a list. The kubelet's list of running pods is up to three seconds old.
func podOf(t *testing.T, client *http.Client, n *node, path string) *v1.Pod {
	t.Helper()
	var found *v1.Pod
	heraldtest.Eventually(t, func() error {
		var list v1.PodList
		body := []byte(n.ask(t, client, http.MethodGet, path).Body)
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		i := slices.IndexFunc(list.Items, func(pod v1.Pod) bool { return pod.Name == n.name && len(pod.Spec.Containers) > 0 })
		if i < 0 || list.Kind != "PodList" || list.APIVersion != "v1" {
			return fmt.Errorf("%s %s: got %s", n.name, path, body)
		}
		found = &list.Items[i]
		return nil
	})
	return found
}

// compareConfigz decodes the configuration strictly into the kubelet's type, and compares what both agents were configured with.
func compareConfigz(t *testing.T, r *rig, client *http.Client) {
	t.Helper()
	var configs []kubeletconfig.KubeletConfiguration
	for _, n := range r.nodes() {
		var wrapped map[string]json.RawMessage
		if err := json.Unmarshal([]byte(n.ask(t, client, http.MethodGet, "/configz").Body), &wrapped); err != nil {
			t.Fatal(err)
		}
		if names := slices.Collect(maps.Keys(wrapped)); !slices.Equal(names, []string{"kubeletconfig"}) {
			t.Errorf("%s: got %v", n.name, names)
		}
		var config kubeletconfig.KubeletConfiguration
		strict, err := kjson.UnmarshalStrict(wrapped["kubeletconfig"], &config)
		if err != nil || len(strict) > 0 {
			t.Errorf("%s: %v %v", n.name, err, strict)
		}
		configs = append(configs, config)
	}
	kubelet, herald := configs[0], configs[1]
	for name, values := range map[string][2]any{
		"kind":                 {kubelet.TypeMeta, herald.TypeMeta},
		"address":              {kubelet.Address, herald.Address},
		"authentication":       {kubelet.Authentication, herald.Authentication},
		"authorization":        {kubelet.Authorization, herald.Authorization},
		"syncFrequency":        {kubelet.SyncFrequency, herald.SyncFrequency},
		"maxPods":              {kubelet.MaxPods, herald.MaxPods},
		"debugging":            {kubelet.EnableDebuggingHandlers, herald.EnableDebuggingHandlers},
		"clusterDNS":           {kubelet.ClusterDNS, herald.ClusterDNS},
		"nodeStatusFrequency":  {kubelet.NodeStatusUpdateFrequency, herald.NodeStatusUpdateFrequency},
		"containerLogMaxSize":  {kubelet.ContainerLogMaxSize, herald.ContainerLogMaxSize},
		"containerLogMaxFiles": {kubelet.ContainerLogMaxFiles, herald.ContainerLogMaxFiles},
	} {
		if diff := cmp.Diff(values[0], values[1]); diff != "" {
			t.Errorf("%s: the kubelet (-) and Herald (+) differ:\n%s", name, diff)
		}
	}
}

// compareStrangers asks without credentials, and as a user without permissions. Herald asks for credentials first; the kubelet tells
// everybody which paths it does not have (SRV-24).
func compareStrangers(t *testing.T, r *rig) {
	t.Helper()
	anonymous, powerless := r.client(t, ""), r.client(t, "nobody")
	for name, client := range map[string]*http.Client{"anonymous": anonymous, "powerless": powerless} {
		for _, path := range []string{"/healthz", "/pods", "/metrics", "/logs/", "/configz", "/containerLogs/server/x/main"} {
			if diff := cmp.Diff(r.kubelet.ask(t, client, http.MethodGet, path), r.herald.ask(t, client, http.MethodGet, path)); diff != "" {
				t.Errorf("%s %s: the kubelet (-) and Herald (+) differ:\n%s", name, path, diff)
			}
		}
	}
	if got := r.kubelet.ask(t, anonymous, http.MethodGet, "/absent"); got.Code != http.StatusNotFound {
		t.Errorf("the kubelet answers %+v: the difference is gone", got)
	}
	if got := r.herald.ask(t, anonymous, http.MethodGet, "/absent"); got.Code != http.StatusUnauthorized {
		t.Errorf("Herald answers %+v", got)
	}
}

// checkEndpoint compares where the Node objects say that the agents listen (SRV-41).
func checkEndpoint(t *testing.T, r *rig) {
	t.Helper()
	for _, n := range r.nodes() {
		object, err := r.admin.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if port := object.Status.DaemonEndpoints.KubeletEndpoint.Port; !strings.HasSuffix(n.agent.HTTPSAddress(), ":"+jsonOf(port)) {
			t.Errorf("%s: the Node says port %d, it listens at %s", n.name, port, n.agent.HTTPSAddress())
		}
	}
}

func jsonOf(value any) string {
	text, _ := json.Marshal(value) // a number
	return string(text)
}

// compareProxied asks through kube-apiserver, as kubectl get --raw does.
func compareProxied(t *testing.T, r *rig) {
	t.Helper()
	if r.address.IsLoopback() {
		t.Skip("the machine has no address but loopback, to which the API server does not proxy (SRV-46)")
	}
	for _, path := range []string{"healthz", "healthz/syncloop", "absent"} {
		var answers []answer
		for _, n := range r.nodes() {
			result := r.admin.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", n.name, "proxy", path).Do(context.WithoutCancel(t.Context()))
			var got answer
			result.StatusCode(&got.Code)
			body, _ := result.Raw() // an error has a code too
			got.Body = string(body)
			answers = append(answers, got)
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s: the kubelet (-) and Herald (+) differ:\n%s", path, diff)
		}
	}
}

// compareGoneLogs removes the logs of running containers. The kubelet sends its error as if it were the log, and kubectl prints it and
// succeeds. Herald refuses with a code whose message kube-apiserver passes on (LOG-14).
func compareGoneLogs(t *testing.T, r *rig, client *http.Client) {
	t.Helper()
	logs := map[*node]answer{}
	errs := map[*node]error{} // through the API server
	for _, n := range r.nodes() {
		pod, err := r.admin.CoreV1().Pods(namespace).Get(t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(n.agent.LogsDir(), namespace+"_"+pod.Name+"_"+string(pod.UID), "main")
		if err := os.Remove(filepath.Join(dir, "0.log")); err != nil {
			t.Fatal(err)
		}
		logs[n] = n.ask(t, client, http.MethodGet, "/containerLogs/"+namespace+"/"+n.name+"/main")
		stream, err := r.admin.CoreV1().Pods(namespace).GetLogs(n.name, &v1.PodLogOptions{}).Stream(t.Context())
		if errs[n] = err; err == nil {
			_ = stream.Close()
		}
		t.Logf("%s: %d %q; through the API server: %v", n.name, logs[n].Code, logs[n].Body, err)
	}
	if got := logs[r.kubelet]; got.Code != http.StatusOK || !strings.Contains(got.Body, "no such file or directory") || errs[r.kubelet] != nil {
		t.Errorf("the kubelet answers %+v, %v: the difference is gone", got, errs[r.kubelet])
	}
	const prefix, suffix = "unable to retrieve container logs for containerd://", ": its log file is gone"
	if got := logs[r.herald]; got.Code != http.StatusBadRequest || !strings.HasPrefix(got.Body, prefix) || !strings.HasSuffix(got.Body, suffix) {
		t.Errorf("Herald answers %+v", got)
	}
	if err := errs[r.herald]; !apierrors.IsBadRequest(err) || err.Error() != logs[r.herald].Body {
		t.Errorf("through the API server: got %v, want %q", err, logs[r.herald].Body)
	}
}

// TestSRV32_SameAsKubelet compares the answers of agents whose debugging handlers are switched off.
func TestSRV32_SameAsKubelet(t *testing.T) {
	r := startRig(t, "enableDebuggingHandlers: false")
	client := r.client(t, controlplane.KubeletClientUser)
	for _, path := range []string{
		"/run/a/b/c", "/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/containerLogs/a/b/c", "/runningpods/", "/debug/pprof/", "/logs/",
		"/configz", "/debug/flags/v", "/healthz", "/absent",
	} {
		if diff := cmp.Diff(r.kubelet.ask(t, client, http.MethodGet, path), r.herald.ask(t, client, http.MethodGet, path)); diff != "" {
			t.Errorf("%s: the kubelet (-) and Herald (+) differ:\n%s", path, diff)
		}
	}
}
