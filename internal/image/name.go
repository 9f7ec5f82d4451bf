package image

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The parts of an image's name, [domain/]path[:tag][@digest], as the distribution project defines them.
const (
	domainLabel = `[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?`
	domain      = `(?:` + domainLabel + `(?:\.` + domainLabel + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	pathPart    = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	tag         = `[\w][\w.-]{0,127}`
	digest      = `(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})`

	longestPath = 255
)

var (
	// A name may do without a domain: my_host.io is none, and is taken for the beginning of a path.
	fullName = regexp.MustCompile(
		`^((?:` + domain + `/)?(` + pathPart + `(?:/` + pathPart + `)*))(?::(` + tag + `))?(?:@(` + digest + `))?$`)
	id = regexp.MustCompile(`^[a-f0-9]{64}$`)
)

// Name is the name of an image that can be asked for.
type Name struct {
	// Repository is the domain and the path in full: docker.io/library/busybox.
	Repository string
	// Tag and Digest are as they were written, without what leads in to them; "" if they were not.
	Tag, Digest string

	written string
}

// Tagged is the name as it was written, with the tag latest if it has neither tag nor digest.
func (n Name) Tagged() string {
	if n.Tag == "" && n.Digest == "" {
		return n.written + ":" + Latest
	}
	return n.written
}

// Latest is the tag that stands for whatever is newest.
const Latest = "latest"

// Parse reads a name as users write it.
func Parse(written string) (Name, error) {
	if id.MatchString(written) {
		return Name{}, fmt.Errorf("couldn't parse image name %q: 64 hexadecimal digits are an ID, not a name", written)
	}
	domain, rest := splitDomain(written)
	parts := fullName.FindStringSubmatch(domain + "/" + rest)
	if parts == nil {
		return Name{}, fmt.Errorf("couldn't parse image name %q: %w", written, whyNoName(rest))
	}
	if len(parts[2]) > longestPath {
		return Name{}, fmt.Errorf("couldn't parse image name %q: its path is longer than %d characters", written, longestPath)
	}
	return Name{Repository: parts[1], Tag: parts[3], Digest: parts[4], written: written}, nil
}

// splitDomain finds where the name's path begins. What stands before the first slash is a domain only if it is localhost
// or could not be part of a path; all else is on Docker Hub.
func splitDomain(written string) (domain, rest string) {
	const hub = "docker.io"
	domain, rest, found := strings.Cut(written, "/")
	if !found || domain != "localhost" && !strings.ContainsAny(domain, ".:") && strings.ToLower(domain) == domain {
		domain, rest = hub, written
	}
	if domain == "index."+hub {
		domain = hub
	}
	if domain == hub && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return domain, rest
}

func whyNoName(rest string) error {
	if path, _, _ := strings.Cut(rest, ":"); strings.ToLower(path) != path {
		return errors.New("the path must be lower case")
	}
	return errors.New("want [domain/]path[:tag][@digest]")
}
