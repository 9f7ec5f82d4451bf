package auth

import (
	"cmp"
	"context"
	"errors"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// tokenReviewer asks the API server whose token it is.
type tokenReviewer struct {
	api      API
	ttl      time.Duration
	reviewer *reviewer
	metrics  *metrics
	answers  *cache[tokenAnswer]
}

// tokenAnswer is the answer about a token.
type tokenAnswer struct {
	user            User
	isAuthenticated bool
}

func newTokenReviewer(config *Config, metrics *metrics) *tokenReviewer {
	return &tokenReviewer{
		api: config.API, ttl: cmp.Or(config.TokenTTL, 2*time.Minute),
		reviewer: newReviewer(config.Logger, metrics.tokenReviews), metrics: metrics, answers: newCache[tokenAnswer](),
	}
}

// authenticate implements tokenSource. A no is cached like a yes, unless the API server says that an error is the reason: the next
// review may have another result. SRV-12
func (t *tokenReviewer) authenticate(ctx context.Context, token string) (User, bool, error) {
	answer, isCached, err := t.answers.ask(ctx, t.answers.key([]byte(token)), func(ctx context.Context) (tokenAnswer, time.Duration, error) {
		answer, err := t.review(ctx, token)
		return answer, t.ttl, err
	})
	t.metrics.countTokenLookup(isCached)
	return answer.user, err == nil && answer.isAuthenticated, err
}

func (t *tokenReviewer) review(ctx context.Context, token string) (tokenAnswer, error) {
	response, err := review(ctx, t.reviewer, func(ctx context.Context) (*authenticationv1.TokenReview, error) {
		return t.api.CreateTokenReview(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	})
	switch {
	case err != nil:
		return tokenAnswer{}, err
	case !response.Status.Authenticated && response.Status.Error != "":
		return tokenAnswer{}, errors.New("token review: " + response.Status.Error)
	case !response.Status.Authenticated:
		return tokenAnswer{}, nil
	case response.Status.User.Username == "":
		return tokenAnswer{}, errors.New("token review: the API server accepts the token, but names no user")
	}
	info := &response.Status.User
	user := User{Name: info.Username, UID: info.UID, Groups: info.Groups}
	if info.Extra != nil {
		user.Extra = make(map[string][]string, len(info.Extra))
		for name, values := range info.Extra {
			user.Extra[name] = values
		}
	}
	return tokenAnswer{user: user, isAuthenticated: true}, nil
}
