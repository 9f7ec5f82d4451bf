package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/provision"
)

// checkTimeout bounds the wait for the version of the container runtime.
const checkTimeout = 5 * time.Second

// CheckRuntime returns an error with a remedy if the container runtime of the configuration does not answer. It leaves nothing
// on disk.
func CheckRuntime(ctx context.Context, config Config) error {
	config, err := config.withDefaults()
	if err != nil || config.Runtime == RuntimeProcess {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = callRuntime(ctx, config)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the container runtime at %s denies access: %w\n"+
			"Run as root, or run host processes with --runtime=process", config.ContainerRuntimeEndpoint, err)
	default:
		return fmt.Errorf("no container runtime answers at %s: %w\n"+
			"Install one (Debian and Ubuntu: apt-get install containerd runc containernetworking-plugins; systemctl start containerd),\n"+
			"choose another socket with --runtime-endpoint, or run host processes with --runtime=process",
			config.ContainerRuntimeEndpoint, err)
	}
}

// callRuntime dials the socket itself first, because the error of the system call is clearer than gRPC's.
func callRuntime(ctx context.Context, config Config) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(config.ContainerRuntimeEndpoint, "unix://"))
	if err != nil {
		return err
	}
	_ = connection.Close()
	runtime, err := cri.New(cri.Config{
		Endpoint: config.ContainerRuntimeEndpoint, Root: filepath.Join(config.RootDir, "pods"),
		Provisioner: new(provision.Provisioner), // unused: no container is created
	})
	if err != nil {
		return err
	}
	defer runtime.Close()
	_, _, err = runtime.Version(ctx)
	return err
}
