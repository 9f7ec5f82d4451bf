package criconfig_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
)

func TestVolumeMounts(t *testing.T) {
	tests := map[string]struct {
		spec              v1.VolumeMount
		recursiveReadOnly bool // supported by the runtime
		want              *runtimeapi.Mount
		wantSubPath       string
		wantErr           string
	}{
		"plain":       {spec: v1.VolumeMount{Name: "data", MountPath: "/d"}, want: &runtimeapi.Mount{ContainerPath: "/d"}},
		"read-only":   {spec: v1.VolumeMount{Name: "data", MountPath: "d", ReadOnly: true}, want: &runtimeapi.Mount{ContainerPath: "/d", Readonly: true}},
		"config map":  {spec: v1.VolumeMount{Name: "settings", MountPath: "/s"}, want: &runtimeapi.Mount{ContainerPath: "/s", Readonly: true, SelinuxRelabel: true}},
		"subPath":     {spec: v1.VolumeMount{Name: "data", MountPath: "/d", SubPath: "a/b"}, want: &runtimeapi.Mount{ContainerPath: "/d"}, wantSubPath: "a/b"},
		"subPathExpr": {spec: v1.VolumeMount{Name: "data", MountPath: "/d", SubPathExpr: "a/$(A)"}, want: &runtimeapi.Mount{ContainerPath: "/d"}, wantSubPath: "a/1"},
		"host to container": {
			spec: v1.VolumeMount{Name: "data", MountPath: "/d", MountPropagation: new(v1.MountPropagationHostToContainer)},
			want: &runtimeapi.Mount{ContainerPath: "/d", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
		},
		"bidirectional": {
			spec: v1.VolumeMount{Name: "data", MountPath: "/d", MountPropagation: new(v1.MountPropagationBidirectional)},
			want: &runtimeapi.Mount{ContainerPath: "/d", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		},
		"recursive read-only": {
			recursiveReadOnly: true,
			spec:              v1.VolumeMount{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)},
			want:              &runtimeapi.Mount{ContainerPath: "/d", Readonly: true, RecursiveReadOnly: true},
		},
		"recursive read-only if possible": {
			spec: v1.VolumeMount{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)},
			want: &runtimeapi.Mount{ContainerPath: "/d", Readonly: true},
		},
		"recursive read-only not supported": {
			spec:    v1.VolumeMount{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)},
			wantErr: "volumeMounts[0] of container web: recursiveReadOnly: Enabled is not supported by the runtime; use IfPossible",
		},
		"unknown volume": {
			spec:    v1.VolumeMount{Name: "nowhere"},
			wantErr: `volumeMounts[0] of container web: name: volume "nowhere" not found in spec.volumes`,
		},
		"undefined variable": {
			spec:    v1.VolumeMount{Name: "data", SubPathExpr: "$(X)"},
			wantErr: `volumeMounts[0] of container web: subPathExpr: "$(X)" refers to undefined variables: [X]`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(func(pod *v1.Pod) {
				pod.Spec.Volumes = []v1.Volume{
					{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
					{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
				}
				pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{test.spec}
			})
			container := &pod.Spec.Containers[0]
			mounts, err := criconfig.VolumeMounts(pod, container, map[string]string{"A": "1"}, test.recursiveReadOnly)
			if test.wantErr != "" {
				if err == nil || err.Error() != test.wantErr {
					t.Errorf("got error %v, want %s", err, test.wantErr)
				}
				return
			}
			if err != nil || len(mounts) != 1 {
				t.Fatalf("got %v, %v", mounts, err)
			}
			got := mounts[0]
			if got.Volume != test.spec.Name || got.SubPath != test.wantSubPath || got.Mount.String() != test.want.String() {
				t.Errorf("got %+v, want %v", got, test.want)
			}
			if needed := criconfig.NeedsRecursiveReadOnly(container); needed != (test.spec.RecursiveReadOnly != nil) {
				t.Errorf("NeedsRecursiveReadOnly: got %v", needed)
			}
			if !criconfig.HasMountAt(container, test.want.ContainerPath) || criconfig.HasMountAt(container, "/elsewhere") {
				t.Error("HasMountAt does not find the mount only")
			}
		})
	}
}
