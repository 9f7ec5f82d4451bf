package cri_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContainerUsage(t *testing.T) {
	inBubble(t, func(h *harness) {
		withMessage := func(pod *v1.Pod) { pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log" }
		pod, other := newPod(withMessage), newPod(withMessage, withUID("uid-2"))
		h.startPod(pod)
		h.startPod(other)
		h.fake.layer = 5 << 20
		h.writeFile(h.root+"/logs/prod_shop_uid-1/web/0.log", strings.Repeat("x", 1<<20))
		h.writeFile(h.root+"/logs/prod_shop_uid-1/web/0.log.20260101-000000.gz", strings.Repeat("x", 1<<20))
		h.writeFile(h.root+"/pods/uid-1/containers/web/0", strings.Repeat("x", 1<<20))
		containers, files, err := h.ContainerUsage(h.Context(), pod)
		if got := containers["web"]; err != nil || len(containers) != 1 || got < 7<<20 || got > 8<<20 {
			h.Errorf("containers: got %v, error %v; want 7 MiB of web", containers, err)
		}
		if files < 1<<20 || files > 2<<20 {
			h.Errorf("other files: got %d bytes, want 1 MiB", files)
		}
		h.fake.inject("ListContainerStats", fails(codes.Unimplemented, "unknown method"))
		if containers, _, err := h.ContainerUsage(h.Context(), pod); err != nil || containers["web"] > 3<<20 {
			h.Errorf("runtime without layers: got %v, error %v; want the logs", containers, err)
		}
		h.fake.inject("ListContainerStats", fails(codes.Internal, "broken"))
		if containers, _, err := h.ContainerUsage(h.Context(), pod); err == nil || containers["web"] < 2<<20 {
			h.Errorf("broken runtime: got %v, error %v; want an error and the logs", containers, err)
		}
	})
}

// As with the kubelet, only files count, not their directories.
func TestRES20_LogStats(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod()
		h.startPod(pod)
		h.writeFile(h.root+"/logs/prod_shop_uid-1/web/0.log", strings.Repeat("x", 1<<20))
		h.writeFile(h.root+"/logs/prod_shop_uid-1/web/1.log", "x")
		logs, _, err := h.LogStats(h.Context(), pod)
		if err != nil || len(logs) != 1 {
			h.Fatalf("got %v, error %v; want the logs of web", logs, err)
		}
		requireNumber(h, "inodes", logs["web"].Inodes, 2)
		if bytes, _ := logs["web"].Bytes.Get(); bytes < 1<<20 || bytes > 2<<20 {
			h.Errorf("got %v bytes, want 1 MiB", bytes)
		}
	})
}

func TestRES26_ImageUsage(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.imageFs = &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{UsedBytes: number(7)}}}
		images, containers, err := h.ImageUsage(h.Context())
		if err != nil || images == nil || containers != nil {
			h.Fatalf("got %v and %v, error %v; want images only", images, containers, err)
		}
		requireNumber(h, "images", images.Bytes, 7)
		if images.Inodes.IsKnown() {
			h.Error("inodes that the runtime does not report are known")
		}
		h.fake.imageFs.ImageFilesystems[0].UsedBytes = nil // the kubelet crashes on it
		if images, _, err := h.ImageUsage(h.Context()); err != nil || images.Bytes.IsKnown() {
			h.Errorf("got %v, error %v; want an unknown use", images, err)
		}
	})
}
