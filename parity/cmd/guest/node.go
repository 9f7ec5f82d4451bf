package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	manifestDir = "/etc/herald/manifests"
	nodeName    = "guest"
	cgroupMount = "/sys/fs/cgroup"
)

// configure writes the configuration of the agent, which does not run.
func (g *guest) configure(lines ...string) {
	g.noError(os.MkdirAll(manifestDir, 0o755))
	config := append([]string{
		"apiVersion: heraldnode.github.io/v1alpha1", "kind: HeraldConfiguration", "nodeName: " + nodeName, "staticPodPath: " + manifestDir,
	}, lines...)
	g.noError(os.WriteFile("/etc/herald/config.yaml", []byte(strings.Join(config, "\n")+"\n"), 0o600))
}

// addPod writes a manifest in one step.
func (g *guest) addPod(name, manifest string) {
	temporary := filepath.Join(filepath.Dir(manifestDir), name+".new")
	g.noError(os.WriteFile(temporary, []byte(manifest), 0o600))
	g.noError(os.Rename(temporary, filepath.Join(manifestDir, name+".yaml")))
}

func (g *guest) removePod(name string) {
	g.noError(os.Remove(filepath.Join(manifestDir, name+".yaml")))
}

// pod returns the pod of a manifest, as the agent shows it.
func (g *guest) pod(name string) (*v1.Pod, error) {
	text, err := output("herald", "get", "pods", name+"-"+nodeName, "-o", "json")
	if err != nil {
		return nil, err
	}
	pod := &v1.Pod{}
	return pod, json.Unmarshal([]byte(text), pod)
}

// runningPod waits until the containers of the pod run and are ready.
func (g *guest) runningPod(name string) *v1.Pod {
	var pod *v1.Pod
	g.eventually(func() (err error) {
		if pod, err = g.pod(name); err != nil {
			return err
		}
		statuses := pod.Status.ContainerStatuses
		if pod.Status.Phase != v1.PodRunning || len(statuses) == 0 {
			return fmt.Errorf("pod %s has phase %s", name, pod.Status.Phase)
		}
		for _, status := range statuses {
			if status.State.Running == nil || !status.Ready {
				return fmt.Errorf("container %s of pod %s: %+v", status.Name, name, status)
			}
		}
		return nil
	})
	return pod
}

// gone waits until the agent has forgotten the pod.
func (g *guest) gone(name string) {
	g.eventually(func() error {
		text, err := output("herald", "get", "pods", name+"-"+nodeName, "--ignore-not-found", "-o", "name")
		if err == nil && text != "" {
			err = fmt.Errorf("pod %s is still there", name)
		}
		return err
	})
}

// instance is one run of a container.
type instance struct {
	ID       string
	Restarts int32
	PID      int
}

// instanceOf returns the run of the pod's only container, with its process.
func (g *guest) instanceOf(name string) instance {
	pod := g.runningPod(name)
	status := pod.Status.ContainerStatuses[0]
	_, id, _ := strings.Cut(status.ContainerID, "://")
	pids := g.containerPIDs(id)
	if len(pids) == 0 {
		g.fatalf("pod %s: no process of container %s", name, id)
	}
	return instance{ID: id, Restarts: status.RestartCount, PID: pids[0]}
}

// same fails unless the container was not restarted since.
func (g *guest) same(name string, before instance) {
	if now := g.instanceOf(name); now != before {
		g.fatalf("pod %s: got %+v, want %+v: the container was restarted", name, now, before)
	}
}

// containerPIDs returns the processes with the ID in their cgroup, except shims of containerd, or in their environment as the
// process runtime sets it; lowest first.
func (g *guest) containerPIDs(id string) []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	g.noError(err)
	var pids []int
	for _, dir := range dirs {
		cgroup, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
		isContainer := strings.Contains(string(environment), "HERALD_CONTAINER_ID="+id) ||
			strings.Contains(string(cgroup), id) && !strings.Contains(string(cgroup), "herald-"+id)
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && isContainer {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// cgroupOf returns the cgroup of a process in systemd's hierarchy.
func (g *guest) cgroupOf(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	g.noError(err)
	for line := range strings.Lines(string(content)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if fields[1] == "name=systemd" || fields[1] == "" && fields[2] != "/" {
			return fields[2]
		}
	}
	g.fatalf("process %d has no cgroup in %q", pid, content)
	return ""
}

// unit returns a property of the agent's unit.
func (g *guest) unit(property string) string {
	value, err := output("systemctl", "show", "--value", "-p", property, "herald.service")
	g.noError(err)
	return value
}

func (g *guest) mainPID() int {
	pid, err := strconv.Atoi(g.unit("MainPID"))
	g.noError(err)
	return pid
}

// value returns the content of a cgroup file.
func (g *guest) value(cgroup, file string) string {
	content, err := os.ReadFile(filepath.Join(cgroupMount, cgroup, file))
	g.noError(err)
	return strings.TrimSpace(string(content))
}

// want waits until files of a cgroup are FILE=VALUE, since the agent repairs values once a minute. It reports whether it had to.
func (g *guest) want(cgroup string, settings ...string) {
	began, first := time.Now(), error(nil)
	g.eventually(func() error {
		err := g.differences(cgroup, settings)
		if first == nil {
			first = err
		}
		return err
	})
	if first != nil {
		g.printf("     %v; right after %.0f s", first, time.Since(began).Seconds())
	}
}

func (g *guest) differences(cgroup string, settings []string) error {
	var wrong []string
	for _, setting := range settings {
		file, want, _ := strings.Cut(setting, "=")
		if got := g.value(cgroup, file); got != want {
			wrong = append(wrong, fmt.Sprintf("%s is %q, want %q", file, got, want))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s: %s", cgroup, strings.Join(wrong, "; "))
	}
	return nil
}

// removed waits until a cgroup does not exist.
func (g *guest) removed(cgroup string) {
	g.eventually(func() error {
		_, err := os.Stat(filepath.Join(cgroupMount, cgroup))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil:
			return fmt.Errorf("cgroup %s still exists", cgroup)
		}
		return err
	})
}

func isAlive(pid int) bool { return syscall.Kill(pid, 0) == nil }
