package cri

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Root/<uid> has, of this room:
//
//	etc-hosts                         the pod's hosts file
//	containers/<name>/<n>             the termination message of an instance
//	volume-subpaths/<name>/<i>        a part of a volume, while an instance is being started
const (
	hostsName    = "etc-hosts"
	messagesName = "containers"
	subPathsName = "volume-subpaths"
)

func (c *Config) podDir(uid podid.UID) string { return filepath.Join(c.Root, string(uid)) }

// writeHostsFile writes it in place: running containers have this very file mounted.
func (r *Runtime) writeHostsFile(pod *v1.Pod, ips []netip.Addr) (string, error) {
	var node []byte
	if pod.Spec.HostNetwork {
		var err error
		if node, err = os.ReadFile(hostsPath); err != nil {
			return "", err
		}
	}
	dir := r.config.podDir(podid.UID(pod.UID))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	file := filepath.Join(dir, hostsName)
	if err := os.WriteFile(file, []byte(r.config.hostsFile(pod, ips, string(node))), 0o644); err != nil {
		return "", err
	}
	return file, os.Chmod(file, 0o644) // whatever the umask is
}

// makeMessageFile makes the empty file in which an instance can say why it ended. One of the same number that was made
// before never ran, or was forgotten by the runtime.
func (r *Runtime) makeMessageFile(pod *v1.Pod, start plan.Start) (string, error) {
	dir := filepath.Join(r.config.podDir(podid.UID(pod.UID)), messagesName, start.Container.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	file := filepath.Join(dir, strconv.Itoa(start.RestartCount))
	made, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	return file, errors.Join(made.Chmod(0o666), made.Close()) // whatever the umask is
}

// ownMounts are the files that every container gets, unless its spec puts something else there.
func (r *Runtime) ownMounts(pod *v1.Pod, start plan.Start, ips []netip.Addr) ([]*runtimeapi.Mount, error) {
	var mounts []*runtimeapi.Mount
	if wantsHostsFile(pod, ips) && !mountsAt(start.Container, hostsPath) {
		file, err := r.writeHostsFile(pod, ips)
		if err != nil {
			return nil, fmt.Errorf("writing the pod's hosts file: %w", err)
		}
		mounts = append(mounts, &runtimeapi.Mount{HostPath: file, ContainerPath: hostsPath, SelinuxRelabel: true})
	}
	if message := start.Container.TerminationMessagePath; message != "" && !mountsAt(start.Container, absolute(message)) {
		file, err := r.makeMessageFile(pod, start)
		if err != nil {
			return nil, fmt.Errorf("making the file for the termination message: %w", err)
		}
		mounts = append(mounts, &runtimeapi.Mount{HostPath: file, ContainerPath: absolute(message), SelinuxRelabel: true})
	}
	return mounts, nil
}
