// Package image parses the names of container images as the kubelet does: with github.com/distribution/reference.
package image

import (
	// go-digest accepts the digests of the algorithms that are linked. It registers none itself.
	_ "crypto/sha256"
	_ "crypto/sha512"
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// DefaultTag is the tag of an image whose name has neither tag nor digest.
const DefaultTag = "latest"

// Name is a parsed image name.
type Name struct {
	// Repository is the fully qualified name: docker.io/library/busybox.
	Repository string
	// Tag and Digest are empty if the name has none.
	Tag, Digest string

	original string
}

// Parse parses an image name as written in a pod spec.
func Parse(original string) (Name, error) {
	named, err := reference.ParseNormalizedNamed(original)
	if err != nil {
		return Name{}, fmt.Errorf("couldn't parse image name %q: %w", original, err)
	}
	name := Name{Repository: named.Name(), original: original}
	if tagged, ok := named.(reference.Tagged); ok {
		name.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		name.Digest = digested.Digest().String()
	}
	return name, nil
}

// String returns the name as written in the pod spec.
func (n Name) String() string { return n.original }

// Untagged returns the original name without tag and digest.
func (n Name) Untagged() string {
	name := n.original
	if n.Digest != "" {
		name = strings.TrimSuffix(name, "@"+n.Digest)
	}
	if n.Tag != "" {
		name = strings.TrimSuffix(name, ":"+n.Tag)
	}
	return name
}

// IsLatest reports whether the name has the tag latest, explicitly or by default.
func (n Name) IsLatest() bool {
	return n.Tag == DefaultTag || n.Tag == "" && n.Digest == ""
}

// Tagged returns the original name, with the default tag appended if it has neither tag nor digest. It does not qualify a
// short name, so that the container runtime's own rules for short names apply.
func (n Name) Tagged() string {
	if n.Tag == "" && n.Digest == "" {
		return n.original + ":" + DefaultTag
	}
	return n.original
}
