package cri

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ensureImage has the container's image there as its policy asks, and returns the runtime's reference of it. Its errors
// carry the reason that status.waiting shows.
func (r *Runtime) ensureImage(
	ctx context.Context, pod *v1.Pod, container *v1.Container, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	events := r.eventsOf(pod, container.Name)
	spec := &runtimeapi.ImageSpec{
		Image: container.Image, UserSpecifiedImage: container.Image,
		Annotations: pod.Annotations, RuntimeHandler: r.config.handler(pod),
	}
	present, err := r.imageStatus(ctx, spec)
	if err != nil {
		//nolint:staticcheck // as the kubelet shows it
		told := failed(reasonImageInspect, fmt.Errorf("Failed to inspect image %q: %w", container.Image, err))
		events.warn(eventImageInspectFailed, told.message)
		return "", told
	}
	switch policy := container.ImagePullPolicy; {
	case present != nil && policy != v1.PullAlways:
		events.normal(eventImagePulled, fmt.Sprintf("Container image %q already present on machine", container.Image))
		return present.Id, nil
	case policy == v1.PullNever:
		//nolint:staticcheck // as the kubelet shows it
		err := fmt.Errorf("Container image %q is not present with pull policy of Never", container.Image)
		events.warn(eventImageErrorNeverPull, err.Error())
		return "", failed(reasonImageNeverPull, err)
	}
	events.normal(eventImagePulling, fmt.Sprintf("Pulling image %q", container.Image))
	answer, err := r.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec, SandboxConfig: sandbox})
	if err == nil && answer.ImageRef == "" {
		err = errors.New("the runtime gave the image no reference")
	}
	if err != nil {
		events.warn(eventFailed, fmt.Sprintf("Failed to pull image %q: %v", container.Image, messageOf(err)))
		return "", failed(reasonImagePull, err)
	}
	events.normal(eventImagePulled, fmt.Sprintf("Successfully pulled image %q", container.Image))
	return answer.ImageRef, nil
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
