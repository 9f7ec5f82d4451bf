package cri_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/podid"
)

// addObjects adds an object to the runtime for each line, "<sandbox> <pod> ready|dead <age>" or
// "<container> <pod>/<name>/<restart count> <sandbox> created|running|exited|unknown <age>".
func (f *fake) addObjects(tb testing.TB, lines ...string) {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range lines {
		words := strings.Fields(line)
		age, err := time.ParseDuration(words[len(words)-1])
		if err != nil {
			tb.Fatal(err)
		}
		created := time.Now().Add(-age).UnixNano()
		uid, rest, _ := strings.Cut(words[1], "/")
		labels := map[string]string{
			"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "shop", "io.kubernetes.pod.namespace": "prod",
		}
		if len(words) == 4 {
			f.sandboxes[words[0]] = &runtimeapi.PodSandboxStatus{
				Id: words[0], CreatedAt: created, Labels: labels, Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid},
				State: map[string]runtimeapi.PodSandboxState{"dead": runtimeapi.PodSandboxState_SANDBOX_NOTREADY}[words[2]],
			}
			continue
		}
		name, count, _ := strings.Cut(rest, "/")
		labels["io.kubernetes.container.name"] = name
		f.containers[words[0]] = &fakeContainer{sandbox: words[2], ContainerStatus: &runtimeapi.ContainerStatus{
			Id: words[0], CreatedAt: created, Labels: labels, Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Annotations: map[string]string{"io.kubernetes.container.restartCount": count},
			State:       runtimeapi.ContainerState(runtimeapi.ContainerState_value["CONTAINER_"+strings.ToUpper(words[3])]),
		}}
	}
}

// objectIDs returns the IDs of all objects of the runtime.
func (f *fake) objectIDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(slices.Sorted(maps.Keys(f.containers)), slices.Sorted(maps.Keys(f.sandboxes)))
}

// wanting returns an isWanted for these pods.
func wanting(uids ...podid.UID) func(podid.UID) bool {
	return func(uid podid.UID) bool { return slices.Contains(uids, uid) }
}

func TestCollectGarbage(t *testing.T) {
	tests := map[string]struct {
		objects   []string
		wanted    bool
		remaining []string
	}{
		"running pod keeps its last state": {
			[]string{"s uid-1 ready 1h", "c0 uid-1/web/0 s exited 50m", "c1 uid-1/web/1 s exited 40m", "c2 uid-1/web/2 s running 30m"},
			true, []string{"c1", "c2", "s"},
		},
		"crashing pod keeps its newest exit": {
			[]string{"s uid-1 ready 1h", "c0 uid-1/web/0 s exited 3s", "c1 uid-1/web/1 s exited 2s", "c2 uid-1/web/2 s exited 1s"},
			true, []string{"c2", "s"},
		},
		"newest exit of each container": {
			[]string{"s uid-1 ready 1h", "a0 uid-1/a/0 s exited 50m", "b0 uid-1/b/0 s exited 40m", "b1 uid-1/b/1 s exited 30m"},
			true, []string{"a0", "b1", "s"},
		},
		"created container is not an exit": {
			[]string{"s uid-1 ready 1h", "c0 uid-1/web/0 s exited 50m", "c1 uid-1/web/1 s created 40m"},
			true, []string{"c0", "c1", "s"},
		},
		"unknown state is not an exit": {
			[]string{"s uid-1 ready 1h", "c0 uid-1/web/0 s exited 50m", "c1 uid-1/web/1 s unknown 40m"},
			true, []string{"c0", "c1", "s"},
		},
		"older sandboxes": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 dead 1h", "s2 uid-1 ready 30m"},
			true, []string{"s2"},
		},
		"newest sandbox is dead": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 dead 1h"},
			true, []string{"s1"},
		},
		"sandbox with a container": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 ready 1h", "c0 uid-1/web/0 s0 exited 90m"},
			true, []string{"c0", "s0", "s1"},
		},
		"sandbox without containers": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 ready 1h", "c0 uid-1/web/0 s0 exited 90m", "c1 uid-1/web/1 s1 exited 50m"},
			true, []string{"c1", "s1"},
		},
		"two ready sandboxes": {
			[]string{"s0 uid-1 ready 2h", "s1 uid-1 ready 1h"},
			true, []string{"s0", "s1"},
		},
		"unwanted pod": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 dead 1h", "c0 uid-1/web/0 s0 exited 90m", "c1 uid-1/web/1 s1 exited 50m", "c2 uid-1/x/0 s1 created 50m"},
			false, nil,
		},
		"unwanted pod, unknown state": {
			[]string{"s uid-1 dead 2h", "c uid-1/web/0 s unknown 90m"},
			false, nil,
		},
		"unwanted pod, running": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 ready 1h", "c0 uid-1/a/0 s0 running 90m", "c1 uid-1/b/0 s1 exited 50m"},
			false, []string{"c0", "s0", "s1"},
		},
		"unwanted pod, new sandbox": {
			[]string{"s0 uid-1 dead 30s", "s1 uid-1 dead 2m"},
			false, []string{"s0"},
		},
		"unwanted pod, new containers": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 dead 30s", "c0 uid-1/a/0 s0 created 20s", "c1 uid-1/b/0 s1 exited 10s"},
			false, []string{"c0", "c1", "s0", "s1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.addObjects(h, test.objects...)
				isWanted := wanting()
				if test.wanted {
					isWanted = wanting("uid-1")
				}
				if err := h.CollectGarbage(h.Context(), isWanted); err != nil {
					h.Fatal(err)
				}
				if diff := cmp.Diff(test.remaining, h.fake.objectIDs()); diff != "" {
					h.Error(diff)
				}
			})
		})
	}
}

// Whatever the runtime holds, a collection never removes running or new objects or sandboxes with containers, and keeps the
// newest sandbox and the newest exit of each container of a wanted pod. A second collection finds nothing.
func TestCollectGarbage_Invariants(t *testing.T) {
	h := newHarness(t, t.TempDir()) // rapid needs the test's deadline, which a bubble does not have
	rapid.Check(t, func(draw *rapid.T) {
		h.fake.mu.Lock()
		clear(h.fake.sandboxes)
		clear(h.fake.containers)
		h.fake.mu.Unlock()
		wanted := rapid.Bool().Draw(draw, "wanted")
		lines := drawObjects(draw)
		h.fake.addObjects(t, lines...)
		isWanted := wanting()
		if wanted {
			isWanted = wanting("uid-1")
		}
		if err := h.CollectGarbage(t.Context(), isWanted); err != nil {
			draw.Fatal(err)
		}
		remaining := h.fake.objectIDs()
		checkRemaining(draw, lines, remaining, wanted)
		if err := h.CollectGarbage(t.Context(), isWanted); err != nil || wanted && !slices.Equal(remaining, h.fake.objectIDs()) {
			draw.Errorf("second collection: got error %v, remaining %v, want %v", err, h.fake.objectIDs(), remaining)
		}
	})
}

// drawObjects draws objects of strictly decreasing age.
func drawObjects(draw *rapid.T) []string {
	var lines []string
	age := 5 * time.Minute
	nextAge := func() time.Duration {
		age -= time.Duration(rapid.IntRange(1, 60).Draw(draw, "younger by")) * time.Second
		return age
	}
	sandboxes := rapid.IntRange(1, 3).Draw(draw, "sandboxes")
	for i := range sandboxes {
		state := rapid.SampledFrom([]string{"ready", "dead"}).Draw(draw, "state")
		lines = append(lines, fmt.Sprintf("s%d uid-1 %s %v", i, state, max(time.Second, nextAge())))
	}
	age = 5 * time.Minute
	for i := range rapid.IntRange(0, 6).Draw(draw, "containers") {
		name := rapid.SampledFrom([]string{"a", "b"}).Draw(draw, "name")
		sandbox := rapid.IntRange(0, sandboxes-1).Draw(draw, "sandbox")
		state := rapid.SampledFrom([]string{"created", "running", "exited", "unknown"}).Draw(draw, "state")
		lines = append(lines, fmt.Sprintf("c%d uid-1/%s/%d s%d %s %v", i, name, i, sandbox, state, max(time.Second, nextAge())))
	}
	return lines
}

func checkRemaining(draw *rapid.T, lines, remaining []string, wanted bool) {
	newest := map[string]string{} // newest exited instance by container name, newest sandbox by "sandbox"
	inUse := map[string]bool{}
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) == 4 {
			newest["sandbox"] = words[0]
			continue
		}
		if words[3] == "exited" {
			newest[strings.Split(words[1], "/")[1]] = words[0]
		}
		inUse[words[2]] = inUse[words[2]] || slices.Contains(remaining, words[0])
	}
	for _, line := range lines {
		words := strings.Fields(line)
		age, _ := time.ParseDuration(words[len(words)-1])
		needed := strings.Contains(line, " ready ") || strings.Contains(line, " running ") || inUse[words[0]]
		for _, id := range newest {
			needed = needed || wanted && id == words[0]
		}
		if needed || !wanted && age < 30*time.Second {
			if !slices.Contains(remaining, words[0]) {
				draw.Errorf("%s was removed, of %v", line, lines)
			}
		}
	}
}

func TestCollectGarbage_StopsUnknownState(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.addObjects(h, "s uid-1 dead 2h", "c uid-1/web/0 s unknown 90m")
		h.fake.inject("StopContainer", fails(codes.Internal, "no"))
		if err := h.CollectGarbage(h.Context(), wanting()); err == nil || len(h.fake.objectIDs()) != 2 {
			h.Errorf("got error %v, remaining %v", err, h.fake.objectIDs())
		}
		if err := h.CollectGarbage(h.Context(), wanting()); err != nil || len(h.fake.objectIDs()) > 0 {
			h.Errorf("got error %v, remaining %v", err, h.fake.objectIDs())
		}
	})
}

func TestCollectGarbage_ContinuesAfterFailure(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.addObjects(h, "s0 uid-1 dead 2h", "s1 uid-1 dead 2h", "c0 uid-1/a/0 s0 exited 1h", "c1 uid-1/b/0 s1 exited 1h")
		h.fake.inject("RemoveContainer", fails(codes.Internal, "busy"))
		err := h.CollectGarbage(h.Context(), wanting())
		if err == nil || !strings.Contains(err.Error(), "busy") {
			h.Errorf("got error %v", err)
		}
		if remaining := h.fake.objectIDs(); len(remaining) != 2 || remaining[0][1:] != remaining[1][1:] {
			h.Errorf("got remaining %v, want one container with its sandbox", remaining)
		}
		if err := h.CollectGarbage(h.Context(), wanting()); err != nil || len(h.fake.objectIDs()) > 0 {
			h.Errorf("got error %v, remaining %v", err, h.fake.objectIDs())
		}
	})
}

func TestCollectGarbage_ListFails(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.addObjects(h, "s0 uid-1 dead 2h")
		logs := filepath.Join(h.root, "logs", "prod_shop_uid-1")
		h.mkdir(logs)
		makeOld(h, logs)
		h.fake.inject("ListContainers", fails(codes.Internal, "no"))
		if err := h.CollectGarbage(h.Context(), wanting()); err == nil || len(h.fake.objectIDs()) != 1 {
			h.Errorf("got error %v, remaining %v", err, h.fake.objectIDs())
		}
		if _, err := os.Stat(logs); err != nil {
			h.Error(err)
		}
		if err := h.CollectGarbage(h.Context(), nil); err == nil || !strings.Contains(err.Error(), "isWanted") {
			h.Errorf("without isWanted: got error %v", err)
		}
	})
}

// makeOld sets the modification time of a file to a day ago, in the bubble's time.
func makeOld(tb testing.TB, file string) {
	tb.Helper()
	yesterday := unix.NsecToTimeval(time.Now().Add(-24 * time.Hour).UnixNano())
	if err := unix.Lutimes(file, []unix.Timeval{yesterday, yesterday}); err != nil {
		tb.Fatal(err)
	}
}

func TestCollectGarbage_InstanceFiles(t *testing.T) {
	links := t.TempDir()
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		sandbox := h.startSandbox(pod)
		for i := range 3 {
			start := firstStart(pod)
			start.RestartCount = i
			if err := h.StartContainer(h.Context(), pod, sandbox, start); err != nil {
				h.Fatal(err)
			}
			id := h.inspect(pod).Containers[0].ID.ID
			if err := h.fake.writeLog(id, "text"); err != nil {
				h.Fatal(err)
			}
			h.fake.exit(id, 1)
		}
		logs := filepath.Join(h.root, "logs", "prod_shop_uid-1", "web")
		for _, old := range []string{"0.log.20000101-000000.gz", "10.log"} {
			h.writeFile(filepath.Join(logs, old), "")
		}
		if err := h.CollectGarbage(h.Context(), wanting("uid-1")); err != nil {
			h.Fatal(err)
		}
		if diff := cmp.Diff([]string{"10.log", "2.log"}, listFiles(h.T, logs)); diff != "" {
			h.Error(diff)
		}
		if diff := cmp.Diff([]string{"2"}, listFiles(h.T, filepath.Join(h.root, "pods", "uid-1", "containers", "web"))); diff != "" {
			h.Error(diff)
		}
		if left := listFiles(h.T, links); len(left) != 1 || !strings.HasSuffix(left[0], h.onlyContainer(pod).ID.ID+".log") {
			h.Errorf("got links %v", left)
		}
	}, func(config *cri.Config) { config.ContainerLogDir = links })
}

func TestCollectGarbage_SharedFiles(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.addObjects(h, "s uid-1 ready 2h", "c0 uid-1/web/0 s exited 50m", "c1 uid-1/web/1 s exited 40m", "c2 uid-1/web/0 s running 30m")
		log := filepath.Join(h.root, "logs", "prod_shop_uid-1", "web", "0.log")
		h.writeFile(log, "written by c2")
		if err := h.CollectGarbage(h.Context(), wanting("uid-1")); err != nil {
			h.Error(err)
		}
		if _, err := os.Stat(log); err != nil {
			h.Error(err)
		}
	})
}

func TestCollectGarbage_OrphanedLogs(t *testing.T) {
	links := t.TempDir()
	inBubble(t, func(h *harness) {
		logs := filepath.Join(h.root, "logs")
		for _, dir := range []string{"prod_shop_wanted", "prod_shop_held", "prod_shop_gone", "prod_shop_new", "others", "a_b_"} {
			h.mkdir(filepath.Join(logs, dir, "web"))
			if dir != "prod_shop_new" {
				makeOld(h, filepath.Join(logs, dir))
			}
		}
		h.fake.addObjects(h, "s held ready 2h", "c-1 held/web/0 s running 1h", "c-2 held/web/1 s exited 1h")
		for name, target := range map[string]string{
			"gone_prod_web-c-3.log": "prod_shop_gone/web/0.log", "held_prod_web-c-1.log": "prod_shop_held/web/0.log",
			"held_prod_web-c-2.log": "prod_shop_held/web/1.log", "wanted_prod_web-c-5.log": "prod_shop_wanted/web",
			"foreign.log": "../elsewhere",
		} {
			link := filepath.Join(links, name)
			if err := os.Symlink(filepath.Join(logs, target), link); err != nil {
				h.Fatal(err)
			}
			makeOld(h, link)
		}
		if err := os.Symlink(filepath.Join(logs, "nothing"), filepath.Join(links, "new_prod_web-c-6.log")); err != nil {
			h.Fatal(err)
		}
		if err := h.CollectGarbage(h.Context(), wanting("wanted")); err != nil {
			h.Fatal(err)
		}
		want := []string{
			"a_b_", "a_b_/web", "others", "others/web", "prod_shop_held", "prod_shop_held/web",
			"prod_shop_new", "prod_shop_new/web", "prod_shop_wanted", "prod_shop_wanted/web",
		}
		if diff := cmp.Diff(want, listFiles(h.T, logs)); diff != "" {
			h.Error("directories:", diff)
		}
		want = []string{"foreign.log", "held_prod_web-c-1.log", "new_prod_web-c-6.log", "wanted_prod_web-c-5.log"}
		if diff := cmp.Diff(want, listFiles(h.T, links)); diff != "" {
			h.Error("links:", diff)
		}
	}, func(config *cri.Config) { config.ContainerLogDir = links })
}

// Containers write to these files of the node without a limit.
func TestCollectGarbage_OversizedFiles(t *testing.T) {
	const messageLimit, hostsLimit = 64 << 10, 16 << 20
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		mounts := h.createdConfig(pod).Mounts
		hosts, message := mounts[0].HostPath, mounts[1].HostPath
		original, err := os.ReadFile(hosts)
		if err != nil {
			h.Fatal(err)
		}
		collect := func() {
			h.Helper()
			if err := h.CollectGarbage(h.Context(), wanting("uid-1")); err != nil {
				h.Error(err)
			}
		}
		wantMessage := strings.Repeat("last words ", 1000)
		h.writeFile(message, wantMessage)
		collect()
		if content, err := os.ReadFile(message); err != nil || string(content) != wantMessage {
			h.Errorf("small message: got %d bytes, %v", len(content), err)
		}
		h.writeFile(message, strings.Repeat("x", 8<<20)+wantMessage)
		h.writeFile(hosts, string(original)+strings.Repeat("x", 2*hostsLimit))
		collect()
		if size := diskUsage(h.T, message); size > messageLimit {
			h.Errorf("message: got %d bytes on disk, want at most %d", size, messageLimit)
		}
		if content, err := os.ReadFile(hosts); err != nil || len(content) != hostsLimit || !strings.HasPrefix(string(content), string(original)) {
			h.Errorf("hosts file: got %d bytes, %v", len(content), err)
		}
		c := h.onlyContainer(pod)
		h.fake.exit(c.ID.ID, 1)
		if got := h.onlyContainer(pod).Exit.Message; got != wantMessage[len(wantMessage)-4096:] {
			h.Errorf("got message %.100q...", got)
		}
		preallocate(h.T, message, 8<<20)
		collect()
		if size := diskUsage(h.T, message); size > messageLimit {
			h.Errorf("preallocated message: got %d bytes on disk, want at most %d", size, messageLimit)
		}
	})
}

func diskUsage(t *testing.T, file string) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(file, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}

// preallocate allocates space behind the end of the file.
func preallocate(t *testing.T, name string, size int64) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
		t.Fatal(err)
	}
}
