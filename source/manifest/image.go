package manifest

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/image"
)

// defaultPullPolicy returns Always for an image with the tag latest, explicitly or by default, and IfNotPresent for all
// others. Like the kubelet, it returns IfNotPresent for a name that cannot be parsed.
func defaultPullPolicy(name string) v1.PullPolicy {
	parsed, err := image.Parse(name)
	if err == nil && parsed.IsLatest() {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}
