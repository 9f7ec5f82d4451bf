package localapi

import (
	"io"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// decoder reads reviews, which typed clients send as protobuf (KCT-14).
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(authenticationv1.AddToScheme(scheme))
	utilruntime.Must(authorizationv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

const maxReview = 64 << 10

// serveReview answers what a client may do, and as whom.
func (s *Server) serveReview(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.Split(path, "/")
	group := s.groupOf(strings.Join(parts[:min(3, len(parts))], "/"))
	if group == nil || len(parts) != 4 || !slices.ContainsFunc(group.resources, func(r groupResource) bool { return r.name == parts[3] }) {
		writeError(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "",
			"the server could not find the requested resource", 0, true))
		return
	}
	if r.Method != http.MethodPost {
		writeError(w, apierrors.NewMethodNotSupported(schema.GroupResource{Group: group.name, Resource: parts[3]}, r.Method))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err != nil {
		writeError(w, apierrors.NewRequestEntityTooLargeError("a review must not exceed 64 KiB"))
		return
	}
	review, _, err := decoder.Decode(body, nil, nil)
	if err != nil {
		writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	switch review := review.(type) {
	case *authenticationv1.SelfSubjectReview:
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}
		review.Status.UserInfo.Username = s.config.User
		writeJSON(w, http.StatusCreated, review)
	case *authorizationv1.SelfSubjectAccessReview:
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
		review.Status = s.reviewAccess(&review.Spec)
		writeJSON(w, http.StatusCreated, review)
	case *authorizationv1.SelfSubjectRulesReview:
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"}
		review.Status = s.readRules()
		writeJSON(w, http.StatusCreated, review)
	default:
		writeError(w, apierrors.NewBadRequest("the object is not a review of this path"))
	}
}

func (s *Server) reviewAccess(spec *authorizationv1.SelfSubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	attributes := spec.ResourceAttributes
	if attributes == nil {
		isRead := spec.NonResourceAttributes != nil && spec.NonResourceAttributes.Verb == "get"
		return authorizationv1.SubjectAccessReviewStatus{Allowed: isRead}
	}
	k := kinds[attributes.Resource]
	isServed := attributes.Group == "" && k != nil && attributes.Subresource == ""
	if sub := s.subresourceOf(k, attributes.Subresource); attributes.Group == "" && sub != nil && slices.Contains(sub.verbs, attributes.Verb) {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	}
	hasMetrics := s.config.Stats != nil && attributes.Group == metricsv1beta1.GroupName && metricsKinds[attributes.Resource] != nil
	if isServed && slices.Contains(readVerbs, attributes.Verb) || hasMetrics && slices.Contains(metricsVerbs, attributes.Verb) {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	}
	return authorizationv1.SubjectAccessReviewStatus{Reason: "this node serves get, list and watch of its own pods, events and Node"}
}

func (s *Server) readRules() authorizationv1.SubjectRulesReviewStatus {
	rule := authorizationv1.ResourceRule{Verbs: readVerbs, APIGroups: []string{""}}
	for _, k := range orderedKinds {
		rule.Resources = append(rule.Resources, k.resource)
	}
	rules := []authorizationv1.ResourceRule{rule}
	for _, sub := range s.podSubresources(kinds["pods"]) {
		rules = append(rules, authorizationv1.ResourceRule{Verbs: sub.verbs, APIGroups: []string{""}, Resources: []string{"pods/" + sub.name}})
	}
	if s.config.Stats != nil {
		rules = append(rules, authorizationv1.ResourceRule{
			Verbs: metricsVerbs, APIGroups: []string{metricsv1beta1.GroupName}, Resources: []string{"nodes", "pods"},
		})
	}
	return authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    rules,
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"*"}}},
	}
}
