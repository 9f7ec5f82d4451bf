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

// Limitation describes a feature that pods can request and this runtime does not support. Such requests are rejected, never
// ignored.
type Limitation struct {
	PodField    string // the field of the pod
	CRIField    string // the field of the CRI request
	Requirement string // what the pod's field must be instead
	Reason      string
}

// SandboxLimitations lists what RunPodSandbox rejects.
func SandboxLimitations() []Limitation { return limitations(sandboxRules()) }

// ContainerLimitations lists what CreateContainer rejects.
func ContainerLimitations() []Limitation { return limitations(containerRules()) }

func limitations[T any](rules []rule[T]) []Limitation {
	var all []Limitation
	for _, rule := range rules {
		all = append(all, rule.Limitation)
	}
	return all
}

const (
	reasonNoLimits        = "process groups have no resource limits"
	reasonAgentUser       = "processes run as the agent's user"
	reasonAgentPrivileges = "processes have exactly the agent's privileges"
	reasonNoReadOnly      = "mounts are symbolic links, which cannot be read-only"
	reasonNoNamespaces    = "the process runtime creates no namespaces"
	reasonNoProfiles      = "the process runtime does not confine processes"
	reasonHostImageOnly   = `the only image of the process runtime is "host", the host's own file system`
)

// securityContextField prefixes the CRI fields of the security context.
const securityContextField = "config.linux.security_context."

// rule checks a request for one Limitation. violation returns the offending value, or "" if the request is acceptable.
type rule[T any] struct {
	Limitation
	violation func(hostInfo, T) string
}

// hostInfo is what the rules depend on besides the request.
type hostInfo struct {
	uid, gid int64
	groups   []int
	hostname string
	podsRoot string
}

func readHostInfo(podsRoot string) (hostInfo, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return hostInfo{}, fmt.Errorf("read own groups: %w", err)
	}
	hostname, err := os.Hostname()
	return hostInfo{
		uid: int64(os.Geteuid()), gid: int64(os.Getegid()), groups: groups, hostname: hostname, podsRoot: podsRoot,
	}, err
}

func (h hostInfo) checkSandbox(request *runtimeapi.RunPodSandboxRequest) error {
	return checkRules(sandboxRules(), h, request)
}

func (h hostInfo) checkContainer(config *runtimeapi.ContainerConfig) error {
	return checkRules(containerRules(), h, config)
}

// checkRules reports all violations at once.
func checkRules[T any](rules []rule[T], host hostInfo, request T) error {
	var violations []string
	for _, rule := range rules {
		if value := rule.violation(host, request); value != "" {
			violations = append(violations,
				fmt.Sprintf("%s %s: %s (CRI field %s: %s)", rule.PodField, rule.Requirement, rule.Reason, rule.CRIField, value))
		}
	}
	if len(violations) == 0 {
		return nil
	}
	return status.Error(codes.InvalidArgument, strings.Join(violations, "; "))
}

// valueIf returns the value as text if it violates a rule.
func valueIf(isViolation bool, value any) string {
	if !isViolation {
		return ""
	}
	return fmt.Sprint(value)
}

func (h hostInfo) otherUser(uid *runtimeapi.Int64Value) string {
	return valueIf(uid != nil && uid.GetValue() != h.uid, uid.GetValue())
}

func (h hostInfo) otherGroup(gid *runtimeapi.Int64Value) string {
	return valueIf(gid != nil && gid.GetValue() != h.gid, gid.GetValue())
}

func (h hostInfo) otherGroups(gids []int64) string {
	hasOther := slices.ContainsFunc(gids, func(gid int64) bool {
		return gid != h.gid && !slices.Contains(h.groups, int(gid))
	})
	return valueIf(hasOther, gids)
}

func localProfile(profile *runtimeapi.SecurityProfile) string {
	return valueIf(profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost, "Localhost "+profile.GetLocalhostRef())
}

// legacyProfile checks the fields that preceded SecurityProfile.
func legacyProfile(name string) string {
	return valueIf(!slices.Contains([]string{"", "unconfined", "runtime/default", "docker/default"}, name), name)
}

func seLinuxOptions(options *runtimeapi.SELinuxOption) string {
	isSet := options.GetUser()+options.GetRole()+options.GetType()+options.GetLevel() != ""
	return valueIf(isSet, options)
}

func userNamespace(options *runtimeapi.NamespaceOption) string {
	userns := options.GetUsernsOptions()
	return valueIf(userns != nil && userns.GetMode() != runtimeapi.NamespaceMode_NODE, userns.GetMode())
}

// resourceLimits returns the enforced limits. Shares, the OOM score and zero values are hints that every request carries.
func resourceLimits(resources *runtimeapi.LinuxContainerResources) string {
	var set []string
	add := func(name string, value int64) {
		if value > 0 {
			set = append(set, fmt.Sprintf("%s=%d", name, value))
		}
	}
	add("cpu_quota", resources.GetCpuQuota())
	add("memory_limit_in_bytes", resources.GetMemoryLimitInBytes())
	for _, pages := range resources.GetHugepageLimits() {
		add("hugepage_limits."+pages.GetPageSize(), int64(pages.GetLimit()))
	}
	if cpus := resources.GetCpusetCpus() + resources.GetCpusetMems(); cpus != "" {
		set = append(set, "cpuset="+cpus)
	}
	return strings.Join(set, " ")
}

// findMount describes the first mount that violates a rule.
func findMount(config *runtimeapi.ContainerConfig, isViolation func(*runtimeapi.Mount) bool) string {
	for i, mount := range config.GetMounts() {
		if isViolation(mount) {
			return fmt.Sprintf("mounts[%d] %s at %s", i, mount.GetHostPath(), mount.GetContainerPath())
		}
	}
	return ""
}

// isUnsupportedReadOnly reports a read-only mount of files that the agent does not rewrite itself.
func (h hostInfo) isUnsupportedReadOnly(mount *runtimeapi.Mount) bool {
	return mount.GetReadonly() && (h.podsRoot == "" || !isBelow(h.podsRoot, mount.GetHostPath()))
}

// isConflicting reports a mount at the root, or at, inside or around another mount. Its link would be created in the other
// mount's directory, which belongs to the host.
func isConflicting(config *runtimeapi.ContainerConfig, mount *runtimeapi.Mount) bool {
	mountPath := path.Clean(mount.GetContainerPath())
	if !path.IsAbs(mountPath) || mountPath == "/" {
		return true
	}
	return slices.ContainsFunc(config.GetMounts(), func(other *runtimeapi.Mount) bool {
		otherPath := path.Clean(other.GetContainerPath())
		return other != mount && (otherPath == mountPath || isBelow(otherPath, mountPath))
	})
}

func isBelow(dir, file string) bool {
	return strings.HasPrefix(filepath.Clean(file), strings.TrimSuffix(filepath.Clean(dir), "/")+"/")
}

func isMissing(mount *runtimeapi.Mount) bool {
	if !filepath.IsAbs(mount.GetHostPath()) {
		return true
	}
	_, err := os.Stat(mount.GetHostPath())
	return err != nil
}
