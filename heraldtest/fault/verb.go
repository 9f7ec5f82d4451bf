package fault

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// anyVerb selects every request.
const anyVerb = "*"

var (
	methods = []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}
	verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
)

// mustKnow refuses a verb that no request could ever have: the rule would silently never fire.
func mustKnow(verb string) {
	if verb != anyVerb && !slices.Contains(methods, verb) && !slices.Contains(verbs, verb) {
		panic(fmt.Sprintf("fault: %q is neither an HTTP method %v, nor a Kubernetes verb %v, nor %q", verb, methods, verbs, anyVerb))
	}
}

// verbOf is the verb by which Kubernetes' authorization knows a request.
func verbOf(req *http.Request) string {
	collection := isCollection(req.URL.Path)
	switch req.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if collection {
			return "deletecollection"
		}
		return "delete"
	case http.MethodGet, http.MethodHead, "":
		if watch, err := strconv.ParseBool(req.URL.Query().Get("watch")); err == nil && watch {
			return "watch"
		}
		if collection {
			return "list"
		}
		return "get"
	default:
		return strings.ToLower(req.Method)
	}
}

// isCollection tells /api/v1/pods and /api/v1/namespaces/shop/pods from the path of one object.
func isCollection(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return len(parts) == 1
}
