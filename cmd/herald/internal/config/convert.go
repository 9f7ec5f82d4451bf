package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Convert converts a KubeletConfiguration. For each field that is not supported, or whose value Herald would reject, ignored has
// a line with its position and the reason. Values that mean the default to the kubelet (empty, 0, 0s) are omitted silently. A
// field that KubeletConfiguration does not have is an error: the kubelet only logs it.
func Convert(file, text string) (converted string, ignored []string, err error) {
	c, origins := Default(), map[string]string{}
	d := newDecoder(file, origins)
	d.want = kubeletType
	d.unknownField = func(key, value *yaml.Node, path string) {
		reason, found := unsupportedReason(path)
		switch {
		case !found:
			d.rejectKubeletField(key, path)
		case !isUnset(value):
			ignored = append(ignored, fmt.Sprintf("%s:%d: %s: ignored: %s", file, key.Line, path, reason))
		}
	}
	if err := errors.Join(d.decode(text, &c), c.makePathsAbsolute()); err != nil {
		return "", nil, err
	}
	c.resetZeros(origins)
	for again := true; again; { // resetting a field can make another one invalid
		again = false
		for _, problem := range c.problems(origins) {
			if c.reset(problem.path, origins) {
				ignored = append(ignored, problem.origin+": ignored: "+problem.message)
				again = true
			}
		}
	}
	converted, err = c.encode(func(l leaf) bool { return origins[l.path] != "" })
	return converted, ignored, err
}

// isUnset reports whether the kubelet treats the value like a missing field.
func isUnset(value *yaml.Node) bool {
	switch value.Kind {
	case yaml.ScalarNode:
		return value.Tag == "!!null" || slices.Contains([]string{"", "0s"}, value.Value)
	case yaml.MappingNode, yaml.SequenceNode:
		for i, item := range value.Content {
			isKey := value.Kind == yaml.MappingNode && i%2 == 0
			if !isKey && !isUnset(item) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// meaningfulZeros are the fields, besides booleans, whose zero value does not mean the default to the kubelet.
var meaningfulZeros = []string{
	"enforceNodeAllocatable", "eventRecordQPS", "healthzPort", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "resolvConf",
}

// resetZeros resets the fields whose value means the default to the kubelet.
func (c *Config) resetZeros(origins map[string]string) {
	for l := range leaves(reflect.ValueOf(c).Elem(), "") {
		isEmpty := l.value.IsZero() || l.Type.Kind() == reflect.Slice && l.value.Len() == 0
		if isEmpty && l.Type.Kind() != reflect.Bool && !slices.Contains(meaningfulZeros, l.path) {
			c.reset(l.path, origins)
		}
	}
}

// reset sets the field that contains path to its default, or deletes the entry of a map. It reports whether the field was set.
func (c *Config) reset(path string, origins map[string]string) bool {
	defaults := Default()
	for l := range leaves(reflect.ValueOf(c).Elem(), "") {
		rest, isPrefix := strings.CutPrefix(path, l.path)
		if !isPrefix || origins[l.path] == "" || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		if l.Type.Kind() == reflect.Map && rest != "" && l.value.Len() > 1 {
			l.value.SetMapIndex(reflect.ValueOf(rest[1:]), reflect.Value{})
			return true
		}
		l.value.Set(leafValue(reflect.ValueOf(defaults), l.path))
		delete(origins, l.path)
		return true
	}
	return false
}

// unsupportedFields lists the fields of KubeletConfiguration that Herald does not have, by reason.
var unsupportedFields = []struct{ reason, fields string }{
	{"Herald has no port without authentication; local clients use the address in listen", "readOnlyPort"},
	{"set port to 0 for no server", "enableServer"},
	{"Herald uses the curves of Go", "tlsCurvePreferences"},
	{"Herald does not profile contention", "enableContentionProfiling"},
	{"Herald does not change its verbosity while it runs", "enableDebugFlagsHandler"},
	{"Herald does not query the journal", "enableSystemLogQuery"},
	{"Herald ends streams that are idle for 4h", "streamingConnectionIdleTimeout"},
	{"Herald always notices when memory gets short", "kernelMemcgNotification"},
	{"Herald pulls images in parallel; limit it with maxParallelImagePulls", "serializeImagePulls registryPullQPS registryBurst"},
	{"Herald does not assign exclusive CPUs or memory", `cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod
		memoryManagerPolicy reservedMemory reservedSystemCPUs topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope`},
	{"Herald enforces only the limits of pods", `kubeletCgroups systemCgroups systemReservedCgroup
		kubeReservedCgroup qosReserved`},
	{"Herald always runs with swap and with cgroup v1", "failSwapOn failCgroupV1"},
	{"Herald does not delay the shutdown of the machine", `shutdownGracePeriod shutdownGracePeriodCriticalPods
		shutdownGracePeriodByPodPriority`},
	{"Herald has no feature gates; podsAPI takes the place of PodsAPI", "featureGates"},
	{"Herald does not support volumes that need a driver", "volumePluginDir enableControllerAttachDetach"},
	{"the container runtime configures the network", "podCIDR hairpinMode makeIPTablesUtilChains iptablesMasqueradeBit iptablesDropBit"},
	{"Herald does not export traces", "tracing"},
	{"Herald uses protobuf, and JSON if the server does not support it", "contentType"},
	{"Herald does not measure the volumes of pods", "volumeStatsAggPeriod"},
	{"Herald runs until it is stopped", "runOnce"},
	{"Herald always enforces CPU limits, in periods of 100ms", "cpuCFSQuota cpuCFSQuotaPeriod"},
	{"Herald always enforces limits of local storage", "localStorageCapacityIsolation"},
	{"limit the number of pods with maxPods", "podsPerCore"},
	{"Herald does not change kernel settings", "protectKernelDefaults"},
	{"containers do not use swap", "memorySwap"},
	{"Herald does not throttle or reserve the memory of containers", "memoryThrottlingFactor memoryReservationPolicy"},
	{"Herald does not support user namespaces", "userNamespaces"},
	{"Herald checks the size of logs every 10s", "containerLogMaxWorkers containerLogMonitorInterval"},
	{"Herald always notices changes of ConfigMaps and Secrets within a minute", "configMapAndSecretChangeDetectionStrategy"},
	{"Herald waits up to 5m before it restarts a container", "crashLoopBackOff"},
	{"Herald has no hidden metrics", "showHiddenMetricsForVersion"},
	{"Herald does not buffer its log", "logging.flushFrequency logging.options"},
	{"Herald has one verbosity", "logging.vmodule"},
	{"the API server sets it", "registerWithTaints[].timeAdded"},
	{"set OOMScoreAdjust and LimitNOFILE in the systemd unit instead", "oomScoreAdj maxOpenFiles"},
}

var listIndex = regexp.MustCompile(`\[[0-9]+\]`)

// unsupportedReason returns why Herald does not have a field of KubeletConfiguration. found is false if that has no such field.
func unsupportedReason(path string) (reason string, found bool) {
	path = listIndex.ReplaceAllLiteralString(path, "[]")
	for _, group := range unsupportedFields {
		if slices.Contains(strings.Fields(group.fields), path) {
			return group.reason, true
		}
	}
	return "", false
}

func (d *decoder) rejectKubeletField(key *yaml.Node, path string) {
	suggestion := suggestField(key.Value)
	for _, group := range unsupportedFields {
		for name := range strings.FieldsSeq(group.fields) {
			if suggestion == "" && editDistance(strings.ToLower(key.Value), strings.ToLower(name)) <= max(1, len(name)/4) {
				suggestion = name
			}
		}
	}
	if suggestion != "" {
		d.errorf(key, path, "KubeletConfiguration has no such field; did you mean %q?", suggestion)
		return
	}
	d.errorf(key, path, "KubeletConfiguration has no such field; remove it")
}
