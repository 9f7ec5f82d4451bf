package manifest

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/image"
)

// defaultPullPolicy is Always for an image with the latest tag, or neither tag nor digest, and IfNotPresent for all others. A
// name that cannot be read is one of the others, as it is to the kubelet.
func defaultPullPolicy(written string) v1.PullPolicy {
	name, err := image.Parse(written)
	if err == nil && (name.Tag == image.Latest || name.Tag == "" && name.Digest == "") {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}
