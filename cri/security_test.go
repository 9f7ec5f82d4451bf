package cri_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

// secured is the container's security as it was asked for.
func (w *world) secured(whole *v1.PodSecurityContext, own *v1.SecurityContext) *runtimeapi.LinuxContainerSecurityContext {
	w.Helper()
	return w.made(newPod(func(pod *v1.Pod) {
		pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext = whole, own
	})).Linux.SecurityContext
}

func TestTheContainerComesBeforeThePod(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.secured(
			&v1.PodSecurityContext{
				RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), FSGroup: new(int64(3)), SupplementalGroups: []int64{4},
				SELinuxOptions: &v1.SELinuxOptions{Level: "s0"}, SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined},
				Sysctls:         []v1.Sysctl{{Name: "net.ipv4.tcp_syncookies", Value: "1"}},
			},
			&v1.SecurityContext{
				RunAsUser: new(int64(7)), Privileged: new(true), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
				Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}}, ProcMount: new(v1.UnmaskedProcMount),
			})
		if got.RunAsUser.Value != 7 || got.RunAsGroup.Value != 2 || !got.Privileged || !got.ReadonlyRootfs || !got.NoNewPrivs {
			w.Errorf("got %v", got)
		}
		if diff := cmp.Diff([]int64{3, 4}, got.SupplementalGroups); diff != "" {
			w.Error(diff)
		}
		if got.Capabilities.AddCapabilities[0] != "NET_ADMIN" || got.Capabilities.DropCapabilities[0] != "ALL" || got.SelinuxOptions.Level != "s0" {
			w.Errorf("got %v", got)
		}
		if got.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || got.Apparmor.ProfileType != runtimeapi.SecurityProfile_Unconfined ||
			len(got.MaskedPaths)+len(got.ReadonlyPaths) != 0 {
			w.Errorf("got %v", got)
		}
		box := requests[*runtimeapi.RunPodSandboxRequest](w.fake)[0].Config.Linux
		if !box.SecurityContext.Privileged || box.SecurityContext.RunAsUser.Value != 1 || box.Sysctls["net.ipv4.tcp_syncookies"] != "1" ||
			box.SecurityContext.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
			w.Errorf("the sandbox has %v", box)
		}
	})
}

func TestAContainerThatAsksForNothingIsUnconfinedButMasked(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.secured(nil, nil)
		if got.Seccomp.ProfileType != runtimeapi.SecurityProfile_Unconfined || got.Apparmor != nil || got.NoNewPrivs || got.Privileged ||
			got.RunAsUser != nil || len(got.MaskedPaths) == 0 || len(got.ReadonlyPaths) == 0 {
			w.Errorf("got %v", got)
		}
	})
	inWorld(t, func(w *world) {
		if got := w.secured(nil, nil); got.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
			w.Errorf("got %v", got.Seccomp)
		}
	}, func(config *cri.Config) { config.SeccompDefault = true })
}

func TestRunAsNonRootIsHeldAgainstTheImage(t *testing.T) {
	cases := map[string]struct {
		image   *runtimeapi.Image
		user    *int64
		failure string
		want    *int64
	}{
		"a number in the spec": {image: &runtimeapi.Image{Id: "i"}, user: new(int64(5)), want: new(int64(5))},
		"root in the spec":     {image: &runtimeapi.Image{Id: "i"}, user: new(int64(0)), failure: "container's runAsUser breaks non-root policy"},
		"a number":             {image: &runtimeapi.Image{Id: "i", Uid: &runtimeapi.Int64Value{Value: 9}}, want: new(int64(9))},
		"root":                 {image: &runtimeapi.Image{Id: "i", Uid: &runtimeapi.Int64Value{}}, failure: "container has runAsNonRoot and image will run as root"},
		"nobody":               {image: &runtimeapi.Image{Id: "i"}, failure: "container has runAsNonRoot and image will run as root"},
		"a name":               {image: &runtimeapi.Image{Id: "i", Username: "bob"}, failure: "container has runAsNonRoot and image has non-numeric user (bob)"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fake.images["web:1"] = test.image
				pod := newPod(func(pod *v1.Pod) {
					pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true)}
					pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: test.user}
				})
				err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod))
				if test.failure != "" {
					if reasonOf(err) != "CreateContainerConfigError" || !strings.HasPrefix(err.Error(), test.failure) {
						w.Errorf("it failed with %v", err)
					}
					return
				}
				if err != nil {
					w.Fatal(err)
				}
				got := requests[*runtimeapi.CreateContainerRequest](w.fake)[0].Config.Linux.SecurityContext.RunAsUser
				if got.GetValue() != *test.want {
					w.Errorf("it runs as %v", got)
				}
			})
		})
	}
}

func TestProfilesOfTheNode(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.secured(nil, &v1.SecurityContext{
			SeccompProfile:  &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("a/b.json")},
			AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("mine")},
		})
		if got.Seccomp.LocalhostRef != "/profiles/a/b.json" || got.Apparmor.LocalhostRef != "mine" ||
			got.ApparmorProfile != "localhost/mine" { //nolint:staticcheck // deprecated, but all that containerd 1.6 reads
			w.Errorf("got %v, %v", got.Seccomp, got.Apparmor)
		}
	}, func(config *cri.Config) { config.SeccompDir = "/profiles" })
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
				SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("../../etc/shadow")},
			}
		})
		if err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod)); reasonOf(err) != "CreateContainerConfigError" {
			w.Errorf("a profile outside of the folder: %v", err)
		}
	})
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/web": "localhost/old"}
		})
		if got := w.made(pod).Linux.SecurityContext; got.Apparmor.LocalhostRef != "old" {
			w.Errorf("got %v", got.Apparmor)
		}
	})
}

func TestAStrictGroupsPolicyNeedsARuntimeThatKnowsIt(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
	})
	inWorld(t, func(w *world) {
		if _, err := w.StartSandbox(w.Context(), pod, 0); err == nil || !strings.Contains(err.Error(), "supplementalGroupsPolicy") {
			w.Errorf("the sandbox is made: %v", err)
		}
		w.fake.features.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
		if got := w.made(pod).Linux.SecurityContext.SupplementalGroupsPolicy; got != runtimeapi.SupplementalGroupsPolicy_Strict {
			w.Errorf("the policy is %v", got)
		}
	})
}
