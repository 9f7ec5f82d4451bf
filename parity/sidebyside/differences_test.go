package sidebyside_test

import (
	"regexp"
	"strings"
	"testing"
)

// intended is one thing that Herald tells otherwise on purpose, or that differs from one run to the next. Where a side's
// line has no counterpart, its pattern is replaced by instead; a line of which nothing is left is not compared.
type intendedDifference struct {
	// what says what differs, and why.
	description string
	// rule is its number in docs/behaviour.md, if it has one.
	rule            string
	kubelet, herald *regexp.Regexp
	replacement     string
	// sometimes says that it depends on the machine or on the moment.
	optional bool
}

var intendedDifferences = []intendedDifference{
	{
		description: "Herald does not say that the pod may use an image, because it asks nobody",
		kubelet:     regexp.MustCompile(` and can be accessed by the pod$`),
	},
	{
		description: "resources of the whole pod are for API servers that keep them; the kubelet shows 8 EiB where memory has no limit",
		rule:        "PH-39",
		kubelet:     regexp.MustCompile(`^status\.(resources|allocatedResources)\..*`),
	},
	{
		description: "what never started did not start in 1970",
		kubelet:     regexp.MustCompile(`1970-01-01T00:00:00Z`),
		replacement: "null",
	},
	{
		description: "Herald says which variable it cannot set",
		herald:      regexp.MustCompile(`env "X": |envFrom\[0\]: `),
	},
	{
		description: "Herald says what to do, the kubelet to which pod",
		kubelet:     regexp.MustCompile(` \(pod: "[^"]+", container: main\)$`),
		herald:      regexp.MustCompile(`; set securityContext.runAsUser$`),
	},
	{
		description: "Herald says which object has no such key",
		kubelet:     regexp.MustCompile(`configmap references non-existent config key: absent`),
		herald:      regexp.MustCompile(`configMap "settings": key "absent": no such key`),
		replacement: "no such key",
	},
	{
		description: "Herald says where a variable is missing",
		kubelet:     regexp.MustCompile(`missing value for NOPE`),
		herald:      regexp.MustCompile(`volumeMounts\[0\] of container main: subPathExpr: .* that the container does not have: \[NOPE\]`),
		replacement: "no NOPE",
	},
	{
		description: "what is not there is not said to be no folder",
		kubelet:     regexp.MustCompile(`hostPath type check failed: /absent is not a directory`),
		herald:      regexp.MustCompile(`hostPath of type Directory: stat /absent: no such file or directory`),
		replacement: "no folder",
	},
	{
		description: "Herald reads the secrets of registries when it pulls, not before",
		kubelet:     regexp.MustCompile(`^event: Warning FailedToRetrieveImagePullSecret: .*`),
	},
	{
		description: "Herald finds the node's address of the second family by itself",
		rule:        "PH-46",
		herald:      regexp.MustCompile(`^status\.(hostIPs|podIPs)\[1\].*`),
		optional:    true,
	},
	{
		description: "whether a port is open at the first probe; Herald waits for it",
		kubelet:     regexp.MustCompile(earlyProbeFailure),
		herald:      regexp.MustCompile(earlyProbeFailure),
		optional:    true,
	},
}

// unprepared are probes of what has only just begun, on a machine that has a lot to do.
const earlyProbeFailure = `^event: Warning Unhealthy of .* probe failed: (.*:(7000|8080).*(connection refused|deadline exceeded)|.*i/o timeout).*`

// unintended are the differences that nobody meant. seen gets those of allIntended that were met.
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

// mustAllBeMet fails the test for what is listed and never happens.
func requireAllSeen(t *testing.T, seen map[*intendedDifference]bool) {
	t.Helper()
	for i := range intendedDifferences {
		if difference := &intendedDifferences[i]; !difference.optional && !seen[difference] {
			t.Errorf("no pod shows this difference any more; strike it off the list: %s", difference.description)
		}
	}
}
