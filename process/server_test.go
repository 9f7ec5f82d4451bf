package process_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/process"
)

// allEvents are the events of a container or sandbox, in order.
var allEvents = []runtimeapi.ContainerEventType{
	runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
	runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
}

func TestGetContainerEvents(t *testing.T) {
	h := newHarness(t)
	events := h.subscribe()
	sandboxID := h.sandbox("a")
	id := h.run(sandboxID, shell("web", "exit 3"))
	h.waitForExit(id)
	h.remove(id)
	if _, err := h.RemovePodSandbox(h.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandboxID}); err != nil {
		t.Fatal(err)
	}
	got := map[string][]runtimeapi.ContainerEventType{}
	for len(got[sandboxID]) < len(allEvents) {
		event := events.next()
		got[event.GetContainerId()] = append(got[event.GetContainerId()], event.GetContainerEventType())
		if event.GetPodSandboxStatus().GetId() != sandboxID || event.GetCreatedAt() == 0 {
			t.Errorf("event without its pod: %v", event)
		}
		if event.GetContainerId() == id && event.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT &&
			(len(event.GetContainersStatuses()) != 1 || event.GetContainersStatuses()[0].GetExitCode() != 3) {
			t.Errorf("stopped event without the exit code: %v", event)
		}
	}
	if diff := cmp.Diff(map[string][]runtimeapi.ContainerEventType{sandboxID: allEvents, id: allEvents}, got); diff != "" {
		t.Error(diff)
	}
}

func TestF22_NameReserved(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	id := h.create(sandboxID, shell("web", sleepForever))
	again := func() {
		t.Helper()
		_, err := h.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: h.sandboxConfig("a")})
		wantReserved(t, err, `name "a_shop_uid-a_0" is reserved for "`+sandboxID+`"`)
		_, err = h.CreateContainer(h.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: shell("web", sleepForever)})
		wantReserved(t, err, `name "web_a_shop_uid-a_0" is reserved for "`+id+`"`)
	}
	again()
	h.restart(func() {})
	again()
	next := shell("web", sleepForever)
	next.Metadata.Attempt = 1
	h.create(sandboxID, next)
	h.remove(id)
	h.create(sandboxID, shell("web", sleepForever))
}

func wantReserved(t *testing.T, err error, want string) {
	t.Helper()
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestList_Filters(t *testing.T) {
	h := newHarness(t)
	a, b := h.sandbox("a"), h.sandbox("b")
	one, two := h.run(a, shell("one", sleepForever)), h.create(b, shell("two", sleepForever))
	if _, err := h.StopPodSandbox(h.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: b}); err != nil {
		t.Fatal(err)
	}
	sandboxes := map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		"all":      {nil, []string{a, b}},
		"by ID":    {&runtimeapi.PodSandboxFilter{Id: b}, []string{b}},
		"by label": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"pod": "a"}}, []string{a}},
		"by state": {&runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}}, []string{b}},
		"ready":    {&runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{}}, []string{a}},
		"by both":  {&runtimeapi.PodSandboxFilter{Id: b, LabelSelector: map[string]string{"pod": "a"}}, nil},
	}
	for name, test := range sandboxes {
		response, err := h.ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{Filter: test.filter})
		var got []string
		for _, item := range response.GetItems() {
			got = append(got, item.GetId())
		}
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("sandboxes, %s: %v\n%s", name, err, diff)
		}
	}
	containers := map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"all":        {nil, []string{one, two}},
		"by ID":      {&runtimeapi.ContainerFilter{Id: two}, []string{two}},
		"by sandbox": {&runtimeapi.ContainerFilter{PodSandboxId: a}, []string{one}},
		"by label":   {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"container": "two"}}, []string{two}},
		"by state": {
			&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, []string{one},
		},
	}
	for name, test := range containers {
		response, err := h.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: test.filter})
		var got []string
		for _, item := range response.GetContainers() {
			got = append(got, item.GetId())
		}
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("containers, %s: %v\n%s", name, err, diff)
		}
	}
}

func TestStopPodSandbox(t *testing.T) {
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	running, created := h.run(sandboxID, shell("web", sleepForever)), h.create(sandboxID, shell("later", sleepForever))
	for range 2 {
		if _, err := h.StopPodSandbox(h.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandboxID}); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.status(running); got.GetExitCode() != 137 {
		t.Errorf("got %v, want exit code 137", got)
	}
	h.restart(func() {})
	got, err := h.PodSandboxStatus(h.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandboxID})
	if err != nil || got.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || len(got.GetContainersStatuses()) != 2 {
		t.Errorf("got %v, error %v, want 2 containersstatuses", got, err)
	}
	_, err = h.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: created})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v, want code FailedPrecondition", err)
	}
	_, err = h.CreateContainer(h.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: shell("next", sleepForever)})
	if err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("got %v, want %q", err, "stopped")
	}
}

func TestServer_NotFound(t *testing.T) {
	h := newHarness(t)
	_, stop := h.StopContainer(h.ctx, &runtimeapi.StopContainerRequest{ContainerId: "missing"})
	_, remove := h.RemoveContainer(h.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: "missing"})
	_, stopSandbox := h.StopPodSandbox(h.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: "missing"})
	_, removeSandbox := h.RemovePodSandbox(h.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "missing"})
	for _, err := range []error{stop, remove, stopSandbox, removeSandbox} {
		if err != nil {
			t.Error(err)
		}
	}
	_, inspect := h.ContainerStatus(h.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: "missing"})
	_, inspectSandbox := h.PodSandboxStatus(h.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "missing"})
	for _, err := range []error{inspect, inspectSandbox} {
		if status.Code(err) != codes.NotFound {
			t.Error(err)
		}
	}
}

func TestServer_VersionAndStatus(t *testing.T) {
	h := newHarness(t)
	version, err := h.Version(h.ctx, &runtimeapi.VersionRequest{})
	if err != nil || version.GetRuntimeName() != "process" || version.GetRuntimeApiVersion() != "v1" || version.GetRuntimeVersion() == "" {
		t.Errorf("got %v, error %v", version, err)
	}
	ready, err := h.Status(h.ctx, &runtimeapi.StatusRequest{})
	if err != nil || len(ready.GetStatus().GetConditions()) != 2 {
		t.Fatalf("got %v, error %v, want 2 conditions", ready, err)
	}
	for _, condition := range ready.GetStatus().GetConditions() {
		if !condition.GetStatus() {
			t.Errorf("got %v, want status true", condition)
		}
	}
	if _, err := h.UpdateRuntimeConfig(h.ctx, &runtimeapi.UpdateRuntimeConfigRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := h.RuntimeConfig(h.ctx, &runtimeapi.RuntimeConfigRequest{}); err != nil {
		t.Error(err)
	}
	_, err = h.UpdateContainerResources(h.ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: "x"})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "spec.containers[*].resources") {
		t.Errorf("got %v, want code InvalidArgument, %q", err, "spec.containers[*].resources")
	}
	if _, err := h.CheckpointContainer(h.ctx, &runtimeapi.CheckpointContainerRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want code Unimplemented", err)
	}
}

func TestImages_HostOnly(t *testing.T) {
	h := newHarness(t)
	for image, there := range map[string]bool{"host": true, "host:latest": true, "nginx": false, "": false} {
		spec := &runtimeapi.ImageSpec{Image: image}
		got, err := h.images.ImageStatus(h.ctx, &runtimeapi.ImageStatusRequest{Image: spec})
		if err != nil || (got.GetImage() != nil) != there || there && (got.GetImage().GetId() == "" || got.GetImage().GetSize() == 0) {
			t.Errorf("%q: got %v, error %v", image, got, err)
		}
		_, err = h.images.PullImage(h.ctx, &runtimeapi.PullImageRequest{Image: spec})
		if (err == nil) != there || !there && !strings.Contains(err.Error(), "the host's own file system") {
			t.Errorf("pull %q: %v", image, err)
		}
		if _, err = h.images.RemoveImage(h.ctx, &runtimeapi.RemoveImageRequest{Image: spec}); (err != nil) != there {
			t.Errorf("remove %q: %v", image, err)
		}
	}
	list, err := h.images.ListImages(h.ctx, &runtimeapi.ListImagesRequest{})
	if err != nil || len(list.GetImages()) != 1 {
		t.Errorf("got %v, error %v, want 1 images", list, err)
	}
	usage, err := h.images.ImageFsInfo(h.ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil || usage.GetImageFilesystems()[0].GetFsId().GetMountpoint() != h.root {
		t.Errorf("got %v, error %v", usage, err)
	}
}

func TestServer_FileModes(t *testing.T) {
	h := newHarness(t)
	for path, want := range map[string]os.FileMode{h.root: os.ModeDir | 0o700, h.socket: os.ModeSocket | 0o600} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: got mode %v, want %v, error %v", path, info.Mode(), want, err)
		}
	}
}

func TestServer_RootAccessibleByOthers(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o750); err != nil {
		t.Fatal(err)
	}
	server, err := process.New(process.Config{Root: root, Socket: root + "/s", Shim: []string{"/proc/self/exe"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("got %v, want %q", err, "chmod 700")
	}
}

func TestF30_SecondServer(t *testing.T) {
	h := newHarness(t)
	second, err := process.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), h.root) {
		t.Errorf("got %v, want %q", err, h.root)
	}
	h.waitForServer()
}

func TestServer_SocketPathTaken(t *testing.T) {
	h := newStoppedHarness(t)
	if err := os.WriteFile(h.socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := process.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v, want %q", err, "not a socket")
	}
	if data, err := os.ReadFile(h.socket); string(data) != "precious" {
		t.Errorf("got %q, error %v", data, err)
	}
	if err := os.Remove(h.socket); err != nil {
		t.Fatal(err)
	}
}

func TestConfig_Invalid(t *testing.T) {
	good := process.Config{Root: "/r", Socket: "/s", Shim: []string{"shim"}}
	tests := map[string]struct {
		change func(*process.Config)
		want   string
	}{
		"no root":              {func(c *process.Config) { c.Root = "" }, "Config: Root"},
		"relative root":        {func(c *process.Config) { c.Root = "r" }, "Config: Root"},
		"TCP address":          {func(c *process.Config) { c.Socket = "127.0.0.1:80" }, "Config: Socket"},
		"URL":                  {func(c *process.Config) { c.Socket = "tcp://127.0.0.1:80" }, "Config: Socket"},
		"socket path too long": {func(c *process.Config) { c.Socket = "/" + strings.Repeat("s", 107) }, "Config: Socket"},
		"no shim":              {func(c *process.Config) { c.Shim = nil }, "Config: Shim"},
		"relative pods root":   {func(c *process.Config) { c.PodsRoot = "pods" }, "Config: PodsRoot"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := good
			test.change(&config)
			if _, err := process.New(config); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if _, err := process.New(good); err != nil {
		t.Error(err)
	}
}
