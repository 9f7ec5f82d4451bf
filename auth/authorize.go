package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/heraldnode/herald/auth/attributes"
)

// Rule allows users and members of groups to use verbs on subresources of the Node. "*" stands for all verbs, or all subresources.
type Rule struct {
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Verbs are get, create, update, patch, delete or *.
	Verbs []string `json:"verbs"`
	// Subresources are those of a role for the kubelet, like pods, metrics, stats, log, proxy, or *.
	Subresources []string `json:"subresources"`
}

const all = "*"

// Validate returns what is wrong with the rule, or nil.
func (r *Rule) Validate() error {
	var errs []error
	if len(r.Users)+len(r.Groups) == 0 {
		errs = append(errs, errors.New("a user or group is required"))
	}
	if slices.Contains(r.Users, "") || slices.Contains(r.Groups, "") {
		errs = append(errs, errors.New("users and groups must not be empty"))
	}
	check := func(field string, list, known []string) {
		if len(list) == 0 {
			errs = append(errs, fmt.Errorf("%s: at least one of %v, or %s, is required", field, known, all))
		}
		for _, element := range list {
			if element != all && !slices.Contains(known, element) {
				errs = append(errs, fmt.Errorf("%s: %q is not one of %v, or %s", field, element, known, all))
			}
		}
	}
	check("verbs", r.Verbs, attributes.Verbs())
	check("subresources", r.Subresources, attributes.Subresources())
	return errors.Join(errs...)
}

func (r *Rule) allows(user User, verb, subresource string) bool {
	isMember := func(group string) bool { return slices.Contains(r.Groups, group) }
	matches := func(list []string, element string) bool {
		return slices.Contains(list, all) || element != "" && slices.Contains(list, element)
	}
	return (slices.Contains(r.Users, user.Name) || slices.ContainsFunc(user.Groups, isMember)) &&
		matches(r.Verbs, verb) && matches(r.Subresources, subresource)
}

// rules implements ModeRules.
type rules []Rule

func (r rules) authorize(_ context.Context, user User, verb, subresource string) (bool, error) {
	return slices.ContainsFunc(r, func(rule Rule) bool { return rule.allows(user, verb, subresource) }), nil
}

// alwaysAllow implements ModeAlwaysAllow.
type alwaysAllow struct{}

func (alwaysAllow) authorize(context.Context, User, string, string) (bool, error) { return true, nil }

func newAuthorizer(config *Config, metrics *metrics) authorizer {
	switch config.Mode {
	case ModeAlwaysAllow:
		return alwaysAllow{}
	case ModeRules:
		return rules(slices.Clone(config.Rules))
	default:
		return &accessReviewer{
			api: config.API, nodeName: config.NodeName,
			allowedTTL: cmp.Or(config.AllowedTTL, 5*time.Minute), deniedTTL: cmp.Or(config.DeniedTTL, 30*time.Second),
			reviewer: newReviewer(config.Logger, metrics.accessReviews), answers: newCache[bool](),
		}
	}
}

// accessReviewer implements ModeWebhook.
type accessReviewer struct {
	api                   API
	nodeName              string
	allowedTTL, deniedTTL time.Duration
	reviewer              *reviewer
	answers               *cache[bool]
}

// authorize asks the API server, or takes its answer to the same question from the cache. SRV-25
func (a *accessReviewer) authorize(ctx context.Context, user User, verb, subresource string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: attributes.Resource, Subresource: subresource, Name: a.nodeName,
		},
	}
	if user.Extra != nil {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
		for name, values := range user.Extra {
			spec.Extra[name] = values
		}
	}
	question, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("encode access review of user %s: %w", user.Name, err)
	}
	isAllowed, _, err := a.answers.ask(ctx, a.answers.key(question), func(ctx context.Context) (bool, time.Duration, error) {
		isAllowed, err := a.review(ctx, &spec)
		if isAllowed {
			return true, a.allowedTTL, err
		}
		return false, a.deniedTTL, err
	})
	return err == nil && isAllowed, err
}

func (a *accessReviewer) review(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	response, err := review(ctx, a.reviewer, func(ctx context.Context) (*authorizationv1.SubjectAccessReview, error) {
		return a.api.CreateSubjectAccessReview(ctx, &authorizationv1.SubjectAccessReview{Spec: *spec})
	})
	switch {
	case err != nil:
		return false, err
	case response.Status.Allowed && response.Status.Denied:
		return false, errors.New("the access review both allows and denies")
	}
	return response.Status.Allowed, nil
}
