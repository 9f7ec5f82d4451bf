package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/asn1"
)

// Names that the API server gives to users and groups.
const (
	anonymousUser        = "system:anonymous"
	authenticatedGroup   = "system:authenticated"
	unauthenticatedGroup = "system:unauthenticated"
	credentialID         = "authentication.kubernetes.io/credential-id"
)

// authenticator finds out who sent a request.
type authenticator struct {
	clientCAs CAPool
	tokens    []tokenSource // tried in order
	anonymous bool
}

// tokenSource knows tokens. A token that it does not know is no error.
type tokenSource interface {
	authenticate(ctx context.Context, token string) (User, bool, error)
}

func newAuthenticator(config *Config, metrics *metrics) (authenticator, error) {
	a := authenticator{clientCAs: config.ClientCAs, anonymous: config.Anonymous}
	if config.TokenFile != "" {
		file, err := newTokenFile(config.TokenFile, config.Logger)
		if err != nil {
			return a, err
		}
		a.tokens = append(a.tokens, file)
	}
	if config.ReviewTokens {
		a.tokens = append(a.tokens, newTokenReviewer(config, metrics))
	}
	return a, nil
}

// authenticate tries certificate, bearer token and web-socket token, in this order. The first that says who it is wins, even if
// another is wrong. Anonymous are those without credentials only: a wrong credential is always refused. SRV-10, SRV-14
func (a *authenticator) authenticate(r *http.Request) (User, bool, error) {
	var errs []error
	for _, method := range []func(*http.Request) (User, bool, error){a.certificate, a.bearer, a.webSocket} {
		user, ok, err := method(r)
		if ok {
			return withAuthenticatedGroup(user), true, nil
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil || !a.anonymous {
		return User{}, false, err
	}
	return User{Name: anonymousUser, Groups: []string{unauthenticatedGroup}}, true, nil
}

func withAuthenticatedGroup(user User) User {
	if user.Name == anonymousUser || slices.Contains(user.Groups, authenticatedGroup) || slices.Contains(user.Groups, unauthenticatedGroup) {
		return user
	}
	user.Groups = append(slices.Clone(user.Groups), authenticatedGroup)
	return user
}

// certificate verifies the client's certificate, which the handshake does not. It is verified for every request, against the
// authorities of now. SRV-11
func (a *authenticator) certificate(r *http.Request) (User, bool, error) {
	if a.clientCAs == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return User{}, false, nil
	}
	options := x509.VerifyOptions{
		Roots: a.clientCAs.Current(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if options.Roots == nil { // would stand for the authorities of the system
		return User{}, false, nil
	}
	for _, intermediate := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	certificate := r.TLS.PeerCertificates[0]
	if _, err := certificate.Verify(options); err != nil {
		return User{}, false, fmt.Errorf("verify client certificate with serial number %d: %w", certificate.SerialNumber, err)
	}
	if certificate.Subject.CommonName == "" {
		return User{}, false, nil
	}
	uid, err := uidOf(certificate)
	if err != nil {
		return User{}, false, fmt.Errorf("read client certificate with serial number %d: %w", certificate.SerialNumber, err)
	}
	fingerprint := sha256.Sum256(certificate.Raw)
	return User{
		Name: certificate.Subject.CommonName, UID: uid, Groups: certificate.Subject.Organization,
		Extra: map[string][]string{credentialID: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}, true, nil
}

// uidOf returns the UID of the user that Kubernetes may note in the subject, or "".
func uidOf(certificate *x509.Certificate) (string, error) {
	var uids []string
	for _, name := range certificate.Subject.Names {
		if name.Type.Equal(asn1.X509UID()) {
			uid, _ := name.Value.(string)
			uids = append(uids, uid)
		}
	}
	switch {
	case len(uids) == 0:
		return "", nil
	case len(uids) > 1 || uids[0] == "":
		return "", errors.New("its subject has an empty UID or more than one")
	}
	return uids[0], nil
}

// bearer authenticates the token of the Authorization header.
func (a *authenticator) bearer(r *http.Request) (User, bool, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token, _, _ = strings.Cut(token, " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return User{}, false, nil
	}
	return a.token(r.Context(), token)
}

// Browsers cannot set the Authorization header of a web socket, so they send the token as the name of a protocol.
const (
	protocolHeader = "Sec-Websocket-Protocol"
	protocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// webSocket authenticates the token among the protocols of a web socket.
func (a *authenticator) webSocket(r *http.Request) (User, bool, error) {
	if len(a.tokens) == 0 || !isWebSocket(r) {
		return User{}, false, nil
	}
	protocols, encoded := splitProtocols(r)
	if len(encoded) == 0 {
		return User{}, false, nil
	}
	token, err := base64.RawURLEncoding.DecodeString(encoded[0])
	switch {
	case len(encoded) > 1:
		return User{}, false, errors.New("more than one bearer token among the web-socket protocols")
	case err != nil:
		return User{}, false, errors.New("the bearer token among the web-socket protocols is not base64url")
	case len(token) == 0:
		return User{}, false, nil
	case len(protocols) == 0:
		return User{}, false, errors.New("a bearer token is the only web-socket protocol: another is needed to answer with")
	}
	return a.token(r.Context(), string(token))
}

// maxTokenLength is far above what issuers create. Longer ones are not worth a request to the API server.
const maxTokenLength = 64 << 10

// token authenticates a token. An unknown one is an error.
func (a *authenticator) token(ctx context.Context, token string) (User, bool, error) {
	if len(a.tokens) == 0 {
		return User{}, false, nil
	}
	if len(token) > maxTokenLength || !utf8.ValidString(token) {
		return User{}, false, errors.New("bearer token is too long, or not text")
	}
	var errs []error
	for _, source := range a.tokens {
		user, ok, err := source.authenticate(ctx, token)
		if ok {
			return user, true, nil
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return User{}, false, err
	}
	return User{}, false, errors.New("unknown bearer token")
}

func isWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	return slices.ContainsFunc(headerList(r, "Connection"), func(option string) bool { return strings.EqualFold(option, "upgrade") })
}

// splitProtocols returns the web-socket protocols, and the tokens among them without prefix.
func splitProtocols(r *http.Request) (protocols, tokens []string) {
	for _, protocol := range headerList(r, protocolHeader) {
		if token, isToken := strings.CutPrefix(protocol, protocolPrefix); isToken {
			tokens = append(tokens, token)
		} else {
			protocols = append(protocols, protocol)
		}
	}
	return protocols, tokens
}

// headerList returns the elements of a header whose value is a list, on one line or several.
func headerList(r *http.Request, name string) []string {
	var list []string
	for _, line := range r.Header.Values(name) {
		for element := range strings.SplitSeq(line, ",") {
			if element = strings.TrimSpace(element); element != "" {
				list = append(list, element)
			}
		}
	}
	return list
}
