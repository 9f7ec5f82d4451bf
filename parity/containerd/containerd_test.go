package containerd_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPod_ReachableFromHost(t *testing.T) {
	n := newClient(t, containerd.ForTest(t))
	pod := n.runPod("web")
	if !netip.MustParsePrefix("10.231.0.0/16").Contains(pod.address) {
		t.Fatalf("got pod address %v, want one in 10.231.0.0/16", pod.address)
	}
	n.runContainer(pod, "serve", "serve", "--port", "8080")
	ready := fmt.Sprintf("http://%s/readyz", netip.AddrPortFrom(pod.address, 8080))

	heraldtest.Eventually(t, func() error { return checkStatus(t.Context(), http.MethodGet, ready, http.StatusOK) })
	steps := []struct {
		method, query string
		want          int
	}{
		{http.MethodPost, "?code=503", http.StatusOK},
		{http.MethodGet, "", http.StatusServiceUnavailable},
		{http.MethodPost, "?code=200", http.StatusOK},
		{http.MethodGet, "", http.StatusOK},
		{http.MethodPost, "?code=none", http.StatusBadRequest},
	}
	for _, step := range steps {
		if err := checkStatus(t.Context(), step.method, ready+step.query, step.want); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContainer_LogFormat(t *testing.T) {
	n := newClient(t, containerd.ForTest(t))
	pod := n.runPod("logging")
	n.runContainer(pod, "serve", "serve", "--port", "8080")
	log := n.awaitOutput(pod, "serve")
	match := regexp.MustCompile(`^(\S+) stdout F serving on port 8080\n$`).FindStringSubmatch(log)
	if match == nil {
		t.Fatalf("got log %q, want a line in the CRI format", log)
	}
	if _, err := time.Parse(time.RFC3339Nano, match[1]); err != nil {
		t.Error(err)
	}
}

func TestTestpod_Commands(t *testing.T) {
	c := containerd.ForTest(t)
	pod := newClient(t, c).runPod("behaviours")

	cases := map[string]struct {
		args []string
		code int32
		// stop is the grace period in seconds with which the container is stopped. nil: the container exits by itself.
		stop *int64
	}{
		"exit-3":           {args: []string{"exit", "3", "--message", "why", "--after", "10ms"}, code: 3},
		"sleep-ends":       {args: []string{"sleep", "10ms"}, code: 0},
		"sleep-stopped":    {args: []string{"sleep", "1h"}, code: 0, stop: new(int64(30))},
		"sleep-killed":     {args: []string{"sleep", "1h", "--ignore-term"}, code: 137, stop: new(int64(1))},
		"serve-stopped":    {args: []string{"serve", "--port", "9090"}, code: 0, stop: new(int64(30))},
		"pause-stopped":    {args: []string{"pause"}, code: 0, stop: new(int64(30))},
		"cat-missing-file": {args: []string{"cat", "/nothing"}, code: 1},
		"unknown-command":  {args: []string{"unknown"}, code: 2},
		"no-exit-code":     {args: []string{"exit"}, code: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newClient(t, c)
			id := n.runContainer(pod, name, tc.args...)
			if tc.stop != nil {
				n.awaitOutput(pod, name)
				n.stopContainer(id, *tc.stop)
			}
			if got := n.awaitExit(id); got.ExitCode != tc.code {
				t.Errorf("got exit code %d (%s: %s), want %d", got.ExitCode, got.Reason, got.Message, tc.code)
			}
		})
	}
}

func TestTestpod_Exec(t *testing.T) {
	c := containerd.ForTest(t)
	n := newClient(t, c)
	pod := n.runPod("inside")
	id := n.runContainer(pod, "sleeper", "sleep", "1h")
	cases := map[string]struct {
		args []string
		want string
	}{
		"environment":         {args: []string{"env"}, want: "INSIDE=sleeper\n"},
		"file":                {args: []string{"cat", "/proc/sys/kernel/hostname"}, want: "inside\n"},
		"termination message": {args: []string{"cat", "/dev/termination-log"}, want: "bye"},
	}
	if code, out := n.exec(id, "exit", "4", "--message", "bye"); code != 4 {
		t.Fatalf("exit 4: got code %d: %s", code, out)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, out := newClient(t, c).exec(id, tc.args...)
			if code != 0 || !strings.Contains(out, tc.want) {
				t.Errorf("got code %d, output %q; want 0 and %q", code, out, tc.want)
			}
		})
	}
}

func TestPod_Remove(t *testing.T) {
	n := newClient(t, containerd.ForTest(t))
	pod := n.runPod("short")
	n.runContainer(pod, "serve", "serve", "--port", "8080")
	n.removePod(pod)
	pods, err := n.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	containers, err := n.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 0 || len(containers.Containers) != 0 {
		t.Errorf("got pods %v and containers %v, want none", pods.Items, containers.Containers)
	}
}

func TestStart_TwoInstances(t *testing.T) {
	first, second := newClient(t, containerd.ForTest(t)), newClient(t, containerd.ForTest(t))
	one, two := first.runPod("pod"), second.runPod("pod")
	if one.address == two.address {
		t.Errorf("got address %v for both pods", one.address)
	}
	pods, err := second.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Id != two.id {
		t.Errorf("second instance: got pods %v, want only %s", pods.Items, two.id)
	}
}

func TestImportImage_Errors(t *testing.T) {
	c := containerd.ForTest(t)
	cases := map[string]struct{ reference, program, want string }{
		"no program": {"herald.test/none:1", "/nothing", "/nothing: no such file"},
		"no tag":     {"Herald Test", os.Args[0], "Herald Test"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := c.ImportImage(t.Context(), tc.reference, tc.program)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestStart_PathTooLong(t *testing.T) {
	needs.Containers(t)
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := containerd.Start(context.Background(), containerd.Config{ParentDir: deep})
	if err == nil || !strings.Contains(err.Error(), "Config.ParentDir") {
		t.Errorf("got error %v, want Config.ParentDir in it", err)
	}
	if left, _ := os.ReadDir(deep); len(left) != 0 {
		t.Errorf("got %v after a failed start, want nothing", left)
	}
}

// The shim must have the version of its containerd, although another one may be in PATH.
func TestStart_Version(t *testing.T) {
	c := containerd.ForTest(t)
	n := newClient(t, c)
	got, err := n.runtime.Version(t.Context(), &cri.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n.runPod("pod")
	shims := slices.DeleteFunc(processes(t, c.Dir()), func(line string) bool { return !strings.Contains(line, "containerd-shim-runc-v2 ") })
	t.Logf("%s %s: %q", got.RuntimeName, got.RuntimeVersion, shims)
	if containerd.DefaultVersion() != containerd.Version2 {
		return
	}
	programs, err := containerd.Build(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(programs) != "containerd-"+got.RuntimeVersion || len(shims) != 1 || !strings.HasPrefix(shims[0], programs+"/") {
		t.Errorf("got version %s with shims %q, want those of %s", got.RuntimeVersion, shims, programs)
	}
}

func TestStart_UnknownVersion(t *testing.T) {
	_, err := containerd.Start(t.Context(), containerd.Config{Version: "3"})
	if err == nil || !strings.Contains(err.Error(), "Config.Version") {
		t.Errorf("got error %v, want Config.Version in it", err)
	}
}

func TestRestart_ContainersSurvive(t *testing.T) {
	cases := map[string]func(*containerd.Containerd) error{
		"killed":  (*containerd.Containerd).Kill,
		"stopped": func(c *containerd.Containerd) error { return c.Stop(t.Context()) },
		"frozen and stopped": func(c *containerd.Containerd) error {
			if err := c.Freeze(); err != nil {
				return err
			}
			return c.Stop(t.Context())
		},
		"running": func(*containerd.Containerd) error { return nil },
	}
	c := containerd.ForTest(t)
	for name, stop := range cases {
		t.Run(name, func(t *testing.T) {
			before := newClient(t, c)
			pod := before.runPod("survivor")
			id := before.runContainer(pod, "serve", "serve", "--port", "8080")
			started := before.containerStatus(id).StartedAt

			if err := stop(c); err != nil {
				t.Fatal(err)
			}
			if err := c.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}

			after := newClient(t, c)
			got := after.containerStatus(id)
			if got.State != cri.ContainerState_CONTAINER_RUNNING || got.StartedAt != started {
				t.Errorf("got container %v since %d, want running since %d", got.State, got.StartedAt, started)
			}
			list, err := after.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Containers) != 1 || list.Containers[0].Id != id {
				t.Errorf("got containers %v, want only %s", list.Containers, id)
			}
			after.removePod(pod)
		})
	}
}

func TestFreeze_Continue(t *testing.T) {
	c := containerd.ForTest(t)
	n := newClient(t, c)
	version := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := n.runtime.Version(ctx, &cri.VersionRequest{})
		return err
	}
	if err := version(3 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := version(300 * time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("frozen: got %v, want DeadlineExceeded", err)
	}
	if err := c.Continue(); err != nil {
		t.Fatal(err)
	}
	if err := version(3 * time.Minute); err != nil {
		t.Errorf("resumed: %v", err)
	}
}

func TestContainerd_NotRunning(t *testing.T) {
	c := containerd.ForTest(t)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	actions := map[string]func() error{
		"Stop":        func() error { return c.Stop(t.Context()) },
		"Kill":        c.Kill,
		"Freeze":      c.Freeze,
		"Continue":    c.Continue,
		"ImportImage": func() error { return c.ImportImage(t.Context(), containerd.TestpodImage, os.Args[0]) },
	}
	for name, act := range actions {
		t.Run(name, func(t *testing.T) {
			if err := act(); err == nil {
				t.Error("got no error")
			}
		})
	}
}
