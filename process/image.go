package process

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostImage is the only image: the machine itself.
const hostImage = "host"

// isHost knows the name with the tag that the kubelet adds to a name without one.
func isHost(image string) bool { return image == hostImage || image == hostImage+":latest" }

func theHost() *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: hostImage, RepoTags: []string{hostImage, hostImage + ":latest"}, Pinned: true,
		Size: 1, // clients take 0 for an image that is broken
		Spec: &runtimeapi.ImageSpec{Image: hostImage},
	}
}

// ListImages has one image.
func (s *Server) ListImages(
	_ context.Context, request *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	if wanted := request.GetFilter().GetImage().GetImage(); wanted != "" && !isHost(wanted) {
		return &runtimeapi.ListImagesResponse{}, nil
	}
	return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{theHost()}}, nil
}

// ImageStatus has nil for an image that is not there, as the CRI asks.
func (s *Server) ImageStatus(
	_ context.Context, request *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	if !isHost(request.GetImage().GetImage()) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: theHost()}, nil
}

// PullImage succeeds for the machine itself.
func (s *Server) PullImage(
	_ context.Context, request *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	if image := request.GetImage().GetImage(); !isHost(image) {
		return nil, status.Errorf(codes.InvalidArgument, "spec.containers[*].image %q: %s", image, whyHostOnly)
	}
	return &runtimeapi.PullImageResponse{ImageRef: hostImage}, nil
}

const whyHostOnly = `the process runtime has no images: the only one is "host", the machine itself`

// RemoveImage has nothing to remove, and cannot remove the machine.
func (s *Server) RemoveImage(
	_ context.Context, request *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	if isHost(request.GetImage().GetImage()) {
		return nil, status.Error(codes.FailedPrecondition, `image "host" is the machine itself and cannot be removed`)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo says that images take no room.
func (s *Server) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	nothing := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.config.Root},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: nothing, ContainerFilesystems: nothing}, nil
}
