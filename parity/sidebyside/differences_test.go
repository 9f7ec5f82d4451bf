package sidebyside_test

import (
	"regexp"
	"strings"
	"testing"
)

// intendedDifference is something that Herald reports differently on purpose, or that differs between runs. In lines
// without a counterpart, the pattern is replaced by replacement. Empty lines are not compared.
type intendedDifference struct {
	// description says what differs and why.
	description string
	// rule is the number in docs/behaviour.md, if any.
	rule            string
	kubelet, herald *regexp.Regexp
	replacement     string
	// optional means that it depends on the machine or on timing.
	optional bool
}

var intendedDifferences = []intendedDifference{
	{
		description: "pod-level resources are for API servers that store them; the kubelet shows 8 EiB for unlimited memory",
		rule:        "PH-39",
		kubelet:     regexp.MustCompile(`^status\.(resources|allocatedResources)\..*`),
	},
	{
		description: "a container that never started has no start time, not 1970",
		kubelet:     regexp.MustCompile(`1970-01-01T00:00:00Z`),
		replacement: "null",
	},
	{
		description: "Herald names the variable that it cannot set",
		herald:      regexp.MustCompile(`env "X": |envFrom\[0\]: `),
	},
	{
		description: "Herald names the remedy, the kubelet names the pod",
		kubelet:     regexp.MustCompile(` \(pod: "[^"]+", container: main\)$`),
		herald:      regexp.MustCompile(`; set securityContext.runAsUser$`),
	},
	{
		description: "Herald names the object that lacks the key",
		kubelet:     regexp.MustCompile(`configmap references non-existent config key: absent`),
		herald:      regexp.MustCompile(`configMap "settings": key "absent": key not found`),
		replacement: "key not found",
	},
	{
		description: "Herald names the place of a missing variable",
		kubelet:     regexp.MustCompile(`missing value for NOPE`),
		herald:      regexp.MustCompile(`volumeMounts\[0\] of container main: subPathExpr: .* refers to undefined variables: \[NOPE\]`),
		replacement: "no NOPE",
	},
	{
		description: "Herald distinguishes a missing path from one that is not a directory",
		kubelet:     regexp.MustCompile(`hostPath type check failed: /absent is not a directory`),
		herald:      regexp.MustCompile(`hostPath of type Directory: stat /absent: no such file or directory`),
		replacement: "no directory",
	},
	{
		description: "Herald names the field and the remedy of a rejection",
		herald:      regexp.MustCompile(`(^(?:event: Warning [\w-]+|status\.message|.*Pod was rejected): .*); (?:spec|metadata)\.[^:]+: .*`),
		replacement: "$1",
	},
	{
		description: "Herald does not support volumes that need a driver, whether or not there is one",
		kubelet: regexp.MustCompile(`Unable to attach or mount volumes: .* persistentvolumeclaims "absent" not found|` +
			`MountVolume.SetUp failed for volume "data" : kubernetes.io/csi: .* not found in the list of registered CSI drivers`),
		herald: regexp.MustCompile(
			`MountVolume.SetUp failed for volume "data" : (persistentVolumeClaim|csi): volumes that need a driver are not supported; use .*`),
		replacement: "no driver",
	},
	{
		description: "Herald leaves out the prefix of gRPC",
		kubelet:     regexp.MustCompile(`rpc error: code = Unknown desc = `),
	},
	{
		description: "Herald names the field that the runtime cannot honour",
		kubelet:     regexp.MustCompile("can't set `spec.hostUsers: false`, runtime does not support user namespaces"),
		herald:      regexp.MustCompile(`spec\.hostUsers: Forbidden: .*`),
		replacement: "not supported",
	},
	{
		description: "Herald reads registry secrets when it pulls, not before",
		kubelet:     regexp.MustCompile(`^event: Warning FailedToRetrieveImagePullSecret: .*`),
	},
	{
		description: "Herald names the mount and the remedy",
		kubelet:     regexp.MustCompile(`failed to resolve recursive read-only mode: volume "host" requested .*, but .*`),
		herald:      regexp.MustCompile(`volumeMounts\[0\] of container main: recursiveReadOnly: Enabled is not supported .*`),
		replacement: "not recursive",
		optional:    true, // containerd supports it since 2.0
	},
	{
		description: "Herald detects the node's address of the second family",
		rule:        "PH-46",
		herald:      regexp.MustCompile(`^status\.(hostIPs|podIPs)\[1\].*`),
		optional:    true,
	},
	{
		description: "a port may not be open at the first probe; Herald waits for it",
		kubelet:     regexp.MustCompile(earlyProbeFailure),
		herald:      regexp.MustCompile(earlyProbeFailure),
		optional:    true,
	},
}

// earlyProbeFailure matches failed probes of containers that have just started on a busy machine.
const earlyProbeFailure = `^event: Warning Unhealthy of .* probe failed: (.*:(7000|8080).*(connection refused|deadline exceeded)|.*i/o timeout).*`

// unintendedDifferences returns the differences that are not intended. seen receives the intended ones that occurred.
func unintendedDifferences(kubelet, herald view, seen func(*intendedDifference)) []string {
	theirs, ours := kubelet.without(herald), herald.without(kubelet)
	for i := range intendedDifferences {
		difference := &intendedDifferences[i]
		theirs = theirs.rewrite(difference, difference.kubelet, seen)
		ours = ours.rewrite(difference, difference.herald, seen)
	}
	return differences(theirs, ours)
}

func (v view) rewrite(difference *intendedDifference, pattern *regexp.Regexp, seen func(*intendedDifference)) view {
	if pattern == nil {
		return v
	}
	rewritten := view{}
	for line := range v {
		if pattern.MatchString(line) {
			seen(difference)
			line = pattern.ReplaceAllString(line, difference.replacement)
		}
		if strings.TrimSpace(line) != "" {
			rewritten[line] = true
		}
	}
	return rewritten
}

// requireAllSeen fails the test for listed differences that never occurred.
func requireAllSeen(t *testing.T, seen map[*intendedDifference]bool) {
	t.Helper()
	for i := range intendedDifferences {
		if difference := &intendedDifferences[i]; !difference.optional && !seen[difference] {
			t.Errorf("no pod shows this intended difference: %s", difference.description)
		}
	}
}
