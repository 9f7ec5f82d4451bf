package cri

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/internal/image"
)

// imageWish is a container that needs its image:
//
//	name is valid -> present, if the policy lets that do -> there
//	                    |
//	                    v
//	      not backing off -> pulled, alone or with others -> there
type imageWish struct {
	*Runtime
	name      image.Name
	pod       *v1.Pod
	container *v1.Container
	sandbox   *runtimeapi.PodSandboxConfig
	events    *containerEvents
	spec      *runtimeapi.ImageSpec
}

// ensureImage has the container's image there as its policy asks, and returns the runtime's reference of it. Its errors
// carry the reason that status.waiting shows.
func (r *Runtime) ensureImage(
	ctx context.Context, pod *v1.Pod, container *v1.Container, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	w := &imageWish{Runtime: r, pod: pod, container: container, sandbox: sandbox, events: r.eventsOf(pod, container.Name)}
	request := imageRequest{policy: container.ImagePullPolicy}
	defer func() { r.metrics.countImageRequest(request) }()
	var err error
	if w.name, err = image.Parse(container.Image); err != nil {
		return "", w.refuse(reasonImageName, eventImageInspectFailed, "Failed to apply default image tag %q: %v", container.Image, err)
	}
	w.spec = &runtimeapi.ImageSpec{
		Image: w.name.Tagged(), UserSpecifiedImage: container.Image, Annotations: pod.Annotations, RuntimeHandler: r.config.handler(pod),
	}
	if container.ImagePullPolicy != v1.PullAlways {
		present, err := r.imageStatus(ctx, w.spec)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil:
			return "", w.refuse(reasonImageInspect, eventImageInspectFailed,
				"Failed to inspect image %q: %s", container.Image, messageOf(err))
		}
		request.present = new(present != nil)
		if present != nil {
			request.pull = new(false)
			w.events.normal(eventImagePulled, fmt.Sprintf("Container image %q already present on machine", container.Image))
			return present.Id, nil
		}
		if container.ImagePullPolicy == v1.PullNever {
			return "", w.refuse(reasonImageNeverPull, eventImageErrorNeverPull,
				"Container image %q is not present with pull policy of Never", container.Image)
		}
	}
	request.pull = new(true)
	return w.pull(ctx)
}

// refuse tells of an image that cannot be had, in the kubelet's sentence.
func (w *imageWish) refuse(reason, event, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	w.events.warn(event, message)
	return &startError{reason: reason, message: message, announced: true}
}

// imageStatus is nil for an image that is not there.
func (r *Runtime) imageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	answer, err := r.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if isGone(err) {
		return nil, nil
	}
	return answer.GetImage(), err
}

// userOf is who the image runs as; an image that does not say runs as root.
func (r *Runtime) userOf(ctx context.Context, image string) (imageUser, error) {
	found, err := r.imageStatus(ctx, &runtimeapi.ImageSpec{Image: image})
	if err != nil {
		return imageUser{}, fmt.Errorf("asking for the user of image %s: %w", image, err)
	}
	switch {
	case found.GetUid() != nil:
		return imageUser{id: &found.Uid.Value}, nil
	case found.GetUsername() != "":
		return imageUser{name: found.Username}, nil
	default:
		return imageUser{id: new(int64)}, nil
	}
}
