package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Runtime runs pods in one container runtime. Its methods may be called concurrently; the caller orders the calls of each
// pod. Every call returns at once when its context ends (BUG-27), except that StartSandbox and StartContainer complete a request
// that they have sent if the cause is plan.ErrInterrupted.
type Runtime struct {
	config    Config
	generator *criconfig.Generator
	metrics   *metrics

	runtime     runtimeapi.RuntimeServiceClient
	images      runtimeapi.ImageServiceClient
	connections []*grpc.ClientConn

	imageState
	rotation chan struct{} // semaphore: one log rotation at a time

	mu          sync.Mutex // guards what the runtime reported about itself
	runtimeName string     // "" until known
	driver      string     // cgroup driver; "" until known
	unsupported calls      // that the runtime does not implement

	status atomic.Pointer[runtimeapi.StatusResponse] // as last reported; nil until known
}

// imageState is what is known of images: their pulls and their use.
type imageState struct {
	pulls            *pullGroup
	pullBackoff      *pullBackoff
	pullManager      *pullmanager.Manager
	imageHolds       *imageHolds
	imageVolumes     imageVolumes
	sandboxImageName atomic.Pointer[string] // nil until known
}

// calls are optional calls of the CRI, as of the connection with this number.
type calls struct {
	connection                       int
	events, podStats, containerStats bool
	podStatsSafe                     bool // the version is one that podStats does not crash
	sandboxUpdates                   bool
}

// New returns a Runtime. It performs no I/O: the first call connects, so the runtime need not be up yet.
func New(config Config) (*Runtime, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	pullManager, err := pullmanager.New(config.ImageVerification)
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		config: config, generator: config.generator(), metrics: metrics, rotation: make(chan struct{}, 1),
		imageState: imageState{
			pulls: newPullGroup(config.MaxParallelPulls), pullBackoff: newPullBackoff(), pullManager: pullManager, imageHolds: newImageHolds(),
		},
	}
	runtime, err := r.connect(config.Endpoint)
	if err != nil {
		return nil, err
	}
	images := runtime
	if config.ImageEndpoint != config.Endpoint {
		if images, err = r.connect(config.ImageEndpoint); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	r.runtime = runtimeapi.NewRuntimeServiceClient(runtime)
	r.images = runtimeapi.NewImageServiceClient(images)
	return r, nil
}

// Close closes the connections. Calls in progress fail.
func (r *Runtime) Close() error {
	var errs []error
	for _, connection := range r.connections {
		errs = append(errs, connection.Close())
	}
	return errors.Join(errs...)
}

// Version returns the runtime's name and version, such as "containerd" and "1.6.20".
func (r *Runtime) Version(ctx context.Context) (name, version string, err error) {
	response, err := r.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return "", "", fmt.Errorf("cri: get runtime version: %w", err)
	}
	return response.RuntimeName, response.RuntimeVersion, nil
}

// ImageDirs returns the directories in which the runtime keeps images and the containers' own layers.
func (r *Runtime) ImageDirs(ctx context.Context) ([]string, error) {
	response, err := r.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("cri: get image file systems: %w", err)
	}
	var dirs []string
	for _, usage := range slices.Concat(response.GetImageFilesystems(), response.GetContainerFilesystems()) {
		if dir := usage.GetFsId().GetMountpoint(); dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// ListImages returns the images that the runtime has.
func (r *Runtime) ListImages(ctx context.Context) ([]observed.StoredImage, error) {
	response, err := r.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("cri: list images: %w", err)
	}
	images := make([]observed.StoredImage, 0, len(response.GetImages()))
	for _, image := range response.GetImages() {
		images = append(images, observed.StoredImage{
			ID: image.GetId(), Digests: image.GetRepoDigests(), Tags: image.GetRepoTags(), Size: int64(image.GetSize()),
		})
	}
	return images, nil
}

// Ready returns why the runtime cannot run pods and why it cannot set up their network; nil means that it can. A runtime that
// does not respond can do neither.
func (r *Runtime) Ready(ctx context.Context) (runtime, network error) {
	response, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		err = fmt.Errorf("cri: get runtime status: %w", err)
		return err, err
	}
	r.status.Store(response)
	conditions := response.GetStatus().GetConditions()
	return conditionError(conditions, runtimeapi.RuntimeReady), conditionError(conditions, runtimeapi.NetworkReady)
}

func conditionError(conditions []*runtimeapi.RuntimeCondition, conditionType string) error {
	for _, condition := range conditions {
		switch {
		case condition.Type != conditionType:
		case condition.Status:
			return nil
		default:
			return fmt.Errorf("%s is false: reason:%s message:%s", conditionType, condition.Reason, condition.Message)
		}
	}
	return errors.New("runtime does not report condition " + conditionType)
}

// Unsupported returns an error that lists the fields of the pod that this Runtime does not honour, or nil. It extends
// criconfig.Unsupported by the fields that Config does not allow.
func (r *Runtime) Unsupported(pod *v1.Pod) error { return r.generator.Unsupported(pod) }

// name returns the runtime's name, the scheme of container IDs. It is cached after the first successful call.
func (r *Runtime) name(ctx context.Context) (string, error) {
	r.mu.Lock()
	name := r.runtimeName
	r.mu.Unlock()
	if name != "" {
		return name, nil
	}
	name, _, err := r.Version(ctx)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runtimeName = name
	return name, nil
}

// podLogger returns a logger for messages about the pod.
func (r *Runtime) podLogger(pod *v1.Pod) *slog.Logger {
	return r.config.Logger.With("pod", podid.FullNameOf(pod).Key(), "podUID", pod.UID)
}

// CgroupDriver returns the driver that the runtime reports, or for a runtime that reports none, the configured one, the one in
// the runtime's configuration, or cgroupfs (CGR-1). It is cached after the first successful call.
func (r *Runtime) CgroupDriver(ctx context.Context) (string, error) {
	r.mu.Lock()
	driver := r.driver
	r.mu.Unlock()
	if driver != "" {
		return driver, nil
	}
	response, err := r.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	switch {
	case err != nil && !isUnimplemented(err):
		return "", fmt.Errorf("get cgroup driver of the runtime: %w", err)
	case response.GetLinux() != nil:
		driver = cgroup.DriverCgroupfs
		if response.Linux.CgroupDriver == runtimeapi.CgroupDriver_SYSTEMD {
			driver = cgroup.DriverSystemd
		}
	case r.config.CgroupDriver != "":
		driver = r.config.CgroupDriver
	default:
		if driver, err = r.configuredDriver(ctx); err != nil {
			return "", err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.driver = driver
	return driver, nil
}

// configuredDriver reads the driver in containerd's configuration, which versions before 2.0 show only there.
func (r *Runtime) configuredDriver(ctx context.Context) (string, error) {
	response, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return "", fmt.Errorf("get configuration of the runtime: %w", err)
	}
	var config struct {
		Containerd struct {
			DefaultRuntimeName string `json:"defaultRuntimeName"`
			Runtimes           map[string]struct {
				Options struct{ SystemdCgroup bool } `json:"options"`
			} `json:"runtimes"`
		} `json:"containerd"`
	}
	// Other runtimes have another configuration, or none: that is no error.
	_ = json.Unmarshal([]byte(response.GetInfo()["config"]), &config)
	if config.Containerd.Runtimes[config.Containerd.DefaultRuntimeName].Options.SystemdCgroup {
		return cgroup.DriverSystemd, nil
	}
	return cgroup.DriverCgroupfs, nil
}
