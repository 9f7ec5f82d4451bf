package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// volume is a folder of the machine with one file, fact, in it.
func volume(t *testing.T, parent string) string {
	t.Helper()
	folder := filepath.Join(parent, "volume")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "fact"), []byte("a fact\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestMountsAreLinksBelowTheContainersRoot(t *testing.T) {
	w := newWorld(t)
	data, secret := volume(t, t.TempDir()), volume(t, w.pods)
	last := filepath.Join(t.TempDir(), "last-words")
	if err := os.WriteFile(last, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config := shell("web", `cat data/fact; cat "$HERALD_ROOT/var/secret/fact"; echo new > data/new; echo bye > "$HERALD_TERMINATION_LOG"`)
	config.Mounts = []*runtimeapi.Mount{
		{HostPath: data, ContainerPath: "/data"},
		{HostPath: secret, ContainerPath: "/var/secret/", Readonly: true},
		{HostPath: last, ContainerPath: "/dev/termination-log"},
	}
	id := w.run(w.sandbox("a"), config)
	have := w.ended(id)
	if diff := cmp.Diff([]string{"stdout F a fact", "stdout F a fact"}, logLines(t, have.GetLogPath())); diff != "" {
		t.Error(diff)
	}
	if len(have.GetMounts()) != 3 || have.GetMounts()[2].GetHostPath() != last {
		t.Errorf("have %v", have.GetMounts())
	}
	w.removed(id)
	for file, want := range map[string]string{last: "bye\n", filepath.Join(data, "new"): "new\n", filepath.Join(secret, "fact"): "a fact\n"} {
		if text, err := os.ReadFile(file); string(text) != want {
			t.Errorf("%s has %q, error %v", file, text, err)
		}
	}
}

func TestMountsThatALinkCannotBeAreRefused(t *testing.T) {
	w := newWorld(t)
	data, secret := volume(t, t.TempDir()), volume(t, w.pods)
	if err := os.MkdirAll(w.pods+"-other", 0o700); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		mounts []*runtimeapi.Mount
		want   string
	}{
		"read-only": {[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "/data", Readonly: true}}, "volumeMounts[*].readOnly"},
		"read-only, out of the pods' folder by its path": {
			[]*runtimeapi.Mount{{HostPath: secret + "/../../../", ContainerPath: "/data", Readonly: true}}, "volumeMounts[*].readOnly",
		},
		"read-only, beside the pods' folder": {
			[]*runtimeapi.Mount{{HostPath: w.pods + "-other", ContainerPath: "/data", Readonly: true}}, "volumeMounts[*].readOnly",
		},
		"at the root":        {[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "/"}}, "volumeMounts[*].mountPath"},
		"at a relative path": {[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "../x"}}, "volumeMounts[*].mountPath"},
		"two at one place": {
			[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "/a"}, {HostPath: secret, ContainerPath: "/b/../a"}}, "volumeMounts[*].mountPath",
		},
		"one in another": {
			[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "/a/b"}, {HostPath: secret, ContainerPath: "/a"}}, "mounts[0] " + data + " at /a/b",
		},
		"of what does not exist": {[]*runtimeapi.Mount{{HostPath: data + "/none", ContainerPath: "/a"}}, "hostPath.path must exist"},
		"of a relative path":     {[]*runtimeapi.Mount{{HostPath: ".", ContainerPath: "/a"}}, "hostPath.path must exist"},
	}
	box := w.sandbox("a")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := shell("web", "true")
			config.Mounts = test.mounts
			_, err := w.CreateContainer(w.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box, Config: config})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.want) {
				t.Errorf("have %v", err)
			}
		})
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 1 {
		t.Errorf("the machine's folder was touched: %v, error %v", left, err)
	}
	if _, err := os.Stat(data + "/none"); !os.IsNotExist(err) {
		t.Errorf("the machine's folder was touched: %v", err)
	}
}
