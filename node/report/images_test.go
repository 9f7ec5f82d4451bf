package report_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/node/report"
	"github.com/heraldnode/herald/observed"
)

func TestRES7_LargestImages(t *testing.T) {
	images := []observed.StoredImage{
		{ID: "a", Tags: []string{"small:1"}, Size: 1},
		{ID: "b", Tags: []string{"big:1", "big:2", "big:3"}, Digests: []string{"big@1", "big@2", "big@3"}, Size: 100},
		{ID: "c", Tags: []string{"same:1"}, Size: 1},
		{ID: "d", Size: 1}, // without a name
	}
	big := v1.ContainerImage{Names: []string{"big@1", "big@2", "big@3", "big:1", "big:2"}, SizeBytes: 100}
	all := []v1.ContainerImage{
		big, {Names: []string{}, SizeBytes: 1}, {Names: []string{"same:1"}, SizeBytes: 1}, {Names: []string{"small:1"}, SizeBytes: 1},
	}
	for limit, want := range map[int][]v1.ContainerImage{-1: all, 0: {}, 1: {big}, 4: all, 50: all} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			if diff := cmp.Diff(want, normalized(report.Images(images, limit))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if report.Images(nil, 50) == nil {
		t.Error("got nil, which means unknown, for a node without images")
	}
}

// normalized replaces nil names.
func normalized(images []v1.ContainerImage) []v1.ContainerImage {
	for i := range images {
		if images[i].Names == nil {
			images[i].Names = []string{}
		}
	}
	return images
}
