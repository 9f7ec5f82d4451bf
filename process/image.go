package process

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostImageName is the name of the only image, the host's own file system.
const hostImageName = "host"

// isHostImage also accepts the tag that the kubelet adds to a name without one.
func isHostImage(name string) bool { return name == hostImageName || name == hostImageName+":latest" }

func hostImage() *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: hostImageName, RepoTags: []string{hostImageName, hostImageName + ":latest"}, Pinned: true,
		Size: 1, // clients treat an image of size 0 as broken
		Spec: &runtimeapi.ImageSpec{Image: hostImageName},
		Uid:  &runtimeapi.Int64Value{Value: int64(os.Geteuid())}, // containers run as the agent's user
	}
}

// ListImages lists the host image.
func (s *Server) ListImages(
	_ context.Context, request *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	if name := request.GetFilter().GetImage().GetImage(); name != "" && !isHostImage(name) {
		return &runtimeapi.ListImagesResponse{}, nil
	}
	return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{hostImage()}}, nil
}

// ImageStatus returns a nil image if the image does not exist, as the CRI requires.
func (s *Server) ImageStatus(
	_ context.Context, request *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	if !isHostImage(request.GetImage().GetImage()) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: hostImage()}, nil
}

// PullImage succeeds for the host image only.
func (s *Server) PullImage(
	_ context.Context, request *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	if name := request.GetImage().GetImage(); !isHostImage(name) {
		return nil, status.Errorf(codes.InvalidArgument, "spec.containers[*].image %q: %s", name, reasonHostImageOnly)
	}
	return &runtimeapi.PullImageResponse{ImageRef: hostImageName}, nil
}

// RemoveImage fails for the host image and succeeds for all others, which do not exist.
func (s *Server) RemoveImage(
	_ context.Context, request *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	if isHostImage(request.GetImage().GetImage()) {
		return nil, status.Error(codes.FailedPrecondition, `image "host" is the host's own file system and cannot be removed`)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo reports that images use no disk space.
func (s *Server) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	unused := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.config.Root},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: unused, ContainerFilesystems: unused}, nil
}
