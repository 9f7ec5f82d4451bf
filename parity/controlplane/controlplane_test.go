package controlplane_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/parity/controlplane"
)

func TestStart_ReadyWithVersion(t *testing.T) {
	client := newClient(t, shared.AdminConfig())
	ready, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(testContext(t))
	if err != nil || string(ready) != "ok" {
		t.Fatalf("/readyz: %q, %v", ready, err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil || version.GitVersion != "v1.36.3" || version.Major != "1" || version.Minor != "36" || version.GitTreeState != "clean" {
		t.Fatalf("version: %+v, %v", version, err)
	}
}

func TestAdminKubeconfig_Kubectl(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Fatalf("kubectl is not in PATH; install it, or `go build k8s.io/kubernetes/cmd/kubectl`: %v", err)
	}
	output, err := exec.CommandContext(testContext(t), kubectl, "--kubeconfig", shared.AdminKubeconfig(), "get", "ns").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "kube-system") {
		t.Fatalf("%v\n%s", err, output)
	}
}

func TestStart_AnonymousRequests(t *testing.T) {
	client := newClient(t, rest.AnonymousClientConfig(shared.AdminConfig()))
	if _, err := client.Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
		t.Fatalf("got %v, want Unauthorized", err)
	}
}

func TestF1_DataSurvivesKill(t *testing.T) {
	for name, server := range map[string]*controlplane.Server{"etcd": shared.Etcd, "kube-apiserver": shared.APIServer} {
		t.Run(name, func(t *testing.T) {
			before := createConfigMap(t)
			pid := server.PID()
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := server.Freeze(); err == nil {
				t.Error("Freeze of a killed process: got no error")
			}
			if err := server.Start(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if err := shared.APIServer.WaitReady(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if server.PID() == pid {
				t.Errorf("got the same process %d after the restart", pid)
			}
			client := newClient(t, shared.AdminConfig())
			after, err := client.CoreV1().ConfigMaps(before.Namespace).Get(testContext(t), before.Name, metav1.GetOptions{})
			if err != nil || after.UID != before.UID {
				t.Fatalf("after the restart: got %v, %v; want UID %s", after, err, before.UID)
			}
		})
	}
}

func TestF3_FrozenServer(t *testing.T) {
	client := newClient(t, shared.AdminConfig())
	get := func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, v1.NamespaceDefault, metav1.GetOptions{})
		return err
	}
	for name, server := range map[string]*controlplane.Server{"etcd": shared.Etcd, "kube-apiserver": shared.APIServer} {
		t.Run(name, func(t *testing.T) {
			if err := server.Freeze(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := client.CoreV1().ConfigMaps(v1.NamespaceDefault).Create(ctx, newConfigMap(), metav1.CreateOptions{})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("frozen: got %v, want DeadlineExceeded", err)
			}
			if err := server.Continue(); err != nil {
				t.Fatal(err)
			}
			if err := get(testContext(t)); err != nil {
				t.Fatalf("resumed: %v", err)
			}
		})
	}
}

func TestF11_CompactExpiresHistory(t *testing.T) {
	old := createConfigMap(t)
	createConfigMap(t)
	if err := shared.Compact(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := shared.APIServer.Restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	configMaps := newClient(t, shared.AdminConfig()).CoreV1().ConfigMaps(v1.NamespaceDefault)
	_, err := configMaps.List(testContext(t), metav1.ListOptions{
		ResourceVersion: old.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("list: got %v, want Expired", err)
	}
	stream, err := configMaps.Watch(testContext(t), metav1.ListOptions{ResourceVersion: old.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	event := <-stream.ResultChan()
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("watch: got %+v, want Expired", event)
	}
}

func TestStart_Errors(t *testing.T) {
	binaries, err := controlplane.Build(testContext(t), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	usedDir := t.TempDir()
	if err := os.WriteFile(filepath.Join(usedDir, "file.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		config controlplane.Config
		want   string
	}{
		"no binaries":   {controlplane.Config{}, "call Build"},
		"used dir":      {controlplane.Config{Binaries: binaries, Dir: usedDir}, "is not empty"},
		"invalid flags": {controlplane.Config{Binaries: binaries, APIServerArgs: []string{"--nonsense"}}, "unknown flag: --nonsense"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cp, err := controlplane.Start(testContext(t), test.config)
			if err == nil {
				t.Fatalf("got no error, Stop returned %v", cp.Stop())
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(usedDir, "file.txt")); err != nil {
		t.Fatal(err)
	}
}

func TestStart_ContextDeadline(t *testing.T) {
	binaries, err := controlplane.Build(testContext(t), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "cp")
	_, err = controlplane.Start(ctx, controlplane.Config{Binaries: binaries, Dir: dir})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is not ready") {
		t.Fatalf("got %v, want DeadlineExceeded", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("directory exists after a failed start: %v", err)
	}
}

func TestForTest_FrozenServer(t *testing.T) {
	var cp *controlplane.ControlPlane
	t.Run("inner test", func(t *testing.T) {
		cp = controlplane.ForTest(t)
		if err := cp.APIServer.Freeze(); err != nil {
			t.Fatal(err)
		}
		if err := cp.Etcd.Kill(); err != nil {
			t.Fatal(err)
		}
	})
	if left := findRemains(t, cp.Dir()); len(left) != 0 {
		t.Errorf("got %q after Stop, want nothing", left)
	}
	if err := cp.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

// patchStatus patches the pod's status as an agent does.
func patchStatus(ctx context.Context, client kubernetes.Interface, pod *v1.Pod) error {
	patch := []byte(`{"metadata":{"uid":"` + string(pod.UID) + `"},"status":{"phase":"Running"}}`)
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(
		ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func TestNodeConfig_PatchOwnPodsOnly(t *testing.T) {
	own, other := createPod(t, "a"), createPod(t, "b")
	client := newClient(t, shared.NodeConfig("a"))
	if err := patchStatus(testContext(t), client, own); err != nil {
		t.Errorf("own pod: %v", err)
	}
	if err := patchStatus(testContext(t), client, other); !apierrors.IsForbidden(err) {
		t.Errorf("pod of another node: got %v, want Forbidden", err)
	}
}

func TestNodeConfig_ListOwnPodsOnly(t *testing.T) {
	pod := createPod(t, "a")
	createPod(t, "b")
	pods := newClient(t, shared.NodeConfig("a")).CoreV1().Pods(v1.NamespaceAll)
	if _, err := pods.List(testContext(t), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("all pods: got %v, want Forbidden", err)
	}
	list, err := pods.List(testContext(t), metav1.ListOptions{FieldSelector: "spec.nodeName=a"})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, listed := range list.Items {
		found = found || listed.UID == pod.UID
		if listed.Spec.NodeName != "a" {
			t.Errorf("pod %s: got node %s, want a", listed.Name, listed.Spec.NodeName)
		}
	}
	if !found {
		t.Errorf("pod %s is not among the %d listed pods", pod.Name, len(list.Items))
	}
}

func TestCreateNode_Existing(t *testing.T) {
	first, err := shared.CreateNode(testContext(t), "again")
	if err != nil {
		t.Fatal(err)
	}
	second, err := shared.CreateNode(testContext(t), "again")
	if err != nil || first.UID == "" || second.UID != first.UID {
		t.Fatalf("got %v, %v; want %v", second, err, first)
	}
}

func TestKubeconfig_PrivateAndSelfContained(t *testing.T) {
	nodeKubeconfig, err := shared.NodeKubeconfig("a")
	if err != nil {
		t.Fatal(err)
	}
	for path, user := range map[string]string{nodeKubeconfig: "system:node:a", shared.AdminKubeconfig(): "herald-test-admin"} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: got %v, %v; want mode 0600", path, info, err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		requireUser(t, newClient(t, config), user)
	}
}
