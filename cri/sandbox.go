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

	"github.com/heraldnode/herald/podid"
)

// StartSandbox makes the environment for the pod's containers and returns its ID. Its name is that of the pod and the
// attempt: called again after an answer was lost, it finds the first (F22).
func (r *Runtime) StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error) {
	r.metrics.startedPods.Inc()
	id, err := r.startSandbox(ctx, pod, attempt)
	if err != nil {
		r.metrics.startedPodErrors.Inc()
		if ctx.Err() == nil && !isUnderWay(err) {
			r.warnPod(pod, eventFailedSandbox, "Failed to create pod sandbox: %v", messageOf(err))
		}
		failure := &startError{
			reason: reasonPodSandbox, cause: err,
			message: fmt.Sprintf("Failed to create sandbox for pod %q: %v", describe(pod), messageOf(err)),
		}
		if isUnderWay(err) {
			failure.retry = underWayRetry
		}
		return "", failure
	}
	return id, nil
}

func (r *Runtime) startSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error) {
	if err := r.Unsupported(pod); err != nil {
		return "", err
	}
	id, err := r.findSandbox(ctx, pod, attempt)
	if err != nil || id != "" {
		return id, err
	}
	if err := r.checkGroupsPolicy(ctx, pod); err != nil {
		return "", err
	}
	config, err := r.newSandboxConfig(ctx, pod, attempt)
	if err != nil {
		return "", err
	}
	if err := r.config.makeLogFolder(config.LogDirectory); err != nil {
		return "", fmt.Errorf("making the folder for the pod's logs: %w", err)
	}
	id, err = r.runSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: r.config.handler(pod)})
	if err == nil {
		return id, nil
	}
	// The runtime may have made it and not said so, or be at it since an earlier call.
	if id, lookErr := r.findSandbox(ctx, pod, attempt); lookErr == nil && id != "" {
		return id, nil
	}
	return "", err
}

func (r *Runtime) runSandbox(ctx context.Context, request *runtimeapi.RunPodSandboxRequest) (string, error) {
	begun := time.Now()
	answer, err := r.pods.RunPodSandbox(ctx, request)
	r.metrics.sandboxDuration.WithLabelValues(request.RuntimeHandler).Observe(time.Since(begun).Seconds())
	if err == nil && answer.PodSandboxId == "" {
		err = errors.New("the runtime gave the sandbox no ID")
	}
	if err != nil {
		r.metrics.sandboxErrors.WithLabelValues(request.RuntimeHandler).Inc()
		return "", err
	}
	return answer.PodSandboxId, nil
}

// checkGroupsPolicy refuses a policy that the runtime is too old to know: it would be ignored in silence.
func (r *Runtime) checkGroupsPolicy(ctx context.Context, pod *v1.Pod) error {
	security := pod.Spec.SecurityContext
	if security == nil || security.SupplementalGroupsPolicy == nil ||
		*security.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyMerge {
		return nil
	}
	answer, err := r.pods.Status(ctx, &runtimeapi.StatusRequest{})
	if err == nil && !answer.GetFeatures().GetSupplementalGroupsPolicy() {
		err = errors.New("spec.securityContext.supplementalGroupsPolicy: the runtime knows no other than Merge")
	}
	return err
}

// findSandbox is the ready sandbox of that attempt, or "".
func (r *Runtime) findSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error) {
	list, err := r.sandboxesOf(ctx, podid.UID(pod.UID))
	if err != nil {
		return "", err
	}
	for _, sandbox := range list {
		if sandbox.GetMetadata().GetAttempt() == attempt && sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			return sandbox.Id, nil
		}
	}
	return "", nil
}

// newSandboxConfig is the configuration for making a sandbox, with what only its making needs.
func (r *Runtime) newSandboxConfig(ctx context.Context, pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	config, err := r.sandboxConfig(ctx, pod, attempt)
	if err != nil {
		return nil, err
	}
	node, err := os.ReadFile(r.config.ResolvConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the node's name servers: %w", err)
	}
	dns, warnings := r.config.podDNS(pod, parseResolvConf(string(node)))
	config.DnsConfig = dns
	for _, w := range warnings {
		r.warnPod(pod, w.reason, "%s", w.message)
	}
	return config, nil
}

func (r *Runtime) sandboxConfig(ctx context.Context, pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	driver, err := r.cgroupDriver(ctx)
	if err != nil {
		return nil, err
	}
	return r.config.sandboxConfig(pod, attempt, driver)
}

// place is a sandbox that containers are put into.
type place struct {
	id     string
	config *runtimeapi.PodSandboxConfig
	ips    []netip.Addr
}

func (r *Runtime) placeFor(ctx context.Context, pod *v1.Pod, sandbox string) (*place, error) {
	answer, err := r.pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		return nil, fmt.Errorf("asking for sandbox %s: %w", sandbox, err)
	}
	config, err := r.sandboxConfig(ctx, pod, answer.GetStatus().GetMetadata().GetAttempt())
	if err != nil {
		return nil, err
	}
	ips := sandboxIPs(answer.GetStatus())
	if pod.Spec.HostNetwork {
		ips = r.config.NodeIPs()
	}
	return &place{id: sandbox, config: config, ips: ips}, nil
}

// StopSandbox ends what still runs in it and releases its network. A sandbox that is not there is stopped.
func (r *Runtime) StopSandbox(ctx context.Context, id string) error {
	_, err := r.pods.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && !isGone(err) {
		return fmt.Errorf("cri: stopping sandbox %s: %w", id, err)
	}
	return nil
}

// cgroupDriver is what the configuration says, else the runtime; one that does not say uses plain files.
func (r *Runtime) cgroupDriver(ctx context.Context) (string, error) {
	if r.config.CgroupDriver != "" || r.config.CgroupParent == "" {
		return r.config.CgroupDriver, nil
	}
	r.mu.Lock()
	driver := r.driver
	r.mu.Unlock()
	if driver != "" {
		return driver, nil
	}
	answer, err := r.pods.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err != nil && !isUnimplemented(err) {
		return "", fmt.Errorf("asking the runtime for its cgroup driver: %w", err)
	}
	driver = driverCgroupfs
	if linux := answer.GetLinux(); linux != nil && linux.CgroupDriver == runtimeapi.CgroupDriver_SYSTEMD {
		driver = driverSystemd
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.driver = driver
	return driver, nil
}
