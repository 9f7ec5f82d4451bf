package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/podid"
)

// StartSandbox starts the pod's sandbox and returns its ID. The pod and the attempt name the sandbox: a retry after a lost
// response returns the first one (F22).
func (r *Runtime) StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error) {
	r.metrics.startedPods.Inc()
	id, err := r.startSandbox(ctx, pod, attempt)
	if err == nil {
		return id, nil
	}
	r.metrics.startedPodErrors.Inc()
	reserved := isNameReserved(err)
	if ctx.Err() == nil && !reserved {
		r.warnPod(pod, eventFailedSandbox, "Failed to create pod sandbox: %v", errorMessage(err))
	}
	startErr := &startError{
		reason: reasonCreatePodSandbox, cause: err,
		message: fmt.Sprintf("Failed to create sandbox for pod %q: %v", criconfig.FormatPod(pod), errorMessage(err)),
	}
	if reserved {
		startErr.retryAfter = reservedRetryDelay
	}
	return "", startErr
}

func (r *Runtime) startSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error) {
	if err := r.Unsupported(pod); err != nil {
		return "", err
	}
	id, err := r.findSandbox(ctx, pod, attempt)
	if err != nil || id != "" {
		return id, err
	}
	handler, err := r.runtimeHandler(ctx, pod)
	if err != nil {
		return "", err
	}
	if err := r.checkGroupsPolicy(ctx, pod); err != nil {
		return "", err
	}
	config, err := r.newSandboxConfig(ctx, pod, attempt)
	if err != nil {
		return "", err
	}
	if err := r.createLogDir(config.LogDirectory); err != nil {
		return "", fmt.Errorf("create log directory of the pod: %w", err)
	}
	if err := r.ensureCgroup(ctx, pod); err != nil {
		return "", err
	}
	r.config.Provisioner.PrepareEnvironment(pod)
	request := &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler}
	id, err = r.runSandbox(ctx, request)
	if err == nil {
		return id, nil
	}
	// The response may be lost, or an earlier call may have created the sandbox meanwhile.
	if id, findErr := r.findSandbox(ctx, pod, attempt); findErr == nil && id != "" {
		return id, nil
	}
	return "", err
}

// ensureCgroup creates the pod's cgroup, in which the runtime creates those of the sandbox and the containers (CGR-19).
func (r *Runtime) ensureCgroup(ctx context.Context, pod *v1.Pod) error {
	if r.config.Cgroups == nil {
		return nil
	}
	err := r.config.Cgroups.EnsurePod(ctx, pod)
	if err != nil && ctx.Err() == nil {
		r.warnPod(pod, eventFailedPodContainer, "unable to ensure pod container exists: %v", err)
	}
	return err
}

func (r *Runtime) runSandbox(ctx context.Context, request *runtimeapi.RunPodSandboxRequest) (string, error) {
	ctx, cancel := withoutInterrupt(ctx)
	defer cancel()
	started := time.Now()
	response, err := r.runtime.RunPodSandbox(ctx, request)
	r.metrics.sandboxDuration.WithLabelValues(request.RuntimeHandler).Observe(time.Since(started).Seconds())
	if err == nil && response.PodSandboxId == "" {
		err = errors.New("runtime returned no sandbox ID")
	}
	if err != nil {
		r.metrics.sandboxErrors.WithLabelValues(request.RuntimeHandler).Inc()
		return "", err
	}
	return response.PodSandboxId, nil
}

// checkGroupsPolicy rejects a supplementalGroupsPolicy that the runtime does not support and would ignore silently.
func (r *Runtime) checkGroupsPolicy(ctx context.Context, pod *v1.Pod) error {
	security := pod.Spec.SecurityContext
	if security == nil || security.SupplementalGroupsPolicy == nil ||
		*security.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyMerge {
		return nil
	}
	supported, err := r.SupportsGroupsPolicy(ctx)
	if err == nil && !supported {
		err = errors.New("spec.securityContext.supplementalGroupsPolicy: the runtime only supports Merge")
	}
	return err
}

// SupportsGroupsPolicy reports whether the runtime supports every supplementalGroupsPolicy.
func (r *Runtime) SupportsGroupsPolicy(ctx context.Context) (bool, error) {
	response, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return false, fmt.Errorf("cri: get runtime status: %w", err)
	}
	return response.GetFeatures().GetSupplementalGroupsPolicy(), nil
}

// findSandbox returns the ready sandbox of the attempt, or "".
func (r *Runtime) findSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error) {
	sandboxes, err := r.listSandboxes(ctx, podid.UID(pod.UID))
	if err != nil {
		return "", err
	}
	for _, sandbox := range sandboxes {
		if sandbox.GetMetadata().GetAttempt() == attempt && sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			return sandbox.Id, nil
		}
	}
	return "", nil
}

// newSandboxConfig returns the configuration for RunPodSandbox, including DNS.
func (r *Runtime) newSandboxConfig(ctx context.Context, pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	config, err := r.sandboxConfig(ctx, pod, attempt)
	if err != nil {
		return nil, err
	}
	resolvConf, err := os.ReadFile(r.config.ResolvConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read resolver configuration of the node: %w", err)
	}
	dns, warnings := r.generator.DNSConfig(pod, criconfig.ParseResolvConf(string(resolvConf)))
	config.DnsConfig = dns
	for _, warning := range warnings {
		r.warnPod(pod, warning.Reason, "%s", warning.Message)
	}
	return config, nil
}

func (r *Runtime) sandboxConfig(ctx context.Context, pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	driver := ""
	if r.config.CgroupParent != "" {
		var err error
		if driver, err = r.CgroupDriver(ctx); err != nil {
			return nil, err
		}
	}
	return r.generator.SandboxConfig(pod, attempt, driver)
}

// sandboxInfo is a sandbox that containers are created in.
type sandboxInfo struct {
	id      string
	handler string // of the runtime, "" is the default
	config  *runtimeapi.PodSandboxConfig
	ips     []netip.Addr
}

func (r *Runtime) sandboxInfo(ctx context.Context, pod *v1.Pod, id string) (*sandboxInfo, error) {
	response, err := r.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, fmt.Errorf("get status of sandbox %s: %w", id, err)
	}
	config, err := r.sandboxConfig(ctx, pod, response.GetStatus().GetMetadata().GetAttempt())
	if err != nil {
		return nil, err
	}
	ips := r.sandboxIPs(response.GetStatus())
	if pod.Spec.HostNetwork {
		ips = r.config.NodeIPs()
	}
	return &sandboxInfo{id: id, handler: response.GetStatus().GetRuntimeHandler(), config: config, ips: ips}, nil
}

// StopSandbox stops the sandbox's containers and releases its network. It returns nil if the sandbox does not exist. When it
// returns nil, no process of the containers is left.
func (r *Runtime) StopSandbox(ctx context.Context, id string) error {
	_, err := r.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("cri: stop sandbox %s: %w", id, err)
	}
	return r.killExitedInSandbox(ctx, id)
}
