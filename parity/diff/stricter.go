package diff

import "regexp"

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
