package criconfig_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/plan"
)

func withSecurity(podSecurity *v1.PodSecurityContext, security *v1.SecurityContext) *v1.Pod {
	return newPod(func(pod *v1.Pod) {
		pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext = podSecurity, security
	})
}

func TestGenerator_ContainerOverridesPodSecurity(t *testing.T) {
	pod := withSecurity(
		&v1.PodSecurityContext{
			RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), FSGroup: new(int64(3)), SupplementalGroups: []int64{4},
			SELinuxOptions: &v1.SELinuxOptions{Level: "s0"}, SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
			AppArmorProfile:          &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined},
			Sysctls:                  []v1.Sysctl{{Name: "net.ipv4.tcp_syncookies", Value: "1"}},
			SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict),
		},
		&v1.SecurityContext{
			RunAsUser: new(int64(7)), Privileged: new(true), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
			Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}}, ProcMount: new(v1.UnmaskedProcMount),
		})
	got := containerConfig(t, newGenerator(), pod, criconfig.ContainerInputs{}).Linux.SecurityContext
	if got.RunAsUser.Value != 7 || got.RunAsGroup.Value != 2 || !got.Privileged || !got.ReadonlyRootfs || !got.NoNewPrivs {
		t.Errorf("got %v", got)
	}
	if diff := cmp.Diff([]int64{3, 4}, got.SupplementalGroups); diff != "" {
		t.Error(diff)
	}
	if got.Capabilities.AddCapabilities[0] != "NET_ADMIN" || got.Capabilities.DropCapabilities[0] != "ALL" || got.SelinuxOptions.Level != "s0" {
		t.Errorf("got %v", got)
	}
	if got.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || got.Apparmor.ProfileType != runtimeapi.SecurityProfile_Unconfined ||
		len(got.MaskedPaths)+len(got.ReadonlyPaths) != 0 {
		t.Errorf("got %v", got)
	}
	if got.SupplementalGroupsPolicy != runtimeapi.SupplementalGroupsPolicy_Strict {
		t.Errorf("got groups policy %v, want Strict", got.SupplementalGroupsPolicy)
	}
	sandbox := sandboxConfig(t, newGenerator(), pod).Linux
	if !sandbox.SecurityContext.Privileged || sandbox.SecurityContext.RunAsUser.Value != 1 || sandbox.Sysctls["net.ipv4.tcp_syncookies"] != "1" ||
		sandbox.SecurityContext.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("sandbox: got %v", sandbox)
	}
}

func TestGenerator_DefaultSecurity(t *testing.T) {
	got := containerConfig(t, newGenerator(), newPod(), criconfig.ContainerInputs{}).Linux.SecurityContext
	if got.Seccomp.ProfileType != runtimeapi.SecurityProfile_Unconfined || got.Apparmor != nil || got.NoNewPrivs || got.Privileged ||
		got.RunAsUser != nil || len(got.MaskedPaths) == 0 || len(got.ReadonlyPaths) == 0 {
		t.Errorf("got %v", got)
	}
	generator := newGenerator(func(generator *criconfig.Generator) { generator.SeccompDefault = true })
	got = containerConfig(t, generator, newPod(), criconfig.ContainerInputs{}).Linux.SecurityContext
	if got.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("SeccompDefault: got %v", got.Seccomp)
	}
}

func TestGenerator_RunAsNonRoot(t *testing.T) {
	tests := map[string]struct {
		user      criconfig.ImageUser
		runAsUser *int64
		want      int64
		wantErr   string
	}{
		"UID in spec":   {runAsUser: new(int64(5)), want: 5},
		"root in spec":  {runAsUser: new(int64(0)), wantErr: "container's runAsUser breaks non-root policy"},
		"UID in image":  {user: criconfig.ImageUser{UID: new(int64(9))}, want: 9},
		"root in image": {user: criconfig.ImageUser{UID: new(int64(0))}, wantErr: "container has runAsNonRoot and image will run as root"},
		"no user":       {wantErr: "container has runAsNonRoot and image will run as root"},
		"user name":     {user: criconfig.ImageUser{Name: "bob"}, wantErr: "container has runAsNonRoot and image has non-numeric user (bob)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withSecurity(&v1.PodSecurityContext{RunAsNonRoot: new(true)}, &v1.SecurityContext{RunAsUser: test.runAsUser})
			start := plan.Start{Container: &pod.Spec.Containers[0]}
			config, err := newGenerator().ContainerConfig(pod, start, criconfig.ContainerInputs{User: test.user})
			if test.wantErr != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.wantErr) {
					t.Errorf("got error %v, want %s", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := config.Linux.SecurityContext.RunAsUser.GetValue(); got != test.want {
				t.Errorf("got user %d, want %d", got, test.want)
			}
			if needed := criconfig.NeedsImageUser(pod, start.Container); needed != (test.runAsUser == nil) {
				t.Errorf("NeedsImageUser: got %v", needed)
			}
		})
	}
}

func TestNeedsImageUser(t *testing.T) {
	for name, test := range map[string]struct {
		pod       *v1.PodSecurityContext
		container *v1.SecurityContext
		want      bool
	}{
		"no user":           {want: true},
		"group only":        {pod: &v1.PodSecurityContext{RunAsGroup: new(int64(1))}, want: true},
		"user of pod":       {pod: &v1.PodSecurityContext{RunAsUser: new(int64(1))}},
		"user of container": {container: &v1.SecurityContext{RunAsUser: new(int64(1))}},
	} {
		pod := withSecurity(test.pod, test.container)
		if got := criconfig.NeedsImageUser(pod, &pod.Spec.Containers[0]); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestGenerator_LocalhostProfiles(t *testing.T) {
	pod := withSecurity(nil, &v1.SecurityContext{
		SeccompProfile:  &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("a/b.json")},
		AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("mine")},
	})
	got := containerConfig(t, newGenerator(), pod, criconfig.ContainerInputs{}).Linux.SecurityContext
	if got.Seccomp.LocalhostRef != "/profiles/a/b.json" || got.Apparmor.LocalhostRef != "mine" ||
		got.ApparmorProfile != "localhost/mine" { //nolint:staticcheck // deprecated, but containerd 1.6 reads nothing else
		t.Errorf("got %v, %v", got.Seccomp, got.Apparmor)
	}

	pod = withSecurity(nil, &v1.SecurityContext{
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("../../etc/shadow")},
	})
	_, err := newGenerator().ContainerConfig(pod, plan.Start{Container: &pod.Spec.Containers[0]}, criconfig.ContainerInputs{})
	if err == nil || !strings.Contains(err.Error(), "seccompProfile.localhostProfile: must be a file below /profiles") {
		t.Errorf("profile outside of the directory: got error %v", err)
	}

	pod = newPod(func(pod *v1.Pod) {
		pod.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/web": "localhost/old"}
	})
	if got := containerConfig(t, newGenerator(), pod, criconfig.ContainerInputs{}).Linux.SecurityContext; got.Apparmor.LocalhostRef != "old" {
		t.Errorf("AppArmor annotation: got %v", got.Apparmor)
	}
}

func TestGenerator_Namespaces(t *testing.T) {
	const node, pod, container = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_CONTAINER
	tests := map[string]struct {
		mutate            func(*v1.PodSpec)
		network, ipc, pid runtimeapi.NamespaceMode
	}{
		"none":                  {func(*v1.PodSpec) {}, pod, pod, container},
		"hostNetwork":           {func(spec *v1.PodSpec) { spec.HostNetwork = true }, node, pod, container},
		"hostIPC":               {func(spec *v1.PodSpec) { spec.HostIPC = true }, pod, node, container},
		"hostPID":               {func(spec *v1.PodSpec) { spec.HostPID = true }, pod, pod, node},
		"shareProcessNamespace": {func(spec *v1.PodSpec) { spec.ShareProcessNamespace = new(true) }, pod, pod, pod},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(func(pod *v1.Pod) { test.mutate(&pod.Spec) })
			for _, got := range []*runtimeapi.NamespaceOption{
				containerConfig(t, newGenerator(), pod, criconfig.ContainerInputs{}).Linux.SecurityContext.NamespaceOptions,
				sandboxConfig(t, newGenerator(), pod).Linux.SecurityContext.NamespaceOptions,
			} {
				if got.Network != test.network || got.Ipc != test.ipc || got.Pid != test.pid {
					t.Errorf("got %v, want %v, %v, %v", got, test.network, test.ipc, test.pid)
				}
			}
		})
	}
	config := containerConfig(t, newGenerator(), newPod(), criconfig.ContainerInputs{TargetID: "target"})
	if got := config.Linux.SecurityContext.NamespaceOptions; got.Pid != runtimeapi.NamespaceMode_TARGET || got.TargetId != "target" {
		t.Errorf("target container: got %v", got)
	}
}

func TestGenerator_MasksThermalThrottle(t *testing.T) {
	const path = "/sys/devices/system/cpu/cpu0/thermal_throttle"
	generator := newGenerator(func(g *criconfig.Generator) { g.ThermalThrottlePaths = []string{path} })
	got := containerConfig(t, generator, newPod(), criconfig.ContainerInputs{}).Linux.SecurityContext.MaskedPaths
	if !slices.Contains(got, path) || !slices.Contains(got, "/proc/kcore") {
		t.Errorf("got masked paths %v", got)
	}
	if got := containerConfig(t, newGenerator(), newPod(), criconfig.ContainerInputs{}).Linux.SecurityContext.MaskedPaths; slices.Contains(got, path) {
		t.Errorf("machine without it: got masked paths %v", got)
	}
}
