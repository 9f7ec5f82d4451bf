package manifest

import (
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The parts of an image reference, [domain/]path[:tag][@digest], as the distribution project defines them.
const (
	imageDomain = `(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*` +
		`|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	imagePart   = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	imageTag    = `\w[\w.-]{0,127}`
	imageDigest = `(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})`

	maxImagePath = 255
)

var (
	imageReference = regexp.MustCompile(
		`^(?:` + imageDomain + `/)?(` + imagePart + `(?:/` + imagePart + `)*)(?::(` + imageTag + `))?(@` + imageDigest + `)?$`)
	imageID = regexp.MustCompile(`^[a-f0-9]{64}$`)
)

// defaultPullPolicy is Always for a reference that names the latest tag or neither tag nor digest, IfNotPresent for all
// others. A reference that cannot be read is one of the others, as it is to the kubelet.
func defaultPullPolicy(reference string) v1.PullPolicy {
	parts := imageReference.FindStringSubmatch(withDomain(reference))
	if parts == nil || imageID.MatchString(reference) || len(parts[1]) > maxImagePath {
		return v1.PullIfNotPresent
	}
	if tag, digest := parts[2], parts[3]; tag == "latest" || tag == "" && digest == "" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// withDomain puts Docker Hub's domain before a reference that starts with a path: up to the first slash there is a domain
// only if it is localhost, or looks like a host name.
func withDomain(reference string) string {
	first, rest, found := strings.Cut(reference, "/")
	switch {
	case !found:
		return "docker.io/library/" + reference
	case first == "localhost" || strings.ContainsAny(first, ".:") || strings.ToLower(first) != first:
		return first + "/" + rest
	}
	return "docker.io/" + reference
}
