package config

import (
	"slices"
	"strings"
)

// useless says why fields of the kubelet's configuration that there are not here would do nothing.
var useless = []struct{ why, fields string }{
	{"Herald answers on this machine only, at its field listen", `address port readOnlyPort enableServer tlsCertFile
		tlsPrivateKeyFile tlsCipherSuites tlsCurvePreferences tlsMinVersion serverTLSBootstrap authentication authorization
		enableDebuggingHandlers enableContentionProfiling enableProfilingHandler enableDebugFlagsHandler enableSystemLogHandler
		enableSystemLogQuery streamingConnectionIdleTimeout healthzPort healthzBindAddress`},
	{"Herald renews no certificates; those in files are read again when they change", "rotateCertificates"},
	{"Herald tells pressure and evicts nothing", `evictionHard evictionSoft evictionSoftGracePeriod evictionMaxPodGracePeriod
		evictionPressureTransitionPeriod evictionMinimumReclaim mergeDefaultEvictionSettings`},
	{"Herald removes no images", "imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent imageGCLowThresholdPercent"},
	{"Herald pulls images side by side; maxParallelImagePulls limits how many", "serializeImagePulls registryPullQPS registryBurst"},
	{"Herald gives no container a CPU or memory of its own", `cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod
		memoryManagerPolicy reservedMemory reservedSystemCPUs topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope`},
	{"Herald limits containers by what they ask for, and nothing else", `kubeletCgroups systemCgroups systemReservedCgroup
		kubeReservedCgroup enforceNodeAllocatable qosReserved podPidsLimit`},
	{"Herald runs with swap and with cgroup v1 too", "failSwapOn failCgroupV1"},
	{"Herald does not wait for the machine's shutdown", `shutdownGracePeriod shutdownGracePeriodCriticalPods
		shutdownGracePeriodByPodPriority`},
	{"Herald has no feature gates", "featureGates"},
	{"Herald mounts no volume that needs a driver", "volumePluginDir enableControllerAttachDetach"},
	{"the network is left to the container runtime", "podCIDR hairpinMode makeIPTablesUtilChains iptablesMasqueradeBit iptablesDropBit"},
	{"Herald does not list images in the Node object", "nodeStatusMaxImages"},
	{"Herald makes no traces", "tracing"},
	{"Herald speaks protobuf, and JSON with those who do not", "contentType"},
	{"that is the unit's: OOMScoreAdjust, LimitNOFILE", "oomScoreAdj maxOpenFiles"},
}

// whyNot is why a field of the kubelet's does nothing here.
func whyNot(path string) string {
	for _, group := range useless {
		if slices.Contains(strings.Fields(group.fields), path) {
			return group.why
		}
	}
	return "not known to Herald"
}
