package auth_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/heraldnode/herald/auth"
)

// apiServer answers reviews like an API server that knows some tokens and permissions. Tests use its fields between requests.
type apiServer struct {
	mu      sync.Mutex
	users   map[string]authenticationv1.UserInfo // by token
	allowed map[string]bool                      // by "user verb subresource"
	err     func(try int) error                  // of the next requests
	block   chan struct{}                        // requests wait for it, if it is not nil
	status  string                               // error in the answer to unknown tokens

	tokens, accesses []string // that were asked about
	specs            []authorizationv1.SubjectAccessReviewSpec
	cancelled        int // requests whose sender left
}

func (s *apiServer) wait(ctx context.Context) error {
	s.mu.Lock()
	block, failure := s.block, s.err
	try := len(s.tokens) + len(s.accesses)
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.cancelled++
			return ctx.Err()
		}
	}
	if failure != nil {
		return failure(try)
	}
	return nil
}

func (s *apiServer) CreateTokenReview(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	s.mu.Lock()
	s.tokens = append(s.tokens, review.Spec.Token)
	s.mu.Unlock()
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response := review.DeepCopy()
	if info, ok := s.users[review.Spec.Token]; ok {
		response.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: info}
	} else {
		response.Status.Error = s.status
	}
	return response, nil
}

func (s *apiServer) CreateSubjectAccessReview(
	ctx context.Context, review *authorizationv1.SubjectAccessReview,
) (*authorizationv1.SubjectAccessReview, error) {
	question := strings.Join([]string{review.Spec.User, review.Spec.ResourceAttributes.Verb, review.Spec.ResourceAttributes.Subresource}, " ")
	s.mu.Lock()
	s.accesses = append(s.accesses, question)
	s.specs = append(s.specs, review.Spec)
	s.mu.Unlock()
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response := review.DeepCopy()
	response.Status.Allowed = s.allowed[question]
	return response, nil
}

// asked returns what was asked since the last call.
func (s *apiServer) asked() (tokens, accesses []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens, accesses = s.tokens, s.accesses
	s.tokens, s.accesses, s.specs = nil, nil, nil
	return tokens, accesses
}

// newAPIServer knows alice with token "alice", who may read pods, and root with token "root", who may do everything below proxy.
func newAPIServer() *apiServer {
	return &apiServer{
		users: map[string]authenticationv1.UserInfo{
			"alice": {Username: "alice", UID: "u1", Groups: []string{"readers"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"a", "b"}}},
			"root":  {Username: "root"},
		},
		allowed: map[string]bool{
			"alice get pods": true, "root get proxy": true, "root create proxy": true,
			"system:anonymous get healthz": true,
		},
	}
}

// newHandler returns a handler that answers allowed requests with the user's name.
func newHandler(t *testing.T, config auth.Config) http.Handler {
	t.Helper()
	config.NodeName = "node-1"
	a, err := auth.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return a.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := auth.UserFrom(r.Context())
		if !ok || r.Header.Get("Authorization") != "" || strings.Contains(fmt.Sprint(r.Header), "bearer.authorization") {
			t.Errorf("passed on without user or with credentials: %v", r.Header)
		}
		_, _ = io.WriteString(w, user.Name+" "+user.UID+" "+strings.Join(user.Groups, ","))
	}))
}

// send returns the status code and body of the answer.
func send(handler http.Handler, method, path, token string) (int, string) {
	return sendRequest(handler, newRequest(method, path, token))
}

func newRequest(method, path, token string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), method, path, http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func sendRequest(handler http.Handler, r *http.Request) (int, string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestSRV12_TokenReview(t *testing.T) {
	server := newAPIServer()
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
	if code, body := send(handler, "GET", "/pods", "alice"); code != 200 || body != "alice u1 readers,system:authenticated" {
		t.Errorf("known token: got %d %q", code, body)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "u1", Groups: []string{"readers", "system:authenticated"},
		Extra:              map[string]authorizationv1.ExtraValue{"scope": {"a", "b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "pods", Name: "node-1"},
	}
	if got := server.specs[0]; fmt.Sprint(got.String()) != want.String() {
		t.Errorf("access review:\n got %v\nwant %v", got.String(), want.String())
	}
	if code, body := send(handler, "GET", "/pods", "mallory"); code != 401 || body != "Unauthorized" {
		t.Errorf("unknown token: got %d %q", code, body)
	}
}

// TestSRV16_Unauthorized also checks that no header invites the client to try passwords.
func TestSRV16_Unauthorized(t *testing.T) {
	handler := newHandler(t, auth.Config{API: newAPIServer(), ReviewTokens: true})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, newRequest("GET", "/pods", ""))
	if w.Code != 401 || w.Body.String() != "Unauthorized" || w.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("got %d %q %v", w.Code, w.Body, w.Header())
	}
}

func TestSRV24_EveryPathIsAuthenticated(t *testing.T) {
	server := newAPIServer()
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
	for _, path := range []string{"/", "/pods", "/nothing", "/logs", "/stats", "/debug/pprof", "/runningpods", "//pods", "/pods/../exec", "/favicon.ico"} {
		for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS", "TRACE"} {
			if code, _ := send(handler, method, path, ""); code != 401 {
				t.Errorf("%s %s: got %d, want 401", method, path, code)
			}
		}
	}
	if tokens, accesses := server.asked(); len(tokens)+len(accesses) > 0 {
		t.Errorf("strangers without credentials cost reviews: %v %v", tokens, accesses)
	}
}

// TestSRV24_UncleanPath checks that the path that was allowed is the path that is served.
func TestSRV24_UncleanPath(t *testing.T) {
	handler := newHandler(t, auth.Config{API: newAPIServer(), ReviewTokens: true})
	for path, want := range map[string]string{
		"/pods/../exec/a/b/c?command=id": "", "/pods/./": "/pods/", "/pods//x?a=b": "/pods/x?a=b", "//pods": "", "/pods/%2e%2e/exec": "",
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, newRequest("GET", path, "alice"))
		wantCode := 307
		if want == "" {
			wantCode = 403
		}
		if got := w.Header().Get("Location"); w.Code != wantCode || got != want {
			t.Errorf("%s: got %d %q, want %d %q", path, w.Code, got, wantCode, want)
		}
	}
}

func TestSRV22_Answers(t *testing.T) {
	server := newAPIServer()
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
	code, body := send(handler, "POST", "/pods", "alice")
	if code != 403 || body != "Forbidden (user=alice, verb=create, resource=nodes, subresource(s)=[pods proxy])\n" {
		t.Errorf("denied: got %d %q", code, body)
	}
	if _, accesses := server.asked(); !slices.Equal(accesses, []string{"alice create pods", "alice create proxy"}) {
		t.Errorf("asked %v", accesses)
	}
	if code, body = send(handler, "GET", "/pods", "root"); code != 200 || body != "root  system:authenticated" {
		t.Errorf("allowed by the second: got %d %q", code, body)
	}
	if code, body = send(handler, "HEAD", "/metrics", "root"); code != 403 ||
		body != "Forbidden (user=root, verb=, resource=nodes, subresource(s)=[metrics])\n" {
		t.Errorf("method without verb: got %d %q", code, body)
	}

	server.asked()
	server.err = func(int) error { return errors.New("tls: bad certificate: " + os.ErrPermission.Error()) }
	synctest.Test(t, func(t *testing.T) {
		handler := newHandler(t, auth.Config{API: server, ReviewTokens: true, ClientCAs: nil, Anonymous: true})
		code, body := send(handler, "GET", "/healthz", "")
		if code != 500 || body != "Authorization error (user=system:anonymous, verb=get, resource=nodes, subresource=healthz)" {
			t.Errorf("failed review: got %d %q", code, body)
		}
	})
	if _, accesses := server.asked(); slices.Contains(accesses, "system:anonymous get proxy") {
		t.Errorf("a failed review must not be followed by another question: %v", accesses)
	}
}

func TestSRV23_ReaderMayNotRunCommands(t *testing.T) {
	server := newAPIServer()
	server.allowed = map[string]bool{"alice get proxy": true}
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
	for _, path := range []string{"/exec/a/b/c", "/attach/a/b/c", "/run/a/b/c", "/portForward/a/b"} {
		r := newRequest("GET", path, "alice")
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		if code, _ := sendRequest(handler, r); code != 403 {
			t.Errorf("%s: got %d, want 403", path, code)
		}
	}
	if code, _ := send(handler, "GET", "/containerLogs/a/b/c", "alice"); code != 200 {
		t.Errorf("logs: got %d, want 200", code)
	}
}

func TestSRV14_Anonymous(t *testing.T) {
	server := newAPIServer()
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true, Anonymous: true})
	if code, body := send(handler, "GET", "/healthz", ""); code != 200 || body != "system:anonymous  system:unauthenticated" {
		t.Errorf("without credentials: got %d %q", code, body)
	}
	if code, _ := send(handler, "GET", "/healthz", "mallory"); code != 401 {
		t.Errorf("unknown token: got %d, want 401", code)
	}
	if code, _ := send(handler, "GET", "/pods", ""); code != 403 {
		t.Errorf("not allowed: got %d, want 403", code)
	}
}

func TestSRV15_ClosedByDefault(t *testing.T) {
	server := newAPIServer()
	for name, config := range map[string]auth.Config{"stand-alone": {}, "cluster": {API: server}} {
		handler := newHandler(t, config)
		for _, token := range []string{"", "root"} {
			if code, _ := send(handler, "GET", "/healthz", token); code != 401 {
				t.Errorf("%s, token %q: got %d, want 401", name, token, code)
			}
		}
	}
}

func TestSRV10_WebSocketToken(t *testing.T) {
	encode := func(token string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	tests := map[string]struct {
		protocols []string
		upgrade   bool
		want      int
	}{
		"token and protocol":           {[]string{encode("root") + ", v5.channel.k8s.io"}, true, 200},
		"on two lines":                 {[]string{"v5.channel.k8s.io", encode("root")}, true, 200},
		"no other protocol":            {[]string{encode("root")}, true, 401},
		"two tokens":                   {[]string{encode("root"), encode("root"), "v5.channel.k8s.io"}, true, 401},
		"unknown token":                {[]string{encode("mallory"), "v5.channel.k8s.io"}, true, 401},
		"no base64":                    {[]string{"base64url.bearer.authorization.k8s.io.!", "v5.channel.k8s.io"}, true, 401},
		"not a web socket":             {[]string{encode("root"), "v5.channel.k8s.io"}, false, 401},
		"no token":                     {[]string{"v5.channel.k8s.io"}, true, 401},
		"empty token":                  {[]string{encode(""), "v5.channel.k8s.io"}, true, 401},
		"not text":                     {[]string{encode("\xff\xfe"), "v5.channel.k8s.io"}, true, 401},
		"padding, which is not base64": {[]string{encode("root") + "==", "v5.channel.k8s.io"}, true, 401},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			handler := newHandler(t, auth.Config{API: newAPIServer(), ReviewTokens: true})
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/exec/a/b/c", http.NoBody)
			if test.upgrade {
				r.Header.Set("Connection", "keep-alive, Upgrade")
				r.Header.Set("Upgrade", "WebSocket")
			}
			r.Header["Sec-Websocket-Protocol"] = test.protocols
			if code, body := sendRequest(handler, r); code != test.want {
				t.Errorf("got %d %q, want %d", code, body, test.want)
			}
		})
	}
}

// TestSRV10_PassedOnHeaders checks that a web socket keeps its other protocols, and the original request its header.
func TestSRV10_PassedOnHeaders(t *testing.T) {
	a, err := auth.New(auth.Config{NodeName: "node-1", API: newAPIServer(), ReviewTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	var got http.Header
	handler := a.Require(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	r := newRequest("GET", "/exec/a/b/c", "root")
	r.Header["Sec-Websocket-Protocol"] = []string{"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.cm9vdA", "v4.channel.k8s.io"}
	r.Header.Set("X-Other", "1")
	if code, body := sendRequest(handler, r); code != 200 {
		t.Fatalf("got %d %q", code, body)
	}
	want := http.Header{"Sec-Websocket-Protocol": {"v5.channel.k8s.io,v4.channel.k8s.io"}, "X-Other": {"1"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if r.Header.Get("Authorization") == "" {
		t.Error("the server's own request was modified")
	}
}

func TestSRV10_BearerHeader(t *testing.T) {
	server := newAPIServer()
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
	for header, want := range map[string]int{
		"Bearer alice": 200, "bearer alice": 200, " Bearer alice ": 200, "Bearer alice x": 200,
		"Bearer  alice": 401, "Basic alice": 401, "alice": 401, "Bearer": 401, "Bearer " + strings.Repeat("x", 65<<10): 401,
		"Bearer \xff": 401,
	} {
		r := newRequest("GET", "/pods", "")
		r.Header.Set("Authorization", header)
		if code, _ := sendRequest(handler, r); code != want {
			t.Errorf("%.20q: got %d, want %d", header, code, want)
		}
	}
	if tokens, _ := server.asked(); !slices.Equal(tokens, []string{"alice"}) {
		t.Errorf("asked about %.60q", tokens)
	}
}

func TestSRV13_StandAlone(t *testing.T) {
	path := writeTokens(t, `
# scrapers
0123456789abcdef-scraper,prometheus,u1,"scrapers, others"
0123456789abcdef-admin,admin,
0123456789abcdef-nobody,nobody,u3
`)
	handler := newHandler(t, auth.Config{TokenFile: path, Rules: []auth.Rule{
		{Groups: []string{"scrapers"}, Verbs: []string{"get"}, Subresources: []string{"metrics", "stats"}},
		{Users: []string{"admin"}, Verbs: []string{"*"}, Subresources: []string{"*"}},
		{Groups: []string{"system:authenticated"}, Verbs: []string{"get"}, Subresources: []string{"healthz"}},
	}})
	for _, test := range []struct {
		method, path, token string
		want                int
	}{
		{"GET", "/metrics/cadvisor", "scraper", 200},
		{"POST", "/metrics", "scraper", 403},
		{"HEAD", "/metrics", "scraper", 403},
		{"GET", "/pods", "scraper", 403},
		{"GET", "/exec/a/b/c", "admin", 200},
		{"HEAD", "/exec/a/b/c", "admin", 200},
		{"HEAD", "/metrics", "admin", 200}, // no verb: only * allows it
		{"GET", "/metrics", "nobody", 403},
		{"GET", "/healthz", "nobody", 200},
		{"GET", "/metrics", "stranger", 401},
	} {
		if code, body := send(handler, test.method, test.path, "0123456789abcdef-"+test.token); code != test.want {
			t.Errorf("%s %s by %s: got %d %q, want %d", test.method, test.path, test.token, code, body, test.want)
		}
	}
}

// TestSRV13_TokenFileChanges checks that a token is accepted only while the file says so.
func TestSRV13_TokenFileChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, second = "0123456789abcdef-first", "0123456789abcdef-second"
		path := writeTokens(t, first+",one,\n")
		handler := newHandler(t, auth.Config{TokenFile: path, Mode: auth.ModeAlwaysAllow})
		expect := func(when string, wantFirst, wantSecond int) {
			t.Helper()
			time.Sleep(time.Second)
			if code, _ := send(handler, "GET", "/pods", first); code != wantFirst {
				t.Errorf("%s: first: got %d, want %d", when, code, wantFirst)
			}
			if code, _ := send(handler, "GET", "/pods", second); code != wantSecond {
				t.Errorf("%s: second: got %d, want %d", when, code, wantSecond)
			}
		}
		write := func(content string, mode os.FileMode) {
			if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)); err != nil {
				t.Fatal(err)
			}
		}
		expect("at first", 200, 401)
		write(second+",two,\n", 0o600)
		expect("replaced", 401, 200)
		write(first+",one,\n"+second+"\n", 0o600)
		expect("not valid", 401, 401)
		write(first+",one,\n"+second+",two,\n", 0o600)
		expect("repaired", 200, 200)
		write(first+",one,\n", 0o646)
		expect("writable by others", 401, 401)
		write(first+",one,\n", 0o600)
		expect("safe again", 200, 401)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		expect("removed", 401, 401)
	})
}

func TestSRV13_InvalidConfigs(t *testing.T) {
	valid := auth.Rule{Users: []string{"a"}, Verbs: []string{"get"}, Subresources: []string{"pods"}}
	tests := map[string]struct {
		config auth.Config
		want   string
	}{
		"no name":              {auth.Config{}, "NodeName is required"},
		"tokens without API":   {auth.Config{NodeName: "n", ReviewTokens: true}, "ReviewTokens requires an API server"},
		"webhook without API":  {auth.Config{NodeName: "n", Mode: auth.ModeWebhook}, "Mode Webhook requires an API server"},
		"unknown mode":         {auth.Config{NodeName: "n", Mode: "RBAC"}, `not "RBAC"`},
		"rules without effect": {auth.Config{NodeName: "n", Mode: auth.ModeAlwaysAllow, Rules: []auth.Rule{valid}}, "requires Mode Rules"},
		"nobody":               {auth.Config{NodeName: "n", Rules: []auth.Rule{{Verbs: valid.Verbs, Subresources: valid.Subresources}}}, "rule 1: a user or group"},
		"unknown verb": {auth.Config{NodeName: "n", Rules: []auth.Rule{
			valid, {Users: valid.Users, Verbs: []string{"list"}, Subresources: valid.Subresources},
		}}, `rule 2: verbs: "list"`},
		"unknown subresource": {auth.Config{NodeName: "n", Rules: []auth.Rule{
			{Users: valid.Users, Verbs: valid.Verbs, Subresources: []string{"logs"}},
		}}, `subresources: "logs"`},
		"nothing":         {auth.Config{NodeName: "n", Rules: []auth.Rule{{Users: valid.Users}}}, "at least one of"},
		"negative time":   {auth.Config{NodeName: "n", TokenTTL: -1}, "must not be negative"},
		"no token file":   {auth.Config{NodeName: "n", TokenFile: filepath.Join(t.TempDir(), "tokens")}, "no such file"},
		"short token":     {auth.Config{NodeName: "n", TokenFile: writeTokens(t, "secret,a,b\n")}, "line 1: a token of at least 16 characters"},
		"duplicate token": {auth.Config{NodeName: "n", TokenFile: writeTokens(t, "0123456789abcdef,a,\n0123456789abcdef,b,\n")}, "line 2: the token is on an earlier line"},
		"five fields":     {auth.Config{NodeName: "n", TokenFile: writeTokens(t, "0123456789abcdef,a,b,c,d\n")}, "line 1: has 5 fields"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := auth.New(test.config)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err != nil && (strings.Contains(err.Error(), "0123456789abcdef") || strings.Contains(err.Error(), "secret")) {
				t.Errorf("the error contains a token: %v", err)
			}
		})
	}
}

func writeTokens(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
