package report

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// maxImageNames is the number of names of an image in the status.
const maxImageNames = 5

// Images returns the images to report, the largest first, at most limit of them (RES-7). A negative limit is none. The result is never
// nil.
func Images(images []observed.StoredImage, limit int) []v1.ContainerImage {
	sorted := slices.SortedFunc(slices.Values(images), func(a, b observed.StoredImage) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.ID, a.ID))
	})
	if limit >= 0 {
		sorted = sorted[:min(limit, len(sorted))]
	}
	reported := make([]v1.ContainerImage, 0, len(sorted))
	for _, image := range sorted {
		names := slices.Concat(image.Digests, image.Tags)
		reported = append(reported, v1.ContainerImage{Names: names[:min(maxImageNames, len(names))], SizeBytes: image.Size})
	}
	return reported
}
