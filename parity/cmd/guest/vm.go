package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/containerd"
)

// Pods of each QoS class.
var vmPods = map[string]string{
	"guaranteed": containerPod("guaranteed", "sleep, 1000h", "requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}"),
	"burstable":  containerPod("burstable", "sleep, 1000h", "requests: {cpu: 125m, memory: 32Mi}, limits: {cpu: 125m}"),
	"besteffort": containerPod("besteffort", "sleep, 1000h", ""),
}

func containerPod(name, arguments, resources string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    args: [%s]
    resources: {%s}
`, name, containerd.TestpodImage, arguments, resources)
}

const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = %t
`

const networkConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.99.0.0/24"}}]}
`

var vmStages = []stage{
	{name: "systemd driver", end: "reboot", checks: append(append([]check{{"versions", versions}}, unitChecks...),
		check{"the kubelet's code writes the same values, both drivers", sameAsKubelet},
		check{"containerd runs pods with the systemd driver", startSystemdDriver},
		check{"values of kubepods, the QoS classes and pods", systemdValues},
		check{"values of containers", containerValues},
		check{"containerd, the cgroup's files and the agent agree about the use of resources", sampling},
		check{"changed values and controllers are repaired", repairs},
		check{"systemctl daemon-reload keeps values", reloadKeepsValues},
		check{"a container of which one process runs out of memory is killed", oomKillsContainer},
		check{"a restart and a crash of the agent keep containers", agentRestartsKeepContainers},
		check{"a removed pod leaves neither cgroup nor unit", removedPodLeavesNoSlice},
		check{"orphaned cgroups and pods are removed", orphansAreRemoved},
		check{"containers before the reboot", containersBeforeBoot},
	)},
	afterReboot, afterPowerCut,
}

// bootStages are those of vmStages that reboot, without the checks before.
var bootStages = []stage{
	{name: "systemd driver", end: "reboot", checks: []check{
		{"versions", versions},
		{"containerd runs pods with the systemd driver", startSystemdDriver},
		{"containerd, the cgroup's files and the agent agree about the use of resources", sampling},
		{"containers before the reboot", containersBeforeBoot},
	}},
	afterReboot, afterPowerCut,
}

var (
	afterReboot = stage{name: "after a reboot", end: "powercut", checks: []check{
		{"pods start again after the reboot", podAfterReboot},
		{"values after the reboot", systemdValues},
		{"containers before the power cut", containersBeforeBoot},
	}}
	afterPowerCut = stage{name: "after a power cut", end: "poweroff", checks: []check{
		{"pods start again after the power cut", podAfterReboot},
		{"values after the power cut", systemdValues},
		{"containerd runs pods with the cgroupfs driver", startCgroupfsDriver},
		{"values with the cgroupfs driver", cgroupfsValues},
		{"the use of resources with the cgroupfs driver", sampling},
		{"a removed pod leaves no cgroup with the cgroupfs driver", removedPodLeavesNoCgroup},
	}}
)

func versions(g *guest) {
	for _, arguments := range [][]string{
		{"uname", "-r"}, {"systemctl", "--version"}, {"containerd", "--version"}, {"runc", "--version"}, {"herald", "version"},
		{"stat", "-f", "-c", "/sys/fs/cgroup is %T", cgroupMount},
	} {
		text, err := output(arguments...)
		g.noError(err)
		first, _, _ := strings.Cut(text, "\n")
		g.printf("     %s", first)
	}
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err != nil {
		g.fatalf("not a cgroup v2 kernel: %v", err)
	}
}

// sameAsKubelet runs the test of parity/runtime that compares Herald's cgroup manager with the kubelet's.
func sameAsKubelet(g *guest) {
	cmd := exec.CommandContext(context.Background(), "/opt/herald/runtime.test", "-test.v", "-test.run=^TestCGR17_KubeletCgroup$")
	cmd.Env = append(os.Environ(), "CI=true")
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "/systemd/guaranteed") {
		g.fatalf("%v\n%s", err, text)
	}
}

func (g *guest) startContainerd(systemdCgroup bool) {
	g.noError(command("systemctl", "stop", "containerd.service"))
	g.noError(os.MkdirAll("/etc/cni/net.d", 0o755))
	g.noError(os.WriteFile("/etc/cni/net.d/10-pods.conflist", []byte(networkConfig), 0o600))
	config := fmt.Sprintf(containerdConfig, containerd.SandboxImage, systemdCgroup)
	g.noError(os.WriteFile("/etc/containerd/config.toml", []byte(config), 0o600))
	g.noError(command("systemctl", "start", "containerd.service"))
	for reference, arguments := range map[string][]string{containerd.SandboxImage: {"pause"}, containerd.TestpodImage: nil} {
		archive := filepath.Join(stateDir, "image.tar")
		g.noError(containerd.WriteImage(archive, reference, "/opt/herald/testpod", arguments...))
		g.noError(command("ctr", "-n", "k8s.io", "images", "import", archive))
	}
}

func startSystemdDriver(g *guest) {
	if _, err := os.Stat(filepath.Join(manifestDir, "web.yaml")); err == nil { // of unitChecks
		g.removePod("web")
		g.gone("web")
	}
	g.noError(command("systemctl", "stop", "herald.service"))
	g.noError(os.RemoveAll("/etc/systemd/system/herald.service.d"))
	g.noError(command("systemctl", "daemon-reload"))
	g.noError(command("dd", "if=/dev/zero", "of=/swap", "bs=1M", "count=64", "status=none"))
	g.noError(os.Chmod("/swap", 0o600))
	g.noError(command("mkswap", "/swap"))
	g.noError(command("swapon", "/swap"))
	g.startContainerd(true)
	// cgroupRoot is not set.
	g.configure("systemReserved: {cpu: 100m, memory: 256Mi}", "podPidsLimit: 500")
	for name, manifest := range vmPods {
		g.addPod(name, manifest)
	}
	g.noError(command("systemctl", "start", "herald.service"))
	for name := range vmPods {
		g.runningPod(name)
	}
}

func startCgroupfsDriver(g *guest) {
	for name := range vmPods {
		g.removePod(name)
	}
	for name := range vmPods {
		g.gone(name)
	}
	g.noError(command("systemctl", "stop", "herald.service"))
	g.startContainerd(false)
	for name, manifest := range vmPods {
		g.addPod(name, manifest)
	}
	g.noError(command("systemctl", "start", "herald.service"))
	for name := range vmPods {
		g.runningPod(name)
	}
}

// podCgroup returns the cgroup of a pod with the systemd driver.
func podCgroup(pod *v1.Pod) string {
	slice := "kubepods"
	dir := "kubepods.slice"
	if class := strings.ToLower(string(pod.Status.QOSClass)); class != "guaranteed" {
		slice += "-" + class
		dir = filepath.Join(dir, slice+".slice")
	}
	return filepath.Join(dir, slice+"-pod"+strings.ReplaceAll(string(pod.UID), "-", "_")+".slice")
}

// The values that every driver must write. One CPU has 1024 shares, and the machine's memory without the reservation is
// compared in nodeMemory.
var (
	guaranteedValues = []string{
		"cpu.weight=8", "cpu.max=20000 100000", "memory.max=67108864", "pids.max=500", "hugetlb.2MB.max=0",
		"memory.high=max", "memory.min=0", "memory.low=0",
	}
	burstableValues  = []string{"cpu.weight=5", "memory.max=max", "pids.max=500", "hugetlb.2MB.max=0"}
	bestEffortValues = []string{"cpu.weight=1", "cpu.max=max 100000", "memory.max=max", "pids.max=500", "hugetlb.2MB.max=0"}

	unlimitedHugePages = "hugetlb.2MB.max=4611686018427387904" // the kubelet's value

	neededControllers = []string{"cpuset", "cpu", "memory", "hugetlb", "pids"}
)

func systemdValues(g *guest) {
	g.nodeValues("kubepods.slice")
	g.want("kubepods.slice/kubepods-burstable.slice", "cpu.weight=5", "memory.max=max", unlimitedHugePages)
	g.want("kubepods.slice/kubepods-besteffort.slice", "cpu.weight=1", "memory.max=max", unlimitedHugePages)
	g.want(podCgroup(g.runningPod("guaranteed")), guaranteedValues...)
	g.want(podCgroup(g.runningPod("burstable")), append(burstableValues, "cpu.max=13000 100000")...) // systemd rounds it
	g.want(podCgroup(g.runningPod("besteffort")), bestEffortValues...)
	for name := range vmPods {
		g.hasControllers(podCgroup(g.runningPod(name)))
	}
}

// hasControllers waits until pods can use all controllers that they need, beside others that systemd or runc enables.
func (g *guest) hasControllers(cgroup string) {
	g.eventually(func() error {
		got := strings.Fields(g.value(cgroup, "cgroup.controllers"))
		for _, controller := range neededControllers {
			if !slices.Contains(got, controller) {
				return fmt.Errorf("%s: controller %s is missing from %v", cgroup, controller, got)
			}
		}
		return nil
	})
}

// nodeValues checks the cgroup of all pods: the reserved 256 MiB and 100m are subtracted.
func (g *guest) nodeValues(cgroup string) {
	var total int64
	meminfo, err := os.ReadFile("/proc/meminfo")
	g.noError(err)
	_, err = fmt.Sscanf(string(meminfo), "MemTotal: %d kB", &total)
	g.noError(err)
	g.want(cgroup, fmt.Sprintf("memory.max=%d", total<<10-256<<20), "cpu.weight=36", "pids.max=max", "cpu.max=max 100000")
}

func containerValues(g *guest) {
	containerCgroup := func(name string) string {
		pod := g.runningPod(name)
		_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
		return filepath.Join(podCgroup(pod), "cri-containerd-"+id+".scope")
	}
	common := []string{"memory.oom.group=1", "memory.swap.max=0"} // containerd ignores huge pages by default
	g.want(containerCgroup("guaranteed"), append(common, "cpu.weight=8", "cpu.max=20000 100000", "memory.max=67108864")...)
	g.want(containerCgroup("burstable"), append(common, "cpu.weight=5", "cpu.max=12500 100000", "memory.max=max")...)
	g.want(containerCgroup("besteffort"), append(common, "cpu.weight=1", "cpu.max=max 100000", "memory.max=max")...)
}

// repairs changes values behind the agent's back: files, what systemd knows, and controllers.
func repairs(g *guest) {
	guaranteed, burstable := podCgroup(g.runningPod("guaranteed")), podCgroup(g.runningPod("burstable"))
	g.write(guaranteed, "memory.max", "max")
	g.noError(command("systemctl", "set-property", "--runtime", filepath.Base(burstable), "CPUWeight=77", "TasksMax=infinity"))
	g.write("kubepods.slice", "memory.max", "max")
	g.write("kubepods.slice/kubepods-burstable.slice", "cpu.weight", "99")
	bestEffort := podCgroup(g.runningPod("besteffort"))
	g.write(bestEffort, "cgroup.subtree_control", "-hugetlb") // children first, as the kernel requires
	g.write("kubepods.slice/kubepods-besteffort.slice", "cgroup.subtree_control", "-hugetlb")
	began := time.Now()
	g.eventually(func() error {
		for file, want := range map[string]string{
			guaranteed + "/memory.max": "67108864", burstable + "/cpu.weight": "5", burstable + "/pids.max": "500",
			"kubepods.slice/kubepods-burstable.slice/cpu.weight": "5",
		} {
			if got := g.value(filepath.Split(file)); got != want {
				return fmt.Errorf("%s is %s", file, got)
			}
		}
		enabled := g.value("kubepods.slice/kubepods-besteffort.slice", "cgroup.subtree_control")
		if !strings.Contains(enabled, "hugetlb") || g.value("kubepods.slice", "memory.max") == "max" {
			return fmt.Errorf("besteffort enables %s", enabled)
		}
		return nil
	})
	g.printf("     repaired after %.0f s", time.Since(began).Seconds())
	systemdValues(g)
}

func (g *guest) write(cgroup, file, value string) {
	g.noError(os.WriteFile(filepath.Join(cgroupMount, cgroup, file), []byte(value), 0o600))
}

// reloadKeepsValues: systemd writes its own values again.
func reloadKeepsValues(g *guest) {
	g.noError(command("systemctl", "daemon-reload"))
	g.noError(command("systemctl", "daemon-reexec"))
	systemdValues(g)
}

func oomKillsContainer(g *guest) {
	g.addPod("hungry", strings.Replace(
		containerPod("hungry", "exhaust, \"64\"", "limits: {memory: 32Mi}"), "spec:", "spec:\n  restartPolicy: Never", 1))
	g.eventually(func() error {
		pod, err := g.pod("hungry")
		if err != nil {
			return err
		}
		for _, status := range pod.Status.ContainerStatuses {
			if ended := status.State.Terminated; ended != nil {
				if ended.Reason != "OOMKilled" || ended.ExitCode != 137 || pod.Status.Phase != v1.PodFailed {
					g.fatalf("phase %s, %+v", pod.Status.Phase, ended)
				}
				return nil
			}
		}
		return fmt.Errorf("pod hungry: %+v", pod.Status.ContainerStatuses)
	})
	g.removePod("hungry")
	g.gone("hungry")
}

func agentRestartsKeepContainers(g *guest) {
	before := map[string]instance{}
	for name := range vmPods {
		before[name] = g.instanceOf(name)
	}
	g.noError(command("systemctl", "restart", "herald.service"))
	for name := range vmPods {
		g.same(name, before[name])
	}
	g.noError(command("systemctl", "kill", "--kill-who=main", "--signal=KILL", "herald.service"))
	for name := range vmPods {
		g.same(name, before[name])
	}
}

func removedPodLeavesNoSlice(g *guest) {
	slice := podCgroup(g.runningPod("guaranteed"))
	g.removePod("guaranteed")
	g.gone("guaranteed")
	g.removed(slice)
	g.noUnits("guaranteed", filepath.Base(slice))
	g.addPod("guaranteed", vmPods["guaranteed"])
	g.runningPod("guaranteed")
}

// noUnits fails if systemd still knows the slice or keeps files of it.
func (g *guest) noUnits(name, slice string) {
	g.eventually(func() error {
		units, err := output("systemctl", "list-units", "--all", "--no-legend", "--plain", slice)
		if err != nil {
			return err
		}
		files, err := filepath.Glob("/run/systemd/*/" + slice + "*")
		if err == nil && (units != "" || len(files) > 0) {
			err = fmt.Errorf("left of pod %s: units %q, files %v", name, units, files)
		}
		return err
	})
}

// orphansAreRemoved: a pod disappears while the agent does not run, and so does a pod that the runtime has lost, of which only a
// cgroup with a process is left.
func orphansAreRemoved(g *guest) {
	vanished := podCgroup(g.runningPod("besteffort"))
	g.noError(command("systemctl", "stop", "herald.service"))
	g.removePod("besteffort")
	lost := "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poddead_beef.slice"
	g.noError(os.Mkdir(filepath.Join(cgroupMount, lost), 0o755))
	process := exec.CommandContext(context.Background(), "sleep", "1000h")
	g.noError(process.Start())
	g.write(lost, "cgroup.procs", fmt.Sprint(process.Process.Pid))
	g.noError(command("systemctl", "start", "herald.service"))
	g.removed(vanished)
	g.removed(lost)
	if err := process.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		g.fatalf("the lost process ended with %v", err)
	}
	g.addPod("besteffort", vmPods["besteffort"])
	g.runningPod("besteffort")
}

func containersBeforeBoot(g *guest) {
	names := make([]string, 0, len(vmPods))
	for name := range vmPods {
		names = append(names, name)
	}
	g.remember(names...)
	g.noError(command("systemctl", "enable", "herald.service"))
}

func cgroupfsValues(g *guest) {
	g.nodeValues("kubepods")
	g.want("kubepods/burstable", "cpu.weight=5", "memory.max=max", unlimitedHugePages)
	g.want("kubepods/besteffort", "cpu.weight=1", "memory.max=max", unlimitedHugePages)
	for cgroup, values := range map[string][]string{
		"kubepods/pod" + string(g.runningPod("guaranteed").UID):            guaranteedValues,
		"kubepods/burstable/pod" + string(g.runningPod("burstable").UID):   append(burstableValues, "cpu.max=12500 100000"),
		"kubepods/besteffort/pod" + string(g.runningPod("besteffort").UID): bestEffortValues,
	} {
		g.want(cgroup, values...)
		g.hasControllers(cgroup)
	}
}

func removedPodLeavesNoCgroup(g *guest) {
	cgroup := "kubepods/pod" + string(g.runningPod("guaranteed").UID)
	g.removePod("guaranteed")
	g.gone("guaranteed")
	g.removed(cgroup)
}
