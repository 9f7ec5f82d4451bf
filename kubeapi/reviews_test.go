package kubeapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// TestSRV47_Reviews checks paths and answers. parity/nodeserver asks a real API server.
func TestSRV47_Reviews(t *testing.T) {
	answer := func(body []byte) (code int, response string) { return http.StatusCreated, string(body) }
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path)
		body, _ := io.ReadAll(r.Body)
		code, response := answer(body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, response)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	config.ContentType = "application/json"
	client := newClient(t, config)
	token := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "s3cret"}}
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "alice"}}

	answer = func(body []byte) (int, string) {
		review := map[string]any{}
		_ = json.Unmarshal(body, &review)
		review["status"] = map[string]any{"authenticated": true, "allowed": true}
		response, _ := json.Marshal(review)
		return http.StatusCreated, string(response)
	}
	if got, err := client.CreateTokenReview(t.Context(), token); err != nil || !got.Status.Authenticated {
		t.Errorf("token review: got %v, %v", got, err)
	}
	if got, err := client.CreateSubjectAccessReview(t.Context(), access); err != nil || !got.Status.Allowed {
		t.Errorf("access review: got %v, %v", got, err)
	}
	want := "POST /apis/authentication.k8s.io/v1/tokenreviews POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
	if got := strings.Join(requests, " "); got != want {
		t.Errorf("got requests %s, want %s", got, want)
	}

	for name, response := range map[string]string{
		"an empty object": "{}", "another kind": `{"kind": "Pod", "apiVersion": "v1"}`,
		"another question": `{"spec": {"token": "other", "user": "bob"}, "status": {"authenticated": true, "allowed": true}}`,
	} {
		answer = func([]byte) (int, string) { return http.StatusOK, response }
		if got, err := client.CreateTokenReview(t.Context(), token); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s as token review: got %v, %v", name, got, err)
		}
		if got, err := client.CreateSubjectAccessReview(t.Context(), access); err == nil {
			t.Errorf("%s as access review: got %v", name, got)
		}
	}
	answer = func([]byte) (int, string) {
		return http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`
	}
	if _, err := client.CreateTokenReview(t.Context(), token); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want forbidden", err)
	}
}
