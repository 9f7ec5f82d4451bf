package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// processPod is a pod of the process runtime. Its probe writes its own cgroup to a file.
const processPod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 5
  containers:
  - name: web
    image: host
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1; done']
    readinessProbe:
      exec: {command: [sh, -c, 'cat /proc/self/cgroup > probe.cgroup']}
      periodSeconds: 2
      timeoutSeconds: 60 # the machine may be emulated
`

var unitChecks = []check{
	{"the unit file is valid", unitValid},
	{"systemctl start returns when the agent is ready", unitStarts},
	{"a pod has a scope outside the agent's cgroup", podHasScope},
	{"the agent's limits and privileges", agentIsLimited},
	{"systemctl restart keeps pods", restartKeepsPods},
	{"systemd restarts a killed agent, which keeps pods", crashKeepsPods},
	{"systemctl stop keeps pods, start adopts them", stopKeepsPods},
	{"a removed pod leaves no scope", removedPodLeavesNothing},
	{"a pod that runs before a reboot", podBeforeReboot},
}

var systemdStages = []stage{
	{name: "unit", checks: unitChecks, end: "reboot"},
	{name: "after the reboot", checks: []check{{"pods start again after a reboot", podAfterReboot}}, end: "poweroff"},
}

func unitValid(g *guest) {
	warnings, err := output("systemd-analyze", "verify", "/etc/systemd/system/herald.service")
	g.noError(err)
	if warnings != "" {
		g.fatalf("%s", warnings)
	}
}

func unitStarts(g *guest) {
	g.configure("runtime: process", "dataDir: /var/lib/herald", "listen: unix:///run/herald/herald.sock")
	g.noError(os.MkdirAll("/etc/systemd/system/herald.service.d", 0o755))
	g.noError(command("cp", "/opt/herald/process.conf", "/etc/systemd/system/herald.service.d/process.conf"))
	g.addPod("web", processPod)
	g.noError(command("systemctl", "daemon-reload"))
	g.noError(command("systemctl", "start", "herald.service"))
	g.noError(command("herald", "get", "pods")) // at once
	if state := g.unit("ActiveState") + " " + g.unit("SubState"); state != "active running" {
		g.fatalf("got state %s", state)
	}
	g.runningPod("web")
}

func podHasScope(g *guest) {
	web := g.instanceOf("web")
	agent, want := g.cgroupOf(g.mainPID()), "/herald.slice/herald-pods.slice/herald-"+web.ID+".scope"
	if !strings.HasSuffix(agent, "/system.slice/herald.service") {
		g.fatalf("the agent is in %s", agent)
	}
	if got := g.cgroupOf(web.PID); !strings.HasSuffix(got, want) {
		g.fatalf("the container is in %s, want %s", got, want)
	}
	g.eventually(func() error {
		probe, err := os.ReadFile(filepath.Join("/var/lib/herald/process/containers", web.ID, "root/probe.cgroup"))
		if err == nil && !strings.Contains(string(probe), want) {
			err = fmt.Errorf("the probe is in %s, want %s", probe, want)
		}
		return err
	})
}

func agentIsLimited(g *guest) {
	for property, want := range map[string]string{
		"MemoryHigh": "1073741824", "MemoryMax": "2147483648", "OOMPolicy": "continue", "KillMode": "process", "OOMScoreAdjust": "0",
	} {
		if got := g.unit(property); got != want {
			g.fatalf("%s is %s, want %s", property, got, want)
		}
	}
	// Pods of the process runtime inherit the agent's privileges: the drop-in must have lifted all restrictions.
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.instanceOf("web").PID))
	g.noError(err)
	for _, want := range []string{"NoNewPrivs:\t0\n", "Seccomp:\t"} {
		if !strings.Contains(string(status), want) {
			g.fatalf("no %q in the status of the container's process:\n%s", want, status)
		}
	}
}

func restartKeepsPods(g *guest) {
	web, agent := g.instanceOf("web"), g.mainPID()
	g.noError(command("systemctl", "restart", "herald.service"))
	if g.mainPID() == agent {
		g.fatalf("the agent was not restarted")
	}
	g.same("web", web)
}

func crashKeepsPods(g *guest) {
	web, agent := g.instanceOf("web"), g.mainPID()
	g.noError(syscall.Kill(agent, syscall.SIGKILL))
	g.eventually(func() error {
		if state, pid := g.unit("ActiveState"), g.mainPID(); state != "active" || pid == agent || pid == 0 {
			return fmt.Errorf("state %s, process %d", state, pid)
		}
		return nil
	})
	g.same("web", web)
	if restarts := g.unit("NRestarts"); restarts != "1" {
		g.fatalf("got %s restarts, want 1", restarts)
	}
}

func stopKeepsPods(g *guest) {
	web := g.instanceOf("web")
	g.noError(command("systemctl", "stop", "herald.service"))
	if state := g.unit("ActiveState"); state != "inactive" {
		g.fatalf("the stopped agent is %s", state)
	}
	if !isAlive(web.PID) {
		g.fatalf("the container ended with the agent")
	}
	g.noError(command("systemctl", "start", "herald.service"))
	g.same("web", web)
}

func removedPodLeavesNothing(g *guest) {
	web := g.instanceOf("web")
	g.removePod("web")
	g.gone("web")
	if isAlive(web.PID) {
		g.fatalf("process %d still runs", web.PID)
	}
	units, err := output("systemctl", "list-units", "--all", "--no-legend", "--plain", "herald-*.scope")
	g.noError(err)
	if units != "" {
		g.fatalf("units are left:\n%s", units)
	}
}

const rememberedFile = stateDir + "/instances"

// remember stores what runs now for the next stage.
func (g *guest) remember(names ...string) {
	instances := map[string]instance{}
	for _, name := range names {
		instances[name] = g.instanceOf(name)
	}
	content, err := json.Marshal(instances)
	g.noError(err)
	g.noError(writeSynced(rememberedFile, string(content)))
}

func (g *guest) remembered() map[string]instance {
	content, err := os.ReadFile(rememberedFile)
	g.noError(err)
	instances := map[string]instance{}
	g.noError(json.Unmarshal(content, &instances))
	return instances
}

func podBeforeReboot(g *guest) {
	g.addPod("web", processPod)
	g.remember("web")
	g.noError(command("systemctl", "enable", "herald.service"))
}

// podAfterReboot expects each container to run again exactly once.
func podAfterReboot(g *guest) {
	g.eventually(func() error {
		if state := g.unit("ActiveState"); state != "active" {
			return fmt.Errorf("the agent is %s", state)
		}
		return nil
	})
	for name, before := range g.remembered() {
		if _, id, _ := strings.Cut(g.runningPod(name).Status.ContainerStatuses[0].ContainerID, "://"); id == before.ID {
			g.fatalf("pod %s: container %s of before the boot is shown as running", name, id)
		}
		if after := g.instanceOf(name); after.Restarts != before.Restarts+1 {
			g.fatalf("pod %s: got %+v after %+v, want one restart more", name, after, before)
		}
	}
}
