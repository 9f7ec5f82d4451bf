package cri_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/imagegc"
)

// store adds an image with the tag to the fake.
func (f *fake) store(tag, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[tag] = &runtimeapi.Image{Id: id, RepoTags: []string{tag}, Size: 100}
}

// inUse returns the IDs of the images that are in use.
func (h *harness) inUse() string {
	h.Helper()
	images, err := h.Images(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	var used []string
	for _, image := range images {
		if image.InUse {
			used = append(used, image.ID)
		}
	}
	slices.Sort(used)
	return strings.Join(used, " ")
}

func TestIGC3_ImagesInUse(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.store("docker.io/library/idle:1", "sha256:idle")
		h.fake.store("docker.io/library/data:latest", "sha256:data")
		if got := h.inUse(); got != "" {
			t.Errorf("without containers: got %q", got)
		}
		container := h.startPod(newPod())
		h.fake.mu.Lock()
		h.fake.containers[container.ID.ID].Mounts = []*runtimeapi.Mount{{Image: &runtimeapi.ImageSpec{Image: "data"}}}
		h.fake.mu.Unlock()
		const want = "sha256:data sha256:web"
		if got := h.inUse(); got != want {
			t.Errorf("with a container: got %q, want %q", got, want)
		}
		h.fake.exit(container.ID.ID, 0)
		before := len(requests[*runtimeapi.ContainerStatusRequest](h.fake))
		if got := h.inUse(); got != want { // a dead one counts too
			t.Errorf("after its exit: got %q, want %q", got, want)
		}
		if after := len(requests[*runtimeapi.ContainerStatusRequest](h.fake)); after != before {
			t.Error("the mounts of a known container were asked for again")
		}
	})
}

// Old versions of containerd do not pin the image of sandboxes.
func TestIGC4_SandboxImage(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.store("registry.k8s.io/pause:3.9", "sha256:pause")
		h.fake.status.Info = map[string]string{"config": `{"sandboxImage": "registry.k8s.io/pause:3.9"}`}
		if got := h.inUse(); got != "sha256:pause" {
			t.Errorf("got %q", got)
		}
	})
}

func TestIGC16_ImageFileSystem(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.imageFs = &runtimeapi.ImageFsInfoResponse{}
		if usage, err := h.ImageFileSystem(h.Context()); err == nil {
			t.Errorf("without a file system: got %+v", usage)
		}
		h.fake.imageFs.ImageFilesystems = []*runtimeapi.FilesystemUsage{
			{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: h.root}}, {FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/absent"}},
		}
		usage, err := h.ImageFileSystem(h.Context())
		if err != nil || usage.Bytes.Capacity <= 0 || usage.Bytes.Available > usage.Bytes.Capacity {
			t.Errorf("got %+v, %v", usage, err)
		}
	})
}

// A container that disappears between the list and the request for its mounts does not fail the pass.
func TestBUG133_ContainerDisappears(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.startPod(newPod())
		h.fake.store("docker.io/library/idle:1", "sha256:idle")
		h.fake.inject("ContainerStatus", fails(codes.NotFound, "gone"))
		if got := h.inUse(); got != "sha256:web" {
			t.Errorf("got %q", got)
		}
	})
}

// Nothing is asked about containers while all images are in use.
func TestIGC1_IdleNode(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.startPod(newPod())
		before := len(requests[any](h.fake))
		h.inUse()
		if calls := len(requests[any](h.fake)) - before; calls != 2 {
			t.Errorf("got %d calls, want 2: images and containers", calls)
		}
	})
}

// An image is not removed between the look for it and the creation of the container.
func TestIGC8_HeldImage(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.store("docker.io/library/web:1", "sha256:web")
		listed := imagegc.Image{ID: "sha256:web", Names: []string{"docker.io/library/web:1"}}
		reached, proceed := make(chan struct{}), make(chan struct{})
		h.fake.inject("CreateContainer", func(_ context.Context, execute func() (any, error)) (any, error) {
			close(reached)
			<-proceed
			return execute()
		})
		started := make(chan error)
		go func() { started <- h.startFirst(h.Context(), newPod()) }()
		<-reached
		if removed, err := h.RemoveImage(h.Context(), listed); removed || err != nil {
			t.Errorf("while the container is created: got %v, %v", removed, err)
		}
		close(proceed)
		if err := <-started; err != nil {
			t.Error(err)
		}
		if removed, err := h.RemoveImage(h.Context(), listed); !removed || err != nil {
			t.Errorf("afterwards: got %v, %v", removed, err)
		}
	})
}

// A container whose image is being removed waits, and then pulls it.
func TestIGC8_RemovalInProgress(t *testing.T) {
	inBubble(t, func(h *harness) {
		reached, proceed := make(chan struct{}), make(chan struct{})
		h.fake.inject("RemoveImage", func(_ context.Context, execute func() (any, error)) (any, error) {
			close(reached)
			<-proceed
			return execute()
		})
		removed := make(chan bool)
		go func() {
			isRemoved, _ := h.RemoveImage(h.Context(), imagegc.Image{ID: "sha256:web", Names: []string{"web:1"}})
			removed <- isRemoved
		}()
		<-reached
		started := make(chan error)
		go func() { started <- h.startFirst(h.Context(), newPod()) }()
		synctest.Wait()
		if pulls := h.pullCount(); pulls != 0 {
			t.Errorf("got %d pulls before the removal has ended", pulls)
		}
		close(proceed)
		if !<-removed {
			t.Error("the image was not removed")
		}
		if err := <-started; err != nil || h.pullCount() != 1 {
			t.Errorf("got %v and %d pulls, want 1", err, h.pullCount())
		}
	})
}

// The records of images that are still there survive, whatever was removed: an image without a record counts as preloaded.
func TestBUG131_PruneByFullList(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.mu.Lock()
		h.fake.passwords = map[string]string{"reg.io/private:1": "hush"}
		h.fake.mu.Unlock()
		pod := podWithImage("reg.io/private:1", withPullSecrets("good"), withUID("a"))
		h.startPod(pod)
		h.fake.store("idle:1", "sha256:idle")
		if removed, err := h.RemoveImage(h.Context(), imagegc.Image{ID: "sha256:idle"}); !removed || err != nil {
			t.Fatalf("got %v, %v", removed, err)
		}
		if err := h.PrunePullRecords(h.Context()); err != nil {
			t.Fatal(err)
		}
		if reason := waitingReason(h.startFirst(h.Context(), podWithImage("reg.io/private:1", withUID("b")))); reason != "ErrImagePull" {
			t.Errorf("a pod without credentials uses the private image: %q", reason)
		}
	}, func(config *cri.Config) {
		config.Secrets = secrets{"good": {
			Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{
				v1.DockerConfigJsonKey: []byte(`{"auths": {"reg.io": {"username": "ann", "password": "hush"}}}`),
			},
		}}
	})
}
