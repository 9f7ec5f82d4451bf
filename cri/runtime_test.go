package cri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/internal/permission/permissiontest"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func TestConfig_Validation(t *testing.T) {
	valid := cri.Config{Endpoint: "unix:///x", Provisioner: fakeProvisioner{}, Root: "/pods"}
	for field, invalidate := range map[string]func(*cri.Config){
		"Endpoint":       func(c *cri.Config) { c.Endpoint = "tcp://x" },
		"ImageEndpoint":  func(c *cri.Config) { c.ImageEndpoint = "/x" },
		"Provisioner":    func(c *cri.Config) { c.Provisioner = nil },
		"Root":           func(c *cri.Config) { c.Root = "pods" },
		"CgroupDriver":   func(c *cri.Config) { c.CgroupDriver = "magic" },
		"CgroupParent":   func(c *cri.Config) { c.CgroupParent = "kubepods" },
		"RequestTimeout": func(c *cri.Config) { c.RequestTimeout = -1 },

		"MaxParallelPulls":     func(c *cri.Config) { c.MaxParallelPulls = -1 },
		"ContainerLogMaxFiles": func(c *cri.Config) { c.ContainerLogMaxFiles = 1 },
	} {
		config := valid
		invalidate(&config)
		if _, err := cri.New(config); err == nil || !strings.HasPrefix(err.Error(), "cri.Config: "+field+" ") {
			t.Errorf("%s: got error %v", field, err)
		}
	}
}

func TestNew_MetricsRegisteredTwice(t *testing.T) {
	registry := prometheus.NewRegistry()
	config := cri.Config{Endpoint: "unix:///x", Provisioner: fakeProvisioner{}, Root: "/pods", Metrics: registry}
	r, err := cri.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var registered prometheus.AlreadyRegisteredError
	if _, err := cri.New(config); !errors.As(err, &registered) {
		t.Errorf("got error %v", err)
	}
}

func TestRuntime_Ready(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.status = &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady", Message: "no CNI"},
		}}}
		runtime, network := h.Ready(h.Context())
		if runtime != nil || network == nil || network.Error() != "NetworkReady is false: reason:NetworkPluginNotReady message:no CNI" {
			h.Errorf("got runtime %v, network %v", runtime, network)
		}
		h.fake.inject("Status", fails(codes.Unavailable, "down"))
		if runtime, network = h.Ready(h.Context()); runtime == nil || network == nil {
			h.Errorf("got runtime %v, network %v", runtime, network)
		}
		if name, version, err := h.Version(h.Context()); name != "fake" || version != "v1" || err != nil {
			h.Errorf("got %s %s, %v", name, version, err)
		}
	})
}

func TestRuntime_RecursiveReadOnly(t *testing.T) {
	inBubble(t, func(h *harness) {
		if h.RecursiveReadOnly() {
			h.Error("got support before the runtime reported it")
		}
		h.fake.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{
			{Name: "other"}, {Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}},
		}
		_, _ = h.Ready(h.Context())
		if !h.RecursiveReadOnly() {
			h.Error("got no support of the default handler")
		}
	})
}

func TestRuntime_NodeFeatures(t *testing.T) {
	inBubble(t, func(h *harness) {
		if handlers, features := h.NodeFeatures(); handlers != nil || features != nil {
			h.Errorf("before the runtime responded: got %v, %v, want none", handlers, features)
		}
		_, _ = h.Ready(h.Context())
		if handlers, features := h.NodeFeatures(); handlers == nil || len(handlers) > 0 || features != nil {
			h.Errorf("runtime that reports none: got %v, %v, want an empty list", handlers, features)
		}
		h.fake.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{
			{Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}},
			{Name: "kata", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "old"},
		}
		h.fake.status.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
		_, _ = h.Ready(h.Context())
		handler := func(name string, recursiveReadOnly, userNamespaces bool) v1.NodeRuntimeHandler {
			return v1.NodeRuntimeHandler{Name: name, Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: &recursiveReadOnly, UserNamespaces: &userNamespaces,
			}}
		}
		want := []v1.NodeRuntimeHandler{handler("", true, false), handler("kata", false, true), handler("old", false, false)}
		handlers, features := h.NodeFeatures()
		if diff := cmp.Diff(want, handlers); diff != "" {
			h.Errorf("handlers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(&v1.NodeFeatures{SupplementalGroupsPolicy: new(true)}, features); diff != "" {
			h.Errorf("features (-want +got):\n%s", diff)
		}
		h.fake.inject("Status", fails(codes.Unavailable, "down"))
		_, _ = h.Ready(h.Context())
		if handlers, _ := h.NodeFeatures(); len(handlers) != 3 {
			h.Errorf("after a failed request: got %v, want the last known", handlers)
		}
	})
}

func TestMetrics_CallsAndStarts(t *testing.T) {
	registry := prometheus.NewRegistry()
	inBubble(t, func(h *harness) {
		pod := newPod()
		h.fake.inject("CreateContainer", fails(codes.Unknown, "no"))
		if err := h.startFirst(h.Context(), pod); err == nil {
			h.Error("got no error")
		}
		h.startPod(pod)
	}, func(config *cri.Config) { config.Metrics = registry })
	for name, want := range map[string]int{
		"kubelet_started_pods_total": 1, "kubelet_started_containers_total": 1, "kubelet_started_containers_errors_total": 1,
		"kubelet_run_podsandbox_duration_seconds": 1, "kubelet_runtime_operations_errors_total": 1,
	} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%s: got %d series, %v, want %d", name, got, err, want)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	operations := map[string]bool{}
	for _, family := range families {
		if family.GetName() == "kubelet_runtime_operations_total" {
			for _, metric := range family.Metric {
				operations[metric.Label[0].GetValue()] = true
			}
		}
	}
	for _, want := range []string{"run_podsandbox", "podsandbox_status", "create_container", "list_containers", "image_status", "version"} {
		if !operations[want] {
			t.Errorf("got operation types %v, want %q", operations, want)
		}
	}
}

// calls returns a call of Runtime for each CRI method, which it waits for.
func calls(h *harness, pod *v1.Pod, c observed.Container) map[string]func(context.Context) error {
	restart := func(ctx context.Context) error {
		return h.StartContainer(ctx, pod, c.SandboxID, plan.Start{Container: &pod.Spec.Containers[0], RestartCount: 1})
	}
	return map[string]func(context.Context) error{
		"Version": func(ctx context.Context) error { _, _, err := h.Version(ctx); return err },
		"Status": func(ctx context.Context) error {
			runtime, _ := h.Ready(ctx)
			return runtime
		},
		"ListPodSandbox": func(ctx context.Context) error { _, err := h.ListPods(ctx); return err },
		"ListContainers": func(ctx context.Context) error { _, err := h.ListPods(ctx); return err },
		"ContainerStatus": func(ctx context.Context) error {
			_, err := h.InspectPod(ctx, podid.UID(pod.UID))
			return err
		},
		"StopContainer": func(ctx context.Context) error {
			return h.StopContainer(ctx, pod, plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: 10 * time.Second})
		},
		"ExecSync": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, _, err := h.Exec(ctx, c.ID, []string{"true"})
			return err
		},
		"StopPodSandbox": func(ctx context.Context) error { return h.StopSandbox(ctx, c.SandboxID) },
		"RunPodSandbox": func(ctx context.Context) error {
			_, err := h.StartSandbox(ctx, pod, 1)
			return err
		},
		"CreateContainer": restart,
		"StartContainer":  restart,
		"ImageStatus":     restart,
		"RemoveContainer": func(ctx context.Context) error {
			h.fake.addObjects(h, "old uid-9/web/0 s exited 1h")
			return h.CollectGarbage(ctx, wanting())
		},
		"ReopenContainerLog": func(ctx context.Context) error { return h.RotateLogs(ctx) }, // the log is missing
	}
}

func TestF22_HangingRuntime(t *testing.T) {
	for method := range calls(&harness{}, newPod(), observed.Container{}) {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod()
				call := calls(h, pod, h.startPod(pod))[method]
				h.fake.inject(method, hangs)
				started := time.Now()
				if err := call(h.Context()); err == nil {
					h.Error("got no error")
				}
				if took := time.Since(started); took > 5*time.Minute {
					h.Errorf("got duration %v", took)
				}
			})
		})
	}
}

func TestBUG27_CallsEndWithContext(t *testing.T) {
	for method := range calls(&harness{}, newPod(), observed.Container{}) {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod()
				call := calls(h, pod, h.startPod(pod))[method]
				h.fake.inject(method, hangs)
				ctx, cancel := context.WithCancel(h.Context())
				done := make(chan error, 1)
				started := time.Now()
				go func() { done <- call(ctx) }()
				synctest.Wait()
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) || time.Since(started) > 0 {
					h.Errorf("got error %v after %v", err, time.Since(started))
				}
			})
		})
	}
}

func TestBUG27_InterruptedStartCompletes(t *testing.T) {
	tests := map[string]string{ // the state of the container; "" if there is none
		"RunPodSandbox":   "",
		"CreateContainer": observed.Created.String(),
		"StartContainer":  observed.Running.String(),
		"PullImage":       "", // interrupted
	}
	for method, wantState := range tests {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].ImagePullPolicy = v1.PullAlways })
				h.fake.inject(method, delays(time.Minute))
				ctx, cancel := context.WithCancelCause(h.Context())
				defer cancel(nil)
				time.AfterFunc(time.Second, func() { cancel(plan.ErrInterrupted) })
				started := time.Now()
				id, err := h.StartSandbox(ctx, pod, 0)
				if err != nil {
					h.Fatal(err)
				}
				_ = h.StartContainer(ctx, pod, id, firstStart(pod))
				took, want := time.Since(started), time.Minute
				if method == "PullImage" {
					want = time.Second
				}
				if took != want {
					h.Errorf("got a return after %v, want %v", took, want)
				}
				inspected := h.inspect(pod)
				if len(inspected.Sandboxes) != 1 {
					h.Errorf("got %d sandboxes, want 1", len(inspected.Sandboxes))
				}
				var state string
				if len(inspected.Containers) > 0 {
					state = inspected.Containers[0].State.String()
				}
				if state != wantState {
					h.Errorf("got container state %q, want %q", state, wantState)
				}
				for _, event := range h.events() {
					if strings.HasPrefix(event, "Warning") {
						h.Errorf("got event %s", event)
					}
				}
			})
		})
	}
}

func TestBUG27_InterruptedStartIsBounded(t *testing.T) { // F22
	inBubble(t, func(h *harness) {
		pod := newPod()
		sandbox := h.startSandbox(pod)
		h.fake.inject("StartContainer", hangs)
		ctx, cancel := context.WithCancelCause(h.Context())
		time.AfterFunc(time.Second, func() { cancel(plan.ErrInterrupted) })
		started := time.Now()
		err := h.StartContainer(ctx, pod, sandbox, firstStart(pod))
		if took := time.Since(started); err == nil || took != 2*time.Minute {
			h.Errorf("got %v after %v, want an error after the request timeout", err, took)
		}
	})
}

func TestF22_RuntimeRestart(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		before := h.startPod(pod)
		h.down()
		if _, err := h.InspectPod(h.Context(), podid.UID(pod.UID)); err == nil {
			h.Error("runtime is down: got no error")
		}
		h.up()
		time.Sleep(4 * time.Second) // longer than the maximum reconnect delay
		if after := h.onlyContainer(pod); after.ID != before.ID {
			h.Errorf("got container %v, want %v", after.ID, before.ID)
		}
	})
}

func TestDialSocket_ChecksListener(t *testing.T) {
	users := map[int]bool{os.Geteuid(): true}
	if os.Geteuid() == 0 {
		users[1234] = false // only root can listen as another user
	}
	for user, isTrusted := range users {
		listener, path := permissiontest.ListenAs(t, user)
		server := grpc.NewServer()
		fake := newFake()
		runtimeapi.RegisterRuntimeServiceServer(server, fake)
		go func() { _ = server.Serve(listener) }()
		r, err := cri.New(cri.Config{
			Endpoint: "unix://" + path, Provisioner: fakeProvisioner{t.TempDir()}, Root: t.TempDir(),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = r.Version(t.Context())
		switch {
		case isTrusted && err != nil:
			t.Errorf("user %d: got error %v", user, err)
		case !isTrusted && (err == nil || !strings.Contains(err.Error(), "is user 1234")):
			t.Errorf("user %d: got error %v", user, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
	}
}

func TestImageDirs(t *testing.T) {
	usages := func(dirs ...string) (usages []*runtimeapi.FilesystemUsage) {
		for _, dir := range dirs {
			usages = append(usages, &runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: dir}})
		}
		return usages
	}
	inBubble(t, func(h *harness) {
		h.fake.imageFs = &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usages("/images", ""), ContainerFilesystems: usages("/images", "/layers")}
		got, err := h.ImageDirs(h.Context())
		if diff := cmp.Diff([]string{"/images", "/layers"}, got); diff != "" || err != nil {
			h.Errorf("got error %v, directories (-want +got):\n%s", err, diff)
		}
		h.fake.inject("ImageFsInfo", fails(codes.Unimplemented, "unknown method"))
		if got, err := h.ImageDirs(h.Context()); err == nil {
			h.Errorf("not implemented: got %v", got)
		}
	})
}

func TestThermalThrottlePaths(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"cpu0/thermal_throttle", "cpu12/thermal_throttle", "cpu3", "cpufreq/thermal_throttle"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{root + "/cpu0/thermal_throttle", root + "/cpu12/thermal_throttle"}
	if diff := cmp.Diff(want, cri.ThermalThrottlePaths(root)); diff != "" {
		t.Error(diff)
	}
}
