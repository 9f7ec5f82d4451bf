package nodeserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// accessDifference is a reason for which Herald answers requests with another status code than the kubelet.
type accessDifference struct {
	why string
	// requests are prefixes of lines of accessRequests. users are names, or nil for all.
	requests     []string
	users        []string
	theirs, ours []int
}

var (
	streamRequests = []string{"GET /exec/", "GET /attach/", "GET /portForward/"}
	proxyReader    = []string{"`get nodes/proxy`"}

	accessDifferences = []accessDifference{
		{
			"SRV-23: running code needs create, whatever the method", append(slices.Clone(streamRequests), "GET /run/"), proxyReader,
			[]int{http.StatusNotFound, http.StatusMethodNotAllowed}, []int{http.StatusForbidden},
		},
		{
			"SRV-24: unknown paths and redirects are for those only who may use them",
			[]string{"GET /logs", "GET /", "GET /nothing", "POST /nothing", "GET //pods", "GET /pods/../exec/"}, nil,
			[]int{http.StatusNotFound, http.StatusTemporaryRedirect}, []int{http.StatusUnauthorized, http.StatusForbidden},
		},
		{
			"a request that is no upgrade is refused whether or not the pod exists",
			append([]string{"POST /exec/", "POST /attach/", "POST /portForward/"}, streamRequests...), []string{"kube-apiserver"},
			[]int{http.StatusNotFound}, []int{http.StatusBadRequest},
		},
		{
			"Herald has no such path", []string{"GET /metrics/cadvisor", "PUT /debug/flags/v", "GET /flagz"}, nil,
			[]int{http.StatusOK, http.StatusBadRequest}, []int{http.StatusNotFound},
		},
		{
			"the kubelet's index of profiles is not found", []string{"GET /debug/pprof/"}, nil,
			[]int{http.StatusNotFound}, []int{http.StatusOK},
		},
	}
)

func (d *accessDifference) explains(line, user string, theirs, ours int) bool {
	isPrefix := func(prefix string) bool {
		if strings.HasSuffix(prefix, "/") && prefix != "GET /" {
			return strings.HasPrefix(line, prefix)
		}
		return line == prefix
	}
	return slices.ContainsFunc(d.requests, isPrefix) && (d.users == nil || slices.Contains(d.users, user)) &&
		slices.Contains(d.theirs, theirs) && slices.Contains(d.ours, ours)
}

// TestSRV24_KubeletEveryIdentity compares the status codes of every request and user with those of the kubelet. SRV-23
func TestSRV24_KubeletEveryIdentity(t *testing.T) {
	ours, users := shared.herald(t)
	theirs, _ := shared.kubelet(t)
	identities := users.of(ours)
	ourCodes, theirCodes := access(t, ours, identities), access(t, theirs, users.of(theirs))
	seen := map[int]bool{}
	for _, line := range accessRequests {
		for i := range identities {
			user := identities[i].name
			theirCode, ourCode := theirCodes[line][user], ourCodes[line][user]
			if theirCode == ourCode {
				continue
			}
			reason := slices.IndexFunc(accessDifferences, func(d accessDifference) bool { return d.explains(line, user, theirCode, ourCode) })
			if reason < 0 {
				t.Errorf("%s by %s: the kubelet answers %d, Herald %d", line, user, theirCode, ourCode)
			}
			seen[reason] = true
		}
	}
	for i := range accessDifferences {
		if !seen[i] {
			t.Errorf("no longer a difference: %s", accessDifferences[i].why)
		}
	}
}
