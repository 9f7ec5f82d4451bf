package heraldtest

import (
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// accountResource is there for its tokens only: every account exists.
func accountResource() *resource {
	return &resource{name: "serviceaccounts", kind: "ServiceAccount", namespaced: true}
}

// createToken issues a token that says whose it is and how many were issued before. As the real server does for a node,
// it refuses one that is not bound to a pod.
func (s *APIServer) createToken(c call) (int, runtime.Object, error) {
	wanted := &authenticationv1.TokenRequest{}
	if err := s.decode(c, wanted); err != nil {
		return 0, nil, err
	}
	bound := wanted.Spec.BoundObjectRef
	if bound == nil || bound.Kind != "Pod" || bound.UID == "" {
		return 0, nil, apierrors.NewForbidden(c.at.resource.group(), c.at.name, fmt.Errorf("node requested token not bound to a pod"))
	}
	seconds := int64(3600)
	if wanted.Spec.ExpirationSeconds != nil {
		seconds = *wanted.Spec.ExpirationSeconds
	}
	wanted.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("%s/%s for %s, %s", c.at.namespace, c.at.name, bound.Name, s.store.nextUID()),
		ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second)),
	}
	return http.StatusCreated, wanted, nil
}
