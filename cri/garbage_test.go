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

// hold puts into the runtime what lines say, "<sandbox> <pod> ready|dead <age>" or
// "<container> <pod>/<name>/<restart count> <sandbox> created|running|exited|unknown <age>".
func (f *fake) hold(tb testing.TB, lines ...string) {
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

// held are the IDs of all that the runtime holds.
func (f *fake) held() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(slices.Sorted(maps.Keys(f.containers)), slices.Sorted(maps.Keys(f.sandboxes)))
}

// keeping wants these pods.
func keeping(uids ...podid.UID) func(podid.UID) bool {
	return func(uid podid.UID) bool { return slices.Contains(uids, uid) }
}

func TestGarbageIsWhatNobodyNeeds(t *testing.T) {
	cases := map[string]struct {
		held   []string
		wanted bool
		left   []string
	}{
		"a pod that runs keeps its last state": {
			[]string{"s uid-1 ready 1h", "c0 uid-1/web/0 s exited 50m", "c1 uid-1/web/1 s exited 40m", "c2 uid-1/web/2 s running 30m"},
			true, []string{"c1", "c2", "s"},
		},
		"a pod that crashes keeps its newest end": {
			[]string{"s uid-1 ready 1h", "c0 uid-1/web/0 s exited 3s", "c1 uid-1/web/1 s exited 2s", "c2 uid-1/web/2 s exited 1s"},
			true, []string{"c2", "s"},
		},
		"each container has a newest end": {
			[]string{"s uid-1 ready 1h", "a0 uid-1/a/0 s exited 50m", "b0 uid-1/b/0 s exited 40m", "b1 uid-1/b/1 s exited 30m"},
			true, []string{"a0", "b1", "s"},
		},
		"one that is being started is not an end": {
			[]string{"s uid-1 ready 1h", "c0 uid-1/web/0 s exited 50m", "c1 uid-1/web/1 s created 40m"},
			true, []string{"c0", "c1", "s"},
		},
		"one in a lost state is not an end": {
			[]string{"s uid-1 ready 1h", "c0 uid-1/web/0 s exited 50m", "c1 uid-1/web/1 s unknown 40m"},
			true, []string{"c0", "c1", "s"},
		},
		"a newer sandbox makes the older garbage": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 dead 1h", "s2 uid-1 ready 30m"},
			true, []string{"s2"},
		},
		"the newest sandbox stays though it is dead": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 dead 1h"},
			true, []string{"s1"},
		},
		"a sandbox with a container stays": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 ready 1h", "c0 uid-1/web/0 s0 exited 90m"},
			true, []string{"c0", "s0", "s1"},
		},
		"a sandbox goes with its last container": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 ready 1h", "c0 uid-1/web/0 s0 exited 90m", "c1 uid-1/web/1 s1 exited 50m"},
			true, []string{"c1", "s1"},
		},
		"a second sandbox that is ready stays": {
			[]string{"s0 uid-1 ready 2h", "s1 uid-1 ready 1h"},
			true, []string{"s0", "s1"},
		},
		"of a pod that is gone nothing stays": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 dead 1h", "c0 uid-1/web/0 s0 exited 90m", "c1 uid-1/web/1 s1 exited 50m", "c2 uid-1/x/0 s1 created 50m"},
			false, nil,
		},
		"one in a lost state of a pod that is gone goes too": {
			[]string{"s uid-1 dead 2h", "c uid-1/web/0 s unknown 90m"},
			false, nil,
		},
		"what runs stays though nobody wants it": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 ready 1h", "c0 uid-1/a/0 s0 running 90m", "c1 uid-1/b/0 s1 exited 50m"},
			false, []string{"c0", "s0", "s1"},
		},
		"a new sandbox stays though nobody wants it": {
			[]string{"s0 uid-1 dead 30s", "s1 uid-1 dead 2m"},
			false, []string{"s0"},
		},
		"what is new stays though nobody wants it": {
			[]string{"s0 uid-1 dead 2h", "s1 uid-1 dead 30s", "c0 uid-1/a/0 s0 created 20s", "c1 uid-1/b/0 s1 exited 10s"},
			false, []string{"c0", "c1", "s0", "s1"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fake.hold(w, test.held...)
				keep := keeping()
				if test.wanted {
					keep = keeping("uid-1")
				}
				if err := w.CollectGarbage(w.Context(), keep); err != nil {
					w.Fatal(err)
				}
				if diff := cmp.Diff(test.left, w.fake.held()); diff != "" {
					w.Error(diff)
				}
			})
		})
	}
}

// Whatever the runtime holds, a collection takes nothing that runs, that is new or that has containers, and leaves each
// wanted pod its newest sandbox and the newest end of each container; a second one finds nothing.
func TestGarbageIsNeverWhatSomebodyNeeds(t *testing.T) {
	w := outside(t) // rapid asks for the test's deadline, which a bubble does not have
	rapid.Check(t, func(draw *rapid.T) {
		w.fake.mu.Lock()
		clear(w.fake.sandboxes)
		clear(w.fake.containers)
		w.fake.mu.Unlock()
		wanted := rapid.Bool().Draw(draw, "wanted")
		lines := drawHeld(draw)
		w.fake.hold(t, lines...)
		keep := keeping()
		if wanted {
			keep = keeping("uid-1")
		}
		if err := w.CollectGarbage(t.Context(), keep); err != nil {
			draw.Fatal(err)
		}
		left := w.fake.held()
		checkLeft(draw, lines, left, wanted)
		if err := w.CollectGarbage(t.Context(), keep); err != nil || wanted && !slices.Equal(left, w.fake.held()) {
			draw.Errorf("a second collection: %v, left %v, then %v", err, left, w.fake.held())
		}
	})
}

// drawHeld makes things of strictly falling age.
func drawHeld(draw *rapid.T) []string {
	var lines []string
	age := 5 * time.Minute
	older := func() time.Duration {
		age -= time.Duration(rapid.IntRange(1, 60).Draw(draw, "younger by")) * time.Second
		return age
	}
	sandboxes := rapid.IntRange(1, 3).Draw(draw, "sandboxes")
	for i := range sandboxes {
		state := rapid.SampledFrom([]string{"ready", "dead"}).Draw(draw, "state")
		lines = append(lines, fmt.Sprintf("s%d uid-1 %s %v", i, state, max(time.Second, older())))
	}
	age = 5 * time.Minute
	for i := range rapid.IntRange(0, 6).Draw(draw, "containers") {
		name := rapid.SampledFrom([]string{"a", "b"}).Draw(draw, "name")
		sandbox := rapid.IntRange(0, sandboxes-1).Draw(draw, "sandbox")
		state := rapid.SampledFrom([]string{"created", "running", "exited", "unknown"}).Draw(draw, "state")
		lines = append(lines, fmt.Sprintf("c%d uid-1/%s/%d s%d %s %v", i, name, i, sandbox, state, max(time.Second, older())))
	}
	return lines
}

func checkLeft(draw *rapid.T, lines, left []string, wanted bool) {
	newest := map[string]string{} // by container name the newest that has ended, by "sandbox" the newest of those
	occupied := map[string]bool{}
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) == 4 {
			newest["sandbox"] = words[0]
			continue
		}
		if words[3] == "exited" {
			newest[strings.Split(words[1], "/")[1]] = words[0]
		}
		occupied[words[2]] = occupied[words[2]] || slices.Contains(left, words[0])
	}
	for _, line := range lines {
		words := strings.Fields(line)
		age, _ := time.ParseDuration(words[len(words)-1])
		needed := strings.Contains(line, " ready ") || strings.Contains(line, " running ") || occupied[words[0]]
		for _, id := range newest {
			needed = needed || wanted && id == words[0]
		}
		if needed || !wanted && age < 30*time.Second {
			if !slices.Contains(left, words[0]) {
				draw.Errorf("%s was taken, of %v", line, lines)
			}
		}
	}
}

func TestOneThatMayRunIsStoppedBeforeItGoes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.hold(w, "s uid-1 dead 2h", "c uid-1/web/0 s unknown 90m")
		w.fake.next("StopContainer", refuses(codes.Internal, "no"))
		if err := w.CollectGarbage(w.Context(), keeping()); err == nil || len(w.fake.held()) != 2 {
			w.Errorf("left are %v: %v", w.fake.held(), err)
		}
		if err := w.CollectGarbage(w.Context(), keeping()); err != nil || len(w.fake.held()) > 0 {
			w.Errorf("left are %v: %v", w.fake.held(), err)
		}
	})
}

func TestACollectionGoesOnWithTheRest(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.hold(w, "s0 uid-1 dead 2h", "s1 uid-1 dead 2h", "c0 uid-1/a/0 s0 exited 1h", "c1 uid-1/b/0 s1 exited 1h")
		w.fake.next("RemoveContainer", refuses(codes.Internal, "busy"))
		err := w.CollectGarbage(w.Context(), keeping())
		if err == nil || !strings.Contains(err.Error(), "busy") {
			w.Errorf("it ended with %v", err)
		}
		if left := w.fake.held(); len(left) != 2 || left[0][1:] != left[1][1:] {
			w.Errorf("left are %v: not one container with its sandbox", left)
		}
		if err := w.CollectGarbage(w.Context(), keeping()); err != nil || len(w.fake.held()) > 0 {
			w.Errorf("left are %v: %v", w.fake.held(), err)
		}
	})
}

func TestARuntimeThatCannotBeListedHasNoGarbage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.hold(w, "s0 uid-1 dead 2h")
		logs := filepath.Join(w.root, "logs", "prod_shop_uid-1")
		age(w, logs, w.Mkdir(logs))
		w.fake.next("ListContainers", refuses(codes.Internal, "no"))
		if err := w.CollectGarbage(w.Context(), keeping()); err == nil || len(w.fake.held()) != 1 {
			w.Errorf("left are %v: %v", w.fake.held(), err)
		}
		if _, err := os.Stat(logs); err != nil {
			w.Error(err)
		}
		if err := w.CollectGarbage(w.Context(), nil); err == nil || !strings.Contains(err.Error(), "isWanted") {
			w.Errorf("without isWanted: %v", err)
		}
	})
}

// Mkdir makes a folder and what is above it.
func (w *world) Mkdir(dir string) error { return os.MkdirAll(dir, 0o700) }

// age makes a file as old as the bubble's yesterday, unless making it failed.
func age(tb testing.TB, file string, err error) {
	tb.Helper()
	yesterday := unix.NsecToTimeval(time.Now().Add(-24 * time.Hour).UnixNano())
	if err == nil {
		err = unix.Lutimes(file, []unix.Timeval{yesterday, yesterday})
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func TestAContainersFilesGoWithIt(t *testing.T) {
	links := t.TempDir()
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		sandbox := w.sandbox(pod)
		for i := range 3 {
			start := first(pod)
			start.RestartCount = i
			if err := w.StartContainer(w.Context(), pod, sandbox, start); err != nil {
				w.Fatal(err)
			}
			id := w.inspect(pod).Containers[0].ID.ID
			if err := w.fake.write(id, "text"); err != nil {
				w.Fatal(err)
			}
			w.fake.exit(id, 1)
		}
		logs := filepath.Join(w.root, "logs", "prod_shop_uid-1", "web")
		for _, old := range []string{"0.log.20000101-000000.gz", "10.log"} {
			if err := os.WriteFile(filepath.Join(logs, old), nil, 0o600); err != nil {
				w.Fatal(err)
			}
		}
		if err := w.CollectGarbage(w.Context(), keeping("uid-1")); err != nil {
			w.Fatal(err)
		}
		if diff := cmp.Diff([]string{"10.log", "2.log"}, files(w.T, logs)); diff != "" {
			w.Error(diff)
		}
		if diff := cmp.Diff([]string{"2"}, files(w.T, filepath.Join(w.root, "pods", "uid-1", "containers", "web"))); diff != "" {
			w.Error(diff)
		}
		if left := files(w.T, links); len(left) != 1 || !strings.HasSuffix(left[0], w.only(pod).ID.ID+".log") {
			w.Errorf("links: %v", left)
		}
	}, func(config *cri.Config) { config.ContainerLogDir = links })
}

func TestFilesThatTwoInstancesShareStay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.hold(w, "s uid-1 ready 2h", "c0 uid-1/web/0 s exited 50m", "c1 uid-1/web/1 s exited 40m", "c2 uid-1/web/0 s running 30m")
		log := filepath.Join(w.root, "logs", "prod_shop_uid-1", "web", "0.log")
		if err := w.Mkdir(filepath.Dir(log)); err != nil {
			w.Fatal(err)
		}
		if err := os.WriteFile(log, []byte("c2 writes here"), 0o600); err != nil {
			w.Fatal(err)
		}
		if err := w.CollectGarbage(w.Context(), keeping("uid-1")); err != nil {
			w.Error(err)
		}
		if _, err := os.Stat(log); err != nil {
			w.Error(err)
		}
	})
}

func TestLogsOfPodsThatAreGoneGo(t *testing.T) {
	links := t.TempDir()
	inWorld(t, func(w *world) {
		logs := filepath.Join(w.root, "logs")
		for _, dir := range []string{"prod_shop_wanted", "prod_shop_held", "prod_shop_gone", "prod_shop_new", "others", "a_b_"} {
			if err := w.Mkdir(filepath.Join(logs, dir, "web")); err != nil {
				w.Fatal(err)
			}
			if dir != "prod_shop_new" {
				age(w, filepath.Join(logs, dir), nil)
			}
		}
		w.fake.hold(w, "s held ready 2h", "c-1 held/web/0 s running 1h", "c-2 held/web/1 s exited 1h")
		for name, target := range map[string]string{
			"gone_prod_web-c-3.log": "prod_shop_gone/web/0.log", "held_prod_web-c-1.log": "prod_shop_held/web/0.log",
			"held_prod_web-c-2.log": "prod_shop_held/web/1.log", "wanted_prod_web-c-5.log": "prod_shop_wanted/web",
			"foreign.log": "../elsewhere",
		} {
			link := filepath.Join(links, name)
			age(w, link, os.Symlink(filepath.Join(logs, target), link))
		}
		if err := os.Symlink(filepath.Join(logs, "nothing"), filepath.Join(links, "new_prod_web-c-6.log")); err != nil {
			w.Fatal(err)
		}
		if err := w.CollectGarbage(w.Context(), keeping("wanted")); err != nil {
			w.Fatal(err)
		}
		want := []string{
			"a_b_", "a_b_/web", "others", "others/web", "prod_shop_held", "prod_shop_held/web",
			"prod_shop_new", "prod_shop_new/web", "prod_shop_wanted", "prod_shop_wanted/web",
		}
		if diff := cmp.Diff(want, files(w.T, logs)); diff != "" {
			w.Error("folders:", diff)
		}
		want = []string{"foreign.log", "held_prod_web-c-1.log", "new_prod_web-c-6.log", "wanted_prod_web-c-5.log"}
		if diff := cmp.Diff(want, files(w.T, links)); diff != "" {
			w.Error("links:", diff)
		}
	}, func(config *cri.Config) { config.ContainerLogDir = links })
}
