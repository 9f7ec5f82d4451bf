package cri_test

import (
	"context"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// write lets the container log something, into the file that the runtime has open, whatever its name is by now.
func (f *fake) write(id, text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	if c.log == nil {
		if err := c.reopen(); err != nil {
			return err
		}
	}
	_, err := c.log.WriteString(text)
	return err
}

func (c *fakeContainer) reopen() error {
	if c.log != nil {
		if err := c.log.Close(); err != nil {
			return err
		}
	}
	err := os.MkdirAll(filepath.Dir(c.LogPath), 0o700)
	if err == nil {
		c.log, err = os.OpenFile(c.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	}
	return err
}

func (f *fake) ReopenContainerLog(
	_ context.Context, request *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[request.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Error(codes.Unknown, "container is not running")
	}
	return &runtimeapi.ReopenContainerLogResponse{}, c.reopen()
}
