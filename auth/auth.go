// Package auth decides who may use the node's server, as the kubelet does: the user is authenticated by a client certificate or a
// token, and the API server is asked whether the user's roles allow the request. A node without API server has a file with tokens
// and a list of what users may do.
//
// Nothing is allowed by default: New without any credentials to accept returns an Auth that answers 401 to every request.
package auth

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/heraldnode/herald/auth/attributes"
)

// User is who sent a request.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// API asks the API server. kubeapi.Client implements it.
type API interface {
	// CreateTokenReview asks whose token it is.
	CreateTokenReview(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	// CreateSubjectAccessReview asks whether a user may do something.
	CreateSubjectAccessReview(context.Context, *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
}

// CAPool is a set of certificate authorities that may change.
type CAPool interface {
	// Current returns the authorities of now, or nil if there are none.
	Current() *x509.CertPool
}

// Mode is how requests of authenticated users are authorized.
type Mode string

const (
	// ModeWebhook asks the API server.
	ModeWebhook Mode = "Webhook"
	// ModeRules allows what Config.Rules allow. It needs no API server.
	ModeRules Mode = "Rules"
	// ModeAlwaysAllow allows everything to every authenticated user.
	ModeAlwaysAllow Mode = "AlwaysAllow"
)

// Config configures an Auth.
type Config struct {
	// NodeName is the name of the Node that users need permissions for. Required.
	NodeName string
	// API is required for ReviewTokens and ModeWebhook.
	API API

	// ClientCAs issue client certificates: the user is the common name, its groups the organizations. Defaults to none.
	ClientCAs CAPool
	// ReviewTokens accepts the bearer tokens that the API server accepts.
	ReviewTokens bool
	// TokenFile is the path of a file with bearer tokens in the format of kube-apiserver's --token-auth-file: lines with token, user
	// name, UID and, optionally, groups in quotation marks. Changes take effect within a second. Defaults to none.
	TokenFile string
	// Anonymous accepts requests without credentials as user system:anonymous.
	Anonymous bool
	// TokenTTL is how long the API server's answers about tokens are cached. Defaults to two minutes.
	TokenTTL time.Duration

	// Mode defaults to ModeWebhook if there is an API, and to ModeRules otherwise.
	Mode Mode
	// Rules are for ModeRules. Without rules, nothing is allowed.
	Rules []Rule
	// AllowedTTL and DeniedTTL are how long the API server's answers about permissions are cached. Default to five minutes and 30
	// seconds.
	AllowedTTL, DeniedTTL time.Duration

	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the kubelet's metrics of reviews. Defaults to none.
	Metrics prometheus.Registerer
}

// Auth authenticates and authorizes requests. It is safe for concurrent use.
type Auth struct {
	authenticator authenticator
	authorizer    authorizer
	logger        *slog.Logger
}

// authorizer decides whether a user may use the verb on the subresource of the Node.
type authorizer interface {
	authorize(ctx context.Context, user User, verb, subresource string) (bool, error)
}

// New returns an Auth. It reads the token file, but sends no request.
func New(config Config) (*Auth, error) {
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Mode == "" {
		config.Mode = ModeWebhook
		if config.API == nil {
			config.Mode = ModeRules
		}
	}
	if err := validate(&config); err != nil {
		return nil, fmt.Errorf("auth.Config: %w", err)
	}
	metrics, err := newMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	a := &Auth{authorizer: newAuthorizer(&config, metrics), logger: config.Logger}
	a.authenticator, err = newAuthenticator(&config, metrics)
	return a, err
}

func validate(config *Config) error {
	var errs []error
	if config.NodeName == "" {
		errs = append(errs, errors.New("NodeName is required"))
	}
	if config.ReviewTokens && config.API == nil {
		errs = append(errs, errors.New("ReviewTokens requires an API server"))
	}
	if config.TokenTTL < 0 || config.AllowedTTL < 0 || config.DeniedTTL < 0 {
		errs = append(errs, errors.New("TokenTTL, AllowedTTL and DeniedTTL must not be negative"))
	}
	switch config.Mode {
	case ModeWebhook:
		if config.API == nil {
			errs = append(errs, fmt.Errorf("Mode %s requires an API server", ModeWebhook))
		}
	case ModeRules, ModeAlwaysAllow:
	default:
		errs = append(errs, fmt.Errorf("Mode must be %s, %s or %s, not %q", ModeWebhook, ModeRules, ModeAlwaysAllow, config.Mode))
	}
	if len(config.Rules) > 0 && config.Mode != ModeRules {
		errs = append(errs, fmt.Errorf("field Rules requires Mode %s", ModeRules))
	}
	for i := range config.Rules {
		if err := config.Rules[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("rule %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// Require returns a handler that passes on the requests that are allowed, without their credentials and with the user in their
// context. It answers all others: 401 if the user is not known, 403 if the user may not do it, and 500 if that could not be found
// out, each with the kubelet's text. SRV-16, SRV-22
//
// It must come before any routing, so that no path is answered to strangers. SRV-24
func (a *Auth) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok, err := a.authenticator.authenticate(r)
		if !ok {
			a.logger.Debug("Unauthenticated request", "remote", r.RemoteAddr, "err", err)
			answer(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		request := attributes.For(r.Method, r.URL.Path)
		if code, message := a.check(r.Context(), user, request); code != http.StatusOK {
			answer(w, code, message)
			return
		}
		if clean := cleanPath(r.URL.Path); clean != r.URL.Path {
			// What was allowed must be what is served, whatever a handler makes of such a path.
			location := *r.URL
			location.Path, location.RawPath = clean, ""
			http.Redirect(w, r, location.RequestURI(), http.StatusTemporaryRedirect)
			return
		}
		next.ServeHTTP(w, withoutCredentials(r.WithContext(context.WithValue(r.Context(), userKey{}, user))))
	})
}

// check returns 200, or the code and text of the answer to a request that is not allowed.
func (a *Auth) check(ctx context.Context, user User, request attributes.Request) (code int, message string) {
	for _, subresource := range request.Subresources {
		allowed, err := a.authorizer.authorize(ctx, user, request.Verb, subresource)
		if err != nil {
			a.logger.Debug("Authorization failed", "user", user.Name, "verb", request.Verb, "subresource", subresource, "err", err)
			return http.StatusInternalServerError, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=%s, subresource=%s)",
				user.Name, request.Verb, attributes.Resource, subresource)
		}
		if allowed {
			return http.StatusOK, ""
		}
	}
	a.logger.Debug("Forbidden request", "user", user.Name, "verb", request.Verb, "subresources", request.Subresources)
	return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=%s, subresource(s)=%v)\n",
		user.Name, request.Verb, attributes.Resource, request.Subresources)
}

func answer(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(message))
}

// cleanPath resolves dots and double slashes, and keeps the slash at the end.
func cleanPath(requestPath string) string {
	clean := path.Clean("/" + requestPath)
	if clean != "/" && strings.HasSuffix(requestPath, "/") {
		clean += "/"
	}
	return clean
}

// withoutCredentials returns the request without tokens, so that no handler can log or forward them.
func withoutCredentials(r *http.Request) *http.Request {
	clone := *r
	clone.Header = r.Header.Clone()
	clone.Header.Del("Authorization")
	if protocols, tokens := splitProtocols(r); len(tokens) > 0 {
		clone.Header.Set(protocolHeader, strings.Join(protocols, ","))
		if len(protocols) == 0 {
			clone.Header.Del(protocolHeader)
		}
	}
	return &clone
}

// userKey is the key of the User in a request's context.
type userKey struct{}

// UserFrom returns the user of a request that passed Require.
func UserFrom(ctx context.Context) (User, bool) {
	user, ok := ctx.Value(userKey{}).(User)
	return user, ok
}
