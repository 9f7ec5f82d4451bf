package process

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limitation is one thing that a pod may ask for and that this runtime cannot give. It is never ignored in silence.
type Limitation struct {
	CRIField    string // the field of the request
	PodField    string // the field of the pod that it comes from
	Requirement string // what the pod's field has to be instead
	Reason      string
}

// SandboxLimitations is what RunPodSandbox refuses.
func SandboxLimitations() []Limitation { return refusalsOf(sandboxRules()) }

// ContainerLimitations is what CreateContainer refuses.
func ContainerLimitations() []Limitation { return refusalsOf(containerRules()) }

func refusalsOf[T any](rules []rule[T]) []Limitation {
	var all []Limitation
	for _, rule := range rules {
		all = append(all, rule.Limitation)
	}
	return all
}

// facts are what the decision depends on besides the request.
type facts struct {
	user, group int64
	groups      []int
	hostname    string
	podsRoot    string
}

func gatherFacts(podsRoot string) (facts, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return facts{}, fmt.Errorf("read the own groups: %w", err)
	}
	hostname, err := os.Hostname()
	return facts{
		user: int64(os.Geteuid()), group: int64(os.Getegid()), groups: groups, hostname: hostname, podsRoot: podsRoot,
	}, err
}

// rule finds one Limitation in a request: asked is what the request has in its field, or empty if that is acceptable.
type rule[T any] struct {
	Limitation
	asked func(facts, T) string
}

func (f facts) refuseSandbox(request *runtimeapi.RunPodSandboxRequest) error {
	return refuse(sandboxRules(), f, request)
}

func (f facts) refuseContainer(config *runtimeapi.ContainerConfig) error {
	return refuse(containerRules(), f, config)
}

// refuse names all that is wrong at once.
func refuse[T any](rules []rule[T], f facts, request T) error {
	var wrong []string
	for _, rule := range rules {
		if asked := rule.asked(f, request); asked != "" {
			wrong = append(wrong, fmt.Sprintf("%s %s: %s (CRI field %s: %s)", rule.PodField, rule.Requirement, rule.Reason, rule.CRIField, asked))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return status.Error(codes.InvalidArgument, strings.Join(wrong, "; "))
}

const (
	whyNoLimits      = "a process group has no limits"
	whyOwnUser       = "a process runs as the agent's own user"
	whyOwnPrivileges = "a process has the agent's privileges, no more and no fewer"
	whyNoAttach      = "nobody can attach to a process"
	whyWritable      = "a mount is a symbolic link, which makes nothing read-only"
	whyNoNamespace   = "the process runtime makes no namespaces"
	whyNoProfile     = "the process runtime confines nothing"
)

// inSecurity is where most of the fields are.
const inSecurity = "config.linux.security_context."

// yes is for requests that are flags or lists: what is asked for is shown if it is there.
func yes(asked bool, what any) string {
	if !asked {
		return ""
	}
	return fmt.Sprint(what)
}

func (f facts) foreignUser(user *runtimeapi.Int64Value) string {
	return yes(user != nil && user.GetValue() != f.user, user.GetValue())
}

func (f facts) foreignGroup(group *runtimeapi.Int64Value) string {
	return yes(group != nil && group.GetValue() != f.group, group.GetValue())
}

func (f facts) foreignGroups(groups []int64) string {
	foreign := slices.ContainsFunc(groups, func(group int64) bool {
		return group != f.group && !slices.Contains(f.groups, int(group))
	})
	return yes(foreign, groups)
}

func localProfile(profile *runtimeapi.SecurityProfile) string {
	return yes(profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost, "Localhost "+profile.GetLocalhostRef())
}

// oldProfile is a profile in the fields that came before SecurityProfile.
func oldProfile(name string) string {
	return yes(!slices.Contains([]string{"", "unconfined", "runtime/default", "docker/default"}, name), name)
}

func seLinux(options *runtimeapi.SELinuxOption) string {
	set := options.GetUser() + options.GetRole() + options.GetType() + options.GetLevel()
	return yes(set != "", options)
}

func ownUsers(options *runtimeapi.NamespaceOption) string {
	users := options.GetUsernsOptions()
	return yes(users != nil && users.GetMode() != runtimeapi.NamespaceMode_NODE, users.GetMode())
}

// limits are those that bind; shares, the OOM score and what is 0 are hints that every request carries.
func limits(r *runtimeapi.LinuxContainerResources) string {
	var set []string
	add := func(name string, value int64) {
		if value > 0 {
			set = append(set, fmt.Sprintf("%s=%d", name, value))
		}
	}
	add("cpu_quota", r.GetCpuQuota())
	add("memory_limit_in_bytes", r.GetMemoryLimitInBytes())
	for _, pages := range r.GetHugepageLimits() {
		add("hugepage_limits."+pages.GetPageSize(), int64(pages.GetLimit()))
	}
	if cpus := r.GetCpusetCpus() + r.GetCpusetMems(); cpus != "" {
		set = append(set, "cpuset="+cpus)
	}
	return strings.Join(set, " ")
}

// badMount is the first mount that a rule about mounts finds wrong.
func badMount(config *runtimeapi.ContainerConfig, wrong func(*runtimeapi.Mount) bool) string {
	for i, mount := range config.GetMounts() {
		if wrong(mount) {
			return fmt.Sprintf("mounts[%d] %s at %s", i, mount.GetHostPath(), mount.GetContainerPath())
		}
	}
	return ""
}

// writableReadOnly is a read-only mount of what the agent does not write anew by itself.
func (f facts) writableReadOnly(mount *runtimeapi.Mount) bool {
	return mount.GetReadonly() && (f.podsRoot == "" || !below(f.podsRoot, mount.GetHostPath()))
}

// clashes reports a mount at, in or around another, or at no place below the root: its link would be made in the other's
// folder, which is the machine's.
func clashes(config *runtimeapi.ContainerConfig, mount *runtimeapi.Mount) bool {
	at := path.Clean(mount.GetContainerPath())
	if !path.IsAbs(at) || at == "/" {
		return true
	}
	return slices.ContainsFunc(config.GetMounts(), func(other *runtimeapi.Mount) bool {
		place := path.Clean(other.GetContainerPath())
		return other != mount && (place == at || below(place, at))
	})
}

func below(folder, file string) bool {
	return strings.HasPrefix(filepath.Clean(file), strings.TrimSuffix(filepath.Clean(folder), "/")+"/")
}

func missing(mount *runtimeapi.Mount) bool {
	if !filepath.IsAbs(mount.GetHostPath()) {
		return true
	}
	_, err := os.Stat(mount.GetHostPath())
	return err != nil
}
