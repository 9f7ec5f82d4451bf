package cri_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

func TestStartContainer_EventsAndReasons(t *testing.T) {
	const field = "spec.containers{web}: "
	present := "Normal Pulled " + field + `Container image "web:1" already present on machine and can be accessed by the pod`
	tests := map[string]struct {
		method  string
		fault   fault
		mutate  func(*v1.Pod)
		reason  string
		message string
		events  []string
	}{
		"success": {
			events: []string{present, "Normal Created " + field + "Container created", "Normal Started " + field + "Container started"},
		},
		"create fails": {
			method: "CreateContainer", fault: fails(codes.Unknown, "no space left"), reason: "CreateContainerError", message: "no space left",
			events: []string{present, "Warning Failed " + field + "Error: no space left"},
		},
		"start fails": {
			method: "StartContainer", fault: fails(codes.Unknown, "container-2 has no entrypoint"), reason: "RunContainerError",
			message: "container-2 has no entrypoint",
			events: []string{
				present, "Normal Created " + field + "Container created", "Warning Failed " + field + "Error: web has no entrypoint",
			},
		},
		"missing variable": {
			mutate: func(pod *v1.Pod) { pod.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{}} }, reason: "CreateContainerConfigError",
			message: `configmap "absent" not found`,
			events:  []string{present, "Warning Failed " + field + `Error: configmap "absent" not found`},
		},
		"missing volume": {
			mutate: func(pod *v1.Pod) {
				pod.Spec.Volumes = []v1.Volume{{Name: "missing"}}
				pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "missing", MountPath: "/m"}}
			},
			reason: "CreateContainerConfigError", message: "volume missing: volume missing is not mounted",
			events: []string{present, "Warning Failed " + field + "Error: volume missing: volume missing is not mounted"},
		},
		"image pulled": {
			mutate: func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "web:2" },
			events: []string{
				"Normal Pulling " + field + `Pulling image "web:2"`, "Normal Pulled " + field + `Successfully pulled image "web:2" in 0s (0s including waiting). Image size: 2048 bytes.`,
				"Normal Created " + field + "Container created", "Normal Started " + field + "Container started",
			},
		},
		"image pull fails": {
			method: "PullImage", fault: fails(codes.Unknown, "manifest unknown"), reason: "ErrImagePull", message: "manifest unknown",
			mutate: func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "web:2" },
			events: []string{
				"Normal Pulling " + field + `Pulling image "web:2"`,
				"Warning Failed " + field + `Failed to pull image "web:2": manifest unknown`,
				"Warning Failed " + field + "Error: ErrImagePull",
			},
		},
		"image never pulled": {
			mutate: func(pod *v1.Pod) {
				pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "web:2", v1.PullNever
			},
			reason: "ErrImageNeverPull", message: `Container image "web:2" is not present with pull policy of Never`,
			events: []string{
				"Warning ErrImageNeverPull " + field + `Container image "web:2" is not present with pull policy of Never`,
				"Warning Failed " + field + "Error: ErrImageNeverPull",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod()
				sandbox := h.startSandbox(pod)
				if test.mutate != nil {
					test.mutate(pod)
				}
				if test.fault != nil {
					h.fake.inject(test.method, test.fault)
				}
				err := h.StartContainer(h.Context(), pod, sandbox, firstStart(pod))
				if waitingReason(err) != test.reason || (err != nil && err.Error() != test.message) {
					h.Errorf("got %s: %v", waitingReason(err), err)
				}
				if diff := cmp.Diff(test.events, h.events()); diff != "" {
					h.Error(diff)
				}
			})
		})
	}
}

func TestF22_ExistingContainer(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		before := h.startPod(pod)
		after := h.startPod(pod)
		if before.ID != after.ID {
			h.Errorf("got container %v, want %v", after.ID, before.ID)
		}
		h.fake.exit(after.ID.ID, 1)
		if exited := h.startPod(pod); exited.State != observed.Exited {
			h.Errorf("exited instance was started again: %+v", exited)
		}
	})
}

func TestF22_UnstartedContainerRecreated(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		h.fake.inject("StartContainer", fails(codes.Internal, "no"))
		h.fake.inject("RemoveContainer", fails(codes.Internal, "no"))
		sandbox := h.startSandbox(pod)
		if err := h.StartContainer(h.Context(), pod, sandbox, firstStart(pod)); waitingReason(err) != "RunContainerError" {
			h.Fatalf("got error %v", err)
		}
		before := h.onlyContainer(pod)
		if before.State != observed.Created {
			h.Fatalf("got container state %v, want Created", before.State)
		}
		pod.Spec.Containers[0].Command = []string{"changed"}
		if err := h.StartContainer(h.Context(), pod, sandbox, firstStart(pod)); err != nil {
			h.Fatal(err)
		}
		if c := h.onlyContainer(pod); c.State != observed.Running || c.RestartCount != 0 || c.ID == before.ID {
			h.Errorf("got container %+v", c)
		}
		if created := requests[*runtimeapi.CreateContainerRequest](h.fake); created[len(created)-1].Config.Command[0] != "changed" {
			h.Errorf("got command %v", created[len(created)-1].Config.Command)
		}
	})
}

func TestStartContainer_RemovedAfterFailure(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		h.fake.inject("StartContainer", fails(codes.Internal, "exec: no such file"))
		err := h.startFirst(h.Context(), pod)
		if waitingReason(err) != "RunContainerError" || err.Error() != "exec: no such file" {
			h.Errorf("got %s: %v", waitingReason(err), err)
		}
		if remaining := h.inspect(pod).Containers; len(remaining) != 0 {
			h.Errorf("got remaining containers %+v", remaining)
		}
		if c := h.startPod(pod); c.State != observed.Running || c.RestartCount != 0 {
			h.Errorf("next attempt: got %+v", c)
		}
	})
}

func TestStartContainer_Config(t *testing.T) {
	inBubble(t, func(h *harness) {
		config := h.createdConfig(newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].Args = []string{"$(POD_IPS)"} }))
		if config.Image.Image != "sha256:web" || config.Image.UserSpecifiedImage != "web:1" {
			h.Errorf("got image %v", config.Image)
		}
		if config.Args[0] != "[10.0.0.7 fd00::7]" || len(config.Envs) != 1 {
			h.Errorf("got args %q, variables %v", config.Args, config.Envs)
		}
	})
}

func TestStartContainer_SeccompProfiles(t *testing.T) {
	localhost := func(profile string) *v1.Pod {
		return newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
				SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &profile},
			}
		})
	}
	inBubble(t, func(h *harness) {
		if got := h.createdConfig(localhost("a.json")).Linux.SecurityContext.Seccomp; got.LocalhostRef != h.root+"/seccomp/a.json" {
			h.Errorf("default directory: got %v", got)
		}
		pod := localhost("../../etc/shadow")
		withUID("uid-2")(pod)
		if err := h.startFirst(h.Context(), pod); waitingReason(err) != "CreateContainerConfigError" {
			h.Errorf("profile outside of the directory: got error %v", err)
		}
	})
	inBubble(t, func(h *harness) {
		if got := h.createdConfig(localhost("a.json")).Linux.SecurityContext.Seccomp; got.LocalhostRef != "/profiles/a.json" {
			h.Errorf("SeccompDir: got %v", got)
		}
	}, func(config *cri.Config) { config.SeccompDir = "/profiles" })
	inBubble(t, func(h *harness) {
		got := h.createdConfig(newPod()).Linux.SecurityContext.Seccomp
		if got.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
			h.Errorf("SeccompDefault: got %v", got)
		}
	}, func(config *cri.Config) { config.SeccompDefault = true })
}

func TestStartContainer_EphemeralTarget(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "web:1"}, TargetContainerName: "web",
			}}
		})
		target := h.startPod(pod)
		start := plan.Start{Container: (*v1.Container)(&pod.Spec.EphemeralContainers[0].EphemeralContainerCommon), Kind: derive.EphemeralContainer}
		if err := h.StartContainer(h.Context(), pod, target.SandboxID, start); err != nil {
			h.Fatal(err)
		}
		options := requests[*runtimeapi.CreateContainerRequest](h.fake)[1].Config.Linux.SecurityContext.NamespaceOptions
		if options.Pid != runtimeapi.NamespaceMode_TARGET || options.TargetId != target.ID.ID {
			h.Errorf("got PID namespace %v of %q", options.Pid, options.TargetId)
		}
		h.fake.exit(target.ID.ID, 0)
		start.RestartCount = 1
		if err := h.StartContainer(h.Context(), pod, target.SandboxID, start); waitingReason(err) != "CreateContainerConfigError" {
			h.Errorf("without target: got error %v", err)
		}
	})
}

func TestStartContainer_StopSignal(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: new(v1.SIGUSR1)}
		})
		if got := h.createdConfig(pod).StopSignal; got != runtimeapi.Signal_SIGUSR1 {
			h.Errorf("got signal %v", got)
		}
		h.fake.mu.Lock()
		h.fake.ignoresSignals = true
		h.fake.mu.Unlock()
		start := firstStart(pod)
		start.RestartCount = 1
		err := h.StartContainer(h.Context(), pod, h.startSandbox(pod), start)
		if waitingReason(err) != "CreateContainerConfigError" || len(h.inspect(pod).Containers) != 1 {
			h.Errorf("got error %v, containers %+v", err, h.inspect(pod).Containers)
		}
	})
}

func TestStartContainer_RunAsNonRoot(t *testing.T) {
	tests := map[string]struct {
		image   *runtimeapi.Image
		user    *int64
		wantErr string
		want    *int64
	}{
		"UID in spec":   {image: &runtimeapi.Image{Id: "i"}, user: new(int64(5)), want: new(int64(5))},
		"root in spec":  {image: &runtimeapi.Image{Id: "i"}, user: new(int64(0)), wantErr: "container's runAsUser breaks non-root policy"},
		"UID in image":  {image: &runtimeapi.Image{Id: "i", Uid: &runtimeapi.Int64Value{Value: 9}}, want: new(int64(9))},
		"root in image": {image: &runtimeapi.Image{Id: "i", Uid: &runtimeapi.Int64Value{}}, wantErr: "container has runAsNonRoot and image will run as root"},
		"no user":       {image: &runtimeapi.Image{Id: "i"}, wantErr: "container has runAsNonRoot and image will run as root"},
		"user name":     {image: &runtimeapi.Image{Id: "i", Username: "bob"}, wantErr: "container has runAsNonRoot and image has non-numeric user (bob)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.images["web:1"] = test.image
				pod := newPod(func(pod *v1.Pod) {
					pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true)}
					pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: test.user}
				})
				err := h.startFirst(h.Context(), pod)
				if test.wantErr != "" {
					if waitingReason(err) != "CreateContainerConfigError" || !strings.HasPrefix(err.Error(), test.wantErr) {
						h.Errorf("got error %v", err)
					}
					return
				}
				if err != nil {
					h.Fatal(err)
				}
				got := requests[*runtimeapi.CreateContainerRequest](h.fake)[0].Config.Linux.SecurityContext.RunAsUser
				if got.GetValue() != *test.want {
					h.Errorf("got user %v, want %d", got, *test.want)
				}
			})
		})
	}
}
