package resolve_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/provision/resolve"
)

func TestExpand(t *testing.T) {
	variables := map[string]string{"A": "alpha", "B": "$(A)", "EMPTY": "", "$(A": "odd"}
	for name, test := range map[string]struct{ text, want string }{
		"reference":                 {"x-$(A)-y", "x-alpha-y"},
		"several":                   {"$(A)$(A)", "alphaalpha"},
		"empty value":               {"[$(EMPTY)]", "[]"},
		"no recursion":              {"$(B)", "$(A)"},
		"unknown name":              {"$(C)", "$(C)"},
		"escaped":                   {"$$(A)", "$(A)"},
		"three signs":               {"$$$(A)", "$alpha"},
		"four signs":                {"$$$$(A)", "$$(A)"},
		"single sign":               {"a$b", "a$b"},
		"sign at end":               {"a$", "a$"},
		"open bracket at end":       {"a$(", "a$("},
		"unclosed reference":        {"$(A", "$(A"},
		"escape after open bracket": {"$($$", "$($"},
		"bracket in name":           {"$($(A)", "odd"},
		"no name":                   {"$()", "$()"},
		"empty":                     {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := resolve.Expand(test.text, func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
			if got != test.want {
				t.Errorf("Expand(%q): got %q, want %q", test.text, got, test.want)
			}
		})
	}
}

func TestExpand_Escaped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("$()ab"))).Draw(t, "text")
		escaped := strings.ReplaceAll(text, "$", "$$")
		if got := resolve.Expand(escaped, func(string) (string, bool) { return "!", true }); got != text {
			t.Fatalf("Expand(%q): got %q, want %q", escaped, got, text)
		}
	})
}

func service(namespace, name, ip string, ports ...v1.ServicePort) v1.Service {
	return v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func TestServiceVariables(t *testing.T) {
	got := resolve.ServiceVariables([]v1.Service{
		service("shop", "web-front", "10.0.0.1", v1.ServicePort{Name: "http-alt", Port: 8080}, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP}),
		service("shop", "db", "fd00::1", v1.ServicePort{Port: 5432, Protocol: v1.ProtocolTCP}),
		service("shop", "portless", "10.0.0.3"),
	})
	want := []v1.EnvVar{
		{Name: "DB_SERVICE_HOST", Value: "fd00::1"},
		{Name: "DB_SERVICE_PORT", Value: "5432"},
		{Name: "DB_PORT", Value: "tcp://[fd00::1]:5432"},
		{Name: "DB_PORT_5432_TCP", Value: "tcp://[fd00::1]:5432"},
		{Name: "DB_PORT_5432_TCP_PROTO", Value: "tcp"},
		{Name: "DB_PORT_5432_TCP_PORT", Value: "5432"},
		{Name: "DB_PORT_5432_TCP_ADDR", Value: "fd00::1"},
		{Name: "WEB_FRONT_SERVICE_HOST", Value: "10.0.0.1"},
		{Name: "WEB_FRONT_SERVICE_PORT", Value: "8080"},
		{Name: "WEB_FRONT_SERVICE_PORT_HTTP_ALT", Value: "8080"},
		{Name: "WEB_FRONT_SERVICE_PORT_DNS", Value: "53"},
		{Name: "WEB_FRONT_PORT", Value: "tcp://10.0.0.1:8080"},
		{Name: "WEB_FRONT_PORT_8080_TCP", Value: "tcp://10.0.0.1:8080"},
		{Name: "WEB_FRONT_PORT_8080_TCP_PROTO", Value: "tcp"},
		{Name: "WEB_FRONT_PORT_8080_TCP_PORT", Value: "8080"},
		{Name: "WEB_FRONT_PORT_8080_TCP_ADDR", Value: "10.0.0.1"},
		{Name: "WEB_FRONT_PORT_53_UDP", Value: "udp://10.0.0.1:53"},
		{Name: "WEB_FRONT_PORT_53_UDP_PROTO", Value: "udp"},
		{Name: "WEB_FRONT_PORT_53_UDP_PORT", Value: "53"},
		{Name: "WEB_FRONT_PORT_53_UDP_ADDR", Value: "10.0.0.1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLinkedServices(t *testing.T) {
	inDefault := []v1.Service{service("default", "kubernetes", "10.0.0.1"), service("default", "other", "10.0.0.2")}
	for name, test := range map[string]struct {
		own  []v1.Service
		want []string
	}{
		"without links":            {nil, []string{"default/kubernetes"}},
		"with links":               {[]v1.Service{service("shop", "web", "10.0.0.3")}, []string{"shop/web", "default/kubernetes"}},
		"in default namespace":     {inDefault, []string{"default/kubernetes", "default/other"}},
		"own service of same name": {[]v1.Service{service("shop", "kubernetes", "10.0.0.4")}, []string{"shop/kubernetes"}},
		"no cluster IP":            {[]v1.Service{service("shop", "web", "None"), service("shop", "ext", "")}, []string{"default/kubernetes"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, linked := range resolve.LinkedServices(test.own, inDefault) {
				got = append(got, linked.Namespace+"/"+linked.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPodField(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{"b": `two "2"`, "a": "one"},
			Annotations: map[string]string{"example.com/Note['x']": "odd", "note": "line\nline"},
		},
		Spec: v1.PodSpec{NodeName: "n1", ServiceAccountName: "robot"},
	}
	four, six := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")
	host4, host6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for name, test := range map[string]struct {
		path      string
		addresses resolve.Addresses
		want      string
		wantErr   string
	}{
		"name":                   {path: "metadata.name", want: "web"},
		"namespace":              {path: "metadata.namespace", want: "shop"},
		"uid":                    {path: "metadata.uid", want: "u1"},
		"all labels":             {path: "metadata.labels", want: "a=\"one\"\nb=\"two \\\"2\\\"\""},
		"label":                  {path: "metadata.labels['a']", want: "one"},
		"missing label":          {path: "metadata.labels['c']"},
		"annotation":             {path: "metadata.annotations['note']", want: "line\nline"},
		"annotation with quotes": {path: "metadata.annotations['example.com/Note['x']']", want: "odd"},
		"no key":                 {path: "metadata.labels['']", wantErr: "metadata.labels['']"},
		"subscript of name":      {path: "metadata.name['a']", wantErr: "metadata.name['a']"},
		"node":                   {path: "spec.nodeName", want: "n1"},
		"account":                {path: "spec.serviceAccountName", want: "robot"},
		"unsupported field":      {path: "spec.hostname", wantErr: "spec.hostname"},
		"host":                   {path: "status.hostIP", addresses: resolve.Addresses{Host: []netip.Addr{host4, host6}}, want: "192.0.2.1"},
		"hosts":                  {path: "status.hostIPs", addresses: resolve.Addresses{Host: []netip.Addr{host4, host6}}, want: "192.0.2.1,2001:db8::1"},
		"host not known":         {path: "status.hostIP", wantErr: "not known yet"},
		"pod, no address":        {path: "status.podIP"},
		"pod":                    {path: "status.podIP", addresses: resolve.Addresses{Pod: []netip.Addr{six, four}}, want: "10.1.0.1"},
		"pods by the node's family": {
			path:      "status.podIPs",
			addresses: resolve.Addresses{Host: []netip.Addr{host6}, Pod: []netip.Addr{four, six}}, want: "fd00::1,10.1.0.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resolve.PodField(pod, &v1.ObjectFieldSelector{FieldPath: test.path}, test.addresses)
			if test.wantErr == "" && (err != nil || got != test.want) {
				t.Errorf("got %q, error %v, want %q", got, err, test.want)
			}
			if test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("got %q, error %v, want error %q", got, err, test.wantErr)
			}
		})
	}
	if _, err := resolve.MetadataField(pod, &v1.ObjectFieldSelector{APIVersion: "v2", FieldPath: "metadata.name"}); err == nil {
		t.Error("MetadataField accepted another API version")
	}
}

func list(pairs ...string) v1.ResourceList {
	all := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

func TestContainerResource(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Limits: list("cpu", "3")}}},
		Containers: []v1.Container{{Name: "web", Resources: v1.ResourceRequirements{
			Limits: list("cpu", "1500m", "memory", "100Mi", "hugepages-2Mi", "4Mi"), Requests: list("cpu", "250m"),
		}}, {Name: "free"}},
	}}
	allocatable := list("cpu", "8", "memory", "1Gi", "hugepages-2Mi", "64Mi")
	for name, test := range map[string]struct {
		container, resource, divisor string
		want, wantErr                string
	}{
		"cpu is rounded up":             {"web", "limits.cpu", "", "2", ""},
		"cpu in thousandths":            {"web", "limits.cpu", "1m", "1500", ""},
		"memory in bytes":               {"web", "limits.memory", "", "104857600", ""},
		"memory rounded up":             {"web", "limits.memory", "1G", "1", ""},
		"memory in Mi":                  {"web", "limits.memory", "1Mi", "100", ""},
		"request":                       {"web", "requests.cpu", "1m", "250", ""},
		"request that is not set":       {"web", "requests.memory", "", "0", ""},
		"huge pages":                    {"web", "limits.hugepages-2Mi", "1Mi", "4", ""},
		"no limit: the node's":          {"free", "limits.memory", "1Mi", "1024", ""},
		"no limit, and the node's is 0": {"free", "limits.ephemeral-storage", "", "0", ""},
		"no huge pages":                 {"free", "limits.hugepages-2Mi", "", "0", ""},
		"an init container":             {"init", "limits.cpu", "", "3", ""},
		"missing container":             {"gone", "limits.cpu", "", "", `"gone"`},
		"no container name":             {"", "limits.cpu", "", "", "containerName: required"},
		"unknown resource":              {"web", "limits.gpu", "", "", `"limits.gpu"`},
		"unknown kind":                  {"web", "wishes.cpu", "", "", `"wishes.cpu"`},
		"negative divisor":              {"web", "limits.cpu", "-1", "", "divisor"},
		"divisor below one":             {"web", "limits.memory", "1m", "104857600", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ref := &v1.ResourceFieldSelector{ContainerName: test.container, Resource: test.resource}
			if test.divisor != "" {
				ref.Divisor = resource.MustParse(test.divisor)
			}
			got, err := resolve.ContainerResource(pod, nil, ref, allocatable)
			if test.wantErr == "" && (err != nil || got != test.want) {
				t.Errorf("got %q, error %v, want %q", got, err, test.want)
			}
			if test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("got %q, error %v, want error %q", got, err, test.wantErr)
			}
		})
	}
	if got, err := resolve.ContainerResource(pod, &pod.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: "limits.cpu"}, nil); got != "2" {
		t.Errorf("own container: got %q, error %v, want 2", got, err)
	}
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: list("memory", "1Mi")}
	ref := &v1.ResourceFieldSelector{ContainerName: "free", Resource: "limits.memory"}
	if got, err := resolve.ContainerResource(pod, nil, ref, allocatable); got != "1048576" {
		t.Errorf("pod limit: got %q, error %v, want 1048576", got, err)
	}
}

func TestEmptyDirMemorySize(t *testing.T) {
	limited := func(name, memory string) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: list("memory", memory)}}
	}
	always := v1.ContainerRestartPolicyAlways
	sidecar := limited("sidecar", "10")
	sidecar.RestartPolicy = &always
	for name, test := range map[string]struct {
		spec              v1.PodSpec
		limit, allocation string
		want              int64
	}{
		"nothing known":           {v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}, "0", "0", 0},
		"size limit":              {v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}, "50", "0", 50},
		"node":                    {v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}, "50", "40", 40},
		"sum of containers":       {v1.PodSpec{Containers: []v1.Container{limited("a", "20"), limited("b", "20")}}, "50", "90", 40},
		"pod limit":               {v1.PodSpec{Resources: &v1.ResourceRequirements{Limits: list("memory", "35")}, Containers: []v1.Container{{Name: "a"}}}, "50", "90", 35},
		"container without limit": {v1.PodSpec{Containers: []v1.Container{limited("a", "20"), {Name: "b"}}}, "50", "90", 50},
		"sidecar":                 {v1.PodSpec{InitContainers: []v1.Container{sidecar}, Containers: []v1.Container{limited("a", "20")}}, "50", "90", 30},
		"init container":          {v1.PodSpec{InitContainers: []v1.Container{limited("i", "45")}, Containers: []v1.Container{limited("a", "20")}}, "0", "90", 45},
	} {
		t.Run(name, func(t *testing.T) {
			limit := resource.MustParse(test.limit)
			got := resolve.EmptyDirMemorySize(&v1.Pod{Spec: test.spec}, &v1.EmptyDirVolumeSource{SizeLimit: &limit}, list("memory", test.allocation))
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestFiles_Paths(t *testing.T) {
	for path, want := range map[string]string{
		"a": "a", "a/b/c": "a/b/c", "./a": "a", "a//b": "a/b", ".a": ".a", "a/..b": "a/..b", "a/": "a",
		"": "", ".": "", "/etc/passwd": "", "..": "", "../a": "", "a/../b": "", "a/..": "", "..data": "", "..a/b": "",
		"./..data/x": "", "a\x00b": "", strings.Repeat("a", 256): "", strings.Repeat("a/", 2100) + "a": "",
	} {
		files := resolve.Files{}
		err := files.Add(path, resolve.File{Mode: 0o644})
		if _, taken := files[want]; want != "" && (err != nil || !taken) {
			t.Errorf("%q: got %v, error %v, want accepted", path, files, err)
		}
		if want == "" && (err == nil || len(files) > 0) {
			t.Errorf("%.20q: got %v, want an error", path, files)
		}
	}
	for _, mode := range []int32{-1, 0o1000, 0o4755} {
		if err := (resolve.Files{}).Add("a", resolve.File{Mode: mode}); err == nil {
			t.Errorf("mode %#o was accepted", mode)
		}
	}
}

func FuzzFiles_Add(f *testing.F) {
	for _, seed := range []string{"a", "../a", "a/../../b", "/a", "..data/x", "a/./b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		files := resolve.Files{}
		if files.Add(path, resolve.File{}) != nil {
			return
		}
		for taken := range files {
			if strings.HasPrefix(taken, "/") || strings.HasPrefix(taken, "..") || strings.Contains("/"+taken+"/", "/../") {
				t.Errorf("Add(%q): got %q outside the volume", path, taken)
			}
		}
	})
}

func TestFiles_Validate(t *testing.T) {
	files := resolve.Files{"a": {}, "a/b/c": {}}
	if err := files.Validate(); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("got %v, want an error about a", err)
	}
	if err := (resolve.Files{"a": {}, "b/a": {}, "ab": {}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestNestedMounts(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{
		{Name: "conf", MountPath: "/etc/app/"}, {Name: "tls", MountPath: "/etc/app/tls"}, {Name: "tls", MountPath: "/etc/apple"},
		{Name: "odd", MountPath: "/etc/app/..data"}, {Name: "conf", MountPath: "/part", SubPath: "x"}, {Name: "tls", MountPath: "/part/y"},
	}}}}}
	if diff := cmp.Diff([]string{"tls"}, resolve.NestedMounts(pod, "conf")); diff != "" {
		t.Error(diff)
	}
}

func TestFSUser(t *testing.T) {
	user := func(id int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: &id} }
	one := int64(1)
	for name, test := range map[string]struct {
		pod  *v1.PodSecurityContext
		own  []*v1.SecurityContext
		want int64 // -1 if unknown
	}{
		"not set":         {nil, []*v1.SecurityContext{nil}, -1},
		"pod":             {&v1.PodSecurityContext{RunAsUser: &one}, []*v1.SecurityContext{nil, {}}, 1},
		"all containers":  {nil, []*v1.SecurityContext{user(2), user(2)}, 2},
		"one container":   {nil, []*v1.SecurityContext{user(2), nil}, -1},
		"different users": {nil, []*v1.SecurityContext{user(2), user(3)}, -1},
		"one override":    {&v1.PodSecurityContext{RunAsUser: &one}, []*v1.SecurityContext{nil, user(3)}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: test.pod}}
			for _, security := range test.own {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{SecurityContext: security})
			}
			got := int64(-1)
			if known := resolve.FSUser(pod); known != nil {
				got = *known
			}
			if got != test.want {
				t.Errorf("got user %d, want %d", got, test.want)
			}
		})
	}
}
