package process_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/process"
)

var update = flag.Bool("update", false, "write the table of refusals into docs/process.md")

// provoked are the refusals that a test may see, and whether it did.
type provoked map[process.Limitation]bool

func newProvoked(refusals []process.Limitation) provoked {
	p := provoked{}
	for _, refusal := range refusals {
		p[refusal] = false
	}
	return p
}

// want fails unless the error refuses these CRI fields, with both names, and nothing else.
func (p provoked) want(t *testing.T, err error, fields ...string) {
	t.Helper()
	if len(fields) == 0 && err == nil {
		return
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("have %v, want refusals of %v", err, fields)
	}
	for refusal := range p {
		sentence := fmt.Sprintf("%s %s: %s (CRI field %s: ", refusal.PodField, refusal.Requirement, refusal.Reason, refusal.CRIField)
		have := err != nil && strings.Contains(err.Error(), sentence)
		if want := slices.Contains(fields, refusal.CRIField); have != want {
			t.Errorf("refusal of %s: %t, want %t: %v", refusal.CRIField, have, want, err)
		}
		p[refusal] = p[refusal] || have
	}
}

// wantAll fails unless each was seen.
func (p provoked) wantAll(t *testing.T) {
	t.Helper()
	for refusal, seen := range p {
		if !seen {
			t.Errorf("no test asks for %s", refusal.CRIField)
		}
	}
}

// inSecurity is where most of the fields are.
const inSecurity = "config.linux.security_context."

func int64Value(n int) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: int64(n)} }

func TestWhatASandboxCannotHaveIsRefusedByName(t *testing.T) {
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	type request = *runtimeapi.RunPodSandboxRequest
	linux := func(r request) *runtimeapi.LinuxPodSandboxConfig { return r.GetConfig().GetLinux() }
	local := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost}
	tests := map[string]struct {
		ask  func(r request)
		want []string
	}{
		"a network of its own": {
			func(r request) {
				linux(r).SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_POD
			}, []string{inSecurity + "namespace_options.network"},
		},
		"nothing at all, which is a network of its own": {
			func(r request) { r.Config.Linux = nil }, []string{inSecurity + "namespace_options.network"},
		},
		"users of its own": {
			func(r request) {
				linux(r).SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{}
			}, []string{inSecurity + "namespace_options.userns_options"},
		},
		"the machine's users": {func(r request) {
			linux(r).SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
		}, nil},
		"a handler":          {func(r request) { r.RuntimeHandler = "gvisor" }, []string{"runtime_handler"}},
		"a hostname":         {func(r request) { r.Config.Hostname = "web-0" }, []string{"config.hostname"}},
		"the machine's name": {func(r request) { r.Config.Hostname = hostname }, nil},
		"another host port": {func(r request) {
			r.Config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8080}}
		}, []string{"config.port_mappings"}},
		"an address of the host": {func(r request) {
			r.Config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 80, HostIp: "127.0.0.1"}}
		}, []string{"config.port_mappings"}},
		"its own port": {func(r request) {
			r.Config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 80}, {ContainerPort: 81}}
		}, nil},
		"a sysctl":     {func(r request) { linux(r).Sysctls = map[string]string{"a": "b"} }, []string{"config.linux.sysctls"}},
		"a limit":      {func(r request) { linux(r).Resources = &runtimeapi.LinuxContainerResources{CpuQuota: 1} }, []string{"config.linux.resources"}},
		"a DNS config": {func(r request) { r.Config.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}} }, nil},
		"another user": {func(r request) { linux(r).SecurityContext.RunAsUser = int64Value(os.Geteuid() + 1) }, []string{inSecurity + "run_as_user"}},
		"the own user": {func(r request) { linux(r).SecurityContext.RunAsUser = int64Value(os.Geteuid()) }, nil},
		"another group": {
			func(r request) { linux(r).SecurityContext.RunAsGroup = int64Value(os.Getegid() + 1) }, []string{inSecurity + "run_as_group"},
		},
		"more groups": {func(r request) { linux(r).SecurityContext.SupplementalGroups = []int64{98765} }, []string{inSecurity + "supplemental_groups"}},
		"no more groups": {
			func(r request) {
				linux(r).SecurityContext.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
			}, []string{inSecurity + "supplemental_groups_policy"},
		},
		"SELinux": {
			func(r request) { linux(r).SecurityContext.SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0"} },
			[]string{inSecurity + "selinux_options"},
		},
		"no SELinux": {func(r request) { linux(r).SecurityContext.SelinuxOptions = &runtimeapi.SELinuxOption{} }, nil},
		"a profile of each kind": {
			func(r request) { linux(r).SecurityContext.Seccomp, linux(r).SecurityContext.Apparmor = local, local },
			[]string{inSecurity + "seccomp", inSecurity + "apparmor"},
		},
		"privileges": {func(r request) { linux(r).SecurityContext.Privileged = true }, []string{inSecurity + "privileged"}},
		"Windows":    {func(r request) { r.Config.Windows = &runtimeapi.WindowsPodSandboxConfig{} }, []string{"config.windows"}},
	}
	w := newWorld(t)
	provoked := newProvoked(process.SandboxLimitations())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig(strings.ReplaceAll(name, " ", "-"))}
			test.ask(request)
			_, err := w.RunPodSandbox(w.ctx, request)
			provoked.want(t, err, test.want...)
		})
	}
	provoked.wantAll(t)
}

func TestWhatAContainerCannotHaveIsRefusedByName(t *testing.T) {
	type config = *runtimeapi.ContainerConfig
	folder := t.TempDir()
	mount := func(change func(*runtimeapi.Mount)) func(config) {
		return func(c config) {
			one := &runtimeapi.Mount{HostPath: folder, ContainerPath: "/data"}
			change(one)
			c.Mounts = []*runtimeapi.Mount{one}
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
		ask  func(config)
		want []string
	}{
		"an image":          {func(c config) { c.Image.Image = "nginx" }, []string{"config.image"}},
		"no image":          {func(c config) { c.Image = nil }, []string{"config.image"}},
		"no command":        {func(c config) { c.Command, c.Args = nil, nil }, []string{"config.command, config.args"}},
		"arguments alone":   {func(c config) { c.Command = nil }, nil},
		"a relative folder": {func(c config) { c.WorkingDir = "x" }, []string{"config.working_dir"}},
		"stdin":             {func(c config) { c.Stdin = true }, []string{"config.stdin, config.stdin_once"}},
		"a terminal":        {func(c config) { c.Tty = true }, []string{"config.tty"}},
		"a device":          {func(c config) { c.Devices = []*runtimeapi.Device{{HostPath: "/dev/null"}} }, []string{"config.devices"}},
		"a CDI device":      {func(c config) { c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "gpu"}} }, []string{"config.CDI_devices"}},
		"Windows":           {func(c config) { c.Windows = &runtimeapi.WindowsContainerConfig{} }, []string{"config.windows"}},

		"a CPU limit":    {limit(&runtimeapi.LinuxContainerResources{CpuQuota: 1000}), []string{"config.linux.resources"}},
		"a memory limit": {limit(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1}), []string{"config.linux.resources"}},
		"CPUs":           {limit(&runtimeapi.LinuxContainerResources{CpusetCpus: "0"}), []string{"config.linux.resources"}},
		"huge pages": {
			limit(&runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2Mi", Limit: 1}}}),
			[]string{"config.linux.resources"},
		},
		"hints": {limit(&runtimeapi.LinuxContainerResources{
			CpuPeriod: 100000, CpuShares: 2, OomScoreAdj: 1000, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2Mi"}},
		}), nil},

		"a mount":         {mount(func(*runtimeapi.Mount) {}), nil},
		"a mount to read": {mount(func(m *runtimeapi.Mount) { m.Readonly = true }), []string{"config.mounts[*].readonly"}},
		"only to read":    {mount(func(m *runtimeapi.Mount) { m.RecursiveReadOnly = true }), []string{"config.mounts[*].recursive_read_only"}},
		"a mount nowhere": {mount(func(m *runtimeapi.Mount) { m.ContainerPath = "" }), []string{"config.mounts[*].container_path"}},
		"a volume's part": {mount(func(m *runtimeapi.Mount) {
			m.HostPath = filepath.Join(folder, "volume-subpaths", "web", "0")
			if err := os.MkdirAll(m.HostPath, 0o700); err != nil {
				t.Fatal(err)
			}
		}), []string{"config.mounts[*].host_path with /volume-subpaths/"}},
		"a mount of none":  {mount(func(m *runtimeapi.Mount) { m.HostPath += "/x" }), []string{"config.mounts[*].host_path"}},
		"an image's files": {mount(func(m *runtimeapi.Mount) { m.Image = &runtimeapi.ImageSpec{Image: "x"} }), []string{"config.mounts[*].image"}},
		"mapped users": {
			mount(func(m *runtimeapi.Mount) { m.UidMappings = []*runtimeapi.IDMapping{{Length: 1}} }),
			[]string{"config.mounts[*].uidMappings, gidMappings"},
		},

		"privileges": {secure(func(c context) { c.Privileged = true }), []string{inSecurity + "privileged"}},
		"a capability less": {
			secure(func(c context) { c.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}} }), []string{inSecurity + "capabilities"},
		},
		"no capabilities": {secure(func(c context) { c.Capabilities = &runtimeapi.Capability{} }), nil},
		"another user":    {secure(func(c context) { c.RunAsUser = int64Value(os.Geteuid() + 1) }), []string{inSecurity + "run_as_user"}},
		"a user's name":   {secure(func(c context) { c.RunAsUsername = "nobody" }), []string{inSecurity + "run_as_username"}},
		"another group":   {secure(func(c context) { c.RunAsGroup = int64Value(os.Getegid() + 1) }), []string{inSecurity + "run_as_group"}},
		"more groups":     {secure(func(c context) { c.SupplementalGroups = []int64{98765} }), []string{inSecurity + "supplemental_groups"}},
		"the own group":   {secure(func(c context) { c.SupplementalGroups = []int64{int64(os.Getegid())} }), nil},
		"no more groups": {
			secure(func(c context) { c.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict }),
			[]string{inSecurity + "supplemental_groups_policy"},
		},
		"a root to read": {secure(func(c context) { c.ReadonlyRootfs = true }), []string{inSecurity + "readonly_rootfs"}},
		"a target": {
			secure(func(c context) {
				c.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET}
			}), []string{inSecurity + "namespace_options.pid"},
		},
		"its own users": {
			secure(func(c context) {
				c.NamespaceOptions = &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{}}
			}), []string{inSecurity + "namespace_options.userns_options"},
		},
		"SELinux":              {secure(func(c context) { c.SelinuxOptions = &runtimeapi.SELinuxOption{Role: "r"} }), []string{inSecurity + "selinux_options"}},
		"seccomp and AppArmor": {secure(func(c context) { c.Seccomp, c.Apparmor = local, local }), []string{inSecurity + "seccomp", inSecurity + "apparmor"}},
		"profiles as of old": {
			secure(func(c context) { c.SeccompProfilePath, c.ApparmorProfile = "localhost/x", "localhost/y" }), //nolint:staticcheck // a client may still send it
			[]string{inSecurity + "seccomp_profile_path", inSecurity + "apparmor_profile"},
		},
		"what every container asks for": {secure(func(c context) {
			c.Seccomp, c.Apparmor = &runtimeapi.SecurityProfile{}, &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
			c.NamespaceOptions = &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER}
			c.MaskedPaths, c.ReadonlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
		}), nil},
		"two things": {func(c config) { c.Tty, c.Stdin = true, true }, []string{"config.tty", "config.stdin, config.stdin_once"}},
	}
	w := newWorld(t)
	box := w.sandbox("a")
	provoked := newProvoked(process.ContainerLimitations())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := shell(strings.ReplaceAll(name, " ", "-"), "true")
			test.ask(config)
			_, err := w.CreateContainer(w.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box, Config: config})
			provoked.want(t, err, test.want...)
		})
	}
	provoked.wantAll(t)
}

func TestTheDocumentHasEveryRefusal(t *testing.T) {
	const begin, end = "<!-- refusals: written by `go test ./process -update` -->\n", "<!-- /refusals -->"
	file := filepath.Join("..", "docs", "process.md")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table of refusals", file)
	}
	table := refusalTable("RunPodSandbox", process.SandboxLimitations()) + "\n" + refusalTable("CreateContainer", process.ContainerLimitations())
	want := before + begin + table + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(data) != want {
		t.Errorf("the table in %s is not the code's: go test ./process -update", file)
	}
}

func refusalTable(call string, refusals []process.Limitation) string {
	table := "| the pod's field | rule | why | field of " + call + " |\n| --- | --- | --- | --- |\n"
	for _, refusal := range refusals {
		table += fmt.Sprintf("| `%s` | %s | %s | `%s` |\n", refusal.PodField, refusal.Requirement, refusal.Reason, refusal.CRIField)
	}
	return table
}
