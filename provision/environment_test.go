package provision_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision"
)

func fromConfigMap(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional,
	}}
}

func fromSecret(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional,
	}}
}

func fromField(path string) *v1.EnvVarSource {
	return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
}

func allOfConfigMap(prefix, name string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional,
	}}
}

func allOfSecret(name string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional}}
}

func podWithoutLinks(container v1.Container) *v1.Pod {
	pod := newPod("web")
	pod.Spec.EnableServiceLinks = new(false)
	pod.Spec.NodeName = "n1"
	container.Name = "main"
	pod.Spec.Containers = []v1.Container{container}
	return pod
}

// environment returns the variables as NAME=value.
func (h *harness) environment(pod *v1.Pod) ([]string, error) {
	h.t.Helper()
	ips := []netip.Addr{netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("fd00::7")}
	variables, err := h.Environment(h.t.Context(), pod, &pod.Spec.Containers[0], ips)
	var lines []string
	for _, variable := range variables {
		lines = append(lines, variable.Name+"="+variable.Value)
	}
	return lines, err
}

func nodeInfo() provision.NodeInfo {
	return provision.NodeInfo{
		HostIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Allocatable: v1.ResourceList{"cpu": resource.MustParse("4")},
	}
}

func TestEnvironment_Resolve(t *testing.T) {
	h := newHarness(t, func(c *provision.Config) { c.NodeInfo = nodeInfo })
	h.putConfigMap("web", "colour", "red", "size", "big")
	h.putSecret("keys", "key", "s3cret", "colour", "black")
	for name, test := range map[string]struct {
		container v1.Container
		want      []string
	}{
		"references": {
			v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "$(B)"}, {Name: "B", Value: "b"}, {Name: "C", Value: "$(B)$$(B)$(A)"}}},
			[]string{"A=$(B)", "B=b", "C=b$(B)$(B)"},
		},
		"duplicate name": {
			v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "x"}, {Name: "A", Value: "$(A)2"}}},
			[]string{"A=12", "B=x"},
		},
		"no value": {v1.Container{Env: []v1.EnvVar{{Name: "A"}}}, []string{"A="}},
		"fields": {
			v1.Container{Env: []v1.EnvVar{
				{Name: "A", ValueFrom: fromField("metadata.labels['app']")}, {Name: "B", ValueFrom: fromField("spec.nodeName")},
				{Name: "C", ValueFrom: fromField("status.hostIP")}, {Name: "D", ValueFrom: fromField("status.podIP")},
				{Name: "E", ValueFrom: fromField("status.podIPs")}, {Name: "F", Value: "$(E)!"},
			}},
			[]string{"A=web", "B=n1", "C=192.0.2.1", "D=10.1.0.7", "E=10.1.0.7,fd00::7", "F=10.1.0.7,fd00::7!"},
		},
		"resource": {
			v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}}}}},
			[]string{"A=4"},
		},
		"keys": {
			v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: fromConfigMap("web", "colour", false)}, {Name: "B", ValueFrom: fromSecret("keys", "key", false)}}},
			[]string{"A=red", "B=s3cret"},
		},
		"optional and missing": {
			v1.Container{Env: []v1.EnvVar{
				{Name: "A", ValueFrom: fromConfigMap("web", "gone", true)}, {Name: "B", ValueFrom: fromSecret("keys", "gone", true)},
				{Name: "C", ValueFrom: fromConfigMap("gone", "x", true)}, {Name: "D", ValueFrom: fromSecret("gone", "x", true)},
			}}, nil,
		},
		"envFrom precedence": {
			v1.Container{
				EnvFrom: []v1.EnvFromSource{allOfConfigMap("", "web", false), allOfSecret("keys", false), allOfConfigMap("P_", "web", false)},
				Env:     []v1.EnvVar{{Name: "size", Value: "$(size)ger"}},
			},
			[]string{"colour=black", "size=bigger", "key=s3cret", "P_colour=red", "P_size=big"},
		},
		"optional and missing envFrom": {
			v1.Container{EnvFrom: []v1.EnvFromSource{allOfConfigMap("", "gone", true), allOfSecret("gone", true)}}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := h.environment(podWithoutLinks(test.container))
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func TestEnvironment_Errors(t *testing.T) {
	h := newHarness(t)
	h.putConfigMap("web", "colour", "red")
	h.putSecret("keys", "binary", "a\x00b")
	variable := func(from *v1.EnvVarSource) v1.Container {
		return v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: from}}}
	}
	for name, test := range map[string]struct {
		container v1.Container
		want      string
	}{
		"no config map":         {variable(fromConfigMap("gone", "x", false)), `env "A": configmap "gone" not found`},
		"no key":                {variable(fromConfigMap("web", "size", false)), "couldn't find key size in ConfigMap shop/web"},
		"no secret":             {variable(fromSecret("gone", "x", false)), `env "A": secret "gone" not found`},
		"no key in the secret":  {variable(fromSecret("keys", "x", false)), "couldn't find key x in Secret shop/keys"},
		"NUL byte":              {variable(fromSecret("keys", "binary", false)), "NUL"},
		"unsupported field":     {variable(fromField("spec.hostname")), "spec.hostname"},
		"unknown address":       {variable(fromField("status.hostIP")), "not known yet"},
		"file key":              {variable(&v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{}}), "valueFrom.fileKeyRef"},
		"empty source":          {variable(&v1.EnvVarSource{}), "valueFrom"},
		"no envFrom config map": {v1.Container{EnvFrom: []v1.EnvFromSource{allOfConfigMap("", "gone", false)}}, "envFrom[0]"},
		"no envFrom secret":     {v1.Container{EnvFrom: []v1.EnvFromSource{allOfSecret("gone", false)}}, `envFrom[0]: secret "gone" not found`},
		"empty envFrom":         {v1.Container{EnvFrom: []v1.EnvFromSource{{}}}, "envFrom[0]"},
		"no name":               {v1.Container{Env: []v1.EnvVar{{Value: "x"}}}, `env ""`},
		"invalid name":          {v1.Container{Env: []v1.EnvVar{{Name: "A=B", Value: "x"}}}, `env "A=B"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := h.environment(podWithoutLinks(test.container))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %q, error %v, want error %q", got, err, test.want)
			}
			var waits interface{ WaitingReason() string }
			if !errors.As(err, &waits) || waits.WaitingReason() != "CreateContainerConfigError" {
				t.Errorf("got %v, want reason CreateContainerConfigError", err)
			}
		})
	}
}

func TestEnvironment_InvalidNames(t *testing.T) {
	h := newHarness(t)
	h.putConfigMap("web", "with.dot", "taken", "9", "taken")
	h.putSecret("keys", "binary", "a\x00b")
	got, err := h.environment(podWithoutLinks(v1.Container{EnvFrom: []v1.EnvFromSource{
		allOfConfigMap("", "web", false), allOfSecret("keys", false), allOfConfigMap("a=", "web", false),
	}}))
	if diff := cmp.Diff([]string{"9=taken", "with.dot=taken"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	want := "Warning InvalidEnvironmentVariableNames container main starts without keys that are not valid variables: " +
		`envFrom[1] "binary", envFrom[2] "a=9", envFrom[2] "a=with.dot"`
	if diff := cmp.Diff([]string{want}, h.takeEvents()); diff != "" {
		t.Error(diff)
	}
}

func (h *harness) putService(namespace, name, ip string) {
	h.server.Put(&v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 80}}},
	})
}

func names(lines []string) string {
	var all []string
	for _, line := range lines {
		if name, _, _ := strings.Cut(line, "="); !strings.Contains(name, "_PORT") {
			all = append(all, line)
		}
	}
	return strings.Join(all, " ")
}

func TestEnvironment_Services(t *testing.T) {
	h := newHarness(t)
	h.putService("default", "kubernetes", "10.0.0.1")
	h.putService("default", "other", "10.0.0.2")
	h.putService("shop", "db", "10.0.0.3")
	pod := podWithoutLinks(v1.Container{})
	if got, err := h.environment(pod); names(got) != "KUBERNETES_SERVICE_HOST=10.0.0.1" || err != nil {
		t.Errorf("without links: got %v, error %v", got, err)
	}
	pod.Spec.EnableServiceLinks = nil
	pod.Spec.Containers[0].Env = []v1.EnvVar{
		{Name: "URL", Value: "http://$(DB_SERVICE_HOST)"}, {Name: "KUBERNETES_SERVICE_HOST", Value: "own"}, {Name: "LATE", Value: "$(KUBERNETES_SERVICE_HOST)"},
	}
	got, err := h.environment(pod)
	if want := "URL=http://10.0.0.3 KUBERNETES_SERVICE_HOST=own LATE=own DB_SERVICE_HOST=10.0.0.3"; names(got) != want || err != nil {
		t.Errorf("with links: got %s, error %v, want %s", names(got), err, want)
	}
}

func TestEnvironment_APIServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.putService("default", "kubernetes", "10.0.0.1")
		h.putConfigMap("web", "colour", "red")
		pod := podWithoutLinks(v1.Container{EnvFrom: []v1.EnvFromSource{allOfConfigMap("", "web", false)}})
		before, err := h.environment(pod)
		if err != nil {
			t.Fatal(err)
		}
		h.server.SetDown(true)
		time.Sleep(time.Hour)
		after, err := h.environment(pod)
		if diff := cmp.Diff(before, after); diff != "" || err != nil {
			t.Error(diff, err)
		}
		another := podWithoutLinks(v1.Container{})
		another.UID = "another"
		if got, err := h.environment(another); err != nil || names(got) != "KUBERNETES_SERVICE_HOST=10.0.0.1" {
			t.Errorf("new pod: got %v, error %v, want the services of the last response", got, err)
		}
		h.restart()
		if got, err := h.environment(another); err == nil {
			t.Errorf("new pod, no response yet: got %v, want an error", got)
		}
		another.Annotations = map[string]string{podid.SourceAnnotation: string(podid.File)}
		if got, err := h.environment(another); err != nil || len(got) > 0 {
			t.Errorf("static pod, no response yet: got %v, error %v, want no variables", got, err)
		}
	})
}

// TestEnvironment_APIServerHangs checks that a static pod starts at once, and any pod with the last response.
func TestEnvironment_APIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &hangingAPI{}
		h := newHarness(t, func(c *provision.Config) { api.API, c.API = c.API, api })
		h.putService("default", "kubernetes", "10.0.0.1")
		static := podWithoutLinks(v1.Container{})
		static.Annotations = map[string]string{podid.SourceAnnotation: string(podid.File)}
		check := func(name string, pod *v1.Pod, want string) {
			t.Helper()
			start := time.Now()
			got, err := h.environment(pod)
			if took := time.Since(start); took > 300*time.Millisecond || err != nil || names(got) != want {
				t.Errorf("%s: got %v, error %v after %s, want %q at once", name, got, err, took, want)
			}
		}
		api.hangs.Store(true)
		check("static pod, no response yet", static, "")
		check("its next container", static, "")
		api.hangs.Store(false)
		time.Sleep(2 * time.Minute)
		check("server responds again", static, "KUBERNETES_SERVICE_HOST=10.0.0.1")
		api.hangs.Store(true)
		time.Sleep(time.Hour)
		check("static pod", static, "KUBERNETES_SERVICE_HOST=10.0.0.1")
		check("pod of the API server", func() *v1.Pod {
			pod := podWithoutLinks(v1.Container{})
			pod.UID = "new"
			return pod
		}(), "KUBERNETES_SERVICE_HOST=10.0.0.1")
	})
}

// TestEnvironment_StaticPodPrefetch checks that a static pod's services arrive while its volumes and sandbox are prepared.
func TestEnvironment_StaticPodPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *provision.Config) { c.API = slowAPI{c.API} })
		h.putService("default", "kubernetes", "10.0.0.1")
		static := podWithoutLinks(v1.Container{})
		static.Annotations = map[string]string{podid.SourceAnnotation: string(podid.File)}
		h.mount(static)
		time.Sleep(time.Second)
		before := len(h.server.Requests("list"))
		if got, err := h.environment(static); err != nil || names(got) != "KUBERNETES_SERVICE_HOST=10.0.0.1" || before != 1 {
			t.Errorf("got %v, error %v after %d lists, want the service from one list", got, err, before)
		}
		time.Sleep(time.Hour)
		h.mount(static)
		if after := len(h.server.Requests("list")); after != before {
			t.Errorf("pod at rest: got %d lists, want %d", after, before)
		}
	})
}

func TestEnvironment_WithoutAPIServer(t *testing.T) {
	h := newHarness(t, func(c *provision.Config) { c.API = nil })
	pod := newPod("web")
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: "$(KUBERNETES_SERVICE_HOST)"}}
	if got, err := h.environment(pod); err != nil || len(got) != 1 {
		t.Errorf("got %v, error %v, want one variable", got, err)
	}
	pod.Spec.Containers[0].Env[0] = v1.EnvVar{Name: "A", ValueFrom: fromSecret("keys", "key", true)}
	if got, err := h.environment(pod); err == nil || !strings.Contains(err.Error(), `env "A": secret "keys": no API server`) {
		t.Errorf("got %v, error %v, want an error about the API server", got, err)
	}
}

func TestConfig_Invalid(t *testing.T) {
	for field, config := range map[string]provision.Config{
		"Config: Root is required": {}, `Config: Root must be an absolute path`: {Root: "pods"}, "Config: CacheTTL": {Root: "/pods", CacheTTL: -1},
	} {
		if _, err := provision.New(config); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want %q", err, field)
		}
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	h := newHarness(t, func(c *provision.Config) { c.Metrics = registry })
	h.mount(newPod("web", emptyDirVolume("")))
	if err := h.Mount(t.Context(), newPod("web", configMapVolume("gone"))); err == nil {
		t.Error("Mount succeeded, want an error")
	}
	if count, err := testutil.GatherAndCount(registry, "storage_operation_duration_seconds"); err != nil || count != 2 {
		t.Errorf("got %d durations, error %v, want 2", count, err)
	}
	const want = `
# HELP volume_manager_total_volumes Number of volumes that pods need (desired_state_of_world), and of those that are mounted (actual_state_of_world).
# TYPE volume_manager_total_volumes gauge
volume_manager_total_volumes{plugin_name="kubernetes.io/configmap",state="desired_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="desired_state_of_world"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "volume_manager_total_volumes"); err != nil {
		t.Error(err)
	}
	if _, err := provision.New(h.config); err == nil || !strings.Contains(err.Error(), "register metrics") {
		t.Errorf("second registration: got %v, want an error", err)
	}
}
