// Package diff gives the kubelet's code and Herald's the same input and compares the answers. What may differ is listed
// here, each with its reason; anything else fails.
package diff

import (
	"regexp"
	"slices"
)

// Difference is one thing that Herald does otherwise than the kubelet, on purpose.
type Difference struct {
	// Rule is the number in docs/behaviour.md that says what is wrong with the kubelet's way.
	Rule string
	// Kubelet and Herald say what each does.
	Kubelet, Herald string
	// Why says what is better for users.
	Why string
	// Shown names the test that shows the difference on both.
	Shown string
}

// Differences lists them all, by what they are about. docs/differences.md is written from it.
var Differences = slices.Concat(podsAndSources, derived, reported, probed)

var podsAndSources = []Difference{
	{
		Rule:    "PM-5",
		Kubelet: "a static pod that was removed stays in the UID translation until its mirror is removed",
		Herald:  "is gone from it at once",
		Why:     "nobody is told of a static pod that the node no longer has",
		Shown:   "TestPM5",
	},
	{
		Rule:    "PM-6",
		Kubelet: "removing an old mirror clears the name of a newer one",
		Herald:  "a name is cleared only by the pod that holds it",
		Why:     "a mirror whose predecessor's removal is heard late is still found",
		Shown:   "TestPM6",
	},
	{
		Rule:    "PM-7",
		Kubelet: "removing the old of two pods with one name clears the name",
		Herald:  "the name finds the newest arrival for as long as any pod of that name is held",
		Why:     "a pod that was force-deleted and re-created can be looked up by name",
		Shown:   "TestPM7",
	},
	{
		Rule:    "PM-13",
		Kubelet: "an ordinary API pod may be returned as the counterpart of a mirror with its name, and the other way round",
		Herald:  "only static pods and mirrors are counterparts",
		Why:     "callers need not check what they got",
		Shown:   "TestPM13",
	},
	{
		Rule:    "CFG-1",
		Kubelet: "drops unknown fields of a manifest and reads its first document only, silently",
		Herald:  "refuses unknown fields and duplicate keys with file and line; reads every document and lists of pods",
		Why:     "a typo does not silently change a pod",
		Shown:   "TestCFG1HeraldSeesTypos",
	},
	{
		Rule:    "CFG-9",
		Kubelet: "accepts a hostPath that is not absolute, an unknown emptyDir medium, a hostIP that is none, a negative grace period",
		Herald:  "refuses them, and the other things that the comment of source/manifest lists",
		Why:     "the error is seen when the file is written, not when the pod cannot start",
		Shown:   "TestCFG9HeraldRefuses",
	},
	{
		Rule:    "BUG-20",
		Kubelet: "hashes the defaulted object and the file's path into a static pod's UID",
		Herald:  "hashes what the author wrote, with a version in front",
		Why:     "neither an upgrade nor a renamed file restarts static pods",
		Shown:   "TestBUG20",
	},
	{
		Rule:    "CFG-20",
		Kubelet: "of two files with one pod the last one read wins, and removing either removes the pod for a while",
		Herald:  "the file that was there first keeps the pod; the other is reported and takes over when it goes",
		Why:     "a copied manifest does not restart a pod",
		Shown:   "TestCFG20",
	},
	{
		Rule:    "BUG-18",
		Kubelet: "a syntax error in a manifest ends its pod at the next listing",
		Herald:  "the last good version stays in force, and the error names file and line",
		Why:     "a broken edit is a message, not an outage",
		Shown:   "TestBUG18",
	},
	{
		Rule:    "BUG-32",
		Kubelet: "every file in the folder is a manifest, also web.yaml.bak",
		Herald:  "reads .yaml, .yml and .json, shows what it ignores",
		Why:     "a backup does not shadow the manifest",
		Shown:   "TestBUG32",
	},
	{
		Rule:    "BUG-21",
		Kubelet: "a URL that answers with nothing for a moment loses its pods, and the same content afterwards does not bring them back",
		Herald:  "an empty body is an error and the last good pods stay; `items: []` says that there are none",
		Why:     "a server in trouble does not end pods",
		Shown:   "TestBUG21",
	},
}

// stricter matches Herald's complaints about manifests that the kubelet would run. Each is a row of Differences under
// CFG-9.
var stricter = regexp.MustCompile(`: spec\.(` +
	`volumes\[\d+\]\.hostPath\.path: Invalid value: .*: must be an absolute path` +
	`|volumes\[\d+\]\.image\.reference: Required value.*` +
	`|volumes\[\d+\]\..*secretRef.*` +
	`|volumes\[\d+\]\.emptyDir\.medium: Unsupported value: .*` +
	`|terminationGracePeriodSeconds: Invalid value: -\d+: must be at least 0` +
	`|(initContainers|containers)\[\d+\]\.ports\[\d+\]\.hostIP: Invalid value: .*: must be a valid IP address.*` +
	`|os\.name: Unsupported value: "windows".*` +
	`|.*windowsOptions: Forbidden: Windows pods are not supported` +
	`)$`)

// IsStricter reports whether Herald refuses on purpose what the kubelet would run.
func IsStricter(problems []error) bool {
	for _, problem := range problems {
		if !stricter.MatchString(problem.Error()) {
			return false
		}
	}
	return len(problems) > 0
}
