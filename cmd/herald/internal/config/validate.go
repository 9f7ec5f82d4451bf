package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/internal/unixsocket"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/source"
)

// problem is an invalid field, or an invalid configuration as a whole if path is "".
type problem struct{ origin, path, message string }

func (p problem) Error() string {
	if p.origin == "" {
		return p.message
	}
	return p.origin + ": " + p.message
}

// validator collects problems.
type validator struct {
	origins  map[string]string // where each field was set, by path
	problems []problem
}

// rejectIf adds a problem with the origin of the field if the condition holds.
func (v *validator) rejectIf(condition bool, path, format string, args ...any) {
	if !condition {
		return
	}
	origin := v.origins[path]
	switch {
	case origin == "":
		origin = path
	case !strings.HasPrefix(origin, "--"): // a flag identifies the field
		origin += ": " + path
	}
	v.problems = append(v.problems, problem{origin, path, fmt.Sprintf(format, args...)})
}

func (v *validator) mustBePositive(path string, value time.Duration) {
	v.rejectIf(value <= 0, path, "invalid value %v: must be greater than 0s", value)
}

// validate returns an error with a line for each problem.
func (c *Config) validate(origins map[string]string) error {
	var problems []error
	v := &validator{origins: origins, problems: c.problems(origins)}
	c.validateServerUse(v)
	for _, p := range v.problems {
		problems = append(problems, p)
	}
	return errors.Join(problems...)
}

func (c *Config) problems(origins map[string]string) []problem {
	v := &validator{origins: origins}
	c.validateNode(v)
	c.validateNodeStatus(v)
	c.validateEviction(v)
	c.validateSources(v)
	c.validateRuntime(v)
	c.validateContainers(v)
	if err := server.CheckAddress(c.ListenAddress()); err != nil && (c.Listen != "" || c.DataDir != "") {
		v.rejectIf(true, "listen", "%v", err)
	}
	c.validateServer(v)
	if c.KubectlListen != "" {
		err := checkKubectlAddress(c.KubectlListen)
		v.rejectIf(err != nil, "kubectlListen", "%v", err)
	}
	if c.PodsAPI {
		err := server.CheckAddress("unix://" + c.PodsAPISocket())
		v.rejectIf(err != nil, "podsAPI", "%v", err)
	}
	v.rejectIf(c.KubeAPIQPS <= 0 && c.KubeAPIQPS != -1, "kubeAPIQPS",
		"invalid value %d: must be greater than 0, or -1 for no limit", c.KubeAPIQPS)
	v.rejectIf(c.KubeAPIBurst <= 0, "kubeAPIBurst", "invalid value %d: must be greater than 0", c.KubeAPIBurst)
	v.rejectIf(c.EventRecordQPS < 0, "eventRecordQPS", "invalid value %d: must be greater than 0, or 0 for no limit", c.EventRecordQPS)
	v.rejectIf(c.EventBurst <= 0, "eventBurst", "invalid value %d: must be greater than 0", c.EventBurst)
	c.History.validate(v)
	c.Alerting.validate(v)
	v.rejectIf(c.Logging.Format != "text" && c.Logging.Format != "json", "logging.format",
		"invalid value %q: must be text or json", c.Logging.Format)
	v.rejectIf(c.Logging.Verbosity < 0, "logging.verbosity", "invalid value %d: must not be negative", c.Logging.Verbosity)
	return v.problems
}

// checkKubectlAddress returns an error unless kubectl can use the address: it does not support sockets.
func checkKubectlAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	switch {
	case strings.HasPrefix(address, "unix://") || err != nil || port == "0":
		return fmt.Errorf("%q: must be a loopback address and a port, like 127.0.0.1:10260", address)
	default:
		return server.CheckAddress(address)
	}
}

// minHistory is the least size of the history on disk.
const minHistory = 512 << 10

func (h *History) validate(v *validator) {
	maxDisk, err := resource.ParseQuantity(h.MaxDisk)
	v.rejectIf(err != nil || maxDisk.Value() != 0 && maxDisk.Value() < minHistory, "history.maxDisk",
		"invalid value %q: must be at least 512Ki, or 0 to keep the history in memory", h.MaxDisk)
	v.mustBePositive("history.maxAge", h.MaxAge)
	v.rejectIf(h.LogLines < 0 || h.LogLines > 1000, "history.logLines", "invalid value %d: must be between 0 and 1000", h.LogLines)
	logBytes, err := resource.ParseQuantity(h.LogBytes)
	v.rejectIf(err != nil || logBytes.Value() <= 0 || logBytes.Value() > 64<<10, "history.logBytes",
		"invalid value %q: must be between 1 and 64Ki", h.LogBytes)
	v.mustBePositive("history.sync", h.Sync)
}

func (c *Config) validateNode(v *validator) {
	messages := validation.IsDNS1123Subdomain(c.NodeName)
	v.rejectIf(len(messages) > 0, "nodeName", "invalid value %q: %s", c.NodeName, strings.Join(messages, "; "))
	v.rejectIf(c.DataDir == "", "dataDir", "must not be empty")
	for _, ip := range c.NodeIP {
		v.rejectIf(ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "", "nodeIP",
			"invalid value %v: must be a unicast address without a zone", ip)
	}
	v.rejectIf(len(c.NodeIP) > 2 || len(c.NodeIP) == 2 && c.NodeIP[0].Unmap().Is4() == c.NodeIP[1].Unmap().Is4(), "nodeIP",
		"invalid value %v: must be one address, or one of each family", c.NodeIP)
	v.rejectIf(c.NodeStatusMaxImages < -1, "nodeStatusMaxImages", "invalid value %d: must be at least -1", c.NodeStatusMaxImages)
	v.rejectIf(c.MaxPods <= 0, "maxPods", "invalid value %d: must be greater than 0", c.MaxPods)
	for _, key := range slices.Sorted(maps.Keys(c.NodeLabels)) {
		messages := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(c.NodeLabels[key])...)
		v.rejectIf(len(messages) > 0, "nodeLabels", "invalid label %s=%s: %s", key, c.NodeLabels[key], strings.Join(messages, "; "))
	}
	for i, taint := range c.RegisterWithTaints {
		path := fmt.Sprintf("registerWithTaints[%d]", i)
		messages := append(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)...)
		v.rejectIf(len(messages) > 0, path, "invalid taint %s=%s: %s", taint.Key, taint.Value, strings.Join(messages, "; "))
		isSame := func(other Taint) bool { return other.Key == taint.Key && other.Effect == taint.Effect }
		v.rejectIf(slices.ContainsFunc(c.RegisterWithTaints[:i], isSame), path,
			"duplicate taint: key %s with effect %s must be unique", taint.Key, taint.Effect)
		effects := []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}
		v.rejectIf(!slices.Contains(effects, taint.Effect), path+".effect",
			"invalid value %q: must be NoSchedule, PreferNoSchedule or NoExecute", taint.Effect)
	}
}

func (c *Config) validateNodeStatus(v *validator) {
	v.mustBePositive("nodeStatusUpdateFrequency", c.NodeStatusUpdateFrequency)
	v.mustBePositive("nodeStatusReportFrequency", c.NodeStatusReportFrequency)
	v.rejectIf(c.NodeLeaseDurationSeconds < 4, "nodeLeaseDurationSeconds", "invalid value %d: must be at least 4", c.NodeLeaseDurationSeconds)
	validateReserved(v, "kubeReserved", c.KubeReserved)
	validateReserved(v, "systemReserved", c.SystemReserved)
}

func validateReserved(v *validator, path string, reserved map[string]string) {
	supported := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		entryPath := path + "." + name
		v.rejectIf(!slices.Contains(supported, v1.ResourceName(name)), entryPath,
			"unsupported resource: must be cpu, memory or ephemeral-storage")
		quantity, err := resource.ParseQuantity(reserved[name])
		v.rejectIf(err != nil || quantity.Sign() < 0, entryPath, "invalid value %q: must be a quantity, like 500m or 1Gi", reserved[name])
	}
}

func (c *Config) validateSources(v *validator) {
	if c.StaticPodPath == "" && c.StaticPodURL == "" && c.Kubeconfig == "" {
		v.problems = append(v.problems, problem{
			message: "no pod source is configured: set --manifests, --manifest-url or --kubeconfig",
		})
	}
	c.validateKubeconfigs(v)
	v.mustBePositive("fileCheckFrequency", c.FileCheckFrequency)
	v.mustBePositive("httpCheckFrequency", c.HTTPCheckFrequency)
	v.mustBePositive("syncFrequency", c.SyncFrequency)
	if c.StaticPodURL != "" {
		err := source.CheckURL(c.StaticPodURL)
		v.rejectIf(err != nil, "staticPodURL", "%v", err)
	}
	v.rejectIf(c.StaticPodURL == "" && len(c.StaticPodURLHeader) > 0, "staticPodURLHeader", "must not be set without staticPodURL")
	for _, name := range slices.Sorted(maps.Keys(c.StaticPodURLHeader)) {
		v.rejectIf(!headerName.MatchString(name), "staticPodURLHeader."+name, "invalid header name: must consist of letters, digits and '-'")
		v.rejectIf(slices.ContainsFunc(c.StaticPodURLHeader[name], hasControlCharacter), "staticPodURLHeader."+name,
			"invalid header value: must not contain line breaks or other control characters")
	}
	v.rejectIf((c.StaticPodURLCertFile == "") != (c.StaticPodURLKeyFile == ""), "staticPodURLCertFile",
		"must be set together with staticPodURLKeyFile")
}

// headerName matches a token of RFC 9110.
var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

func hasControlCharacter(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func (c *Config) validateRuntime(v *validator) {
	c.validateEndpoint(v, "containerRuntimeEndpoint", c.ContainerRuntimeEndpoint)
	c.validateEndpoint(v, "imageServiceEndpoint", c.ImageServiceEndpoint)
	switch c.Runtime {
	case nodeagent.RuntimeCRI:
		v.rejectIf(c.AllowAPIPods, "allowAPIPods", "must not be set with runtime: cri, which always runs pods from the API server")
	case nodeagent.RuntimeProcess:
		socket := filepath.Join(c.DataDir, "process.sock")
		err := unixsocket.CheckPath(socket)
		v.rejectIf(c.DataDir != "" && err != nil, "dataDir", "%s %v", socket, err)
	default:
		v.rejectIf(true, "runtime", "invalid value %q: must be %s or %s", c.Runtime, nodeagent.RuntimeCRI, nodeagent.RuntimeProcess)
	}
}

func (c *Config) validateEndpoint(v *validator, path, endpoint string) {
	if endpoint == "" {
		return
	}
	v.rejectIf(c.Runtime == nodeagent.RuntimeProcess, path, "must not be set with runtime: process")
	v.rejectIf(!strings.HasPrefix(endpoint, "unix:///"), path,
		"invalid value %q: must be a socket, like unix:///run/containerd/containerd.sock", endpoint)
}

func (c *Config) validateContainers(v *validator) {
	v.mustBePositive("runtimeRequestTimeout", c.RuntimeRequestTimeout)
	v.rejectIf(c.MaxParallelImagePulls < 0, "maxParallelImagePulls",
		"invalid value %d: must be greater than 0, or 0 for no limit", c.MaxParallelImagePulls)
	c.validateImages(v)
	c.validateImageGC(v)
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	v.rejectIf(err != nil || size.IsZero() || !size.RoundUp(0), "containerLogMaxSize",
		"invalid value %q: must be a number of bytes, like 10Mi", c.ContainerLogMaxSize)
	v.rejectIf(c.ContainerLogMaxFiles < 2, "containerLogMaxFiles", "invalid value %d: must be at least 2", c.ContainerLogMaxFiles)
	v.rejectIf(!slices.Contains([]string{"", "cgroupfs", "systemd"}, c.CgroupDriver), "cgroupDriver",
		"invalid value %q: must be cgroupfs, systemd or empty", c.CgroupDriver)
	v.rejectIf(c.CgroupRoot != "" && !filepath.IsAbs(c.CgroupRoot), "cgroupRoot", "invalid value %q: must be an absolute path", c.CgroupRoot)
	for i, key := range c.EnforceNodeAllocatable {
		v.rejectIf(key != "pods", fmt.Sprintf("enforceNodeAllocatable[%d]", i), "invalid value %q: must be pods", key)
	}
	v.rejectIf(c.PodPidsLimit <= 0 && c.PodPidsLimit != -1, "podPidsLimit",
		"invalid value %d: must be greater than 0, or -1 for no limit", c.PodPidsLimit)
	v.rejectIf(c.ResolvConf == "", "resolvConf", "must not be empty; use /dev/null for no name servers")
	for i, pattern := range c.AllowedUnsafeSysctls {
		v.rejectIf(!sysctlPattern.MatchString(pattern), fmt.Sprintf("allowedUnsafeSysctls[%d]", i),
			"invalid value %q: must be a sysctl, like net.core.somaxconn, or a prefix, like net.core.*", pattern)
	}
}

func (c *Config) validateImages(v *validator) {
	policy := pullmanager.Policy(c.ImagePullCredentialsVerificationPolicy)
	v.rejectIf(!slices.Contains(pullmanager.Policies(), policy), "imagePullCredentialsVerificationPolicy",
		"invalid value %q: must be one of %v", policy, pullmanager.Policies())
	v.rejectIf(len(c.PreloadedImagesVerificationAllowlist) > 0 && policy != pullmanager.NeverVerifyAllowlistedImages,
		"preloadedImagesVerificationAllowlist", "must not be set with imagePullCredentialsVerificationPolicy: %s", policy)
	for i, pattern := range c.PreloadedImagesVerificationAllowlist {
		v.rejectIf(!pullmanager.IsPattern(pattern), fmt.Sprintf("preloadedImagesVerificationAllowlist[%d]", i),
			"invalid value %q: must be an image name without a tag, or a prefix like registry.example.com/team/*", pattern)
	}
}

// validateImageGC has the kubelet's rules (IGC-2).
func (c *Config) validateImageGC(v *validator) {
	for _, threshold := range []struct {
		path  string
		value int
	}{{"imageGCHighThresholdPercent", c.ImageGCHighThresholdPercent}, {"imageGCLowThresholdPercent", c.ImageGCLowThresholdPercent}} {
		v.rejectIf(threshold.value < 0 || threshold.value > 100, threshold.path, "invalid value %d: must be between 0 and 100", threshold.value)
	}
	v.rejectIf(c.ImageGCLowThresholdPercent >= c.ImageGCHighThresholdPercent, "imageGCLowThresholdPercent",
		"invalid value %d: must be less than imageGCHighThresholdPercent %d", c.ImageGCLowThresholdPercent, c.ImageGCHighThresholdPercent)
	v.rejectIf(c.ImageMinimumGCAge < 0, "imageMinimumGCAge", "invalid value %v: must not be negative", c.ImageMinimumGCAge)
	v.rejectIf(c.ImageMaximumGCAge < 0, "imageMaximumGCAge", "invalid value %v: must not be negative", c.ImageMaximumGCAge)
	v.rejectIf(c.ImageMaximumGCAge > 0 && c.ImageMaximumGCAge <= c.ImageMinimumGCAge, "imageMaximumGCAge",
		"invalid value %v: must be greater than imageMinimumGCAge %v", c.ImageMaximumGCAge, c.ImageMinimumGCAge)
}

// sysctlPattern matches a name or a non-empty prefix with a star. A star alone would include sysctls of the whole machine.
var sysctlPattern = regexp.MustCompile(`^[a-z0-9][-_.a-z0-9]*\*?$`)
