// Package attributes decides which permissions a request to the node's server needs. Permissions are verbs on subresources of the
// Node, as in the kubelet, so that roles written for the kubelet apply.
package attributes

import (
	"path"
	"slices"
	"strings"
)

// Resource is the resource that all permissions are about. Its API group is the empty one, its version v1.
const Resource = "nodes"

// Request is what a request needs: the verb on one of the subresources.
type Request struct {
	// Verb is empty for methods without one, like HEAD. Only a role with the verb "*" allows that.
	Verb string
	// Subresources are the alternatives, in the order in which they are tried.
	Subresources []string
}

var (
	verbs = map[string]string{
		"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete",
	}
	// subresources maps the first segment of a path. All other paths need proxy.
	subresources = map[string][]string{
		"pods":        {"pods", "proxy"},
		"runningpods": {"pods", "proxy"},
		"healthz":     {"healthz", "proxy"},
		"configz":     {"configz", "proxy"},
		"stats":       {"stats"},
		"metrics":     {"metrics"},
		"logs":        {"log"},
		"checkpoint":  {"checkpoint"},
		"statusz":     {"statusz"},
		"flagz":       {"configz"},
	}
	everythingElse = []string{"proxy"}
	// runsCode are the first segments of paths that run or reach code in a container.
	runsCode = []string{"exec", "attach", "run", "portForward"}
)

// Verbs returns all verbs that For returns, except the empty one.
func Verbs() []string { return []string{"get", "create", "update", "patch", "delete"} }

// Subresources returns all subresources that For returns.
func Subresources() []string {
	return []string{"proxy", "pods", "healthz", "configz", "stats", "metrics", "log", "checkpoint", "statusz"}
}

// For returns what a request with this method for this path needs. The path is the decoded one of the URL. SRV-20, SRV-21
//
// Whatever runs code in a container needs create. In the kubelet, a web socket to /exec is a GET and needs only get on
// nodes/proxy, a permission that looks as if it could only read. SRV-23
func For(method, requestPath string) Request {
	request := Request{Verb: verbs[method], Subresources: everythingElse}
	if list, ok := subresources[firstSegment(requestPath)]; ok {
		request.Subresources = list
	}
	request.Subresources = slices.Clone(request.Subresources)
	// The cleaned path is checked as well, because a server may clean paths before it looks for a handler.
	if slices.Contains(runsCode, firstSegment(requestPath)) || slices.Contains(runsCode, firstSegment(path.Clean("/"+requestPath))) {
		request.Verb = "create"
	}
	return request
}

// firstSegment returns the part of the path between the first slash and the second, or the end.
func firstSegment(requestPath string) string {
	rest, isAbsolute := strings.CutPrefix(requestPath, "/")
	if !isAbsolute {
		return ""
	}
	segment, _, _ := strings.Cut(rest, "/")
	return segment
}
