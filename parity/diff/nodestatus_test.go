package diff_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/kubernetes/pkg/kubelet/util/sliceutils"

	"github.com/heraldnode/herald/node/report"
	"github.com/heraldnode/herald/observed"
)

// The kubelet sorts the images when it lists them, and its setter cuts the list.
func TestRES7_SameImages(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // reproducible on purpose
	names := func(prefix string) (list []string) {
		for i := range random.IntN(5) {
			list = append(list, fmt.Sprint(prefix, i))
		}
		return list
	}
	for _, limit := range []int{-1, 0, 1, 50} {
		var theirs []container.Image
		var ours []observed.StoredImage
		for i := range 80 {
			image := observed.StoredImage{
				ID: fmt.Sprint("sha256:", i), Tags: names(fmt.Sprint("web", i, ":")), Digests: names(fmt.Sprint("web", i, "@")), Size: random.Int64N(20),
			}
			ours = append(ours, image)
			theirs = append(theirs, container.Image{ID: image.ID, RepoTags: image.Tags, RepoDigests: image.Digests, Size: image.Size})
		}
		sort.Sort(sliceutils.ByImageSize(theirs))
		var node v1.Node
		list := func() ([]container.Image, error) { return theirs, nil }
		if err := nodestatus.Images(int32(limit), list)(t.Context(), &node); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(node.Status.Images, report.Images(ours, limit), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("limit %d (-kubelet +herald):\n%s", limit, diff)
		}
	}
}

// What Herald declares is a feature of the kubelet, and the one that the scheduler requires for a pod that Herald can run.
func TestRES9_DeclaredFeatures(t *testing.T) {
	declared := report.Status(report.StatusInput{}).DeclaredFeatures
	never := v1.ContainerRestartPolicyNever
	pod := &types.PodInfo{Spec: &v1.PodSpec{Containers: []v1.Container{{
		Name: "main", RestartPolicy: &never,
		RestartPolicyRules: []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}},
	}}}}
	var known, required []string
	for _, feature := range features.AllFeatures {
		known = append(known, feature.Name())
		if feature.InferForScheduling(pod) {
			required = append(required, feature.Name())
		}
		if limit := feature.MaxVersion(); limit != nil && version.MustParse("1.36.3").GreaterThan(limit) {
			t.Errorf("%s is not declared any more", feature.Name())
		}
	}
	if len(required) == 0 {
		t.Error("no feature is required for a pod that restarts all containers")
	}
	for _, feature := range required {
		if !slices.Contains(declared, feature) {
			t.Errorf("%s is required, but not among %v", feature, declared)
		}
	}
	for _, feature := range declared {
		if !slices.Contains(known, feature) {
			t.Errorf("%s is not a feature of the kubelet: %v", feature, known)
		}
	}
}
