package localapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

var readVerbs = []string{"get", "list", "watch"}

// group is an API group besides the core group.
type group struct {
	name, version string
	resources     []groupResource
}

type groupResource struct {
	name, kind string
	namespaced bool
	verbs      []string
}

// reviewGroups are the groups whose only resources answer questions of a client about itself.
var reviewGroups = []group{
	{"authentication.k8s.io", "v1", []groupResource{{"selfsubjectreviews", "SelfSubjectReview", false, createVerbs}}},
	{"authorization.k8s.io", "v1", []groupResource{
		{"selfsubjectaccessreviews", "SelfSubjectAccessReview", false, createVerbs},
		{"selfsubjectrulesreviews", "SelfSubjectRulesReview", false, createVerbs},
	}},
}

var (
	createVerbs  = []string{"create"}
	metricsVerbs = []string{"get", "list"}
	metricsGroup = group{metricsv1beta1.GroupName, "v1beta1", []groupResource{
		{"nodes", "NodeMetrics", false, metricsVerbs}, {"pods", "PodMetrics", true, metricsVerbs},
	}}
)

// groups returns the groups that the server serves.
func (s *Server) groups() []group {
	if s.config.Stats == nil {
		return reviewGroups
	}
	return append(slices.Clip(reviewGroups), metricsGroup)
}

func (g *group) groupVersion() string { return g.name + "/" + g.version }

// groupOf returns the group of a path like apis/authorization.k8s.io/v1, or nil.
func (s *Server) groupOf(path string) *group {
	for _, g := range s.groups() {
		if path == "apis/"+g.name || path == "apis/"+g.groupVersion() {
			return &g
		}
	}
	return nil
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// serveDiscovery serves the lists of groups and resources, in one document for clients that accept it (KCT-1).
func (s *Server) serveDiscovery(w http.ResponseWriter, r *http.Request, path string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeError(w, apierrors.NewMethodNotSupported(metav1.Unversioned.WithResource(path).GroupResource(), r.Method))
		return
	}
	if (path == "api" || path == "apis") && acceptsAggregated(r) {
		w.Header().Set("Vary", "Accept")
		list := s.coreDiscovery()
		if path == "apis" {
			list = groupDiscovery(s.groups())
		}
		writeTyped(w, aggregatedType, list)
		return
	}
	switch path {
	case "api":
		writeJSON(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "apis":
		groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, g := range s.groups() {
			groups.Groups = append(groups.Groups, g.document())
		}
		writeJSON(w, http.StatusOK, groups)
	case "api/v1":
		writeJSON(w, http.StatusOK, s.coreResources())
	default:
		g := s.groupOf(path)
		if strings.HasSuffix(path, "/"+g.version) {
			writeJSON(w, http.StatusOK, g.resourceList())
			return
		}
		document := g.document()
		document.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		writeJSON(w, http.StatusOK, document)
	}
}

// acceptsAggregated reports whether the client prefers the aggregated document.
func acceptsAggregated(r *http.Request) bool {
	for media := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		_, parameters := parseMediaType(media)
		if parameters["g"] == apidiscovery.GroupName && parameters["v"] == "v2" && parameters["as"] == "APIGroupDiscoveryList" {
			return true
		}
	}
	return false
}

func discoveryList(items ...apidiscovery.APIGroupDiscovery) *apidiscovery.APIGroupDiscoveryList {
	return &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscovery.SchemeGroupVersion.String()}, Items: items,
	}
}

func (s *Server) coreDiscovery() *apidiscovery.APIGroupDiscoveryList {
	version := apidiscovery.APIVersionDiscovery{Version: "v1", Freshness: apidiscovery.DiscoveryFreshnessCurrent}
	for _, k := range orderedKinds {
		scope := apidiscovery.ScopeCluster
		if k.namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		resource := apidiscovery.APIResourceDiscovery{
			Resource: k.resource, SingularResource: k.singular, Scope: scope, Verbs: readVerbs, ShortNames: k.shortNames, Categories: k.categories,
			ResponseKind: &metav1.GroupVersionKind{Version: "v1", Kind: k.name},
		}
		for _, sub := range s.podSubresources(k) {
			resource.Subresources = append(resource.Subresources, apidiscovery.APISubresourceDiscovery{
				Subresource: sub.name, ResponseKind: &metav1.GroupVersionKind{Version: "v1", Kind: sub.kind}, Verbs: sub.verbs,
			})
		}
		version.Resources = append(version.Resources, resource)
	}
	return discoveryList(apidiscovery.APIGroupDiscovery{Versions: []apidiscovery.APIVersionDiscovery{version}})
}

func groupDiscovery(groups []group) *apidiscovery.APIGroupDiscoveryList {
	list := discoveryList()
	for _, g := range groups {
		version := apidiscovery.APIVersionDiscovery{Version: g.version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for _, r := range g.resources {
			scope := apidiscovery.ScopeCluster
			if r.namespaced {
				scope = apidiscovery.ScopeNamespace
			}
			version.Resources = append(version.Resources, apidiscovery.APIResourceDiscovery{
				Resource: r.name, SingularResource: strings.ToLower(r.kind), Scope: scope, Verbs: r.verbs,
				ResponseKind: &metav1.GroupVersionKind{Group: g.name, Version: g.version, Kind: r.kind},
			})
		}
		list.Items = append(list.Items, apidiscovery.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: g.name}, Versions: []apidiscovery.APIVersionDiscovery{version},
		})
	}
	return list
}

func (g *group) document() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: g.groupVersion(), Version: g.version}
	return metav1.APIGroup{Name: g.name, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
}

func (g *group) resourceList() *metav1.APIResourceList {
	list := newResourceList(g.groupVersion())
	for _, r := range g.resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: r.name, SingularName: strings.ToLower(r.kind), Namespaced: r.namespaced, Kind: r.kind, Verbs: r.verbs,
		})
	}
	return list
}

func (s *Server) coreResources() *metav1.APIResourceList {
	list := newResourceList("v1")
	for _, k := range orderedKinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.resource, SingularName: k.singular, Namespaced: k.namespaced, Kind: k.name, Verbs: readVerbs,
			ShortNames: k.shortNames, Categories: k.categories,
		})
		for _, sub := range s.podSubresources(k) {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.resource + "/" + sub.name, Namespaced: k.namespaced, Kind: sub.kind, Verbs: sub.verbs,
			})
		}
	}
	return list
}

func newResourceList(groupVersion string) *metav1.APIResourceList {
	return &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion,
	}
}

// serveVersion serves the Kubernetes version that the Node reports.
func (s *Server) serveVersion(w http.ResponseWriter) {
	info := apiversion.Info{GitVersion: "v1.36.3+herald", Platform: "linux"}
	if nodes, _ := s.store.list(kinds["nodes"]); len(nodes) > 0 {
		info.GitVersion = cmp.Or(nodes[0].(*v1.Node).Status.NodeInfo.KubeletVersion, info.GitVersion)
	}
	if parts := strings.SplitN(strings.TrimPrefix(info.GitVersion, "v"), ".", 3); len(parts) == 3 {
		info.Major, info.Minor = parts[0], parts[1]
	}
	writeJSON(w, http.StatusOK, info)
}

func writeTyped(w http.ResponseWriter, contentType string, value any) {
	w.Header().Set("Content-Type", contentType)
	encode(w, value)
}
