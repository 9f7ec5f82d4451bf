package process_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/process"
)

var update = flag.Bool("update", false, "write the table of limitations into docs/process.md")

// coverage records which limitations a test has triggered.
type coverage map[process.Limitation]bool

func newCoverage(limitations []process.Limitation) coverage {
	c := coverage{}
	for _, limitation := range limitations {
		c[limitation] = false
	}
	return c
}

// want fails unless the error rejects exactly these CRI fields, with both field names.
func (c coverage) want(t *testing.T, err error, fields ...string) {
	t.Helper()
	if len(fields) == 0 && err == nil {
		return
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want code InvalidArgument for %v", err, fields)
	}
	for limitation := range c {
		sentence := fmt.Sprintf("%s %s: %s (CRI field %s: ", limitation.PodField, limitation.Requirement, limitation.Reason, limitation.CRIField)
		got := err != nil && strings.Contains(err.Error(), sentence)
		if want := slices.Contains(fields, limitation.CRIField); got != want {
			t.Errorf("%s: got rejected %t, want %t: %v", limitation.CRIField, got, want, err)
		}
		c[limitation] = c[limitation] || got
	}
}

// wantAll fails unless all were triggered.
func (c coverage) wantAll(t *testing.T) {
	t.Helper()
	for limitation, seen := range c {
		if !seen {
			t.Errorf("no test case triggers %s", limitation.CRIField)
		}
	}
}

// securityContextField prefixes the CRI fields of the security context.
const securityContextField = "config.linux.security_context."

func int64Value(n int) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: int64(n)} }

func TestSandboxLimitations(t *testing.T) {
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	type request = *runtimeapi.RunPodSandboxRequest
	linux := func(r request) *runtimeapi.LinuxPodSandboxConfig { return r.GetConfig().GetLinux() }
	local := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost}
	tests := map[string]struct {
		change func(r request)
		want   []string
	}{
		"pod network": {
			func(r request) {
				linux(r).SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_POD
			}, []string{securityContextField + "namespace_options.network"},
		},
		"no Linux config": {
			func(r request) { r.Config.Linux = nil }, []string{securityContextField + "namespace_options.network"},
		},
		"user namespace": {
			func(r request) {
				linux(r).SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{}
			}, []string{securityContextField + "namespace_options.userns_options"},
		},
		"host users": {func(r request) {
			linux(r).SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
		}, nil},
		"runtime handler": {func(r request) { r.RuntimeHandler = "gvisor" }, []string{"runtime_handler"}},
		"hostname":        {func(r request) { r.Config.Hostname = "web-0" }, []string{"config.hostname"}},
		"host's name":     {func(r request) { r.Config.Hostname = hostname }, nil},
		"other host port": {func(r request) {
			r.Config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8080}}
		}, []string{"config.port_mappings"}},
		"host IP": {func(r request) {
			r.Config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 80, HostIp: "127.0.0.1"}}
		}, []string{"config.port_mappings"}},
		"same port": {func(r request) {
			r.Config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 80}, {ContainerPort: 81}}
		}, nil},
		"sysctl":       {func(r request) { linux(r).Sysctls = map[string]string{"a": "b"} }, []string{"config.linux.sysctls"}},
		"limit":        {func(r request) { linux(r).Resources = &runtimeapi.LinuxContainerResources{CpuQuota: 1} }, []string{"config.linux.resources"}},
		"DNS config":   {func(r request) { r.Config.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}} }, nil},
		"other user":   {func(r request) { linux(r).SecurityContext.RunAsUser = int64Value(os.Geteuid() + 1) }, []string{securityContextField + "run_as_user"}},
		"agent's user": {func(r request) { linux(r).SecurityContext.RunAsUser = int64Value(os.Geteuid()) }, nil},
		"other group": {
			func(r request) { linux(r).SecurityContext.RunAsGroup = int64Value(os.Getegid() + 1) }, []string{securityContextField + "run_as_group"},
		},
		"other groups": {func(r request) { linux(r).SecurityContext.SupplementalGroups = []int64{98765} }, []string{securityContextField + "supplemental_groups"}},
		"strict groups policy": {
			func(r request) {
				linux(r).SecurityContext.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
			}, []string{securityContextField + "supplemental_groups_policy"},
		},
		"SELinux": {
			func(r request) { linux(r).SecurityContext.SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0"} },
			[]string{securityContextField + "selinux_options"},
		},
		"empty SELinux options": {func(r request) { linux(r).SecurityContext.SelinuxOptions = &runtimeapi.SELinuxOption{} }, nil},
		"localhost profiles": {
			func(r request) { linux(r).SecurityContext.Seccomp, linux(r).SecurityContext.Apparmor = local, local },
			[]string{securityContextField + "seccomp", securityContextField + "apparmor"},
		},
		"privileged": {func(r request) { linux(r).SecurityContext.Privileged = true }, []string{securityContextField + "privileged"}},
		"Windows":    {func(r request) { r.Config.Windows = &runtimeapi.WindowsPodSandboxConfig{} }, []string{"config.windows"}},
	}
	h := newHarness(t)
	coverage := newCoverage(process.SandboxLimitations())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := &runtimeapi.RunPodSandboxRequest{Config: h.sandboxConfig(strings.ReplaceAll(name, " ", "-"))}
			test.change(request)
			_, err := h.RunPodSandbox(h.ctx, request)
			coverage.want(t, err, test.want...)
		})
	}
	coverage.wantAll(t)
}

func TestContainerLimitations(t *testing.T) {
	type config = *runtimeapi.ContainerConfig
	dir := t.TempDir()
	mount := func(change func(*runtimeapi.Mount)) func(config) {
		return func(c config) {
			mount := &runtimeapi.Mount{HostPath: dir, ContainerPath: "/data"}
			change(mount)
			c.Mounts = []*runtimeapi.Mount{mount}
		}
	}
	secure := func(change func(*runtimeapi.LinuxContainerSecurityContext)) func(config) {
		return func(c config) {
			c.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{}}
			change(c.Linux.SecurityContext)
		}
	}
	limit := func(resources *runtimeapi.LinuxContainerResources) func(config) {
		return func(c config) { c.Linux = &runtimeapi.LinuxContainerConfig{Resources: resources} }
	}
	type context = *runtimeapi.LinuxContainerSecurityContext
	local := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "x"}
	tests := map[string]struct {
		change func(config)
		want   []string
	}{
		"other image":  {func(c config) { c.Image.Image = "nginx" }, []string{"config.image"}},
		"no image":     {func(c config) { c.Image = nil }, []string{"config.image"}},
		"no command":   {func(c config) { c.Command, c.Args = nil, nil }, []string{"config.command, config.args"}},
		"args only":    {func(c config) { c.Command = nil }, nil},
		"relative dir": {func(c config) { c.WorkingDir = "x" }, []string{"config.working_dir"}},
		"device":       {func(c config) { c.Devices = []*runtimeapi.Device{{HostPath: "/dev/null"}} }, []string{"config.devices"}},
		"CDI device":   {func(c config) { c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "gpu"}} }, []string{"config.CDI_devices"}},
		"Windows":      {func(c config) { c.Windows = &runtimeapi.WindowsContainerConfig{} }, []string{"config.windows"}},

		"CPU limit":    {limit(&runtimeapi.LinuxContainerResources{CpuQuota: 1000}), []string{"config.linux.resources"}},
		"memory limit": {limit(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1}), []string{"config.linux.resources"}},
		"cpuset":       {limit(&runtimeapi.LinuxContainerResources{CpusetCpus: "0"}), []string{"config.linux.resources"}},
		"huge pages": {
			limit(&runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2Mi", Limit: 1}}}),
			[]string{"config.linux.resources"},
		},
		"hints only": {limit(&runtimeapi.LinuxContainerResources{
			CpuPeriod: 100000, CpuShares: 2, OomScoreAdj: 1000, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2Mi"}},
		}), nil},

		"mount":                     {mount(func(*runtimeapi.Mount) {}), nil},
		"read-only mount":           {mount(func(m *runtimeapi.Mount) { m.Readonly = true }), []string{"config.mounts[*].readonly"}},
		"recursive read-only mount": {mount(func(m *runtimeapi.Mount) { m.RecursiveReadOnly = true }), []string{"config.mounts[*].recursive_read_only"}},
		"empty mount path":          {mount(func(m *runtimeapi.Mount) { m.ContainerPath = "" }), []string{"config.mounts[*].container_path"}},
		"subpath": {mount(func(m *runtimeapi.Mount) {
			m.HostPath = filepath.Join(dir, "volume-subpaths", "web", "0")
			if err := os.MkdirAll(m.HostPath, 0o700); err != nil {
				t.Fatal(err)
			}
		}), []string{"config.mounts[*].host_path with /volume-subpaths/"}},
		"missing host path": {mount(func(m *runtimeapi.Mount) { m.HostPath += "/x" }), []string{"config.mounts[*].host_path"}},
		"image volume":      {mount(func(m *runtimeapi.Mount) { m.Image = &runtimeapi.ImageSpec{Image: "x"} }), []string{"config.mounts[*].image"}},
		"ID-mapped mount": {
			mount(func(m *runtimeapi.Mount) { m.UidMappings = []*runtimeapi.IDMapping{{Length: 1}} }),
			[]string{"config.mounts[*].uidMappings, gidMappings"},
		},

		"privileged": {secure(func(c context) { c.Privileged = true }), []string{securityContextField + "privileged"}},
		"dropped capabilities": {
			secure(func(c context) { c.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}} }), []string{securityContextField + "capabilities"},
		},
		"empty capabilities": {secure(func(c context) { c.Capabilities = &runtimeapi.Capability{} }), nil},
		"other user":         {secure(func(c context) { c.RunAsUser = int64Value(os.Geteuid() + 1) }), []string{securityContextField + "run_as_user"}},
		"user name":          {secure(func(c context) { c.RunAsUsername = "nobody" }), []string{securityContextField + "run_as_username"}},
		"other group":        {secure(func(c context) { c.RunAsGroup = int64Value(os.Getegid() + 1) }), []string{securityContextField + "run_as_group"}},
		"other groups":       {secure(func(c context) { c.SupplementalGroups = []int64{98765} }), []string{securityContextField + "supplemental_groups"}},
		"agent's group":      {secure(func(c context) { c.SupplementalGroups = []int64{int64(os.Getegid())} }), nil},
		"strict groups policy": {
			secure(func(c context) { c.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict }),
			[]string{securityContextField + "supplemental_groups_policy"},
		},
		"read-only root": {secure(func(c context) { c.ReadonlyRootfs = true }), []string{securityContextField + "readonly_rootfs"}},
		"target container": {
			secure(func(c context) {
				c.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET}
			}), []string{securityContextField + "namespace_options.pid"},
		},
		"user namespace": {
			secure(func(c context) {
				c.NamespaceOptions = &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{}}
			}), []string{securityContextField + "namespace_options.userns_options"},
		},
		"SELinux":            {secure(func(c context) { c.SelinuxOptions = &runtimeapi.SELinuxOption{Role: "r"} }), []string{securityContextField + "selinux_options"}},
		"localhost profiles": {secure(func(c context) { c.Seccomp, c.Apparmor = local, local }), []string{securityContextField + "seccomp", securityContextField + "apparmor"}},
		"legacy profile fields": {
			secure(func(c context) { c.SeccompProfilePath, c.ApparmorProfile = "localhost/x", "localhost/y" }), //nolint:staticcheck // a client may still send it
			[]string{securityContextField + "seccomp_profile_path", securityContextField + "apparmor_profile"},
		},
		"defaults": {secure(func(c context) {
			c.Seccomp, c.Apparmor = &runtimeapi.SecurityProfile{}, &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
			c.NamespaceOptions = &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER}
			c.MaskedPaths, c.ReadonlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
		}), nil},
		"two violations": {func(c config) { c.WorkingDir, c.Image.Image = "data", "nginx" }, []string{"config.image", "config.working_dir"}},
	}
	h := newHarness(t)
	sandboxID := h.sandbox("a")
	coverage := newCoverage(process.ContainerLimitations())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := shell(strings.ReplaceAll(name, " ", "-"), "true")
			test.change(config)
			_, err := h.CreateContainer(h.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config})
			coverage.want(t, err, test.want...)
		})
	}
	coverage.wantAll(t)
}

func TestLimitations_Documented(t *testing.T) {
	const begin, end = "<!-- limitations: written by `go test ./process -update` -->\n", "<!-- /limitations -->"
	file := filepath.Join("..", "docs", "process.md")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers for the table of limitations", file)
	}
	table := limitationTable("RunPodSandbox", process.SandboxLimitations()) + "\n" + limitationTable("CreateContainer", process.ContainerLimitations())
	want := before + begin + table + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(data) != want {
		t.Errorf("the table in %s is out of date: run go test ./process -update", file)
	}
}

func limitationTable(call string, limitations []process.Limitation) string {
	table := "| pod field | requirement | reason | field of " + call + " |\n| --- | --- | --- | --- |\n"
	for _, limitation := range limitations {
		table += fmt.Sprintf("| `%s` | %s | %s | `%s` |\n", limitation.PodField, limitation.Requirement, limitation.Reason, limitation.CRIField)
	}
	return table
}

// newVolume creates a host directory with one file, fact.
func newVolume(t *testing.T, parent string) string {
	t.Helper()
	dir := filepath.Join(parent, "volume")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fact"), []byte("a fact\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMounts_Links(t *testing.T) {
	h := newHarness(t)
	data, secret := newVolume(t, t.TempDir()), newVolume(t, h.pods)
	terminationLog := filepath.Join(t.TempDir(), "termination-log")
	if err := os.WriteFile(terminationLog, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config := shell("web", `cat data/fact; cat "$HERALD_ROOT/var/secret/fact"; echo new > data/new; echo bye > "$HERALD_TERMINATION_LOG"`)
	config.Mounts = []*runtimeapi.Mount{
		{HostPath: data, ContainerPath: "/data"},
		{HostPath: secret, ContainerPath: "/var/secret/", Readonly: true},
		{HostPath: terminationLog, ContainerPath: "/dev/termination-log"},
	}
	id := h.run(h.sandbox("a"), config)
	got := h.waitForExit(id)
	if diff := cmp.Diff([]string{"stdout F a fact", "stdout F a fact"}, logLines(t, got.GetLogPath())); diff != "" {
		t.Error(diff)
	}
	if len(got.GetMounts()) != 3 || got.GetMounts()[2].GetHostPath() != terminationLog {
		t.Errorf("got %v, want 3 mounts", got.GetMounts())
	}
	h.remove(id)
	for file, want := range map[string]string{terminationLog: "bye\n", filepath.Join(data, "new"): "new\n", filepath.Join(secret, "fact"): "a fact\n"} {
		if text, err := os.ReadFile(file); string(text) != want {
			t.Errorf("%s: got %q, error %v", file, text, err)
		}
	}
}

func TestMounts_Unsupported(t *testing.T) {
	h := newHarness(t)
	data, secret := newVolume(t, t.TempDir()), newVolume(t, h.pods)
	if err := os.MkdirAll(h.pods+"-other", 0o700); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		mounts []*runtimeapi.Mount
		want   string
	}{
		"read-only": {[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "/data", Readonly: true}}, "volumeMounts[*].readOnly"},
		"read-only outside pods root": {
			[]*runtimeapi.Mount{{HostPath: secret + "/../../../", ContainerPath: "/data", Readonly: true}}, "volumeMounts[*].readOnly",
		},
		"read-only beside pods root": {
			[]*runtimeapi.Mount{{HostPath: h.pods + "-other", ContainerPath: "/data", Readonly: true}}, "volumeMounts[*].readOnly",
		},
		"root":                {[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "/"}}, "volumeMounts[*].mountPath"},
		"relative mount path": {[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "../x"}}, "volumeMounts[*].mountPath"},
		"same mount path": {
			[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "/a"}, {HostPath: secret, ContainerPath: "/b/../a"}}, "volumeMounts[*].mountPath",
		},
		"nested": {
			[]*runtimeapi.Mount{{HostPath: data, ContainerPath: "/a/b"}, {HostPath: secret, ContainerPath: "/a"}}, "mounts[0] " + data + " at /a/b",
		},
		"missing host path":  {[]*runtimeapi.Mount{{HostPath: data + "/none", ContainerPath: "/a"}}, "hostPath.path must exist"},
		"relative host path": {[]*runtimeapi.Mount{{HostPath: ".", ContainerPath: "/a"}}, "hostPath.path must exist"},
	}
	sandboxID := h.sandbox("a")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := shell("web", "true")
			config.Mounts = test.mounts
			_, err := h.CreateContainer(h.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want code InvalidArgument, %q", err, test.want)
			}
		})
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 1 {
		t.Errorf("host directory was changed: %v, error %v", left, err)
	}
	if _, err := os.Stat(data + "/none"); !os.IsNotExist(err) {
		t.Errorf("host directory was changed: %v", err)
	}
}
