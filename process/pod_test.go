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

// wholeLife is what is told of a container from first to last.
var wholeLife = []runtimeapi.ContainerEventType{
	runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
	runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
}

func TestEventsTellOfContainersAndSandboxesWithTheirPod(t *testing.T) {
	w := newWorld(t)
	events := w.listen()
	box := w.sandbox("a")
	id := w.run(box, shell("web", "exit 3"))
	w.ended(id)
	w.removed(id)
	if _, err := w.RemovePodSandbox(w.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box}); err != nil {
		t.Fatal(err)
	}
	have := map[string][]runtimeapi.ContainerEventType{}
	for len(have[box]) < len(wholeLife) {
		event := events.next()
		have[event.GetContainerId()] = append(have[event.GetContainerId()], event.GetContainerEventType())
		if event.GetPodSandboxStatus().GetId() != box || event.GetCreatedAt() == 0 {
			t.Errorf("an event without its pod: %v", event)
		}
		if event.GetContainerId() == id && event.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT &&
			(len(event.GetContainersStatuses()) != 1 || event.GetContainersStatuses()[0].GetExitCode() != 3) {
			t.Errorf("the end without its status: %v", event)
		}
	}
	if diff := cmp.Diff(map[string][]runtimeapi.ContainerEventType{box: wholeLife, id: wholeLife}, have); diff != "" {
		t.Error(diff)
	}
}

func TestF22ANameIsTakenOnce(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	id := w.create(box, shell("web", forever))
	again := func() {
		t.Helper()
		_, err := w.RunPodSandbox(w.ctx, &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig("a")})
		wantReserved(t, err, `name "a_shop_uid-a_0" is reserved for "`+box+`"`)
		_, err = w.CreateContainer(w.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box, Config: shell("web", forever)})
		wantReserved(t, err, `name "web_a_shop_uid-a_0" is reserved for "`+id+`"`)
	}
	again()
	w.restart(func() {})
	again()
	next := shell("web", forever)
	next.Metadata.Attempt = 1
	w.create(box, next)
	w.removed(id)
	w.create(box, shell("web", forever))
}

func wantReserved(t *testing.T, err error, want string) {
	t.Helper()
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), want) {
		t.Errorf("have %v, want %s", err, want)
	}
}

func TestListsAreFiltered(t *testing.T) {
	w := newWorld(t)
	a, b := w.sandbox("a"), w.sandbox("b")
	one, two := w.run(a, shell("one", forever)), w.create(b, shell("two", forever))
	if _, err := w.StopPodSandbox(w.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: b}); err != nil {
		t.Fatal(err)
	}
	boxes := map[string]struct {
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
	for name, test := range boxes {
		response, err := w.ListPodSandbox(w.ctx, &runtimeapi.ListPodSandboxRequest{Filter: test.filter})
		var have []string
		for _, item := range response.GetItems() {
			have = append(have, item.GetId())
		}
		if diff := cmp.Diff(test.want, have); err != nil || diff != "" {
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
		response, err := w.ListContainers(w.ctx, &runtimeapi.ListContainersRequest{Filter: test.filter})
		var have []string
		for _, item := range response.GetContainers() {
			have = append(have, item.GetId())
		}
		if diff := cmp.Diff(test.want, have); err != nil || diff != "" {
			t.Errorf("containers, %s: %v\n%s", name, err, diff)
		}
	}
}

func TestAStoppedSandboxRunsNothing(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	running, created := w.run(box, shell("web", forever)), w.create(box, shell("later", forever))
	for range 2 {
		if _, err := w.StopPodSandbox(w.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box}); err != nil {
			t.Fatal(err)
		}
	}
	if have := w.status(running); have.GetExitCode() != 137 {
		t.Errorf("have %v", have)
	}
	w.restart(func() {})
	have, err := w.PodSandboxStatus(w.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: box})
	if err != nil || have.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || len(have.GetContainersStatuses()) != 2 {
		t.Errorf("have %v, error %v", have, err)
	}
	_, err = w.StartContainer(w.ctx, &runtimeapi.StartContainerRequest{ContainerId: created})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("have %v", err)
	}
	_, err = w.CreateContainer(w.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box, Config: shell("next", forever)})
	if err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("have %v", err)
	}
}

func TestWhatIsNotThereIsStoppedAndRemovedAlready(t *testing.T) {
	w := newWorld(t)
	_, stop := w.StopContainer(w.ctx, &runtimeapi.StopContainerRequest{ContainerId: "nobody"})
	_, remove := w.RemoveContainer(w.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: "nobody"})
	_, stopBox := w.StopPodSandbox(w.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: "nobody"})
	_, removeBox := w.RemovePodSandbox(w.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "nobody"})
	for _, err := range []error{stop, remove, stopBox, removeBox} {
		if err != nil {
			t.Error(err)
		}
	}
	_, inspect := w.ContainerStatus(w.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: "nobody"})
	_, inspectBox := w.PodSandboxStatus(w.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "nobody"})
	for _, err := range []error{inspect, inspectBox} {
		if status.Code(err) != codes.NotFound {
			t.Error(err)
		}
	}
}

func TestTheRuntimeSaysWhoItIs(t *testing.T) {
	w := newWorld(t)
	version, err := w.Version(w.ctx, &runtimeapi.VersionRequest{})
	if err != nil || version.GetRuntimeName() != "process" || version.GetRuntimeApiVersion() != "v1" || version.GetRuntimeVersion() == "" {
		t.Errorf("have %v, error %v", version, err)
	}
	ready, err := w.Status(w.ctx, &runtimeapi.StatusRequest{})
	if err != nil || len(ready.GetStatus().GetConditions()) != 2 {
		t.Fatalf("have %v, error %v", ready, err)
	}
	for _, condition := range ready.GetStatus().GetConditions() {
		if !condition.GetStatus() {
			t.Errorf("have %v", condition)
		}
	}
	if _, err := w.UpdateRuntimeConfig(w.ctx, &runtimeapi.UpdateRuntimeConfigRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := w.RuntimeConfig(w.ctx, &runtimeapi.RuntimeConfigRequest{}); err != nil {
		t.Error(err)
	}
	_, err = w.UpdateContainerResources(w.ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: "x"})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "spec.containers[*].resources") {
		t.Errorf("have %v", err)
	}
	if _, err := w.Attach(w.ctx, &runtimeapi.AttachRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("have %v", err)
	}
}

func TestTheMachineIsTheOnlyImage(t *testing.T) {
	w := newWorld(t)
	for image, there := range map[string]bool{"host": true, "host:latest": true, "nginx": false, "": false} {
		spec := &runtimeapi.ImageSpec{Image: image}
		have, err := w.images.ImageStatus(w.ctx, &runtimeapi.ImageStatusRequest{Image: spec})
		if err != nil || (have.GetImage() != nil) != there || there && (have.GetImage().GetId() == "" || have.GetImage().GetSize() == 0) {
			t.Errorf("%q: have %v, error %v", image, have, err)
		}
		_, err = w.images.PullImage(w.ctx, &runtimeapi.PullImageRequest{Image: spec})
		if (err == nil) != there || !there && !strings.Contains(err.Error(), "the machine itself") {
			t.Errorf("pull %q: %v", image, err)
		}
		if _, err = w.images.RemoveImage(w.ctx, &runtimeapi.RemoveImageRequest{Image: spec}); (err != nil) != there {
			t.Errorf("remove %q: %v", image, err)
		}
	}
	list, err := w.images.ListImages(w.ctx, &runtimeapi.ListImagesRequest{})
	if err != nil || len(list.GetImages()) != 1 {
		t.Errorf("have %v, error %v", list, err)
	}
	usage, err := w.images.ImageFsInfo(w.ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil || usage.GetImageFilesystems()[0].GetFsId().GetMountpoint() != w.root {
		t.Errorf("have %v, error %v", usage, err)
	}
}

func TestStatsAreOfAllThatRunsInAContainer(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox("a")
	ready := newSignpost(t)
	// An orphan uses CPU for three ticks.
	burn := `while read -r a b c d e f g h i j k l m ticks rest < /proc/$$/stat && [ $ticks -lt 3 ]; do :; done; `
	id := w.run(box, shell("web", "(sh -c '"+burn+ready.say("done")+"' &); "+forever))
	w.create(box, shell("later", forever))
	ready.hear()
	have, err := w.ContainerStats(w.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil || have.GetStats().GetCpu().GetUsageCoreNanoSeconds().GetValue() < 30_000_000 ||
		have.GetStats().GetMemory().GetWorkingSetBytes().GetValue() == 0 || have.GetStats().GetAttributes().GetId() != id {
		t.Errorf("have %v, error %v", have, err)
	}
	list, err := w.ListContainerStats(w.ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil || len(list.GetStats()) != 1 {
		t.Errorf("have %v, error %v", list, err)
	}
	w.halt(id, 0)
	if _, err := w.ContainerStats(w.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("have %v", err)
	}
}

func TestEverythingIsForTheOwnerAlone(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]os.FileMode{w.root: os.ModeDir | 0o700, w.socket: os.ModeSocket | 0o600} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, want %v, error %v", path, info.Mode(), want, err)
		}
	}
}

func TestAFolderThatIsOpenToOthersIsRefusedAndLeftAsItIs(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o750); err != nil {
		t.Fatal(err)
	}
	server, err := process.New(process.Config{Root: root, Socket: root + "/s", Shim: []string{"/proc/self/exe"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("have %v", err)
	}
}

func TestF30AFolderHasOneServer(t *testing.T) {
	w := newWorld(t)
	second, err := process.New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), w.root) {
		t.Errorf("have %v", err)
	}
	w.awaitServer()
}

func TestOnlyASocketIsReplaced(t *testing.T) {
	w := newIdleWorld(t)
	if err := os.WriteFile(w.socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := process.New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("have %v", err)
	}
	if data, err := os.ReadFile(w.socket); string(data) != "precious" {
		t.Errorf("have %q, error %v", data, err)
	}
	if err := os.Remove(w.socket); err != nil {
		t.Fatal(err)
	}
}

func TestAConfigurationThatMakesNoSenseIsRefusedByField(t *testing.T) {
	good := process.Config{Root: "/r", Socket: "/s", Shim: []string{"shim"}}
	tests := map[string]struct {
		change func(*process.Config)
		want   string
	}{
		"no root":            {func(c *process.Config) { c.Root = "" }, "Config.Root"},
		"a relative root":    {func(c *process.Config) { c.Root = "r" }, "Config.Root"},
		"a TCP address":      {func(c *process.Config) { c.Socket = "127.0.0.1:80" }, "Config.Socket"},
		"a URL":              {func(c *process.Config) { c.Socket = "tcp://127.0.0.1:80" }, "Config.Socket"},
		"too long a socket":  {func(c *process.Config) { c.Socket = "/" + strings.Repeat("s", 107) }, "Config.Socket"},
		"no shim":            {func(c *process.Config) { c.Shim = nil }, "Config.Shim"},
		"relative pods root": {func(c *process.Config) { c.PodsRoot = "pods" }, "Config.PodsRoot"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := good
			test.change(&config)
			if _, err := process.New(config); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("have %v", err)
			}
		})
	}
	if _, err := process.New(good); err != nil {
		t.Error(err)
	}
}
