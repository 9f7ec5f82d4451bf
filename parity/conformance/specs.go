package conformance

// files are the source files of the selected specs, as regular expressions: everything about nodes, and the volumes that are part of
// the agent.
var files = []string{
	`test/e2e/common/node/`,
	`test/e2e/node/`,
	`test/e2e/common/storage/(configmap_volume|secrets_volume|projected_\w+|downwardapi\w*|empty_dir|host_path)\.go`,
}

// labels leaves out the specs that run alone or for long, that break the node, and those of features that are off by default or need
// something of the machine. The resize of pod-level resources, 127 specs of a beta feature, needs cgroup v2.
const labels = "!Serial && !Slow && !Disruptive && !Flaky && !Deprecated && Feature: isEmpty" +
	" && !/FeatureGate:InPlacePodLevelResourcesVerticalScaling/"
