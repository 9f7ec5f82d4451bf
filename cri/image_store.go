package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/imagegc"
)

// Images returns all images of the runtime and which of them are in use: by a container, running or not, as a volume of one, or as the
// image of sandboxes.
func (r *Runtime) Images(ctx context.Context) ([]imagegc.Image, error) {
	response, err := r.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("cri: list images: %w", err)
	}
	// The containers are listed after the images: one that was created in between uses an image that is listed.
	containers, err := r.listContainers(ctx, "")
	if err != nil {
		return nil, err
	}
	images := make([]imagegc.Image, 0, len(response.GetImages()))
	for _, image := range response.GetImages() {
		images = append(images, imagegc.Image{
			ID: image.GetId(), Handler: image.GetSpec().GetRuntimeHandler(), Size: int64(image.GetSize()), Pinned: image.GetPinned(),
			Names: slices.Concat(image.GetRepoTags(), image.GetRepoDigests()),
		})
	}
	uses := imageUses{}
	for _, container := range containers {
		uses.add(container.GetImageId(), container.GetImageRef(), container.GetImage().GetImage())
	}
	uses.apply(images)
	if !slices.ContainsFunc(images, func(image imagegc.Image) bool { return !image.InUse && !image.Pinned }) {
		return images, nil
	}
	if err := r.addRareUses(ctx, uses, containers); err != nil {
		return nil, err
	}
	uses.apply(images)
	return images, nil
}

// addRareUses adds uses that take more requests to find: those of volumes and of sandboxes.
func (r *Runtime) addRareUses(ctx context.Context, uses imageUses, containers []*runtimeapi.Container) error {
	sandboxImage, err := r.sandboxImage(ctx)
	if err != nil {
		return err
	}
	uses.add(sandboxImage)
	mounted, err := r.imageVolumes.images(ctx, r, containers)
	uses.add(mounted...)
	return err
}

// imageUses are the IDs and names of images in use.
type imageUses map[string]bool

func (u imageUses) add(names ...string) {
	for _, name := range names {
		if name != "" {
			u[holdKey(name)] = true
		}
	}
}

// apply marks the images in use. All names of an image are in use if one is (IGC-3).
func (u imageUses) apply(images []imagegc.Image) {
	for i := range images {
		image := &images[i]
		image.InUse = image.InUse || u[holdKey(image.ID)] || slices.ContainsFunc(image.Names, func(name string) bool { return u[holdKey(name)] })
	}
}

// imageVolumes remembers the images that containers mount, which do not change. ContainerStatus is called once for each container.
type imageVolumes struct {
	mu    sync.Mutex // guards known
	known map[string][]string
}

// images returns the images that the containers mount.
func (v *imageVolumes) images(ctx context.Context, r *Runtime, containers []*runtimeapi.Container) ([]string, error) {
	v.mu.Lock()
	known := maps.Clone(v.known)
	v.mu.Unlock()
	current := map[string][]string{}
	var mounted []string
	for _, container := range containers {
		images, found := known[container.Id]
		if !found {
			response, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container.Id})
			if isNotFound(err) {
				continue // removed meanwhile (BUG-133)
			}
			if err != nil {
				return nil, fmt.Errorf("cri: get mounts of container %s: %w", container.Id, err)
			}
			for _, mount := range response.GetStatus().GetMounts() {
				if image := mount.GetImage().GetImage(); image != "" {
					images = append(images, image)
				}
			}
		}
		current[container.Id] = images
		mounted = append(mounted, images...)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = current
	return mounted, nil
}

// sandboxImage returns the image of sandboxes, which older versions of containerd do not pin, or "" if the runtime does not say. It is
// cached after the first successful call.
func (r *Runtime) sandboxImage(ctx context.Context) (string, error) {
	if known := r.sandboxImageName.Load(); known != nil {
		return *known, nil
	}
	response, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return "", fmt.Errorf("cri: get configuration of the runtime: %w", err)
	}
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	// Other runtimes have another configuration, or none. They pin the image.
	_ = json.Unmarshal([]byte(response.GetInfo()["config"]), &config)
	r.sandboxImageName.Store(&config.SandboxImage)
	return config.SandboxImage, nil
}

// RemoveImage removes the image with all its names. It reports false without an error if a container is about to be created from it.
func (r *Runtime) RemoveImage(ctx context.Context, image imagegc.Image) (bool, error) {
	err := r.imageHolds.remove(append([]string{image.ID}, image.Names...), func() error {
		_, err := r.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{
			Image: &runtimeapi.ImageSpec{Image: image.ID, RuntimeHandler: image.Handler},
		})
		return err
	})
	if errors.Is(err, errImageHeld) {
		return false, nil
	}
	if err != nil && !isNotFound(err) {
		return false, fmt.Errorf("cri: remove image %s: %w", image.ID, err)
	}
	return true, nil
}

// ImageFileSystem measures the file system in which the runtime keeps images (IGC-16).
func (r *Runtime) ImageFileSystem(ctx context.Context) (imagegc.Usage, error) {
	dirs, err := r.ImageDirs(ctx)
	if err != nil {
		return imagegc.Usage{}, err
	}
	if len(dirs) == 0 {
		return imagegc.Usage{}, errors.New("cri: runtime reports no image file system")
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(dirs[0], &stat); err != nil {
		return imagegc.Usage{}, fmt.Errorf("cri: stat file system of %s: %w", dirs[0], err)
	}
	size := int64(stat.Bsize) //nolint:unconvert // its type differs between architectures
	return imagegc.Usage{
		Bytes:  imagegc.Amount{Capacity: int64(stat.Blocks) * size, Available: int64(stat.Bavail) * size},
		Inodes: imagegc.Amount{Capacity: int64(stat.Files), Available: int64(stat.Ffree)},
	}, nil
}

// PrunePullRecords removes the pull records of images that the runtime no longer has, after images were removed (BUG-131).
func (r *Runtime) PrunePullRecords(ctx context.Context) error {
	return r.pullManager.PruneNow(func() ([]string, error) { return r.imageIDs(ctx) })
}

// imageIDs returns the IDs of all images.
func (r *Runtime) imageIDs(ctx context.Context) ([]string, error) {
	response, err := r.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	var ids []string
	for _, image := range response.GetImages() {
		ids = append(ids, image.Id)
	}
	return ids, err
}
