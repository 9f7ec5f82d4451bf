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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/parity/controlplane"
)

func TestTheAPIServerIsReadyAndTellsItsVersion(t *testing.T) {
	client := newClient(t, shared.AdminConfig())
	ready, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(soon(t))
	if err != nil || string(ready) != "ok" {
		t.Fatalf("/readyz: %q, %v", ready, err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil || version.GitVersion != "v1.36.3" || version.Major != "1" || version.Minor != "36" || version.GitTreeState != "clean" {
		t.Fatalf("version: %+v, %v", version, err)
	}
}

func TestKubectlWorksWithTheAdministratorsKubeconfig(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Fatalf("this test needs kubectl in PATH; install it, or `go build k8s.io/kubernetes/cmd/kubectl`: %v", err)
	}
	output, err := exec.CommandContext(soon(t), kubectl, "--kubeconfig", shared.AdminKubeconfig(), "get", "ns").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "kube-system") {
		t.Fatalf("%v\n%s", err, output)
	}
}

func TestAnonymousRequestsAreRefused(t *testing.T) {
	client := newClient(t, rest.AnonymousClientConfig(shared.AdminConfig()))
	if _, err := client.Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
		t.Fatalf("have %v", err)
	}
}

func TestF1DataSurvivesKillingEachServer(t *testing.T) {
	for name, server := range map[string]*controlplane.Server{"etcd": shared.Etcd, "kube-apiserver": shared.APIServer} {
		t.Run(name, func(t *testing.T) {
			before := createConfigMap(t)
			pid := server.PID()
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := server.Freeze(); err == nil {
				t.Error("a process that has ended was frozen")
			}
			if err := server.Start(soon(t)); err != nil {
				t.Fatal(err)
			}
			if err := shared.APIServer.WaitReady(soon(t)); err != nil {
				t.Fatal(err)
			}
			if server.PID() == pid {
				t.Errorf("it is the same process, %d", pid)
			}
			client := newClient(t, shared.AdminConfig())
			after, err := client.CoreV1().ConfigMaps(before.Namespace).Get(soon(t), before.Name, metav1.GetOptions{})
			if err != nil || after.UID != before.UID {
				t.Fatalf("after it: %v, %v", after, err)
			}
		})
	}
}

func TestF3RequestsToAFrozenServerTimeOutUntilItGoesOn(t *testing.T) {
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
				t.Errorf("frozen: %v", err)
			}
			if err := server.Continue(); err != nil {
				t.Fatal(err)
			}
			if err := get(soon(t)); err != nil {
				t.Fatalf("going on: %v", err)
			}
		})
	}
}

func TestF11HistoryFromBeforeACompactionAndARestartIsGone(t *testing.T) {
	old := createConfigMap(t)
	createConfigMap(t)
	if err := shared.Compact(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := shared.APIServer.Restart(soon(t)); err != nil {
		t.Fatal(err)
	}
	configMaps := newClient(t, shared.AdminConfig()).CoreV1().ConfigMaps(v1.NamespaceDefault)
	_, err := configMaps.List(soon(t), metav1.ListOptions{
		ResourceVersion: old.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a list: %v", err)
	}
	stream, err := configMaps.Watch(soon(t), metav1.ListOptions{ResourceVersion: old.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	event := <-stream.ResultChan()
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch: %+v", event)
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	binaries, err := controlplane.Build(soon(t), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		config controlplane.Config
		want   string
	}{
		"nothing is built":        {controlplane.Config{}, "call Build"},
		"the folder is in use":    {controlplane.Config{Binaries: binaries, Dir: full}, "is not empty"},
		"a server does not start": {controlplane.Config{Binaries: binaries, APIServerArgs: []string{"--nonsense"}}, "unknown flag: --nonsense"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cp, err := controlplane.Start(soon(t), test.config)
			if err == nil {
				t.Fatalf("it started, and stopped with %v", cp.Stop())
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%v\nwant a word about %q", err, test.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(full, "thesis.txt")); err != nil {
		t.Fatal(err)
	}
}

func TestStartGivesUpWithItsContextAndShowsTheLog(t *testing.T) {
	binaries, err := controlplane.Build(soon(t), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "cp")
	_, err = controlplane.Start(ctx, controlplane.Config{Binaries: binaries, Dir: dir})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is not ready") {
		t.Fatalf("have %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the folder is still there: %v", err)
	}
}

func TestForTestStopsEvenFrozenServersWithTheTest(t *testing.T) {
	var cp *controlplane.ControlPlane
	t.Run("a test", func(t *testing.T) {
		cp = controlplane.ForTest(t)
		if err := cp.APIServer.Freeze(); err != nil {
			t.Fatal(err)
		}
		if err := cp.Etcd.Kill(); err != nil {
			t.Fatal(err)
		}
	})
	if left := remains(t, cp.Dir()); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	if err := cp.Stop(); err != nil {
		t.Errorf("stopping again: %v", err)
	}
}
