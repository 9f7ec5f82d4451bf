package cri_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func TestAPodIsInspectedInFull(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod()
		c := w.run(pod)
		w.fake.mu.Lock()
		w.fake.containers[c.ID.ID].Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
			CpuPeriod: 100_000, CpuQuota: 50_000, CpuShares: 256, MemoryLimitInBytes: 1 << 20,
		}}
		w.fake.containers[c.ID.ID].User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 5, Gid: 6, SupplementalGroups: []int64{7}}}
		w.fake.mu.Unlock()

		seen := w.inspect(pod)
		sandbox := seen.Sandboxes[0]
		ips := []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
		want := &observed.Pod{
			UID: "uid-1", Name: podid.FullName{Namespace: "prod", Name: "shop"}, IPs: ips, At: time.Now(),
			Sandboxes: []observed.Sandbox{{
				ID: sandbox.ID, Ready: true, CreatedAt: sandbox.CreatedAt, Network: &observed.Network{IPs: ips},
			}},
			Containers: []observed.Container{{
				ID: c.ID, Name: "web", SandboxID: sandbox.ID, State: observed.Running, CreatedAt: c.CreatedAt, StartedAt: time.Now(),
				Image:    observed.Image{Name: "web:1", Ref: "web@sha256:web"},
				SpecHash: plan.HashContainer(&pod.Spec.Containers[0]),
				Resources: &observed.Resources{
					MilliCPURequest: new(int64(250)), MilliCPULimit: new(int64(500)), MemoryLimitBytes: new(int64(1 << 20)),
				},
				User: &observed.User{UID: 5, GID: 6, SupplementalGroups: []int64{7}},
			}},
		}
		if diff := cmp.Diff(want, seen, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			w.Error(diff)
		}
	})
}

func TestPLEG18WhatDisappearsMeanwhileIsLeftOut(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod()
		w.run(pod)
		w.fake.next("ContainerStatus", refuses(codes.NotFound, "gone"))
		if seen := w.inspect(pod); len(seen.Containers) != 0 || len(seen.Sandboxes) != 1 {
			w.Errorf("seen are %+v", seen)
		}
		w.fake.next("PodSandboxStatus", refuses(codes.NotFound, "gone"))
		if seen := w.inspect(pod); len(seen.Containers) != 1 || len(seen.Sandboxes) != 0 {
			w.Errorf("seen are %+v", seen)
		}
		for _, call := range []string{"ContainerStatus", "PodSandboxStatus", "ListContainers", "ListPodSandbox"} {
			w.fake.next(call, refuses(codes.Internal, "broken"))
			if seen, err := w.InspectPod(w.Context(), podid.UID(pod.UID)); err == nil {
				w.Errorf("%s failed, and seen are %+v", call, seen)
			}
		}
	})
}

func TestPLEG18AddressesAreThoseOfTheNewestSandboxWhileItIsReady(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod()
		first := w.sandbox(pod)
		if err := w.StopSandbox(w.Context(), first); err != nil {
			w.Fatal(err)
		}
		if seen := w.inspect(pod); len(seen.IPs) != 0 || seen.Sandboxes[0].Ready {
			w.Errorf("seen are %+v", seen)
		}
		second, err := w.StartSandbox(w.Context(), pod, 1)
		if err != nil {
			w.Fatal(err)
		}
		if seen := w.inspect(pod); len(seen.IPs) != 2 || seen.Sandboxes[0].ID != second || seen.Sandboxes[0].Attempt != 1 {
			w.Errorf("seen are %+v", seen)
		}
	})
}

func TestAPodThatIsNotThereHasNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		seen := w.inspect(newPod())
		if seen.UID != "uid-1" || len(seen.Sandboxes)+len(seen.Containers)+len(seen.IPs) > 0 || seen.At.IsZero() {
			w.Errorf("seen are %+v", seen)
		}
	})
}

func TestWhatWasNotMadeForAPodIsLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.run(newPod())
		w.fake.mu.Lock()
		w.fake.sandboxes["foreign"] = &runtimeapi.PodSandboxStatus{Id: "foreign", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "x"}}
		w.fake.containers["foreign"] = &fakeContainer{ContainerStatus: &runtimeapi.ContainerStatus{Id: "foreign"}}
		w.fake.containers["nameless"] = &fakeContainer{ContainerStatus: &runtimeapi.ContainerStatus{
			Id: "nameless", Labels: map[string]string{"io.kubernetes.pod.uid": "uid-1", "io.kubernetes.pod.name": "shop"},
		}}
		w.fake.mu.Unlock()
		pods, err := w.ListPods(w.Context())
		if err != nil || len(pods) != 1 || len(pods[0].Sandboxes) != 1 || len(pods[0].Containers) != 1 {
			w.Errorf("listed are %+v: %v", pods, err)
		}
	})
}

// entries writes lines as a runtime logs them.
func entries(lines ...string) string {
	var log strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&log, "2026-01-01T12:00:00.000000000Z stderr %s\n", line)
	}
	return log.String()
}

func TestTheTerminationMessageComesFromTheFileOrTheLog(t *testing.T) {
	long := strings.Repeat("x", 5000)
	cases := map[string]struct {
		file, log string
		policy    v1.TerminationMessagePolicy
		code      int32
		want      string
	}{
		"the file":                         {file: "goodbye", code: 1, want: "goodbye"},
		"the end of a long file":           {file: "begin" + long, want: long[:4096]},
		"no fallback":                      {log: entries("F crash"), code: 1, want: ""},
		"the log, when it failed":          {log: entries("F crash", "F burn"), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, want: "crash\nburn\n"},
		"not the log, when it did not":     {log: entries("F fine"), policy: v1.TerminationMessageFallbackToLogsOnError, want: ""},
		"not the log, when there is words": {file: "words", log: entries("F crash"), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, want: "words"},
		"a line in parts":                  {log: entries("P cra", "P sh", "F ed"), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, want: "crashed\n"},
		"the last 2048 bytes":              {log: entries("F " + long), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, want: long[:2047] + "\n"},
		"the last 80 lines": {
			log: entries(strings.Split(strings.Repeat("F y,", 99)+"F z", ",")...), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1,
			want: strings.Repeat("y\n", 79) + "z\n",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := newPod(func(pod *v1.Pod) {
					pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
					pod.Spec.Containers[0].TerminationMessagePolicy = test.policy
				})
				config := w.made(pod)
				c := w.only(pod)
				w.write(config.Mounts[len(config.Mounts)-1].HostPath, test.file)
				w.write(filepath.Join(w.root, "logs/prod_shop_uid-1", config.LogPath), test.log)
				w.fake.exit(c.ID.ID, test.code)
				got := w.only(pod).Exit
				if diff := cmp.Diff(test.want, got.Message); diff != "" || got.Code != int(test.code) || got.FinishedAt.IsZero() {
					w.Errorf("%+v: %s", got, diff)
				}
			})
		})
	}
}

func TestAMessageOfAnInstanceThatIsForgottenIsNotTheNextOnes(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		config := w.made(pod)
		w.write(config.Mounts[len(config.Mounts)-1].HostPath, "words")
		w.fake.mu.Lock()
		clear(w.fake.containers)
		w.fake.mu.Unlock()
		c := w.run(pod)
		w.fake.exit(c.ID.ID, 0)
		if got := w.only(pod).Exit; got.Message != "" {
			w.Errorf("it ended with %+v", got)
		}
	})
}

func TestAMessageOfTheRuntimeComesFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		config := w.made(pod)
		w.write(config.Mounts[len(config.Mounts)-1].HostPath, "words")
		c := w.only(pod)
		w.fake.exit(c.ID.ID, 137)
		w.fake.mu.Lock()
		w.fake.containers[c.ID.ID].Reason, w.fake.containers[c.ID.ID].Message = "OOMKilled", "out of memory"
		w.fake.mu.Unlock()
		if got := w.only(pod).Exit; got.Reason != "OOMKilled" || got.Message != "out of memory: words" {
			w.Errorf("it ended with %+v", got)
		}
	})
}

func (w *world) write(file, content string) {
	w.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		w.Fatal(err)
	}
}

func TestReadySaysWhatIsMissing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.features = &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady", Message: "no CNI"},
		}}}
		runtime, network := w.Ready(w.Context())
		if runtime != nil || network == nil || network.Error() != "NetworkReady is false: reason:NetworkPluginNotReady message:no CNI" {
			w.Errorf("runtime %v, network %v", runtime, network)
		}
		w.fake.next("Status", refuses(codes.Unavailable, "down"))
		if runtime, network = w.Ready(w.Context()); runtime == nil || network == nil {
			w.Errorf("runtime %v, network %v", runtime, network)
		}
		if name, version, err := w.Version(w.Context()); name != "fake" || version != "v1" || err != nil {
			w.Errorf("version %s %s: %v", name, version, err)
		}
	})
}
