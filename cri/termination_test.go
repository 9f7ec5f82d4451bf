package cri_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// criLog formats lines in the CRI's log format.
func criLog(lines ...string) string {
	var log strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&log, "2026-01-01T12:00:00.000000000Z stderr %s\n", line)
	}
	return log.String()
}

func TestTerminationMessage(t *testing.T) {
	long := strings.Repeat("x", 5000)
	tests := map[string]struct {
		file, log string
		policy    v1.TerminationMessagePolicy
		code      int32
		want      string
	}{
		"file":                 {file: "goodbye", code: 1, want: "goodbye"},
		"end of a long file":   {file: "begin" + long, want: long[:4096]},
		"no fallback":          {log: criLog("F crash"), code: 1, want: ""},
		"log after failure":    {log: criLog("F crash", "F burn"), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, want: "crash\nburn\n"},
		"no log after success": {log: criLog("F fine"), policy: v1.TerminationMessageFallbackToLogsOnError, want: ""},
		"file before log":      {file: "words", log: criLog("F crash"), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, want: "words"},
		"partial lines":        {log: criLog("P cra", "P sh", "F ed"), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, want: "crashed\n"},
		"last 2048 bytes":      {log: criLog("F " + long), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1, want: long[:2047] + "\n"},
		"last 80 lines": {
			log: criLog(strings.Split(strings.Repeat("F y,", 99)+"F z", ",")...), policy: v1.TerminationMessageFallbackToLogsOnError, code: 1,
			want: strings.Repeat("y\n", 79) + "z\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod(func(pod *v1.Pod) {
					pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
					pod.Spec.Containers[0].TerminationMessagePolicy = test.policy
				})
				config := h.createdConfig(pod)
				c := h.onlyContainer(pod)
				h.writeFile(config.Mounts[len(config.Mounts)-1].HostPath, test.file)
				h.writeFile(filepath.Join(h.root, "logs/prod_shop_uid-1", config.LogPath), test.log)
				h.fake.exit(c.ID.ID, test.code)
				got := h.onlyContainer(pod).Exit
				if diff := cmp.Diff(test.want, got.Message); diff != "" || got.Code != int(test.code) || got.FinishedAt.IsZero() {
					h.Errorf("got %+v: %s", got, diff)
				}
			})
		})
	}
}

func TestTerminationMessage_ForgottenInstance(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		config := h.createdConfig(pod)
		h.writeFile(config.Mounts[len(config.Mounts)-1].HostPath, "words")
		h.fake.mu.Lock()
		clear(h.fake.containers)
		h.fake.mu.Unlock()
		c := h.startPod(pod)
		h.fake.exit(c.ID.ID, 0)
		if got := h.onlyContainer(pod).Exit; got.Message != "" {
			h.Errorf("got exit %+v", got)
		}
	})
}

func TestTerminationMessage_AfterRuntimeMessage(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/msg" })
		config := h.createdConfig(pod)
		h.writeFile(config.Mounts[len(config.Mounts)-1].HostPath, "words")
		c := h.onlyContainer(pod)
		h.fake.exit(c.ID.ID, 137)
		h.fake.mu.Lock()
		h.fake.containers[c.ID.ID].Reason, h.fake.containers[c.ID.ID].Message = "OOMKilled", "out of memory"
		h.fake.mu.Unlock()
		if got := h.onlyContainer(pod).Exit; got.Reason != "OOMKilled" || got.Message != "out of memory: words" {
			h.Errorf("got exit %+v", got)
		}
	})
}

func TestTerminationMessage_NoLinksFollowed(t *testing.T) {
	const secret = "the node's secret"
	tests := map[string]struct {
		plant func(path, outside string) error // replaces the message file or the log directory
		isLog bool
		want  string
	}{
		"link":      {func(path, outside string) error { return os.Symlink(outside+"/0.log", path) }, false, "too many levels"},
		"pipe":      {func(path, _ string) error { return syscall.Mkfifo(path, 0o600) }, false, "not a regular file"},
		"directory": {func(path, _ string) error { return os.Mkdir(path, 0o700) }, false, "not a regular file"},
		"log linked to another pod's": {
			func(path, _ string) error {
				other := filepath.Join(filepath.Dir(filepath.Dir(path)), "other")
				return errors.Join(os.Mkdir(path, 0o700), os.WriteFile(other, []byte(criLog("F "+secret)), 0o600), os.Symlink("../../other", path+"/0.log"))
			}, true, "Error on reading termination message from logs",
		},
		"linked log directory": {
			func(path, outside string) error { return os.Symlink(outside, path) }, true, "Error on reading termination message from logs",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod(func(pod *v1.Pod) {
					pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
					pod.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
				})
				config := h.createdConfig(pod)
				outside := filepath.Join(h.root, "secret")
				h.writeFile(outside+"/0.log", criLog("F "+secret))
				target := config.Mounts[len(config.Mounts)-1].HostPath
				if test.isLog {
					target = filepath.Join(h.root, "logs/prod_shop_uid-1/web")
				}
				if err := os.RemoveAll(target); err != nil {
					h.Fatal(err)
				}
				if err := test.plant(target, outside); err != nil {
					h.Fatal(err)
				}
				h.fake.exit(h.onlyContainer(pod).ID.ID, 1)
				got := h.onlyContainer(pod).Exit.Message
				if strings.Contains(got, secret) || !strings.Contains(got, test.want) {
					h.Errorf("got message %q", got)
				}
			})
		})
	}
}

// The spec may mount any file of the host at the path. The agent reads files as root, and the message is public.
func TestTerminationMessage_MountedBySpec(t *testing.T) {
	const secret = "the node's secret"
	tests := map[string]struct {
		policy v1.TerminationMessagePolicy
		want   string
	}{
		"file policy":      {v1.TerminationMessageReadFile, ""},
		"fallback to logs": {v1.TerminationMessageFallbackToLogsOnError, "crash\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod(func(pod *v1.Pod) {
					pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
					container := &pod.Spec.Containers[0]
					container.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/dev/termination-log"}}
					container.TerminationMessagePath, container.TerminationMessagePolicy = "/dev/termination-log", test.policy
				})
				h.writeFile(filepath.Join(h.root, "data"), secret)
				h.writeFile(filepath.Join(h.root, "logs/prod_shop_uid-1/web/0.log"), criLog("F crash"))
				h.fake.exit(h.startPod(pod).ID.ID, 1)
				if got := h.onlyContainer(pod).Exit.Message; got != test.want {
					h.Errorf("got message %q, want %q", got, test.want)
				}
			})
		})
	}
}
