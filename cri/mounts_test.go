package cri_test

import (
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

// criconfig tests the mounts of all specs.
func TestStartContainer_Mounts(t *testing.T) {
	tests := map[string]struct {
		mount             v1.VolumeMount
		recursiveReadOnly bool // supported by the runtime
		want              *runtimeapi.Mount
		wantErr           string
	}{
		"plain": {mount: v1.VolumeMount{Name: "data", MountPath: "/d"}, want: &runtimeapi.Mount{ContainerPath: "/d"}},
		"recursive read-only": {
			recursiveReadOnly: true,
			mount:             v1.VolumeMount{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)},
			want:              &runtimeapi.Mount{ContainerPath: "/d", Readonly: true, RecursiveReadOnly: true},
		},
		"recursive read-only not supported": {
			mount:   v1.VolumeMount{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)},
			wantErr: "volumeMounts[0] of container web: recursiveReadOnly: Enabled is not supported by the runtime; use IfPossible",
		},
		"escaping subPath": {
			mount:   v1.VolumeMount{Name: "data", SubPath: "../x"},
			wantErr: `volumeMounts[0] of container web: subPath: "../x": escapes the volume`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{
					{Name: "other"}, {Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: test.recursiveReadOnly}},
				}
				pod := newPod(func(pod *v1.Pod) {
					pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
					pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{test.mount}
				})
				err := h.startFirst(h.Context(), pod)
				if test.wantErr != "" {
					if err == nil || err.Error() != test.wantErr || waitingReason(err) != "CreateContainerConfigError" {
						h.Errorf("got %s: %v", waitingReason(err), err)
					}
					return
				}
				if err != nil {
					h.Fatal(err)
				}
				got := requests[*runtimeapi.CreateContainerRequest](h.fake)[0].Config.Mounts[0]
				if test.want.HostPath = h.root + "/" + test.mount.Name; got.String() != test.want.String() {
					h.Errorf("got %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestStartContainer_HostsFile(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Subdomain = "mall"
			pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a", "b"}}}
		})
		mount := h.createdConfig(pod).Mounts[0]
		content, err := os.ReadFile(mount.HostPath)
		if err != nil || mount.ContainerPath != "/etc/hosts" {
			h.Fatalf("got mount %v, %v", mount, err)
		}
		for _, want := range []string{
			"127.0.0.1\tlocalhost\n", "10.0.0.7\tshop.mall.prod.svc.c.test\tshop\n", "fd00::7\tshop.mall.prod.svc.c.test\tshop\n", "192.0.2.1\ta\tb\n",
		} {
			if !strings.Contains(string(content), want) {
				h.Errorf("got %s, want line %q", content, want)
			}
		}
	}, func(config *cri.Config) { config.ClusterDomain = "c.test" })
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.HostNetwork = true
			pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a"}}}
		})
		node, err := os.ReadFile("/etc/hosts")
		if err != nil {
			h.Skip("the machine has no /etc/hosts:", err)
		}
		content, err := os.ReadFile(h.createdConfig(pod).Mounts[0].HostPath)
		if err != nil || !strings.Contains(string(content), string(node)) || !strings.Contains(string(content), "192.0.2.1\ta\n") {
			h.Errorf("host network: got %s, %v", content, err)
		}
	})
	tests := map[string]func(*v1.Pod){
		"host network": func(pod *v1.Pod) { pod.Spec.HostNetwork = true },
		"mounted by the spec": func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{Name: "data"}}
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/etc/hosts/"}}
		},
	}
	for name, mutate := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				for _, mount := range h.createdConfig(newPod(mutate)).Mounts {
					if strings.HasSuffix(mount.HostPath, "etc-hosts") {
						h.Errorf("got mount %v, want no hosts file", mount)
					}
				}
			})
		})
	}
}
