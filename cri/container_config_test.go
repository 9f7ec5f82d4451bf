package cri_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

func TestPW53AContainerRemembersWhoseItIs(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.TerminationGracePeriodSeconds = new(int64(45))
			c := &pod.Spec.Containers[0]
			c.TerminationMessagePath, c.TerminationMessagePolicy = "/msg", v1.TerminationMessageReadFile
			c.Ports = []v1.ContainerPort{{ContainerPort: 80}}
			c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}}}
			c.Stdin, c.StdinOnce, c.TTY = true, true, true
		})
		made := w.made(pod)
		wantLabels := map[string]string{
			"io.kubernetes.container.name": "web", "io.kubernetes.pod.name": "shop", "io.kubernetes.pod.namespace": "prod",
			"io.kubernetes.pod.uid": "uid-1",
		}
		if diff := cmp.Diff(wantLabels, made.Labels); diff != "" {
			w.Error(diff)
		}
		wantNotes := map[string]string{
			"io.kubernetes.container.hash":                     made.Annotations["io.kubernetes.container.hash"],
			"io.kubernetes.container.restartCount":             "0",
			"io.kubernetes.container.terminationMessagePath":   "/msg",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.container.ports":                    `[{"containerPort":80}]`,
			"io.kubernetes.container.preStopHandler":           `{"sleep":{"seconds":3}}`,
			"io.kubernetes.pod.terminationGracePeriod":         "45",
		}
		if diff := cmp.Diff(wantNotes, made.Annotations); diff != "" {
			w.Error(diff)
		}
		if made.LogPath != "web/0.log" || made.Metadata.Name != "web" || made.Metadata.Attempt != 0 || !made.Stdin || !made.StdinOnce || !made.Tty {
			w.Errorf("made is %v", made)
		}
		if made.Image.Image != "sha256:web" || made.Image.UserSpecifiedImage != "web:1" {
			w.Errorf("image %v", made.Image)
		}
	})
}

func TestVariablesAreExpandedInTheCommand(t *testing.T) {
	cases := map[string]string{
		"$(A)": "1", "x$(A)y$(B)z": "x1y$(A)z", "$$(A)": "$(A)", "$(C)": "$(C)", "$A": "$A", "$": "$", "$(": "$(", "$$": "$", "$$$(A)": "$1", "$(A": "$(A", "": "",
	}
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: "0"}, {Name: "B", Value: "$(A)"}, {Name: "A", Value: "1"}}
			pod.Spec.Containers[0].WorkingDir = "/w/$(A)"
			for text := range cases {
				pod.Spec.Containers[0].Command = append(pod.Spec.Containers[0].Command, text)
			}
			pod.Spec.Containers[0].Args = []string{"$(POD_IPS)"}
		})
		made := w.made(pod)
		for i, text := range pod.Spec.Containers[0].Command {
			if made.Command[i] != cases[text] {
				w.Errorf("%q became %q, want %q", text, made.Command[i], cases[text])
			}
		}
		if made.Args[0] != "[10.0.0.7 fd00::7]" || made.WorkingDir != "/w/$(A)" || len(made.Envs) != 4 {
			w.Errorf("args %q in %s, variables %v", made.Args, made.WorkingDir, made.Envs)
		}
	})
}

func TestMounts(t *testing.T) {
	configMap := v1.Volume{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}
	hostPath := v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}
	cases := map[string]struct {
		mount     v1.VolumeMount
		recursive bool // the runtime can
		want      *runtimeapi.Mount
		failure   string
	}{
		"plain":             {mount: v1.VolumeMount{Name: "data", MountPath: "/d"}, want: &runtimeapi.Mount{ContainerPath: "/d"}},
		"read-only":         {mount: v1.VolumeMount{Name: "data", MountPath: "d", ReadOnly: true}, want: &runtimeapi.Mount{ContainerPath: "/d", Readonly: true}},
		"from the API":      {mount: v1.VolumeMount{Name: "settings", MountPath: "/s"}, want: &runtimeapi.Mount{ContainerPath: "/s", Readonly: true, SelinuxRelabel: true}},
		"host to container": {mount: v1.VolumeMount{Name: "data", MountPath: "/d", MountPropagation: new(v1.MountPropagationHostToContainer)}, want: &runtimeapi.Mount{ContainerPath: "/d", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}},
		"both ways":         {mount: v1.VolumeMount{Name: "data", MountPath: "/d", MountPropagation: new(v1.MountPropagationBidirectional)}, want: &runtimeapi.Mount{ContainerPath: "/d", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}},
		"all below too":     {recursive: true, mount: v1.VolumeMount{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)}, want: &runtimeapi.Mount{ContainerPath: "/d", Readonly: true, RecursiveReadOnly: true}},
		"all below if possible": {
			mount: v1.VolumeMount{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)},
			want:  &runtimeapi.Mount{ContainerPath: "/d", Readonly: true},
		},
		"all below on an old runtime": {
			mount:   v1.VolumeMount{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)},
			failure: "volumeMounts[0] of container web: recursiveReadOnly: Enabled is not supported by the runtime; use IfPossible",
		},
		"no such volume":     {mount: v1.VolumeMount{Name: "nowhere"}, failure: `volumeMounts[0] of container web: name: volume "nowhere" not found in spec.volumes`},
		"an unknown subPath": {mount: v1.VolumeMount{Name: "data", SubPathExpr: "$(X)"}, failure: `volumeMounts[0] of container web: subPathExpr: "$(X)" refers to undefined variables: [X]`},
		"a subPath upwards":  {mount: v1.VolumeMount{Name: "data", SubPath: "../x"}, failure: `volumeMounts[0] of container web: subPath: "../x": escapes the volume`},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fake.features.RuntimeHandlers = []*runtimeapi.RuntimeHandler{
					{Name: "other"}, {Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: test.recursive}},
				}
				pod := newPod(func(pod *v1.Pod) {
					pod.Spec.Volumes = []v1.Volume{configMap, hostPath}
					pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{test.mount}
				})
				err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod))
				if test.failure != "" {
					if err == nil || err.Error() != test.failure || reasonOf(err) != "CreateContainerConfigError" {
						w.Errorf("it failed with %v", err)
					}
					return
				}
				if err != nil {
					w.Fatal(err)
				}
				got := requests[*runtimeapi.CreateContainerRequest](w.fake)[0].Config.Mounts[0]
				if test.want.HostPath = w.root + "/" + test.mount.Name; got.String() != test.want.String() {
					w.Errorf("got %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestHostsFile(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Subdomain = "mall"
			pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a", "b"}}}
		})
		mount := w.made(pod).Mounts[0]
		content, err := os.ReadFile(mount.HostPath)
		if err != nil || mount.ContainerPath != "/etc/hosts" {
			w.Fatalf("mount %v: %v", mount, err)
		}
		for _, want := range []string{
			"127.0.0.1\tlocalhost\n", "10.0.0.7\tshop.mall.prod.svc.c.test\tshop\n", "fd00::7\tshop.mall.prod.svc.c.test\tshop\n", "192.0.2.1\ta\tb\n",
		} {
			if !strings.Contains(string(content), want) {
				w.Errorf("no %q in %s", want, content)
			}
		}
	}, func(config *cri.Config) { config.ClusterDomain = "c.test" })
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.HostNetwork = true
			pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a"}}}
		})
		node, err := os.ReadFile("/etc/hosts")
		if err != nil {
			w.Skip("the machine has no /etc/hosts:", err)
		}
		content, err := os.ReadFile(w.made(pod).Mounts[0].HostPath)
		if err != nil || !strings.Contains(string(content), string(node)) || !strings.Contains(string(content), "192.0.2.1\ta\n") {
			w.Errorf("in the node's network it has %s: %v", content, err)
		}
	})
	cases := map[string]func(*v1.Pod){
		"in the node's network": func(pod *v1.Pod) { pod.Spec.HostNetwork = true },
		"with a file of its own": func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{Name: "data"}}
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/etc/hosts/"}}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				for _, mount := range w.made(newPod(change)).Mounts {
					if strings.HasSuffix(mount.HostPath, "etc-hosts") {
						w.Errorf("it has %v", mount)
					}
				}
			})
		})
	}
}
