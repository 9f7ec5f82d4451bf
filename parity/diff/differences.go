// Package diff runs the kubelet's code and Herald's on the same input and compares the results. Intended differences are
// listed here, each with its reason. Any other difference fails the tests.
//
// In the tests, "theirs" is the kubelet's result and "ours" is Herald's.
package diff

import (
	"regexp"
	"slices"
)

// Difference is one behaviour in which Herald differs from the kubelet on purpose.
type Difference struct {
	// Rule is the number of the rule or bug in docs/behaviour.md, or "-".
	Rule string
	// Kubelet and Herald say what each does.
	Kubelet, Herald string
	// Why says what users gain.
	Why string
	// Shown is the test of this package that shows the difference on both sides, or a test of another package, as
	// "folder/Test", that shows Herald's.
	Shown string
}

// Differences lists all intended differences by subject. docs/differences.md is generated from it.
var Differences = slices.Concat(podsAndSources, onNode, derived, reported, probed, served, podsServed, logged)

var podsAndSources = []Difference{
	{
		Rule:    "PM-5",
		Kubelet: "keeps a removed static pod in the UID translation until its mirror pod is removed too",
		Herald:  "drops it from the translation at once",
		Why:     "the translation never names a static pod that the node no longer has",
		Shown:   "TestPM5_RemovedStaticPod",
	},
	{
		Rule:    "PM-6",
		Kubelet: "clears the name of a newer mirror pod when an older one is removed",
		Herald:  "clears a name only for the pod that holds it",
		Why:     "a mirror pod is still found when the removal of its predecessor arrives late",
		Shown:   "TestPM6_LateMirrorRemoval",
	},
	{
		Rule:    "PM-7",
		Kubelet: "clears the name when the older of two pods with the same name is removed",
		Herald:  "resolves the name to the newest pod for as long as any pod with that name remains",
		Why:     "a pod that was force-deleted and recreated can be looked up by name",
		Shown:   "TestPM7_RecreatedPod",
	},
	{
		Rule:    "PM-13",
		Kubelet: "may return a regular API pod as the counterpart of a mirror pod with the same name, and vice versa",
		Herald:  "pairs static pods with mirror pods only",
		Why:     "callers need not verify what they get",
		Shown:   "TestPM13_APIPodIsNoCounterpart",
	},
	{
		Rule:    "CFG-1",
		Kubelet: "silently drops unknown fields of a manifest and reads only its first document",
		Herald:  "rejects unknown fields and duplicate keys with file and line; reads every document and lists of pods",
		Why:     "a typo cannot silently change a pod",
		Shown:   "TestCFG1_TyposAndDocuments",
	},
	{
		Rule:    "CFG-9",
		Kubelet: "accepts a relative hostPath, an unknown emptyDir medium, an invalid hostIP and a negative grace period",
		Herald:  "rejects them, and the other cases listed in the documentation of source/manifest",
		Why:     "the error appears when the file is written, not when the pod fails to start",
		Shown:   "TestCFG9_StricterValidation",
	},
	{
		Rule:    "BUG-20",
		Kubelet: "derives a static pod's UID from the defaulted object and the file's path",
		Herald:  "derives it from the manifest as written, with a version prefix; keeps the UID of a pod that a kubelet has started",
		Why:     "neither an upgrade nor renaming the file restarts static pods",
		Shown:   "TestBUG20_UIDIndependentOfPath",
	},
	{
		Rule:    "CFG-20",
		Kubelet: "if two files define the same pod, uses the one read last; removing either file removes the pod for a while",
		Herald:  "keeps the pod of the file that came first; reports the other file, which takes over when the first is removed",
		Why:     "copying a manifest does not restart a pod",
		Shown:   "TestCFG20_DuplicatePod",
	},
	{
		Rule:    "BUG-18",
		Kubelet: "stops the pod at the next listing if its manifest has a syntax error",
		Herald:  "keeps the last valid version and reports the error with file and line",
		Why:     "a broken edit causes a message, not an outage",
		Shown:   "TestBUG18_BrokenEdit",
	},
	{
		Rule:    "BUG-32",
		Kubelet: "reads every file in the directory as a manifest, including web.yaml.bak",
		Herald:  "reads .yaml, .yml and .json, and reports the files that it ignores",
		Why:     "a backup file cannot shadow the manifest",
		Shown:   "TestBUG32_BackupFile",
	},
	{
		Rule:    "BUG-21",
		Kubelet: "loses its pods when the URL briefly returns an empty body, and does not restore them when the same content returns",
		Herald:  "treats an empty body as an error and keeps the last valid pods; `items: []` means no pods",
		Why:     "a failing server does not stop pods",
		Shown:   "TestBUG21_EmptyURLBody",
	},
}

// stricter matches the errors that Herald reports for manifests that the kubelet would run. They belong to the row of
// Differences for CFG-9.
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

// IsStricter reports whether Herald rejects the manifest on purpose although the kubelet would run it.
func IsStricter(problems []error) bool {
	for _, problem := range problems {
		if !stricter.MatchString(problem.Error()) {
			return false
		}
	}
	return len(problems) > 0
}
