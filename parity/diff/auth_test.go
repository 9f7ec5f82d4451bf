package diff_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	kubeletserver "k8s.io/kubernetes/pkg/kubelet/server"

	"github.com/heraldnode/herald/auth"
	"github.com/heraldnode/herald/auth/attributes"
	"github.com/heraldnode/herald/kubeapi"
)

// httpRequest is a request whose permissions are compared.
type httpRequest struct{ Method, Path string }

func generateHTTPRequest(g *generator) httpRequest {
	segment := func() string {
		return oneOf(g, "pods", "runningpods", "healthz", "configz", "stats", "metrics", "logs", "checkpoint", "statusz", "flagz",
			"exec", "attach", "run", "portForward", "containerLogs", "debug", "Pods", "podsx", "po", "metricsx", "summary",
			"", ".", "..", "a b", "%2f", "log")
	}
	path := oneOf(g, "/", "/", "/", "/", "//", "")
	for range g.IntN(4) {
		path += segment() + oneOf(g, "/", "/", "/", "", "//")
	}
	return httpRequest{oneOf(g, "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "get", ""), path}
}

// kubeletAttributes returns what the kubelet asks about a request.
func kubeletAttributes(in httpRequest) attributes.Request {
	request := &http.Request{Method: in.Method, Header: http.Header{}}
	request.URL = newURL(in.Path)
	var result attributes.Request
	for _, attribute := range kubeletserver.NewNodeAuthorizerAttributesGetter("node-1").
		GetRequestAttributes(request.Context(), &user.DefaultInfo{Name: "alice"}, request) {
		if attribute.GetResource() != attributes.Resource || attribute.GetAPIGroup() != "" || attribute.GetAPIVersion() != "v1" {
			panic(fmt.Sprintf("the kubelet asks about %+v", attribute))
		}
		result.Verb = attribute.GetVerb()
		result.Subresources = append(result.Subresources, attribute.GetSubresource())
	}
	return result
}

// TestSRV21_KubeletAttributes compares the permissions that random requests need. SRV-20
func TestSRV21_KubeletAttributes(t *testing.T) {
	seen := map[string]bool{}
	newComparison(generateHTTPRequest, func(in httpRequest) string {
		theirs, ours := kubeletAttributes(in), attributes.For(in.Method, in.Path)
		if ours.Verb == "create" && slices.ContainsFunc([]string{"exec", "attach", "run", "portForward"}, func(segment string) bool {
			return strings.HasPrefix(cleanURLPath(in.Path)+"/", "/"+segment+"/") || strings.HasPrefix(in.Path+"/", "/"+segment+"/")
		}) {
			theirs.Verb = "create" // SRV-23
		}
		seen[fmt.Sprint(ours)] = true
		return cmp.Diff(theirs, ours)
	}).run(t)
	if len(seen) < 40 {
		t.Errorf("got %d different results only: %v", len(seen), seen)
	}
}

// TestSRV23_RunningCodeIsCreate shows that a web socket to /exec, which is a GET, needs get in the kubelet.
func TestSRV23_RunningCodeIsCreate(t *testing.T) {
	for _, path := range []string{"/exec/a/b/c", "/attach/a/b/c", "/run/a/b/c", "/portForward/a/b"} {
		in := httpRequest{"GET", path}
		if theirs, ours := kubeletAttributes(in).Verb, attributes.For(in.Method, in.Path).Verb; theirs != "get" || ours != "create" {
			t.Errorf("%s: the kubelet asks for %s, Herald for %s", path, theirs, ours)
		}
	}
}

// credentials are those of a request, right or wrong.
type credentials struct {
	Certificate   string // a key of authPair.certificates
	Authorization []string
	Upgrade       []string
	Connection    []string
	Protocols     []string
	Anonymous     bool
}

func generateCredentials(g *generator) credentials {
	token := func() string { return oneOf(g, "alice", "alice", "bob", "masters", "mallory", "", "a b", "\xff") }
	protocol := func() string {
		encoded := base64.RawURLEncoding.EncodeToString([]byte(token()))
		const prefix = "base64url.bearer.authorization.k8s.io."
		return oneOf(g, "v5.channel.k8s.io", "v4.channel.k8s.io", prefix+encoded, prefix+encoded, prefix+encoded, prefix, prefix+"!", "x"+encoded)
	}
	c := credentials{
		Certificate: oneOf(g, "", "", "", "valid", "groups", "uid", "no name", "other CA", "expired", "server", "chain", "broken chain",
			"anonymous"),
		Anonymous: g.chance(50),
	}
	if g.chance(50) {
		scheme := oneOf(g, "Bearer ", "Bearer ", "Bearer ", "bearer ", "BEARER ", "Basic ", "", " Bearer ", "Bearer  ")
		c.Authorization = []string{scheme + token() + oneOf(g, "", "", " ", " x")}
	}
	if g.chance(50) {
		c.Upgrade = []string{oneOf(g, "websocket", "WebSocket", "SPDY/3.1", "")}
		c.Connection = []string{oneOf(g, "Upgrade", "upgrade", "keep-alive, Upgrade", "upgrade,close", "keep-alive")}
		for range g.IntN(4) {
			line := protocol()
			for range g.IntN(2) {
				line += oneOf(g, ",", ", ") + protocol()
			}
			c.Protocols = append(c.Protocols, line)
		}
	}
	return c
}

// authPair authenticates requests by the kubelet's code and by Herald's, both with the same answers to token reviews.
type authPair struct {
	certificates map[string][]*x509.Certificate
	theirs       map[bool]authenticator.Request // by whether anonymous requests are accepted
	ours         map[bool]*auth.Auth
}

func (p *authPair) request(c *credentials) *http.Request {
	request := &http.Request{Method: http.MethodGet, URL: newURL("/pods"), Header: http.Header{}, TLS: &tls.ConnectionState{}}
	request.TLS.PeerCertificates = p.certificates[c.Certificate]
	for name, values := range map[string][]string{
		"Authorization": c.Authorization, "Upgrade": c.Upgrade, "Connection": c.Connection, "Sec-Websocket-Protocol": c.Protocols,
	} {
		if len(values) > 0 {
			request.Header[name] = values
		}
	}
	return request
}

// compare returns how the users differ, or the headers that are passed on.
func (p *authPair) compare(c credentials) string { //nolint:gocritic // the type of a comparison
	request := p.request(&c)
	var theirs auth.User
	response, ok, err := p.theirs[c.Anonymous].AuthenticateRequest(request)
	if ok && err == nil {
		theirs = auth.User{
			Name: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups(), Extra: response.User.GetExtra(),
		}
	}
	theirHeader := request.Header
	theirHeader.Del("Authorization") // which the kubelet keeps if the certificate is valid

	var ours auth.User
	var ourHeader http.Header
	recorder := httptest.NewRecorder()
	p.ours[c.Anonymous].Require(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ours, _ = auth.UserFrom(r.Context())
		ourHeader = r.Header
	})).ServeHTTP(recorder, p.request(&c))
	if wantCode := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[theirs.Name != ""]; recorder.Code != wantCode {
		return fmt.Sprintf("got %d, want %d; kubelet (-), Herald (+):\n%s (%v)", recorder.Code, wantCode, cmp.Diff(theirs, ours), err)
	}
	difference := cmp.Diff(theirs, ours)
	if strings.Contains(fmt.Sprint(ourHeader), "bearer.authorization") {
		difference += fmt.Sprintf("a token is passed on: %v, by the kubelet: %v", ourHeader, theirHeader)
	}
	return difference
}

// TestSRV10_KubeletAuthentication compares who sends requests with random credentials. SRV-11, SRV-12, SRV-14
func TestSRV10_KubeletAuthentication(t *testing.T) {
	pair := newAuthPair(t)
	users := map[string]bool{}
	var mu sync.Mutex
	newComparison(generateCredentials, func(c credentials) string {
		if response, ok, err := pair.theirs[c.Anonymous].AuthenticateRequest(pair.request(&c)); ok && err == nil {
			mu.Lock()
			users[response.User.GetName()] = true
			mu.Unlock()
		}
		return pair.compare(c)
	}).run(t)
	if len(users) < 5 {
		t.Errorf("got users %v only", users)
	}
}

// newAuthPair starts a server that answers token reviews.
func newAuthPair(t *testing.T) *authPair {
	t.Helper()
	users := map[string]authenticationv1.UserInfo{
		"alice":   {Username: "alice", UID: "u1", Groups: []string{"readers"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v", "w"}}},
		"bob":     {Username: "bob", Groups: []string{"system:authenticated"}},
		"masters": {Username: "root", Groups: []string{"system:masters", "system:unauthenticated"}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := authenticationv1.TokenReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.User, review.Status.Authenticated = users[review.Spec.Token], users[review.Spec.Token].Username != ""
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.ContentType = "application/json"
	theirClient, err := authenticationclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ourClient, err := kubeapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	certificates, ca := newClientCertificates(t)
	caContent, err := dynamiccertificates.NewStaticCAContent("ca", ca.pem)
	if err != nil {
		t.Fatal(err)
	}
	pair := &authPair{certificates: certificates, theirs: map[bool]authenticator.Request{}, ours: map[bool]*auth.Auth{}}
	for _, anonymous := range []bool{false, true} {
		pair.theirs[anonymous], _, err = authenticatorfactory.DelegatingAuthenticatorConfig{
			Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: anonymous},
			TokenAccessReviewClient:            theirClient,
			WebhookRetryBackoff:                genericoptions.DefaultAuthWebhookRetryBackoff(),
			CacheTTL:                           kubeletTokenTTL,
			ClientCertificateCAContentProvider: caContent,
		}.New()
		if err != nil {
			t.Fatal(err)
		}
		pair.ours[anonymous], err = auth.New(auth.Config{
			NodeName: "node-1", API: ourClient, ClientCAs: ca, ReviewTokens: true, Anonymous: anonymous, Mode: auth.ModeAlwaysAllow,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return pair
}
