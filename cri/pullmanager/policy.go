package pullmanager

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heraldnode/herald/internal/image"
)

// Policy decides which images of the node a pod may use whatever its credentials (IMG-9).
type Policy string

// The kubelet's values of imagePullCredentialsVerificationPolicy.
const (
	// NeverVerify exempts every image.
	NeverVerify Policy = "NeverVerify"
	// NeverVerifyPreloadedImages exempts images that the agent did not pull.
	NeverVerifyPreloadedImages Policy = "NeverVerifyPreloadedImages"
	// NeverVerifyAllowlistedImages exempts the images of a list.
	NeverVerifyAllowlistedImages Policy = "NeverVerifyAllowlistedImages"
	// AlwaysVerify exempts none.
	AlwaysVerify Policy = "AlwaysVerify"
)

// Policies lists all policies.
func Policies() []Policy {
	return []Policy{NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify}
}

// verification is a valid policy.
type verification struct {
	policy   Policy
	names    []string
	prefixes []string // end in "/"
}

func newVerification(policy Policy, allowlist []string) (verification, error) {
	v := verification{policy: policy}
	if !slices.Contains(Policies(), policy) {
		return v, fmt.Errorf("pullmanager.Config: Policy must be one of %v, not %q", Policies(), policy)
	}
	if len(allowlist) > 0 && policy != NeverVerifyAllowlistedImages {
		return v, fmt.Errorf("pullmanager.Config: Allowlist requires Policy %s, not %s", NeverVerifyAllowlistedImages, policy)
	}
	for _, pattern := range allowlist {
		if !IsPattern(pattern) {
			return v, fmt.Errorf("pullmanager.Config: Allowlist: %q must be an image name without tag and digest, or a prefix that ends in /*",
				pattern)
		}
		if prefix, isPrefix := strings.CutSuffix(pattern, "*"); isPrefix {
			v.prefixes = append(v.prefixes, prefix)
		} else {
			v.names = append(v.names, pattern)
		}
	}
	return v, nil
}

// IsPattern reports whether the pattern is an image name without tag and digest, or a prefix of names that ends in "/*", such as
// "registry.example.com/team/*".
func IsPattern(pattern string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "/*")
	if prefix == "" || strings.ContainsRune(prefix, '*') || pattern != strings.TrimSpace(pattern) {
		return false
	}
	if isPrefix {
		return true
	}
	name, err := image.Parse(pattern)
	return err == nil && name.Untagged() == pattern
}

// exempts reports whether every pod may use the image. Names are compared as they are written in the pod.
func (v verification) exempts(name image.Name, isPreloaded bool) bool {
	switch v.policy {
	case NeverVerify:
		return true
	case NeverVerifyPreloadedImages:
		return isPreloaded
	case NeverVerifyAllowlistedImages:
		untagged := name.Untagged()
		return slices.Contains(v.names, untagged) ||
			slices.ContainsFunc(v.prefixes, func(prefix string) bool { return strings.HasPrefix(untagged, prefix) })
	default:
		return false
	}
}

// imageIDRepository is how the name "sha256:<ID>" parses. Runtimes accept it as the ID of an image.
const imageIDRepository = "docker.io/library/sha256"

// mayCreate reports whether the pull of one name can create the image that the other name finds.
func mayCreate(pulled, name image.Name) bool {
	if name.Repository == imageIDRepository {
		return true
	}
	if pulled.Repository != name.Repository {
		return false
	}
	return pulled.Digest != "" || name.Digest != "" || tagOf(pulled) == tagOf(name)
}

func tagOf(name image.Name) string {
	if name.Tag == "" {
		return image.DefaultTag
	}
	return name.Tag
}
