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

// checkTimeout is how long a container runtime may take to say its version.
const checkTimeout = 5 * time.Second

// CheckRuntime says what is wrong with the container runtime of a node that is yet to be made, and what to do about it. Nothing
// is left on disk.
func CheckRuntime(ctx context.Context, config Config) error {
	config, err := config.withDefaults()
	if err != nil || config.Runtime == RuntimeProcess {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = askRuntime(ctx, config)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the container runtime at %s does not let us in: %w\n"+
			"Run this as root, or run plain processes with --runtime=process", config.ContainerRuntimeEndpoint, err)
	default:
		return fmt.Errorf("no container runtime answers at %s: %w\n"+
			"Install one (Debian and Ubuntu: apt-get install containerd runc containernetworking-plugins; systemctl start containerd),\n"+
			"name another socket with --runtime-endpoint, or run plain processes with --runtime=process",
			config.ContainerRuntimeEndpoint, err)
	}
}

// askRuntime calls the socket by hand first: the machine's own words say more than gRPC's.
func askRuntime(ctx context.Context, config Config) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(config.ContainerRuntimeEndpoint, "unix://"))
	if err != nil {
		return err
	}
	_ = connection.Close()
	runtime, err := cri.New(cri.Config{
		Endpoint: config.ContainerRuntimeEndpoint, Root: filepath.Join(config.DataDir, "pods"),
		Provisioner: new(provision.Provisioner), // nobody asks it: no container is made
	})
	if err != nil {
		return err
	}
	defer runtime.Close()
	_, _, err = runtime.Version(ctx)
	return err
}
