package kubeapi

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// errNotReviewed is about a response without the question, which the API server repeats. It would be a no to everything (F10).
var errNotReviewed = errors.New("the response is not the API server's: it does not repeat the question")

// CreateTokenReview asks whose token it is. Errors do not contain the token.
func (c *Client) CreateTokenReview(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	response := &authenticationv1.TokenReview{}
	request := c.rest.Post().AbsPath("/apis", authenticationv1.GroupName, "v1", "tokenreviews").Body(review)
	err := request.MaxRetries(0).Do(ctx).Into(response)
	if err == nil && response.Spec.Token != review.Spec.Token {
		err = errNotReviewed
	}
	if err != nil {
		return nil, fmt.Errorf("create token review: %w", err)
	}
	return response, nil
}

// CreateSubjectAccessReview asks whether a user may do something.
func (c *Client) CreateSubjectAccessReview(
	ctx context.Context, review *authorizationv1.SubjectAccessReview,
) (*authorizationv1.SubjectAccessReview, error) {
	response := &authorizationv1.SubjectAccessReview{}
	request := c.rest.Post().AbsPath("/apis", authorizationv1.GroupName, "v1", "subjectaccessreviews").Body(review)
	err := request.MaxRetries(0).Do(ctx).Into(response)
	if err == nil && response.Spec.User != review.Spec.User {
		err = errNotReviewed
	}
	if err != nil {
		return nil, fmt.Errorf("create access review of user %s: %w", review.Spec.User, err)
	}
	return response, nil
}
