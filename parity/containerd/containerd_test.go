package containerd_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAPodIsReachedFromTheHostAtItsAddress(t *testing.T) {
	n := newNode(t, containerd.ForTest(t))
	pod := n.runPod("web")
	if !netip.MustParsePrefix("10.231.0.0/16").Contains(pod.address) {
		t.Fatalf("the pod has address %v, want one of the bridge's", pod.address)
	}
	n.runContainer(pod, "serve", "serve", "--port", "8080")
	ready := fmt.Sprintf("http://%s/readyz", netip.AddrPortFrom(pod.address, 8080))

	eventually(t, func() error { return wantStatus(t.Context(), http.MethodGet, ready, http.StatusOK) })
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
		if err := wantStatus(t.Context(), step.method, ready+step.query, step.want); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAContainersOutputIsLoggedInTheFormOfTheCRI(t *testing.T) {
	n := newNode(t, containerd.ForTest(t))
	pod := n.runPod("logging")
	n.runContainer(pod, "serve", "serve", "--port", "8080")
	log := n.awaitOutput(pod, "serve")
	match := regexp.MustCompile(`^(\S+) stdout F serving on port 8080\n$`).FindStringSubmatch(log)
	if match == nil {
		t.Fatalf("the log is %q", log)
	}
	if _, err := time.Parse(time.RFC3339Nano, match[1]); err != nil {
		t.Error(err)
	}
}

func TestTheTestpodDoesWhatAContainersTestNeeds(t *testing.T) {
	c := containerd.ForTest(t)
	pod := newNode(t, c).runPod("behaviours")

	cases := map[string]struct {
		args []string
		code int32
		// stop asks the container to end, with this many seconds of grace.
		stop *int64
	}{
		"exit-3":       {args: []string{"exit", "3", "--message", "why", "--after", "10ms"}, code: 3},
		"sleep-ends":   {args: []string{"sleep", "10ms"}, code: 0},
		"sleep-obeys":  {args: []string{"sleep", "1h"}, code: 0, stop: new(int64(30))},
		"sleep-lasts":  {args: []string{"sleep", "1h", "--ignore-term"}, code: 137, stop: new(int64(1))},
		"serve-obeys":  {args: []string{"serve", "--port", "9090"}, code: 0, stop: new(int64(30))},
		"pause-obeys":  {args: []string{"pause"}, code: 0, stop: new(int64(30))},
		"cat-nothing":  {args: []string{"cat", "/nothing"}, code: 1},
		"no-command":   {args: []string{"dance"}, code: 2},
		"no-exit-code": {args: []string{"exit"}, code: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c)
			id := n.runContainer(pod, name, tc.args...)
			if tc.stop != nil {
				n.awaitOutput(pod, name)
				n.stopContainer(id, *tc.stop)
			}
			if got := n.awaitExit(id); got.ExitCode != tc.code {
				t.Errorf("exit code %d, want %d (%s: %s)", got.ExitCode, tc.code, got.Reason, got.Message)
			}
		})
	}
}

func TestTheInsideOfAContainerIsShown(t *testing.T) {
	c := containerd.ForTest(t)
	n := newNode(t, c)
	pod := n.runPod("inside")
	id := n.runContainer(pod, "sleeper", "sleep", "1h")
	cases := map[string]struct {
		args []string
		want string
	}{
		"env":                     {args: []string{"env"}, want: "INSIDE=sleeper\n"},
		"a file":                  {args: []string{"cat", "/proc/sys/kernel/hostname"}, want: "inside\n"},
		"the termination message": {args: []string{"cat", "/dev/termination-log"}, want: "bye"},
	}
	if code, out := n.exec(id, "exit", "4", "--message", "bye"); code != 4 {
		t.Fatalf("exit 4 ended with %d: %s", code, out)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, out := newNode(t, c).exec(id, tc.args...)
			if code != 0 || !strings.Contains(out, tc.want) {
				t.Errorf("code %d, output %q, want %q in it", code, out, tc.want)
			}
		})
	}
}

func TestAStoppedAndRemovedPodIsNotListed(t *testing.T) {
	n := newNode(t, containerd.ForTest(t))
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
		t.Errorf("still listed: %v %v", pods.Items, containers.Containers)
	}
}

func TestTwoContainerdsDoNotMeet(t *testing.T) {
	first, second := newNode(t, containerd.ForTest(t)), newNode(t, containerd.ForTest(t))
	one, two := first.runPod("pod"), second.runPod("pod")
	if one.address == two.address {
		t.Errorf("both pods have address %v", one.address)
	}
	pods, err := second.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Id != two.id {
		t.Errorf("the second lists %v, want its own pod %s alone", pods.Items, two.id)
	}
}

func TestAnImageNeedsAProgramAndATag(t *testing.T) {
	c := containerd.ForTest(t)
	cases := map[string]struct{ reference, program, want string }{
		"no program": {"herald.test/none:1", "/nothing", "/nothing: no such file"},
		"no tag":     {"Herald Test", os.Args[0], "Herald Test"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := c.ImportImage(t.Context(), tc.reference, tc.program)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestAFolderTooDeepForASocketIsRefused(t *testing.T) {
	needs.Containers(t)
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := containerd.Start(context.Background(), containerd.Config{ParentDir: deep})
	if err == nil || !strings.Contains(err.Error(), "Config.ParentDir") {
		t.Errorf("error %v, want one that names Config.ParentDir", err)
	}
	if left, _ := os.ReadDir(deep); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
