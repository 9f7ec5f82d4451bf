package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	packageDir = "/opt/packages" // has two versions
	dropInDir  = "/etc/systemd/system/herald.service.d"
	hostData   = "/srv/data"
)

// packageTest installs, upgrades and removes Debian packages.
type packageTest struct {
	older, newer string // paths of the packages
	before       []string
	web          instance
}

func packageStages() []stage {
	p := &packageTest{}
	return []stage{{name: "packages", end: "poweroff", checks: []check{
		{"apt installs the package, and starts nothing", p.installs},
		{"the unit starts with the packaged configuration, and runs a static pod", p.starts},
		{"an upgrade replaces the agent and keeps the pod", p.upgrades},
		{"a downgrade and a reinstallation keep the pod", p.reinstalls},
		{"a removal stops the agent, and keeps pods and configuration", p.removes},
		{"a package that is installed again adopts the pod", p.returns},
		{"a purge ends the pod and leaves nothing", p.purges},
		{"an agent of the user herald runs pods as that user, also after an upgrade", p.runsAsUser},
		{"a purge ends these pods, too", p.purgesAgain},
	}}}
}

func (p *packageTest) installs(g *guest) {
	packages, err := filepath.Glob(packageDir + "/*.deb")
	g.noError(err)
	if len(packages) != 2 {
		g.fatalf("got packages %q, want two", packages)
	}
	p.older, p.newer = packages[0], packages[1]
	if command("dpkg", "--compare-versions", versionOf(p.older)[1:], "lt", versionOf(p.newer)[1:]) != nil {
		p.older, p.newer = p.newer, p.older
	}
	p.before = allFiles(g)
	install(g, p.older)
	p.wantVersion(g, p.older)
	for property, want := range map[string]string{"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "disabled"} {
		if got := g.unit(property); got != want {
			g.fatalf("%s is %s, want %s", property, got, want)
		}
	}
	changed, err := output("dpkg", "--verify", "herald")
	g.noError(err)
	if changed != "" {
		g.fatalf("files differ from the package:\n%s", changed)
	}
	g.noError(command("systemd-analyze", "verify", "/usr/lib/systemd/system/herald.service"))
	g.noError(command("herald", "config", "show", "--config", "/etc/herald/config.yaml"))
	g.noError(command("kubectl-herald", "version"))
}

// starts makes the changes for the process runtime that the configuration describes.
func (p *packageTest) starts(g *guest) {
	p.configure(g, "")
	g.addPod("web", processPod)
	g.noError(command("systemctl", "enable", "--now", "--quiet", "herald.service"))
	p.web = g.instanceOf("web")
}

// configure selects the process runtime, with more lines in the drop-in of the unit.
func (p *packageTest) configure(g *guest, lines string) {
	dropIn, err := os.ReadFile("/usr/share/herald/process.conf")
	g.noError(err)
	g.noError(os.MkdirAll(dropInDir, 0o755))
	g.noError(os.WriteFile(dropInDir+"/process.conf", append(dropIn, lines...), 0o644))
	config, err := os.ReadFile("/etc/herald/config.yaml")
	g.noError(err)
	changed := strings.Replace(string(config), "#runtime: process", "runtime: process", 1)
	g.noError(os.WriteFile("/etc/herald/config.yaml", []byte(changed), 0o644))
	g.noError(command("systemctl", "daemon-reload"))
}

func (p *packageTest) upgrades(g *guest) {
	agent := g.mainPID()
	g.noError(command("dpkg", "--install", p.newer))
	if pid := g.mainPID(); pid == agent || pid == 0 {
		g.fatalf("the process of the agent is %d, and was %d", pid, agent)
	}
	p.wantVersion(g, p.newer)
	p.wantAgent(g, p.newer)
	p.wantPod(g)
	if state := g.unit("UnitFileState"); state != "enabled" {
		g.fatalf("the unit is %s", state)
	}
}

func (p *packageTest) reinstalls(g *guest) {
	g.noError(command("dpkg", "--install", p.older))
	p.wantAgent(g, p.older)
	p.wantPod(g)
	g.noError(command("dpkg", "--install", p.newer))
	install(g, "--reinstall", p.newer)
	p.wantAgent(g, p.newer)
	p.wantPod(g)
}

func (p *packageTest) removes(g *guest) {
	g.noError(command("apt-get", "remove", "-y", "herald"))
	if !isAlive(p.web.PID) {
		g.fatalf("the pod has ended with the package")
	}
	for _, path := range []string{"/usr/bin/herald", "/usr/bin/kubectl-herald", "/run/herald", "/usr/lib/systemd/system/herald.service",
		"/etc/systemd/system/multi-user.target.wants/herald.service", "/usr/share/herald"} {
		if exists(path) {
			g.fatalf("%s is left", path)
		}
	}
	for _, path := range []string{"/etc/herald/config.yaml", manifestDir + "/web.yaml", "/var/lib/herald"} {
		if !exists(path) {
			g.fatalf("%s was removed", path)
		}
	}
	if state := g.unit("ActiveState"); state != "inactive" {
		g.fatalf("the agent is %s", state)
	}
}

func (p *packageTest) returns(g *guest) {
	install(g, p.newer)
	g.noError(command("systemctl", "enable", "--now", "--quiet", "herald.service"))
	p.wantPod(g)
}

// purges also mounts volumes as a pod may have left them: the files of the host in them must survive.
func (p *packageTest) purges(g *guest) {
	volume := "/var/lib/herald/pods/left/volumes"
	g.noError(os.MkdirAll(volume+"/memory here", 0o755))
	g.noError(os.MkdirAll(volume+"/host", 0o755))
	g.noError(os.MkdirAll(hostData, 0o755))
	g.noError(os.WriteFile(hostData+"/file", []byte("precious"), 0o600))
	g.noError(syscall.Mount("tmpfs", volume+"/memory here", "tmpfs", 0, ""))
	g.noError(syscall.Mount(hostData, volume+"/host", "", syscall.MS_BIND, ""))
	// All pods can be ended, and waited for, first. This one comes back.
	g.removePod("web")
	g.noError(command("herald", "wait", "pods", "--all", "-A", "--for=delete"))
	g.noError(command("herald", "wait", "pods", "--all", "-A", "--for=delete")) // also if there is none
	g.addPod("web", processPod)
	p.web = g.instanceOf("web")
	g.noError(command("apt-get", "purge", "-y", "herald"))
	if content, err := os.ReadFile(hostData + "/file"); err != nil || string(content) != "precious" {
		g.fatalf("the file of the host is %q (%v)", content, err)
	}
	p.wantNothing(g)
}

// wantNothing compares the files with those before the installation. The user stays, and so does what the administrator has written.
func (p *packageTest) wantNothing(g *guest) {
	g.noError(os.RemoveAll(dropInDir))
	g.noError(os.RemoveAll(hostData))
	g.eventually(func() error {
		if isAlive(p.web.PID) {
			return fmt.Errorf("process %d still runs", p.web.PID)
		}
		return nil
	})
	for _, path := range allFiles(g) {
		if !slices.Contains(p.before, path) {
			g.fatalf("%s is left", path)
		}
	}
	units, err := output("systemctl", "list-units", "--all", "--no-legend", "--plain", "herald*")
	g.noError(err)
	if units != "" {
		g.fatalf("units are left:\n%s", units)
	}
	if state, _ := output("dpkg-query", "--show", "--showformat=${db:Status-Status}", "herald"); state != "" && state != "not-installed" {
		g.fatalf("dpkg says %s", state)
	}
}

func (p *packageTest) runsAsUser(g *guest) {
	install(g, p.older)
	p.configure(g, "User=herald\n")
	g.addPod("web", processPod)
	g.noError(os.Chmod(manifestDir+"/web.yaml", 0o644))
	g.noError(command("systemctl", "enable", "--now", "--quiet", "herald.service"))
	p.web = g.instanceOf("web")
	var stat syscall.Stat_t
	g.noError(syscall.Stat(fmt.Sprintf("/proc/%d", p.web.PID), &stat))
	account, err := user.Lookup("herald")
	g.noError(err)
	if strconv.Itoa(int(stat.Uid)) != account.Uid {
		g.fatalf("the pod runs as user %d, want %s", stat.Uid, account.Uid)
	}
	g.noError(command("dpkg", "--install", p.newer))
	p.wantAgent(g, p.newer)
	p.wantPod(g)
}

func (p *packageTest) purgesAgain(g *guest) {
	g.noError(command("apt-get", "purge", "-y", "herald"))
	p.wantNothing(g)
}

// wantPod fails unless the pod has the same process as at first, and was never restarted.
func (p *packageTest) wantPod(g *guest) {
	g.same("web", p.web)
	if p.web.Restarts != 0 {
		g.fatalf("the pod was restarted %d times", p.web.Restarts)
	}
}

// versionOf returns v0.1.0 for herald_0.1.0_amd64.deb.
func versionOf(path string) string { return "v" + strings.Split(filepath.Base(path), "_")[1] }

func (p *packageTest) wantVersion(g *guest, path string) {
	text, err := output("herald", "version")
	g.noError(err)
	if !strings.HasPrefix(text, "herald "+versionOf(path)+",") {
		g.fatalf("got %s, want version %s", text, versionOf(path))
	}
}

// wantAgent checks the version of the agent that runs.
func (p *packageTest) wantAgent(g *guest, path string) {
	g.eventually(func() error {
		version, err := output("herald", "status", "-o", "jsonpath={.agent.version}")
		if err == nil && version != versionOf(path) {
			err = fmt.Errorf("the agent has version %s, want %s", version, versionOf(path))
		}
		return err
	})
}

func install(g *guest, arguments ...string) {
	g.noError(command(append([]string{"apt-get", "install", "-y", "--no-install-recommends", "--allow-downgrades"}, arguments...)...))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// changing are directories and files that differ anyhow: of the kernel, of the package manager, of services that run, and those that
// creating a user writes.
var changing = []string{
	"/proc", "/sys", "/dev", "/run/systemd", "/run/log", "/run/udev", "/tmp", "/var/tmp", "/results", "/var/cache", "/var/log",
	"/var/lib/apt", "/var/lib/dpkg", "/var/lib/systemd", "/var/lib/guest",
	"/etc/.pwd.lock", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-",
}

// allFiles lists the files of the machine.
func allFiles(g *guest) []string {
	var paths []string
	g.noError(filepath.WalkDir("/", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case slices.Contains(changing, path) && entry != nil && entry.IsDir():
			return fs.SkipDir
		case err != nil:
			return err
		case !slices.Contains(changing, path):
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}
