package cri

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/internal/poddir"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Files of this package in Root/<uid>:
//
//	etc-hosts                            the pod's hosts file
//	containers/<name>/<n>                the termination message of an instance
//	volume-subpaths/<volume>/<name>/<i>  a bind mount of a subPath, while an instance starts
//
// The kubelet has the same files. It keeps the bind mounts until the volume is unmounted.
const (
	hostsFileName   = "etc-hosts"
	messagesDirName = "containers"
	subPathsDirName = "volume-subpaths"
)

func (r *Runtime) dirs() poddir.Roots {
	return poddir.Roots{Root: r.config.Root, Former: r.config.FormerRoot}
}

func (r *Runtime) podDir(uid podid.UID) string { return r.dirs().Of(uid) }

func (r *Runtime) messagesDir(uid podid.UID, container string) string {
	return filepath.Join(r.podDir(uid), messagesDirName, container)
}

// mountVolumes returns the container's volume mounts with their host paths. The caller calls unmount, which is never nil, once
// the container runs or has failed to.
func (s *containerStart) mountVolumes(ctx context.Context, values map[string]string) (
	mounts []*runtimeapi.Mount, unmount func() error, err error,
) {
	var targets []string
	unmount = func() error {
		var errs []error
		for _, target := range targets {
			errs = append(errs, unmountSubPath(target))
		}
		return errors.Join(errs...)
	}
	recursiveReadOnly := false
	if criconfig.NeedsRecursiveReadOnly(s.container) {
		if recursiveReadOnly, err = s.supportsRecursiveReadOnly(ctx, s.sandbox.handler); err != nil {
			return nil, unmount, err
		}
	}
	volumeMounts, err := criconfig.VolumeMounts(s.pod, s.container, values, recursiveReadOnly)
	if err != nil {
		return nil, unmount, err
	}
	targetDir := filepath.Join(s.podDir(podid.UID(s.pod.UID)), subPathsDirName)
	for i, volumeMount := range volumeMounts {
		hostPath, err := s.config.Provisioner.Path(s.pod, volumeMount.Volume)
		if err != nil {
			return nil, unmount, fmt.Errorf("volume %s: %w", volumeMount.Volume, err)
		}
		if volumeMount.SubPath != "" {
			target := filepath.Join(targetDir, volumeMount.Volume, s.container.Name, strconv.Itoa(i))
			if err := bindSubPath(hostPath, volumeMount.SubPath, target); err != nil {
				return nil, unmount, fmt.Errorf("volumeMounts[%d] of container %s: %w", i, s.container.Name, err)
			}
			targets = append(targets, target)
			hostPath = target
		}
		volumeMount.Mount.HostPath = hostPath
		mounts = append(mounts, volumeMount.Mount)
	}
	return mounts, unmount, nil
}

// mountFiles returns mounts of the hosts file and the termination message file, unless the spec mounts a volume there.
func (r *Runtime) mountFiles(pod *v1.Pod, start plan.Start, ips []netip.Addr) ([]*runtimeapi.Mount, error) {
	var mounts []*runtimeapi.Mount
	if criconfig.NeedsHostsFile(pod, ips) && !criconfig.HasMountAt(start.Container, criconfig.HostsPath) {
		file, err := r.writeHostsFile(pod, ips)
		if err != nil {
			return nil, fmt.Errorf("write hosts file: %w", err)
		}
		mounts = append(mounts, &runtimeapi.Mount{HostPath: file, ContainerPath: criconfig.HostsPath, SelinuxRelabel: true})
	}
	if start.Container.TerminationMessagePath == "" {
		return mounts, nil
	}
	messagePath := criconfig.AbsolutePath(start.Container.TerminationMessagePath)
	if criconfig.HasMountAt(start.Container, messagePath) {
		return mounts, nil
	}
	file, err := r.createMessageFile(pod, start)
	if err != nil {
		return nil, fmt.Errorf("create termination message file: %w", err)
	}
	return append(mounts, &runtimeapi.Mount{HostPath: file, ContainerPath: messagePath, SelinuxRelabel: true}), nil
}

// writeHostsFile writes the pod's hosts file in place: running containers have this very file mounted.
func (r *Runtime) writeHostsFile(pod *v1.Pod, ips []netip.Addr) (string, error) {
	var nodeHosts []byte
	if pod.Spec.HostNetwork {
		var err error
		if nodeHosts, err = os.ReadFile(criconfig.HostsPath); err != nil {
			return "", err
		}
	}
	dir := r.podDir(podid.UID(pod.UID))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	file := filepath.Join(dir, hostsFileName)
	if err := os.WriteFile(file, []byte(r.generator.HostsFile(pod, ips, string(nodeHosts))), 0o644); err != nil {
		return "", err
	}
	return file, os.Chmod(file, 0o644) // independent of the umask
}

// createMessageFile creates the empty termination message file of an instance. An existing file belongs to an instance with
// the same restart count that never ran or that the runtime forgot; it is truncated.
func (r *Runtime) createMessageFile(pod *v1.Pod, start plan.Start) (string, error) {
	dir := r.messagesDir(podid.UID(pod.UID), start.Container.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	path := filepath.Join(dir, strconv.Itoa(start.RestartCount))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	return path, errors.Join(file.Chmod(0o666), file.Close()) // independent of the umask
}
